"""What can go wrong."""

from __future__ import annotations

from pathlib import Path


class HeedfulError(Exception):
    """Any error of this package."""


class ResultsError(HeedfulError):
    """A folder or file of results cannot be used; ``path`` is which."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"`{path}` {problem}")
        self.path = path


class ProgramNotFoundError(HeedfulError):
    """The program ``heedful`` is not installed."""


class ProgramError(HeedfulError):
    """The program ``heedful`` refused its input or failed; the message is the program's."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        """1 for a file or tensor that cannot be used, 2 for a configuration that was refused."""


class MissingPackageError(HeedfulError, ImportError):
    """An optional package is not installed."""

    def __init__(self, package: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}: pip install heedful[{package}]", name=package)
