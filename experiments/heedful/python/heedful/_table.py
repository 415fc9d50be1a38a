"""Rows with the same columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ._errors import MissingPackageError

if TYPE_CHECKING:
    import pandas


class Table(list[dict[str, Any]]):
    """A list of rows, each a dictionary with the same keys; ``None`` stands where a row has no value.

    ``pandas.DataFrame(table)`` and ``polars.DataFrame(table)`` read it as it is.
    """

    def __init__(self, rows: Iterable[dict[str, Any]] = ()) -> None:
        rows = list(rows)
        # A dictionary keeps the order in which columns come.
        columns = dict.fromkeys(name for row in rows for name in row)
        super().__init__({name: row.get(name) for name in columns} for row in rows)

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self[0]) if self else []

    def to_pandas(self) -> pandas.DataFrame:
        """The table as a pandas DataFrame.

        Raises MissingPackageError, an ImportError, without pandas.
        """
        try:
            import pandas
        except ImportError as error:
            raise MissingPackageError("pandas", "Table.to_pandas") from error
        return pandas.DataFrame(self)

    def __repr__(self) -> str:
        return f"<Table of {len(self)} rows: {', '.join(self.columns)}>"
