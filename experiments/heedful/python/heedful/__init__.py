"""Results and parity checks of heedful, which compares attention mechanisms.

* ``load(folder)`` reads what an experiment has left: scores, learning curves, scores of single items.
* ``parity(mechanism, inputs, parameters)`` computes an attention of heedful on your arrays.
* ``find_program()`` is the path of the program ``heedful``, which ``pip`` installs with this package.
"""

from __future__ import annotations

from ._errors import HeedfulError, MissingPackageError, ProgramError, ProgramNotFoundError, ResultsError
from ._parity import parity
from ._program import find_program
from ._results import Results, load
from ._table import Table

__all__ = [
    "HeedfulError",
    "MissingPackageError",
    "ProgramError",
    "ProgramNotFoundError",
    "Results",
    "ResultsError",
    "Table",
    "find_program",
    "load",
    "parity",
]
