"""The program ``heedful``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Union

from ._errors import ProgramError, ProgramNotFoundError

StrPath = Union[str, "os.PathLike[str]"]

VARIABLE = "HEEDFUL_PROGRAM"


def find_program() -> Path:
    """The path of the program ``heedful``.

    It is that of the environment variable ``HEEDFUL_PROGRAM`` if that is set, else the one that ``pip`` installed for this interpreter, else the first on
    ``PATH``. Raises ProgramNotFoundError if there is none.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return _checked(named, f"the environment variable {VARIABLE}")
    # pip installs programs of `--user` in a folder of their own.
    folders = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", scheme=f"{os.name}_user")]
    found = shutil.which("heedful", path=os.pathsep.join(folders)) or shutil.which("heedful")
    if found is None:
        raise ProgramNotFoundError(
            f"there is no program heedful in {' or '.join(folders)}, nor on PATH; install the package from a wheel, or name the program by {VARIABLE}"
        )
    return Path(found).absolute()


def _checked(path: StrPath, source: str) -> Path:
    found = shutil.which(os.fspath(path))
    if found is None:
        raise ProgramNotFoundError(f"`{os.fspath(path)}` of {source} is no program that can be run")
    return Path(found).absolute()


def call(arguments: Sequence[str], program: StrPath | None, folder: StrPath) -> None:
    """Calls the program in a folder, and raises ProgramError with its message if it fails."""
    path = find_program() if program is None else _checked(program, "the argument `program`")
    done = subprocess.run(
        [path, *arguments],
        check=False,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
    )
    if done.returncode != 0:
        message = done.stderr.strip() or f"`{path}` ended with {done.returncode} and no message"
        raise ProgramError(message.removeprefix("error: "), done.returncode)
