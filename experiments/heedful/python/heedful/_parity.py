"""An attention of heedful on arrays of the caller."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _safetensors
from ._errors import MissingPackageError
from ._program import StrPath, call

if TYPE_CHECKING:
    from numpy.typing import NDArray


def parity(
    mechanism: str,
    inputs: Mapping[str, Any],
    parameters: Mapping[str, Any] | None = None,
    *,
    backend: str = "flex",
    program: StrPath | None = None,
    **settings: object,
) -> dict[str, NDArray[Any]]:
    """Computes an attention of heedful with given parameters on given inputs.

    ``mechanism`` is a name as in ``--attention``, such as ``"rotary@sliding-window{window=5}"``. ``inputs`` and ``parameters`` hold arrays by name: NumPy
    arrays, PyTorch tensors, or what NumPy makes an array of. ``x`` is ``[batch, length, d_model]``; projections are ``[d_in, d_out]``, the transpose of
    PyTorch's. With ``cotangent``, a gradient of the output, the result has gradients too. ``settings`` are fields of the configuration: ``heads=4``,
    ``role="decoder"``, ``max_length=128``. ``d_model`` is the width of ``x`` if it is not set. ``heedful parity --attention NAME --describe`` shows all fields
    and tensors. ``program`` takes the place of ``find_program()``.

    Returns ``output``, ``weights`` ``[batch, heads, length, keys]`` if the mechanism has any, and ``grad.NAME`` of every input and parameter.

    Raises ProgramError with the program's message if it refuses a setting or an array, and ProgramNotFoundError or MissingPackageError.
    """
    tensors = {name: _array(name, value) for name, value in inputs.items()}
    for name, value in (parameters or {}).items():
        if name in tensors:
            raise ValueError(f"`{name}` is among inputs and parameters; give it once")
        tensors[name] = _array(name, value)
    if "d_model" not in settings and "x" in tensors and tensors["x"].ndim > 0:
        settings["d_model"] = tensors["x"].shape[-1]

    with tempfile.TemporaryDirectory() as folder:
        # Named without the folder, so that messages say nothing of it.
        source, target = "inputs.safetensors", "output.safetensors"
        _safetensors.write(Path(folder, source), tensors)
        arguments = ["parity", "--attention", mechanism, "--backend", backend, "--inputs", source, "--output", target]
        for field, setting in settings.items():
            arguments += ["--set", f"{field}={_toml(field, setting)}"]
        call(arguments, program, folder)
        return _safetensors.read(Path(folder, target))


def _array(name: str, value: Any) -> NDArray[Any]:
    try:
        import numpy
    except ImportError as error:
        raise MissingPackageError("numpy", "heedful.parity") from error
    # A tensor of PyTorch that has a gradient or lies on a GPU is no array by itself.
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    array = numpy.asarray(value)
    if array.dtype == object:
        raise TypeError(f"`{name}` is no array of numbers: {type(value).__name__}")
    return array.astype(numpy.float32) if array.dtype == numpy.float16 else array


def _toml(field: str, value: object) -> str:
    if isinstance(value, (bool, str)):
        # TOML writes both as JSON does, but for halves of surrogate pairs.
        return json.dumps(value, ensure_ascii=False)
    # Scalars of NumPy are among these.
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real):
        return repr(float(value))
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_toml(field, element) for element in value)}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key, ensure_ascii=False)} = {_toml(field, element)}" for key, element in value.items()) + "}"
    raise TypeError(f"`{field}` is a {type(value).__name__}; give a number, a truth value, a string, a list or a dictionary")
