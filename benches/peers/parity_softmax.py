"""Compares mechanisms that form weights of pairs with public code, by `heedful parity`: outputs and all gradients from equal weights.

    pip install -r benches/peers/requirements.txt
    cargo build --release --bin heedful
    python benches/peers/parity_softmax.py [--heedful target/release/heedful]

Differences are those of parity.py. The program fails if one exceeds 1e-5.
"""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from parity import D_MODEL, HEADS, Comparison, Read, agree, drawn, options, projections
from torch import Tensor, nn
from torch.func import functional_call

# Longer than windows and the distances that have a vector or a bucket of their own.
LENGTH = 20
KV_HEADS = 2
WIDTH = D_MODEL // HEADS

# The parameters of a layer by heedful's names.
Tensors = Callable[[Read, nn.Module], dict[str, Tensor]]


def compared(title: str, attention: dict[str, Any], role: str, module: nn.Module, tensors: Tensors, run: Callable[[Tensor], Any], **fields: Any) -> Comparison:
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


def four(read: Read, layer: Any, path: str = "logits") -> dict[str, Tensor]:
    """The maps of a layer in the manner of Llama; `path` is that of the scores."""
    maps = {f"{path}.query": layer.q_proj, f"{path}.key": layer.k_proj, "value": layer.v_proj, "output": layer.o_proj}
    return {f"{name}.weight": read(linear.weight).T for name, linear in maps.items()}


def rotary() -> Iterator[Comparison]:
    """Llama's layer, in which two heads share keys and values."""
    for role in ("encoder", "decoder"):
        yield rotating("Llama", {"name": "rotary"}, four, role)


def t5_bias() -> Iterator[Comparison]:
    """The layer of T5."""
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    def tensors(read: Read, layer: Any) -> dict[str, Tensor]:
        maps = {"logits.query": layer.q, "logits.key": layer.k, "value": layer.v, "output": layer.o}
        found = {f"{name}.weight": read(linear.weight).T for name, linear in maps.items()}
        return found | {"logits.relative_attention_bias": read(layer.relative_attention_bias.weight)}

    for role in ("encoder", "decoder"):
        config = T5Config(
            d_model=D_MODEL,
            d_kv=WIDTH,
            num_heads=HEADS,
            dropout_rate=0.0,
            is_decoder=role == "decoder",
            relative_attention_num_buckets=12,
            relative_attention_max_distance=16,
            attn_implementation="eager",
        )
        layer = drawn(partial(T5Attention, config, has_relative_attention_bias=True, layer_idx=0))
        attention = {"name": "t5-bias", "buckets": 12, "max_distance": 16}
        yield compared("t5-bias, T5Attention of transformers", attention, role, layer, tensors, partial(layer, mask=future(role)))


def mla() -> Iterator[Comparison]:
    """The layer of DeepSeek-V3, with a latent of queries and without."""
    latent, rotated = 12, 4

    def tensors(read: Read, layer: Any) -> dict[str, Tensor]:
        down, rotary_key = read(layer.kv_a_proj_with_mqa.weight).T.split([latent, rotated], dim=1)
        # The maps of a head lie side by side.
        up = read(layer.kv_b_proj.weight).unflatten(0, (HEADS, 2, WIDTH))
        found = {"latent.weight": down, "rotary_key.weight": rotary_key, "latent_norm.gamma": read(layer.kv_a_layernorm.weight)}
        found |= {f"{name}.weight": up[:, part].flatten(0, 1).T for part, name in enumerate(("key", "value"))}
        found |= {"output.weight": read(layer.o_proj.weight).T}
        if layer.q_proj is not None:
            return found | {"query.weight": read(layer.q_proj.weight).T}
        found |= {"query_latent.weight": read(layer.q_a_proj.weight).T, "query_latent_norm.gamma": read(layer.q_a_layernorm.weight)}
        return found | {"query.weight": read(layer.q_b_proj.weight).T}

    for of_queries in (None, 16):
        attention = {"name": "mla", "latent": latent, "rotary_width": rotated} | ({"query_latent": of_queries} if of_queries else {})
        config = {"q_lora_rank": of_queries, "kv_lora_rank": latent, "qk_rope_head_dim": rotated, "qk_nope_head_dim": WIDTH, "v_head_dim": WIDTH}
        for role in ("encoder", "decoder"):
            yield rotating("DeepseekV3", attention, tensors, role, fields={}, num_key_value_heads=HEADS, head_dim=rotated, **config)


def main() -> None:
    """Makes all comparisons."""
    families = (rotary, t5_bias, mla)
    comparisons = (comparison for family in families for comparison in family())
    sys.exit(not agree(options("Compares mechanisms that form weights of pairs with public code.").parse_args().heedful, comparisons))


if __name__ == "__main__":
    main()
