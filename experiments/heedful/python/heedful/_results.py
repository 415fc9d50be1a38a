"""The folder that an experiment leaves."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ._errors import ResultsError
from ._program import StrPath
from ._table import Table

_IDENTITY = {"experiment": str, "dataset": str, "attention": str, "backend": str, "seed": int}
# How scores are shown and made of items; reports need it, tables do not.
_LEFT_OUT = {"columns", "items", "metrics"}
# Records of earlier versions lack fields that were added later; these have no `None`, so that a column of them is one of truth values.
_ABSENT: dict[str, Any] = {"is_model": False, "disturbed": False}


def load(path: StrPath) -> Results:
    """Reads the folder that an experiment has left: that of ``--out``, or of ``experiments/results``.

    Raises ResultsError if it is none, or if its ``results.json`` is damaged.
    """
    return Results(Path(path))


class Results:
    """The finished runs of a folder. Tables are read when they are asked for, and kept."""

    def __init__(self, path: Path) -> None:
        self.path = path
        """The folder."""
        if not path.is_dir():
            raise ResultsError(path, "is no folder; give the --out of an experiment")
        file = path / "results.json"
        if not file.is_file():
            raise ResultsError(path, f"holds no results.json; {_advice(path)}")
        self._records = _records(file)

    @cached_property
    def records(self) -> Table:
        """One row for each finished run: what was run, its scores under their own names, and how it was computed.

        Fields within fields have dots in their names: ``machine.cpu``, ``signatures.BLEU``. Speeds, times and memory mean nothing where ``disturbed`` is true.
        """
        return Table(_row(record) for record in self._records)

    @cached_property
    def curves(self) -> Table:
        """One row for each run and step of its log: ``step``, ``epoch``, ``loss``, ``learning_rate`` and so on, and ``dev.NAME`` for each metric of an evaluation.

        Runs without a log have no rows.
        """
        return Table(_identity(record) | row for record in self._records for row in self._curve(record))

    @cached_property
    def items(self) -> Table:
        """One row for each run, test ``set`` and ``item`` of it, counted from 0, with the statistics that scores are made of, such as ``right`` or ``nats``.

        Runs whose items were not recorded have no rows.
        """
        return Table(_identity(record) | row for record in self._records for row in self._items(record))

    def __repr__(self) -> str:
        return f"<Results of {len(self._records)} runs in {self.path}>"

    def _folder(self, record: Mapping[str, Any]) -> Path | None:
        name = f"{_file_name(record['attention'])}-seed{record['seed']}"
        # Where an experiment has several data sets, each has a folder.
        places = [self.path / _file_name(record["dataset"]) / name, self.path / name]
        return next((place for place in places if place.is_dir()), None)

    def _curve(self, record: Mapping[str, Any]) -> list[dict[str, Any]]:
        folder = self._folder(record)
        path = folder / "log.jsonl" if folder else None
        if path is None or not path.is_file():
            return []
        steps: dict[int, dict[str, Any]] = {}
        for number, text in enumerate(io.StringIO(_text(path)), 1):
            try:
                line = json.loads(text)
                if not isinstance(line["step"], int):
                    raise TypeError("a step is a whole number")
                row = steps.setdefault(line["step"], {"step": line["step"]})
                evaluation = line.pop("dev", None)
                if evaluation is None:
                    # A run that was resumed does steps again; the later line counts.
                    row.update(line)
                else:
                    # An evaluation ends after the step that it follows.
                    row.update({name: value for name, value in line.items() if name not in row})
                    row.update({f"dev.{name}": value for name, value in evaluation.items()})
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                # The end of the process cut the last line short.
                if not text.endswith("\n"):
                    break
                raise ResultsError(path, f"has no step of a log in line {number}; remove the line, or load another folder") from error
        return [steps[step] for step in sorted(steps)]

    def _items(self, record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        folder = self._folder(record)
        # Long names of sets are cut in names of files; the record has them whole.
        try:
            names = {_file_name(score["set"]): score["set"] for score in (record.get("items") or {}).values()}
        except (AttributeError, KeyError, TypeError) as error:
            raise ResultsError(self.path / "results.json", "has `items` that cannot be read; mend it, or load another folder") from error
        for path in sorted((folder / "items").glob("*.json")) if folder else []:
            table = _json(path)
            try:
                # A statistic that is called like a column of the row does not replace it.
                taken = {*_IDENTITY, "set", "item"}
                statistics = [f"statistics.{name}" if name in taken else str(name) for name in table["statistics"]]
                rows = [list(row) for row in table["rows"]]
            except (KeyError, TypeError) as error:
                raise ResultsError(path, "is not the items of a test set; remove the file, or load another folder") from error
            for index, row in enumerate(rows):
                if len(row) != len(statistics):
                    raise ResultsError(path, f"has {len(row)} values for {len(statistics)} statistics in item {index}; remove the file, or load another folder")
                yield {"set": names.get(path.stem, unquote(path.stem)), "item": index, **dict(zip(statistics, row))}


def _advice(path: Path) -> str:
    within = sorted(str(file.parent.relative_to(path)) for file in path.glob("*/results.json"))
    if within:
        return f"load one of the folders in it: {', '.join(within)}"
    return "give the --out of an experiment with at least one finished run"


def _records(path: Path) -> list[dict[str, Any]]:
    records = _json(path)
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise ResultsError(path, "is not the results of an experiment, a list of records; run the command with its --out again")
    for number, record in enumerate(records, 1):
        for field, type_ in {**_IDENTITY, "metrics": dict}.items():
            if not isinstance(record.get(field), type_):
                raise ResultsError(path, f"has no `{field}` that can be read in record {number}; mend it, or load another folder")
    return records


def _identity(record: Mapping[str, Any]) -> dict[str, Any]:
    return {field: record[field] for field in _IDENTITY}


def _row(record: Mapping[str, Any]) -> dict[str, Any]:
    rest = {name: value for name, value in record.items() if name not in _LEFT_OUT and name not in _IDENTITY}
    row = _identity(record) | _ABSENT | dict(_flat(rest))
    # Scores stand behind what was run. One that is called like a field does not replace it.
    scores = {name if name not in row else f"metrics.{name}": value for name, value in record["metrics"].items()}
    return _identity(record) | scores | row


def _flat(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        if isinstance(value, dict):
            for inner, inner_value in _flat(value):
                yield f"{name}.{inner}", inner_value
        else:
            yield name, value


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ResultsError(path, f"cannot be read: {error}") from error


def _json(path: Path) -> Any:
    try:
        return json.loads(_text(path))
    except RecursionError as error:
        raise ResultsError(path, "is nested too deeply for results; restore the file, or load another folder") from error
    except json.JSONDecodeError as error:
        raise ResultsError(path, f"is damaged in line {error.lineno}: {error.msg}; restore the file, or load another folder") from error


def _file_name(name: str) -> str:
    """The name of a file or folder for a name of any characters, as the program makes it."""
    safe = ""
    for index, byte in enumerate(name.encode()):
        letter = chr(byte)
        kept = letter.isascii() and (letter.isalnum() or letter in "-_+" or (letter == "." and index > 0))
        safe += letter if kept else f"%{byte:02X}"
    if len(safe) > 120:
        safe = f"{safe[:120]}~{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return safe or "%"
