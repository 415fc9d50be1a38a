"""Causal self-attention layers, projections included, and their projections alone."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CausalAttention(nn.Module):
    """Multi-head attention with one product for queries, keys and values, without biases.

    `method` is `sdpa` (torch.nn.functional.scaled_dot_product_attention) or `naive` (all weights as a matrix). `sdpa` drops weights in
    training with the probability `dropout`.
    """

    def __init__(self, method: str, d_model: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.method = method
        self.dropout = dropout
        self.heads = heads
        self.inputs = nn.Linear(d_model, 3 * d_model, bias=False)
        self.output = nn.Linear(d_model, d_model, bias=False)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values `[B, H, N, D]` of `[B, N, C]`."""
        query, key, value = self.inputs(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return query, key, value

    def merged(self, context: Tensor) -> Tensor:
        """The output `[B, N, C]` for the context `[B, H, N, D]`."""
        return self.output(context.transpose(1, 2).flatten(2))

    def forward(self, x: Tensor) -> Tensor:
        if self.method == "naive":
            return self.merged(naive_attention(*self.split(x), is_causal=True))
        dropout = self.dropout if self.training else 0.0
        return self.merged(F.scaled_dot_product_attention(*self.split(x), dropout_p=dropout, is_causal=True))


def naive_attention(query: Tensor, key: Tensor, value: Tensor, is_causal: bool) -> Tensor:
    """Softmax attention by its formula."""
    logits = query @ key.transpose(2, 3) * query.shape[-1] ** -0.5
    if is_causal:
        hidden = torch.ones(logits.shape[2:], dtype=torch.bool).triu(1)
        logits = logits.masked_fill(hidden, float("-inf"))
    return logits.softmax(dim=-1) @ value


class RandomSynthesizer(nn.Module):
    """The Random Synthesizer (Tay et al. 2021, section 3.2) as its formula says, with a causal mask."""

    def __init__(self, d_model: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads = heads
        self.table = nn.Parameter(torch.randn(heads, length, length))
        self.value = nn.Linear(d_model, d_model, bias=False)
        self.output = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = self.table[:, :length, :length].masked_fill(hidden, float("-inf")).softmax(dim=-1)
        value = self.value(x).unflatten(2, (self.heads, -1)).transpose(1, 2)
        return self.output((weights @ value).transpose(1, 2).flatten(2))


class LocalAttention(CausalAttention):
    """Local attention of the package local-attention: a block of queries sees itself and the block before."""

    def __init__(self, window: int, d_model: int, heads: int) -> None:
        from local_attention import LocalAttention as Attention

        super().__init__("local", d_model, heads)
        self.attention = Attention(
            window_size=window, causal=True, look_backward=1, look_forward=0, dropout=0.0, autopad=True, use_rotary_pos_emb=False
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.merged(self.attention(*self.split(x)))


class MultiheadAttention(nn.Module):
    """torch.nn.MultiheadAttention with a causal mask, which it may leave to scaled_dot_product_attention."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(d_model, heads, bias=False, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        hidden = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        return self.attention(x, x, x, attn_mask=hidden, is_causal=True, need_weights=False)[0]


class XTransformersAttention(nn.Module):
    """The attention of the package x-transformers, with its flash option: scaled_dot_product_attention."""

    def __init__(self, d_model: int, heads: int) -> None:
        from x_transformers.x_transformers import Attention

        super().__init__()
        self.attention = Attention(dim=d_model, dim_head=d_model // heads, heads=heads, causal=True, flash=True)

    def forward(self, x: Tensor) -> Tensor:
        result = self.attention(x)
        return result[0] if isinstance(result, tuple) else result


class TransformersReformer(nn.Module):
    """LSH attention of the Reformer in the package transformers, without an output projection."""

    def __init__(self, bucket: int, rounds: int, d_model: int, heads: int, length: int) -> None:
        from transformers import ReformerConfig
        from transformers.models.reformer.modeling_reformer import LSHSelfAttention

        super().__init__()
        config = ReformerConfig(
            attention_head_size=d_model // heads,
            num_attention_heads=heads,
            hidden_size=d_model,
            lsh_attn_chunk_length=bucket,
            num_hashes=rounds,
            num_buckets=max(2, 2 * (length // bucket)),
            lsh_attention_probs_dropout_prob=0.0,
            max_position_embeddings=length,
            axial_pos_embds=False,
            is_decoder=True,
        )
        self.attention = LSHSelfAttention(config)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x).hidden_states


class Projections(nn.Module):
    """The linear maps of a layer with `count` of them: `count - 1` of the input, and one of their sum."""

    def __init__(self, d_model: int, count: int) -> None:
        super().__init__()
        self.count = count
        self.inputs = nn.Linear(d_model, (count - 1) * d_model, bias=False)
        self.output = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(sum(self.inputs(x).chunk(self.count - 1, dim=2)))


def layer(method: dict[str, Any], d_model: int, heads: int, length: int, dropout: float = 0.0, **_: int) -> nn.Module:
    """The layer called `method["name"]`, with the options beside the name, which drops weights in training with the probability `dropout`."""
    match method:
        case {"name": "sdpa"}:
            return CausalAttention("sdpa", d_model, heads, dropout)
        case _ if dropout > 0:
            raise ValueError(f"dropout is measured of sdpa alone: {method}")
        case {"name": "naive"}:
            return CausalAttention("naive", d_model, heads)
        case {"name": "random-synthesizer"}:
            return RandomSynthesizer(d_model, heads, length)
        case {"name": "local-attention", "window": window}:
            return LocalAttention(window, d_model, heads)
        case {"name": "reformer-pytorch", "bucket": bucket, "rounds": rounds}:
            from reformer_pytorch import LSHSelfAttention

            return LSHSelfAttention(dim=d_model, heads=heads, bucket_size=bucket, n_hashes=rounds, causal=True)
        case {"name": "multihead-attention"}:
            return MultiheadAttention(d_model, heads)
        case {"name": "x-transformers"}:
            return XTransformersAttention(d_model, heads)
        case {"name": "transformers-reformer", "bucket": bucket, "rounds": rounds}:
            return TransformersReformer(bucket, rounds, d_model, heads, length)
        case {"name": "linformer", "rank": rank}:
            from linformer import LinformerSelfAttention

            return LinformerSelfAttention(d_model, length, k=rank, heads=heads)
        case {"name": "lightweight-conv" | "dynamic-conv" as name, "execution": execution, "kernel": kernel}:
            from convolutions import Convolution

            return Convolution(name == "dynamic-conv", execution, kernel, d_model, heads)
        case {"name": "linear-attention"}:
            from recurrences import LinearAttention

            return LinearAttention(d_model, heads)
        case {"name": "simple-gla"}:
            from recurrences import SimpleGla

            return SimpleGla(d_model, heads)
        case {"name": "gated-delta-net", "package": package}:
            from recurrences import GatedDeltaNet

            return GatedDeltaNet(package, d_model, heads)
    raise ValueError(f"unknown attention: {method}")


def pass_of(module: nn.Module, batch: int, length: int, d_model: int, training: bool, **_: int) -> Callable[[], Tensor]:
    """One pass over a random sequence `[batch, length, d_model]`: forward and backward to the sequence and all weights, or inference."""
    module.train(training)
    x = torch.randn(batch, length, d_model, requires_grad=training)

    def train() -> Tensor:
        x.grad = None
        module.zero_grad(set_to_none=True)
        module(x).sum().backward()
        assert x.grad is not None
        return x.grad

    def infer() -> Tensor:
        with torch.inference_mode():
            return module(x)

    return train if training else infer
