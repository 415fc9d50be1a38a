"""Text files and the checksum of a data set."""

import gzip
import hashlib
from pathlib import Path


class Files:
    """Reads the text files of a data set, plain or `.gz`, and remembers their checksums."""

    def __init__(self) -> None:
        self.checksums: set[str] = set()

    def lines(self, folder: Path, name: str) -> list[str]:
        """The lines of the file of this name, or of this name and `.gz`, without their line ends. Only LF, or CR and LF, ends a line."""
        path = next((path for path in (folder / name, folder / f"{name}.gz") if path.exists()), None)
        if path is None:
            raise FileNotFoundError(f"{folder / name} is not there, nor with .gz behind its name")
        stored = path.read_bytes()
        self.checksums.add(f"{hashlib.sha256(stored).hexdigest()}  {path.name}\n")
        text = (gzip.decompress(stored) if path.suffix == ".gz" else stored).decode("utf-8").removeprefix("\ufeff")
        lines = text.split("\n")
        if lines[-1] == "":
            lines.pop()
        return [line.removesuffix("\r") for line in lines]

    def sha256(self) -> str:
        """What heedful records of a data set: the SHA-256 of the sorted lines `<hex>  <file name>`."""
        return hashlib.sha256("".join(sorted(self.checksums)).encode()).hexdigest()
