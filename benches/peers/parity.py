"""Compares mechanisms of linear time with public code, by `heedful parity`: outputs and all gradients from equal weights.

    pip install -r benches/peers/requirements.txt
    cargo build --release --bin heedful
    python benches/peers/parity.py [--heedful target/release/heedful] [--cosformer cosformer.py]

cosFormer is in no package: --cosformer names the file of that name in https://github.com/OpenNLPLab/cosFormer. The difference of two tensors is
the greatest one of their numbers, divided by the greatest number of the tensor. The program fails if one exceeds 1e-5. Where public code adds
constants that heedful does not have, a comparison with it as released is printed and cannot fail.
"""

import argparse
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any
from unittest import mock

import torch
from recurrences import GatedDeltaNet, LinearAttention, RecurrentLayer, SimpleGla, naive
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

# More than two chunks of 64, and a rest.
BATCH, LENGTH, MEMORY, D_MODEL, HEADS = 2, 150, 90, 32, 4
TOLERANCE = 1e-5

# What reads a parameter: its numbers or its gradient.
Read = Callable[[Tensor], Tensor]


@dataclass
class Comparison:
    """A mechanism and the public code that it is compared with."""

    title: str
    attention: dict[str, Any]
    role: str
    module: nn.Module
    # The parameters by heedful's names.
    tensors: Callable[[Read], dict[str, Tensor]]
    # The output for `x` and, with the role `cross`, what it attends to.
    run: Callable[..., Tensor]
    length: int = LENGTH
    # Further fields of heedful's configuration.
    options: dict[str, Any] = field(default_factory=dict)
    # Tensors of heedful that are no parameters.
    frozen: dict[str, Tensor] = field(default_factory=dict)
    context: AbstractContextManager[Any] = field(default_factory=nullcontext)
    is_exact: bool = True


def drawn(build: Callable[[], nn.Module]) -> nn.Module:
    """A module with normal parameters: matrices for inputs and outputs of size 1, anything else of size 1/2."""
    torch.manual_seed(1)
    module = build()
    with torch.no_grad():
        for parameter in module.parameters():
            scale = parameter.shape[-1] ** -0.5 if parameter.dim() == 2 else 0.5
            parameter.copy_(torch.randn(parameter.shape) * scale)
    # Numbers that 32 bits hold.
    return module.float().double()


@contextmanager
def in_64_bits() -> Iterator[None]:
    """Has public code compute in 64 bits where it asks for 32, so that its rounding is not taken for a difference."""
    with mock.patch.object(torch, "float32", torch.float64), mock.patch.object(Tensor, "float", Tensor.double):
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(torch.float)


def projections(read: Read, query: nn.Linear, key: nn.Linear, value: nn.Linear, output: nn.Linear) -> dict[str, Tensor]:
    """Four maps, which PyTorch stores as `[d_out, d_in]`."""
    maps = {"query": query, "key": key, "value": value, "output": output}
    return {f"{name}.weight": read(linear.weight).T for name, linear in maps.items()}


def performer() -> Iterator[Comparison]:
    """performer-pytorch as it is, and with 0 for each `eps` that it adds."""
    from performer_pytorch import performer_pytorch as package

    for kind, role in itertools.product(("softmax", "relu"), ("encoder", "decoder", "cross")):
        adds = kind == "softmax" or role == "decoder"
        for released in (False, True) if adds else (True,):
            options = {"causal": role == "decoder", "generalized_attention": kind == "relu", "attn_out_bias": False}
            module = drawn(partial(package.Attention, D_MODEL, heads=HEADS, dim_head=D_MODEL // HEADS, **options))
            context: AbstractContextManager[Any] = nullcontext()
            if not released:
                context = mock.patch.object(package, "softmax_kernel", partial(package.softmax_kernel, eps=0.0))
                if role == "decoder":
                    module.fast_attention.causal_linear_fn = partial(package.causal_linear_attention_noncuda, eps=0.0)
            yield Comparison(
                f"performer, {kind}, performer-pytorch {'as released' if released else 'with eps = 0'}",
                {"name": "performer", "kind": kind},
                role,
                module,
                partial(projections, query=module.to_q, key=module.to_k, value=module.to_v, output=module.to_out),
                lambda x, memory=None, module=module: module(x, context=memory),
                frozen={"features.directions": module.fast_attention.projection_matrix},
                context=context,
                is_exact=not (released and adds),
            )


def cosformer(path: pathlib.Path) -> Iterator[Comparison]:
    """The authors' code, without biases."""
    spec = spec_from_file_location("cosformer", path)
    assert spec is not None and spec.loader is not None
    package = module_from_spec(spec)
    spec.loader.exec_module(package)
    for role in ("encoder", "decoder", "cross"):
        module = drawn(partial(package.CosformerAttention, D_MODEL, HEADS, causal=role == "decoder"))
        maps = (module.q_proj, module.k_proj, module.v_proj, module.out_proj)
        for linear in maps:
            nn.init.zeros_(linear.bias)

        # The length comes first there.
        def run(x: Tensor, memory: Tensor | None = None, module: nn.Module = module) -> Tensor:
            attended = None if memory is None else memory.transpose(0, 1)
            return module(x.transpose(0, 1), attended, attended).transpose(0, 1)

        tensors = partial(projections, query=maps[0], key=maps[1], value=maps[2], output=maps[3])
        yield Comparison("cosformer, the authors' code", {"name": "cosformer"}, role, module, tensors, run)


def recurrent(read: Read, layer: RecurrentLayer) -> dict[str, Tensor]:
    """The parameters of a layer's maps, convolutions, gain and gate."""
    names = ["query.weight", "key.weight", "value.weight", "norm.gate.weight"]
    of_inputs = read(layer.inputs.weight).T.split([*layer.widths, layer.widths[2]], dim=1)
    found = dict(zip(names, of_inputs, strict=True))
    found |= {"convolution.weight": read(layer.convolution.weight).squeeze(1).T, "norm.gamma": read(layer.gain)}
    return {f"mixer.{name}": tensor for name, tensor in found.items()} | {"output.weight": read(layer.output.weight).T}


def linear_attention() -> Iterator[Comparison]:
    """The recurrence of fla step by step and in chunks."""
    package = naive("linear_attn")
    for name, length in (("naive_recurrent_linear_attn", LENGTH), ("naive_chunk_linear_attn", 192)):
        layer = drawn(partial(LinearAttention, D_MODEL, HEADS))
        function = getattr(package, name)
        layer.attend = lambda *arguments, function=function, **options: outcome(function(*arguments, **options))

        def tensors(read: Read, layer: LinearAttention = layer) -> dict[str, Tensor]:
            maps = zip(("query", "key", "value"), read(layer.inputs.weight).T.chunk(3, dim=1), strict=True)
            return {f"{name}.weight": weight for name, weight in maps} | {"output.weight": read(layer.output.weight).T}

        yield Comparison(f"linear-attention, {name} of fla", {"name": "linear-attention"}, "decoder", layer, tensors, layer, length=length)


def outcome(result: Tensor | tuple[Tensor, Any]) -> Tensor:
    """What is read, of a function that may also return a state or weights."""
    return result[0] if isinstance(result, tuple) else result


def simple_gla() -> Iterator[Comparison]:
    """The recurrence of fla step by step, in chunks and as a matrix of all pairs."""
    for name in ("naive_recurrent_simple_gla", "naive_chunk_simple_gla", "naive_parallel_simple_gla"):
        layer = drawn(partial(SimpleGla, D_MODEL, HEADS))
        layer.rule = getattr(naive("simple_gla"), name)

        def tensors(read: Read, layer: SimpleGla = layer) -> dict[str, Tensor]:
            rate = {"mixer.rate.weight": read(layer.rate.weight).T, "mixer.rate.bias": read(layer.rate.bias)}
            return recurrent(read, layer) | rate

        yield Comparison(f"simple-gla, {name} of fla", {"name": "simple-gla"}, "decoder", layer, tensors, layer)


def gated_delta_net() -> Iterator[Comparison]:
    """The recurrence of fla step by step and in chunks, that of transformers in chunks, and the whole layer of transformers."""
    of_fla = naive("gated_delta_rule")
    rules = {
        "naive_recurrent_gated_delta_rule of fla": of_fla.naive_recurrent_gated_delta_rule,
        "naive_chunk_gated_delta_rule of fla": of_fla.naive_chunk_gated_delta_rule,
        "torch_chunk_gated_delta_rule of transformers": None,
    }
    for name, rule in rules.items():
        layer = drawn(partial(GatedDeltaNet, "fla" if rule else "transformers", D_MODEL, HEADS))
        layer.rule = rule or layer.rule

        def tensors(read: Read, layer: GatedDeltaNet = layer) -> dict[str, Tensor]:
            decay = {"a_log": read(layer.a_log), "step.weight": read(layer.step.weight).T, "step.bias": read(layer.step.bias)}
            decays = {f"mixer.decay.{name}": tensor for name, tensor in decay.items()}
            return recurrent(read, layer) | decays | {"mixer.strength.weight": read(layer.strength.weight).T}

        yield Comparison(f"gated-delta-net, {name}", {"name": "gated-delta-net"}, "decoder", layer, tensors, layer)
    yield qwen()


def qwen() -> Comparison:
    """Gated DeltaNet as the layer of Qwen3-Next in transformers."""
    from recurrences import torch_rule
    from transformers import Qwen3NextConfig
    from transformers.models.qwen3_next import modeling_qwen3_next as package

    key, value = GatedDeltaNet("fla", D_MODEL, HEADS).widths[1:]
    config = Qwen3NextConfig(
        hidden_size=D_MODEL,
        num_hidden_layers=1,
        layer_types=["linear_attention"],
        linear_num_key_heads=HEADS,
        linear_num_value_heads=HEADS,
        linear_key_head_dim=key // HEADS,
        linear_value_head_dim=value // HEADS,
        linear_conv_kernel_dim=RecurrentLayer.TAPS,
        rms_norm_eps=RecurrentLayer.EPSILON,
    )
    layer = drawn(partial(package.Qwen3NextGatedDeltaNet, config, 0))

    # The maps of a head lie side by side.
    def maps(weight: Tensor, names: list[str], sizes: list[int]) -> dict[str, Tensor]:
        parts = weight.unflatten(0, (HEADS, -1)).split([size // HEADS for size in sizes], dim=1)
        return {f"{name}.weight": part.flatten(0, 1).T for name, part in zip(names, parts, strict=True)}

    def tensors(read: Read) -> dict[str, Tensor]:
        found = maps(read(layer.in_proj_qkvz.weight), ["query", "key", "value", "norm.gate"], [key, key, value, value])
        found |= maps(read(layer.in_proj_ba.weight), ["strength", "decay.step"], [HEADS, HEADS])
        found |= {"decay.a_log": read(layer.A_log), "decay.step.bias": read(layer.dt_bias), "norm.gamma": read(layer.norm.weight)}
        found["convolution.weight"] = read(layer.conv1d.weight).squeeze(1).T
        return {f"mixer.{name}": tensor for name, tensor in found.items()} | {"output.weight": read(layer.out_proj.weight).T}

    in_torch = mock.patch.object(package, "torch_chunk_gated_delta_rule", torch_rule())
    title = "gated-delta-net, Qwen3NextGatedDeltaNet of transformers"
    return Comparison(title, {"name": "gated-delta-net"}, "decoder", layer, tensors, layer, context=in_torch)


def mamba_2() -> Iterator[Comparison]:
    """The layer of Mamba-2 in transformers."""
    from transformers import Mamba2Config
    from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

    state, inner = 12, 2 * D_MODEL
    for groups in (1, 2):
        config = Mamba2Config(
            hidden_size=D_MODEL,
            num_heads=HEADS,
            head_dim=inner // HEADS,
            state_size=state,
            n_groups=groups,
            expand=2,
            conv_kernel=4,
            chunk_size=64,
            use_bias=False,
            use_conv_bias=True,
            layer_norm_epsilon=1e-5,
            num_hidden_layers=1,
            time_step_limit=(0.0, float("inf")),
        )
        layer = drawn(partial(Mamba2Mixer, config, 0))

        def tensors(read: Read, layer: nn.Module = layer, shared: int = groups * state) -> dict[str, Tensor]:
            names = ["gate.weight", "value.weight", "key.weight", "query.weight", "decay.step.weight"]
            maps = read(layer.in_proj.weight).T.split([inner, inner, shared, shared, HEADS], dim=1)
            found = dict(zip(names, maps, strict=True))
            found |= {"decay.step.bias": read(layer.dt_bias), "decay.a_log": read(layer.A_log)}
            found |= {"convolution.weight": read(layer.conv1d.weight).squeeze(1).T, "convolution.bias": read(layer.conv1d.bias)}
            found |= {"skip": read(layer.D), "gamma": read(layer.norm.weight)}
            return {f"mixer.{name}": tensor for name, tensor in found.items()} | {"output.weight": read(layer.out_proj.weight).T}

        attention = {"name": "mamba-2", "state": state, "groups": groups}
        yield Comparison(f"mamba-2, groups {groups}, Mamba2Mixer of transformers", attention, "decoder", layer, tensors, layer)


def toml(value: Any) -> str:
    """A value in TOML."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {toml(entry)}" for name, entry in value.items()) + " }"
    return json.dumps(value)


def of_heedful(binary: pathlib.Path, folder: pathlib.Path, comparison: Comparison, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """What heedful computes."""
    config, source, target = folder / "mechanism.toml", folder / "in.safetensors", folder / "out.safetensors"
    fields = {"attention": comparison.attention, "role": comparison.role, "d_model": D_MODEL, "heads": HEADS, "max_length": comparison.length}
    config.write_text("".join(f"{name} = {toml(value)}\n" for name, value in (fields | comparison.options).items()))
    save_file({name: tensor.detach().contiguous() for name, tensor in inputs.items()}, source)
    subprocess.run([binary, "parity", "--config", config, "--inputs", source, "--output", target], check=True)
    return load_file(target)


def differences(binary: pathlib.Path, folder: pathlib.Path, comparison: Comparison) -> dict[str, float]:
    """The difference of each tensor."""
    torch.manual_seed(2)
    lengths = {"x": comparison.length} | ({"memory": MEMORY} if comparison.role == "cross" else {})
    elements = {name: torch.randn(BATCH, length, D_MODEL).double().requires_grad_() for name, length in lengths.items()}
    cotangent = torch.randn(BATCH, comparison.length, D_MODEL).double()
    with comparison.context, in_64_bits():
        output = outcome(comparison.run(*elements.values()))
        (output * cotangent).sum().backward()

    def gradient(tensor: Tensor) -> Tensor:
        assert tensor.grad is not None
        return tensor.grad

    inputs = elements | {"cotangent": cotangent} | comparison.frozen | comparison.tensors(lambda parameter: parameter)
    gradients = {name: gradient(tensor) for name, tensor in elements.items()} | comparison.tensors(gradient)
    expected = {"output": output.detach()} | {f"grad.{name}": tensor for name, tensor in gradients.items()}
    found = of_heedful(binary, folder, comparison, inputs)
    # Of weights and gates heedful alone shows them all.
    found = {name: tensor for name, tensor in found.items() if name == "output" or name.startswith("grad.")}
    assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
    return {name: ((found[name] - tensor).abs().max() / tensor.abs().max()).item() for name, tensor in expected.items()}


def agree(binary: pathlib.Path, comparisons: Iterable[Comparison]) -> bool:
    """Makes comparisons and prints them. Whether no difference is too great."""
    agreed = True
    with tempfile.TemporaryDirectory() as folder:
        for comparison in comparisons:
            found = differences(binary.resolve(), pathlib.Path(folder), comparison)
            of_gradients = {name: value for name, value in found.items() if name != "output"}
            worst = max(of_gradients, key=lambda name: of_gradients[name])
            print(f"{comparison.title}, {comparison.role}: output {found['output']:.1e}, gradients {of_gradients[worst]:.1e} ({worst})")
            # What is not a number is no small difference.
            agreed &= not comparison.is_exact or all(value <= TOLERANCE for value in found.values())
    return agreed


def options(description: str) -> argparse.ArgumentParser:
    """The option that names heedful's program."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--heedful", type=pathlib.Path, default=pathlib.Path("target/release/heedful"), help="the program")
    return parser


def main() -> None:
    """Makes all comparisons."""
    parser = options("Compares mechanisms of linear time with public code.")
    parser.add_argument("--cosformer", type=pathlib.Path, help="cosformer.py of OpenNLPLab/cosFormer")
    arguments = parser.parse_args()
    families = (performer, linear_attention, simple_gla, gated_delta_net, mamba_2)
    comparisons = [comparison for family in families for comparison in family()]
    if arguments.cosformer:
        comparisons += cosformer(arguments.cosformer)
    else:
        print("left out: cosformer, since --cosformer names no file")
    sys.exit(not agree(arguments.heedful, comparisons))


if __name__ == "__main__":
    main()
