"""Compares mechanisms that form weights of pairs with public code, by `heedful parity`: outputs and all gradients from equal weights.

    pip install -r benches/peers/requirements.txt
    cargo build --release --bin heedful
    python benches/peers/parity_softmax.py [--heedful target/release/heedful]

Differences are those of parity.py. The program fails if one exceeds 1e-5.
"""

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from attention import CausalAttention, LocalAttention
from layers import LENGTH, WIDTH, compared, four, fused, future, lucid, of_llama, of_lucid, rotating
from parity import D_MODEL, HEADS, Comparison, Read, agree, drawn, options
from recurrences import naive
from torch import Tensor, nn


def rotary() -> Iterator[Comparison]:
    """Llama's layer, in which two heads share keys and values."""
    for role in ("encoder", "decoder"):
        yield rotating("Llama", {"name": "rotary"}, of_llama, role)


def t5_bias() -> Iterator[Comparison]:
    """The layer of T5."""
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    def tensors(read: Read, layer: Any) -> dict[str, Tensor]:
        found = four(read, layer.q, layer.k, layer.v, layer.o)
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


def alibi() -> Iterator[Comparison]:
    """The layer of MPT, and that of x-transformers with its biases of distances on both sides."""
    from transformers import MptConfig
    from transformers.models.mpt.modeling_mpt import MptAttention, build_mpt_alibi_tensor
    from x_transformers.x_transformers import AlibiPositionalBias

    layer = drawn(partial(MptAttention, MptConfig(d_model=D_MODEL, n_heads=HEADS, max_seq_len=LENGTH), 0))
    hidden = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)

    def tensors(read: Read, layer: Any) -> dict[str, Tensor]:
        return fused(read, layer.Wqkv, layer.out_proj)

    def run(x: Tensor) -> Any:
        return layer(x, build_mpt_alibi_tensor(HEADS, LENGTH), attention_mask=hidden)

    yield compared("alibi, MptAttention of transformers", {"name": "alibi"}, "decoder", layer, tensors, run)
    bias = AlibiPositionalBias(HEADS)(LENGTH, LENGTH)
    yield lucid("AlibiPositionalBias", {"name": "alibi"}, "encoder", attn_bias=bias)


def normalisers() -> Iterator[Comparison]:
    """What takes the place of the softmax of x-transformers: the functions of the package entmax, a key of zeros more, and the sigmoid."""
    import entmax

    cases = (
        ("entmax15 of entmax in Attention", {"name": "entmax", "alpha": 1.5}, {"custom_attn_fn": partial(entmax.entmax15, dim=-1)}),
        ("sparsemax of entmax in Attention", {"name": "entmax", "alpha": 2.0}, {"custom_attn_fn": partial(entmax.sparsemax, dim=-1)}),
        ("Attention with add_zero_kv", {"name": "softmax-plus-one"}, {"add_zero_kv": True}),
        ("Attention with sigmoid", {"name": "sigmoid", "bias": 0.0}, {"sigmoid": True}),
    )
    for part, attention, settings in cases:
        for role in ("encoder", "decoder"):
            yield lucid(part, attention, role, settings=settings)


def talking_heads() -> Iterator[Comparison]:
    """x-transformers, which adds mixed logits to the logits."""

    def tensors(read: Read, layer: Any) -> dict[str, Tensor]:
        mixings = {"logit_mixing": layer.attend.pre_softmax_talking_heads, "weight_mixing": layer.attend.post_softmax_talking_heads}
        found = {f"logits.{name}": read(mixing.weight).squeeze((2, 3)).T for name, mixing in mixings.items()}
        return of_lucid(read, layer, "logits.scores") | found

    settings = {"pre_talking_heads": True, "post_talking_heads": True}
    added = {"attend.pre_softmax_talking_heads.weight": torch.eye(HEADS)[:, :, None, None]}
    for role in ("encoder", "decoder"):
        yield lucid("Attention", {"name": "talking-heads"}, role, tensors, settings, added)


def differential() -> Iterator[Comparison]:
    """The layer of DiffLlama with a gain for the norm of heads, which it lacks and the paper has."""
    halves = {"first": 0, "second": 1}

    def tensors(read: Read, layer: Any) -> dict[str, Tensor]:
        maps = {"query": read(layer.q_proj.weight).T, "key": read(layer.k_proj.weight).T}
        found = {f"logits.{half}.{name}.weight": weight.chunk(2, dim=1)[i] for half, i in halves.items() for name, weight in maps.items()}
        found |= {f"logits.lambda_{name}": read(getattr(layer, f"lambda_{name}")) for name in ("q1", "k1", "q2", "k2")}
        # Both halves of a head's values are heads there.
        value = read(layer.v_proj.weight).T.unflatten(1, (2, HEADS, WIDTH // 2)).transpose(1, 2).flatten(1)
        found |= {"logits.head_norm.gamma": read(layer.groupnorm.weight), "value.weight": value}
        return found | {"output.weight": read(layer.o_proj.weight).T}

    def with_gain(layer: Any) -> None:
        layer.groupnorm = nn.RMSNorm(WIDTH, eps=1e-5)

    attention = {"name": "differential", "logits": {"name": "rotary"}}
    heads = {"num_attention_heads": 2 * HEADS, "num_key_value_heads": 2 * HEADS, "head_dim": WIDTH // 2}
    for role in ("encoder", "decoder"):
        yield rotating("DiffLlama", attention, tensors, role, with_gain, fields={"layer": 1, "layers": 2}, **heads)


def learned_sink() -> Iterator[Comparison]:
    """The layer of gpt-oss."""

    def tensors(read: Read, layer: Any) -> dict[str, Tensor]:
        return of_llama(read, layer) | {"sink": read(layer.sinks)}

    for role in ("encoder", "decoder"):
        yield rotating("GptOss", {"name": "learned-sink", "logits": {"name": "rotary"}}, tensors, role, attention_bias=False)


def soft_cap() -> Iterator[Comparison]:
    """The layer of Gemma-2, with a cap that scores come near."""
    attention = {"name": "soft-cap", "cap": 2.0, "logits": {"name": "rotary"}}
    for role in ("encoder", "decoder"):
        yield rotating("Gemma2", attention, of_llama, role, attn_logit_softcapping=2.0, query_pre_attn_scalar=WIDTH)


def sliding_window() -> Iterator[Comparison]:
    """The layer of Mistral with the masks of transformers, whose window reaches one position farther in encoders."""
    from transformers import masking_utils

    masks = {
        "encoder": (5, masking_utils.create_bidirectional_sliding_window_mask),
        "decoder": (6, partial(masking_utils.create_sliding_window_causal_mask, cache=None)),
    }
    attention = {"name": "sliding-window", "window": 6, "logits": {"name": "rotary"}}
    tensors = partial(of_llama, path="logits.logits.0")
    for role, (window, mask) in masks.items():
        yield rotating("Mistral", attention, tensors, role, mask=partial(mask, attention_mask=None), sliding_window=window)


def output_gate() -> Iterator[Comparison]:
    """The gated attention of Qwen3-Next, which norms queries and keys and turns half their channels."""

    def tensors(read: Read, layer: Any) -> dict[str, Tensor]:
        path = "logits.logits.0"
        # The query and the gate of a head lie side by side.
        query, gate = read(layer.q_proj.weight).unflatten(0, (HEADS, 2, WIDTH)).unbind(1)
        found = {f"{path}.query.weight": query.flatten(0, 1).T, "logits.output_gate.weight": gate.flatten(0, 1).T}
        found |= {f"{path}.query_norm.gamma": read(layer.q_norm.weight), f"{path}.key_norm.gamma": read(layer.k_norm.weight)}
        maps = {f"{path}.key": layer.k_proj, "value": layer.v_proj, "output": layer.o_proj}
        return found | {f"{name}.weight": read(linear.weight).T for name, linear in maps.items()}

    attention = {"name": "output-gate", "logits": {"name": "rotary", "fraction": 0.5, "qk_norm": "rms"}}
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
    gains = ("q_norm.weight", "k_norm.weight")
    for role in ("encoder", "decoder"):
        yield rotating("Qwen3Next", attention, tensors, role, adds_one=gains, rope_parameters=rope, rms_norm_eps=1e-6)


class Forgetting(CausalAttention):
    """The forgetting attention of fla with its maps."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__("forgetting", d_model, heads)
        self.forget = nn.Linear(d_model, heads)
        self.attend = naive("forgetting_attn").naive_forgetting_attn

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (part.transpose(1, 2) for part in self.split(x))
        return self.output(self.attend(query, key, value, F.logsigmoid(self.forget(x))).flatten(2))


def forgetting() -> Iterator[Comparison]:
    """The function of fla."""

    def tensors(read: Read, layer: Any) -> dict[str, Tensor]:
        found = fused(read, layer.inputs, layer.output)
        return found | {"logits.forget.weight": read(layer.forget.weight).T, "logits.forget.bias": read(layer.forget.bias)}

    layer = drawn(partial(Forgetting, D_MODEL, HEADS))
    yield compared("forgetting, naive_forgetting_attn of fla", {"name": "forgetting"}, "decoder", layer, tensors, layer)


def speech() -> Iterator[Comparison]:
    """The layer of Wav2Vec2-BERT without biases, with a vector for each distance (Shaw) and with sinusoids of distances (Transformer-XL)."""
    from transformers import Wav2Vec2BertConfig
    from transformers.models.wav2vec2_bert import modeling_wav2vec2_bert as package

    greatest = 5

    def build(kind: str) -> tuple[nn.Module, nn.Module]:
        config = Wav2Vec2BertConfig(
            hidden_size=D_MODEL,
            num_attention_heads=HEADS,
            attention_dropout=0.0,
            position_embeddings_type=kind,
            left_max_position_embeddings=greatest,
            right_max_position_embeddings=greatest,
            max_source_positions=LENGTH,
            attn_implementation="eager",
        )
        layer = drawn(partial(package.Wav2Vec2BertSelfAttention, config))
        for linear in (layer.linear_q, layer.linear_k, layer.linear_v, layer.linear_out):
            nn.init.zeros_(linear.bias)
        return layer, package.Wav2Vec2BertRelPositionalEmbedding(config)

    def shaw(read: Read, layer: Any) -> dict[str, Tensor]:
        found = four(read, layer.linear_q, layer.linear_k, layer.linear_v, layer.linear_out)
        return found | {"logits.relative_keys": read(layer.distance_embedding.weight)}

    def relative(read: Read, layer: Any) -> dict[str, Tensor]:
        found = four(read, layer.linear_q, layer.linear_k, layer.linear_v, layer.linear_out)
        found |= {"logits.content_bias": read(layer.pos_bias_u), "logits.position_bias": read(layer.pos_bias_v)}
        # Sines and cosines take turns there, and are halves here.
        position = read(layer.linear_pos.weight).T
        return found | {"logits.position.weight": torch.cat([position[::2], position[1::2]])}

    for role in ("encoder", "decoder"):
        title = "Wav2Vec2BertSelfAttention of transformers"
        layer, _ = build("relative_key")
        attention = {"name": "shaw", "max_relative_position": greatest}
        yield compared(f"shaw, {title}", attention, role, layer, shaw, partial(layer, attention_mask=future(role)))
        layer, embedding = build("relative")

        def run(x: Tensor, layer: nn.Module = layer, embedding: nn.Module = embedding, hidden: Tensor | None = future(role)) -> Any:
            return layer(x, attention_mask=hidden, relative_position_embeddings=embedding(x))

        yield compared(f"relative, {title}", {"name": "relative"}, role, layer, relative, run)


def local_1d() -> Iterator[Comparison]:
    """The package local-attention, whose blocks see themselves and the block before."""
    block = 6

    def tensors(read: Read, layer: Any) -> dict[str, Tensor]:
        return fused(read, layer.inputs, layer.output, "logits.logits.0")

    layer = drawn(partial(LocalAttention, block, D_MODEL, HEADS))
    attention = {"name": "local-1d", "query_block": block, "memory_block": block}
    yield compared("local-1d, LocalAttention of local-attention", attention, "decoder", layer, tensors, layer)


def main() -> None:
    """Makes all comparisons."""
    of_positions = (rotary, t5_bias, mla, alibi, speech, forgetting)
    of_weights = (normalisers, learned_sink, soft_cap, sliding_window, local_1d, talking_heads, differential, output_gate)
    comparisons = (comparison for family in of_positions + of_weights for comparison in family())
    sys.exit(not agree(options("Compares mechanisms that form weights of pairs with public code.").parse_args().heedful, comparisons))


if __name__ == "__main__":
    main()
