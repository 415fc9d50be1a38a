"""NumPy arrays in safetensors files: the length of a header, the header in JSON, and the numbers of all tensors."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

# Little-endian on every machine.
_TYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "|u1",
    "BOOL": "|b1",
}
_NAMES = {type_: name for name, type_ in _TYPES.items()}


def write(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Writes arrays of numbers or truth values."""
    header, parts, end = {}, [], 0
    for name, array in arrays.items():
        type_ = array.dtype.newbyteorder("<").str
        if type_ not in _NAMES:
            raise TypeError(f"`{name}` has the type {array.dtype}; give floating-point numbers, integers or truth values")
        begin, data = end, array.astype(type_).tobytes()
        end += len(data)
        header[name] = {"dtype": _NAMES[type_], "shape": list(array.shape), "data_offsets": [begin, end]}
        parts.append(data)
    text = json.dumps(header).encode()
    # The format wants tensors to begin at a multiple of 8 bytes.
    text += b" " * (-len(text) % 8)
    path.write_bytes(b"".join([struct.pack("<Q", len(text)), text, *parts]))


def read(path: Path) -> dict[str, NDArray[Any]]:
    """Reads all arrays."""
    import numpy

    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    start = 8 + length
    header = json.loads(data[8:start])
    arrays: dict[str, numpy.ndarray[Any, Any]] = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            # A copy, since arrays of a buffer cannot be changed.
            arrays[name] = numpy.frombuffer(data[start + begin : start + end], dtype=_TYPES[entry["dtype"]]).reshape(entry["shape"]).copy()
    return arrays
