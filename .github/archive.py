"""Packs the installed program `heedful` with its licences: archive.py TARGET FOLDER. `cargo binstall` expects these names."""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path

import heedful


def main() -> None:
    target, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    files = [heedful.find_program(), Path("LICENSE-MIT"), Path("LICENSE-APACHE")]
    if "windows" in target:
        with zipfile.ZipFile(folder / f"heedful-{target}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for file in files:
                archive.write(file, file.name)
    else:
        with tarfile.open(folder / f"heedful-{target}.tgz", "w:gz") as archive:
            for file in files:
                archive.add(file, file.name)


main()
