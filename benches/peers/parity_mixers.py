"""Compares mechanisms that mix positions without scores of pairs with public code, by `heedful parity`: outputs and all gradients from equal weights.

    pip install -r benches/peers/requirements.txt
    cargo build --release --bin heedful
    python benches/peers/parity_mixers.py [--heedful target/release/heedful]

Differences are those of parity.py. The program fails if one exceeds 1e-5.
"""

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

from layers import LENGTH, compared
from parity import D_MODEL, HEADS, Comparison, Read, agree, drawn, options, projections
from torch import Tensor, nn


def fnet() -> Iterator[Comparison]:
    """The transform of FNet, which has no parameters."""
    from transformers import FNetConfig
    from transformers.models.fnet.modeling_fnet import FNetBasicFourierTransform

    layer = FNetBasicFourierTransform(FNetConfig(hidden_size=D_MODEL))
    yield compared("fnet, FNetBasicFourierTransform of transformers", {"name": "fnet"}, "encoder", layer, lambda read, layer: {}, layer)


def gmlp() -> Iterator[Comparison]:
    """The block of g-mlp-pytorch with heedful's constant in its norm."""
    from g_mlp_pytorch.g_mlp_pytorch import gMLPBlock

    def tensors(read: Read, layer: Any) -> dict[str, Tensor]:
        expansion, unit = layer.proj_in[0], layer.sgu
        maps = {"expansion": expansion, "output": layer.proj_out}
        found = {f"{name}.weight": read(linear.weight).T for name, linear in maps.items()}
        found |= {f"{name}.bias": read(linear.bias) for name, linear in maps.items()}
        found |= {"mixed_norm.gamma": read(unit.norm.weight), "mixed_norm.beta": read(unit.norm.bias)}
        return found | {"position_weight": read(unit.weight).squeeze(0), "position_bias": read(unit.bias).squeeze(0)}

    for role in ("encoder", "decoder"):
        layer = drawn(partial(gMLPBlock, dim=D_MODEL, dim_ff=2 * D_MODEL, seq_len=LENGTH, causal=role == "decoder"))
        layer.sgu.norm.eps = 1e-6
        yield compared("gmlp, gMLPBlock of g-mlp-pytorch", {"name": "gmlp"}, role, layer, tensors, layer)


def mlp_mixer() -> Iterator[Comparison]:
    """The network over positions of mlp-mixer-pytorch."""
    from mlp_mixer_pytorch.mlp_mixer_pytorch import FeedForward

    hidden = 12

    def tensors(read: Read, layer: Any) -> dict[str, Tensor]:
        maps = {"hidden": layer[0], "mixing": layer[3]}
        found = {f"{name}_weight": read(convolution.weight).squeeze(2) for name, convolution in maps.items()}
        return found | {f"{name}_bias": read(convolution.bias) for name, convolution in maps.items()}

    layer = drawn(partial(FeedForward, LENGTH, hidden, dense=partial(nn.Conv1d, kernel_size=1)))
    yield compared("mlp-mixer, FeedForward of mlp-mixer-pytorch", {"name": "mlp-mixer", "hidden": hidden}, "encoder", layer, tensors, layer)


def linformer() -> Iterator[Comparison]:
    """The package linformer, without the bias of its output."""
    from linformer import LinformerSelfAttention

    rank = 7

    def tensors(read: Read, layer: Any) -> dict[str, Tensor]:
        slots = {"key_slots": layer.proj_k, "value_slots": layer.proj_v}
        found = {f"{name}.matrix": read(matrix).T[None] for name, matrix in slots.items()}
        return found | projections(read, layer.to_q, layer.to_k, layer.to_v, layer.to_out)

    layer = drawn(partial(LinformerSelfAttention, D_MODEL, LENGTH, k=rank, heads=HEADS))
    nn.init.zeros_(layer.to_out.bias)
    yield compared("linformer, LinformerSelfAttention of linformer", {"name": "linformer", "rank": rank}, "encoder", layer, tensors, layer)


def main() -> None:
    """Makes all comparisons."""
    comparisons = (comparison for family in (fnet, gmlp, mlp_mixer, linformer) for comparison in family())
    sys.exit(not agree(options("Compares mechanisms that mix positions without scores of pairs with public code.").parse_args().heedful, comparisons))


if __name__ == "__main__":
    main()
