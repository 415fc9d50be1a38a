from __future__ import annotations

import math
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import heedful
import numpy as np
import pytest
from heedful import _safetensors
from numpy.typing import NDArray

HEADS, LENGTH, WIDTH = 2, 6, 8
Array = NDArray[Any]


@pytest.fixture
def x() -> Array:
    return np.random.default_rng(1).standard_normal((3, LENGTH, WIDTH))


@pytest.fixture
def parameters() -> dict[str, Array]:
    random = np.random.default_rng(2)
    names = ["logits.query.weight", "logits.key.weight", "value.weight", "output.weight"]
    return {name: random.standard_normal((WIDTH, WIDTH)) / math.sqrt(WIDTH) for name in names}


def dot_product(x: Array, parameters: dict[str, Array], is_causal: bool) -> tuple[Array, Array, Array]:
    """The attention of Vaswani et al. 2017: output, weights, and what the output projection reads."""

    def heads(name: str) -> Array:
        return (x @ parameters[name]).reshape(*x.shape[:2], HEADS, -1).swapaxes(1, 2)

    scores = heads("logits.query.weight") @ heads("logits.key.weight").swapaxes(2, 3) / math.sqrt(WIDTH // HEADS)
    if is_causal:
        scores = np.where(np.tri(x.shape[1], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    joined = (weights @ heads("value.weight")).swapaxes(1, 2).reshape(x.shape)
    return joined @ parameters["output.weight"], weights, joined


@pytest.mark.parametrize("role", ["encoder", "decoder"])
def test_dot_products_are_those_of_numpy(x: Array, parameters: dict[str, Array], role: str) -> None:
    cotangent = np.random.default_rng(3).standard_normal(x.shape)
    found = heedful.parity("dot-product", {"x": x, "cotangent": cotangent}, parameters, heads=HEADS, role=role)
    output, weights, joined = dot_product(x, parameters, role == "decoder")
    np.testing.assert_allclose(found["output"], output, atol=1e-5)
    np.testing.assert_allclose(found["weights"], weights, atol=1e-5)
    np.testing.assert_allclose(found["grad.output.weight"], np.einsum("bli,blo->io", joined, cotangent), atol=1e-4)
    assert found.keys() == {"output", "weights", "grad.x", *(f"grad.{name}" for name in parameters)}


def test_settings_of_every_kind_reach_the_program(x: Array, parameters: dict[str, Array]) -> None:
    def output(mechanism: str, **settings: Any) -> Array:
        return heedful.parity(mechanism, {"x": x}, parameters, heads=HEADS, **settings)["output"]

    plain = output("dot-product")
    np.testing.assert_array_equal(output("dot-product", memory_gradient=True, max_length=9, d_model=np.int64(WIDTH), engine="reference"), plain)
    assert np.abs(output("alibi") - plain).max() > 1e-3
    slopes = [0.25, np.float64(0.5)]
    np.testing.assert_array_equal(output("alibi", attention={"name": "alibi", "slopes": slopes}), output("alibi{slopes=[0.25,0.5]}"))


def test_tensors_with_gradients_and_numbers_of_other_types_are_read(x: Array, parameters: dict[str, Array]) -> None:
    class Tensor:
        """What this package uses of a tensor of PyTorch, which gives no array while it has a gradient."""

        def __init__(self, array: Array, has_gradient: bool = True) -> None:
            self.array, self.has_gradient = array, has_gradient

        def detach(self) -> Tensor:
            return Tensor(self.array, has_gradient=False)

        def cpu(self) -> Tensor:
            return self

        def __array__(self, *_: Any, **__: Any) -> Array:
            if self.has_gradient:
                raise RuntimeError("it has a gradient")
            return self.array

    padding = np.zeros((3, LENGTH), dtype=bool)
    padding[-1, -2:] = True
    half = x.astype(np.float16)
    expected = heedful.parity("dot-product", {"x": half.astype(np.float32), "key_padding": padding}, parameters, heads=HEADS)
    assert (expected["weights"][-1, :, :, -2:] == 0).all() and (expected["weights"][0] > 0).all()
    for value, hidden in [(Tensor(half), padding.astype(np.int64)), (half, padding.astype(">f4")), (half.tolist(), padding.tolist())]:
        found = heedful.parity("dot-product", {"x": value, "key_padding": hidden}, parameters, heads=HEADS)
        np.testing.assert_allclose(found["output"], expected["output"], atol=1e-6)


def test_refusals_have_the_message_of_the_program(x: Array, parameters: dict[str, Array]) -> None:
    with pytest.raises(heedful.ProgramError, match="unknown attention `nothing`; known are dot-product") as caught:
        heedful.parity("nothing", {"x": x})
    assert caught.value.exit_code == 2 and not str(caught.value).startswith("error")
    with pytest.raises(heedful.ProgramError, match="^inputs.safetensors: `logits.query.weight`: is missing; it has the shape") as caught:
        heedful.parity("dot-product", {"x": x}, heads=HEADS)
    assert caught.value.exit_code == 1
    with pytest.raises(heedful.ProgramError, match="unknown field `head`"):
        heedful.parity("dot-product", {"x": x}, parameters, head=HEADS)


def test_what_is_no_array_or_setting_is_refused_by_name(x: Array) -> None:
    with pytest.raises(TypeError, match="`x` is no array of numbers: dict"):
        heedful.parity("dot-product", {"x": {}})
    with pytest.raises(TypeError, match="`x` has the type complex128"):
        heedful.parity("dot-product", {"x": x + 1j})
    with pytest.raises(TypeError, match="`heads` is a NoneType"):
        heedful.parity("dot-product", {"x": x}, heads=None)
    with pytest.raises(ValueError, match="`x` is among inputs and parameters"):
        heedful.parity("dot-product", {"x": x}, {"x": x})


def test_the_program_is_that_of_the_argument_then_of_the_variable(x: Array, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(heedful.ProgramNotFoundError, match="`nowhere/heedful` of the argument `program`"):
        heedful.parity("dot-product", {"x": x}, program="nowhere/heedful")
    # Another program, whose refusal shows that it was called.
    with pytest.raises(heedful.ProgramError) as caught:
        heedful.parity("dot-product", {"x": x}, program=sys.executable)
    assert "parity" in str(caught.value)
    monkeypatch.setenv("HEEDFUL_PROGRAM", sys.executable)
    assert heedful.find_program() == Path(sys.executable)
    monkeypatch.setenv("HEEDFUL_PROGRAM", "nowhere/heedful")
    with pytest.raises(heedful.ProgramNotFoundError, match="HEEDFUL_PROGRAM"):
        heedful.find_program()


def test_the_program_of_the_interpreter_comes_before_that_of_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = {"scripts": tmp_path / "scripts", "path": tmp_path / "path"}
    monkeypatch.delenv("HEEDFUL_PROGRAM", raising=False)
    monkeypatch.setattr(sysconfig, "get_path", lambda *_, **__: str(folders["scripts"]))
    monkeypatch.setenv("PATH", str(folders["path"]))
    with pytest.raises(heedful.ProgramNotFoundError, match="install the package from a wheel"):
        heedful.find_program()
    name = "heedful.exe" if sys.platform == "win32" else "heedful"
    for place in ["path", "scripts"]:
        folders[place].mkdir()
        program = folders[place] / name
        program.write_text("")
        program.chmod(0o755)
        assert heedful.find_program() == program


def test_the_error_without_numpy_names_the_remedy() -> None:
    code = """
import sys
sys.modules["numpy"] = None
import heedful
try:
    heedful.parity("dot-product", {"x": [[[1.0]]]})
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "heedful.parity needs numpy: pip install heedful[numpy]\n"


def test_safetensors_keep_arrays_of_every_type_and_shape(tmp_path: Path) -> None:
    types = ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?"]
    arrays = {type_: np.arange(6).reshape(2, 3).astype(type_) for type_ in types}
    arrays |= {"scalar": np.array(2.5), "empty": np.zeros((0, 4)), "turned": np.arange(6.0).reshape(2, 3).T, "other order": np.array([1.5], ">f8")}
    path = tmp_path / "arrays.safetensors"
    _safetensors.write(path, arrays)
    found = _safetensors.read(path)
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].shape == array.shape and found[name].flags.writeable
    assert found["f2"].dtype == np.float16 and found["?"].dtype == bool
