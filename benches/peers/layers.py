"""Layers of public packages beside heedful's mechanisms: those of transformers that rotate queries and keys, and the attention of x-transformers."""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from parity import D_MODEL, HEADS, Comparison, Read, drawn, projections
from torch import Tensor, nn
from torch.func import functional_call

# Longer than windows and the distances that have a vector or a bucket of their own.
LENGTH = 20
KV_HEADS = 2
WIDTH = D_MODEL // HEADS

# The parameters of a layer by heedful's names.
Tensors = Callable[[Read, nn.Module], dict[str, Tensor]]


def compared(
    title: str, attention: dict[str, Any], role: str, module: nn.Module, tensors: Tensors, run: Callable[[Tensor], Any], **fields: Any
) -> Comparison:
    """A comparison at this program's length. `fields` are further ones of heedful's configuration."""
    return Comparison(title, attention, role, module, partial(tensors, layer=module), run, length=LENGTH, options=fields)


def future(role: str) -> Tensor | None:
    """What is added to scores `[query, key]`, so that decoders do not see the future."""
    return torch.full((1, 1, LENGTH, LENGTH), float("-inf")).triu(1) if role == "decoder" else None


def rotating(
    name: str,
    attention: dict[str, Any],
    tensors: Tensors,
    role: str = "decoder",
    adapted: Callable[[nn.Module], None] | None = None,
    adds_one: tuple[str, ...] = (),
    mask: Callable[[Any, Tensor], Tensor] | None = None,
    fields: dict[str, Any] | None = None,
    **config: Any,
) -> Comparison:
    """A layer of transformers with its rotary positions.

    `name` is that of its model, `adapted` changes the layer before its parameters are drawn, and `adds_one` names gains to which the layer adds 1.
    """
    import transformers

    settings = getattr(transformers, f"{name}Config")(
        **{
            "hidden_size": D_MODEL,
            "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS,
            "head_dim": WIDTH,
            "num_hidden_layers": 2,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
            "attn_implementation": "eager",
        }
        | config
    )
    package = sys.modules[getattr(transformers, f"{name}Model").__module__]

    def build() -> nn.Module:
        layer = getattr(package, f"{name}Attention")(settings, 1)
        if adapted is not None:
            adapted(layer)
        return layer

    layer = drawn(build)
    embedding = getattr(package, f"{name}RotaryEmbedding")(settings)

    def run(x: Tensor) -> Any:
        gains = {gain: layer.get_parameter(gain) - 1 for gain in adds_one}
        hidden = future(role) if mask is None else mask(settings, x)
        return functional_call(layer, gains, (x, embedding(x, torch.arange(LENGTH)[None]), hidden))

    fields = {"kv_heads": settings.num_key_value_heads} if fields is None else fields
    return compared(f"{attention['name']}, {name}Attention of transformers", attention, role, layer, tensors, run, **fields)


def four(read: Read, query: nn.Linear, key: nn.Linear, value: nn.Linear, output: nn.Linear, path: str = "logits") -> dict[str, Tensor]:
    """Four maps; `path` is that of the scores."""
    found = projections(read, query, key, value, output)
    return {f"{path}.{name}" if name in ("query.weight", "key.weight") else name: weight for name, weight in found.items()}


def fused(read: Read, inputs: nn.Linear, output: nn.Linear, path: str = "logits") -> dict[str, Tensor]:
    """Four maps, of which three are one."""
    query, key, value = read(inputs.weight).T.chunk(3, dim=1)
    found = {f"{path}.query.weight": query, f"{path}.key.weight": key, "value.weight": value}
    return found | {"output.weight": read(output.weight).T}


def of_llama(read: Read, layer: Any, path: str = "logits") -> dict[str, Tensor]:
    """The maps of a layer in the manner of Llama."""
    return four(read, layer.q_proj, layer.k_proj, layer.v_proj, layer.o_proj, path)


def of_lucid(read: Read, layer: Any, path: str = "logits") -> dict[str, Tensor]:
    """The maps of the attention of x-transformers."""
    return four(read, layer.to_q, layer.to_k, layer.to_v, layer.to_out, path)


def lucid(
    part: str,
    attention: dict[str, Any],
    role: str,
    tensors: Tensors = of_lucid,
    settings: dict[str, Any] | None = None,
    added: dict[str, Tensor] | None = None,
    **inputs: Tensor,
) -> Comparison:
    """The attention of x-transformers. `settings` are its own; `added` is what it adds to its parameters, by their names."""
    from x_transformers.x_transformers import Attention

    layer = drawn(partial(Attention, D_MODEL, dim_head=WIDTH, heads=HEADS, causal=role == "decoder", **(settings or {})))

    def run(x: Tensor) -> Any:
        changed = {name: layer.get_parameter(name) - tensor for name, tensor in (added or {}).items()}
        return functional_call(layer, changed, (x,), inputs)

    return compared(f"{attention['name']}, {part} of x-transformers", attention, role, layer, tensors, run)
