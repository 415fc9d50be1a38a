"""Training steps on padded batches: a classifier, and an encoder-decoder with one embedding for all. Formulas are those of heedful's."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from attention import CausalAttention
from language_model import Block, sinusoids, step_of
from torch import Tensor, nn


class MaskedAttention(CausalAttention):
    """Self-attention to what a mask `[B, 1, 1, N]` shows."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__("sdpa", d_model, heads)

    def forward(self, x: Tensor, shown: Tensor) -> Tensor:
        return self.merged(F.scaled_dot_product_attention(*self.split(x), attn_mask=shown))


class CrossAttention(nn.Module):
    """Attention to a memory `[B, S, C]`, of which a mask `[B, 1, 1, S]` says what is shown."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(d_model, d_model, bias=False)
        self.memory = nn.Linear(d_model, 2 * d_model, bias=False)
        self.output = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x: Tensor, memory: Tensor, shown: Tensor) -> Tensor:
        query = self.query(x).unflatten(2, (self.heads, -1)).transpose(1, 2)
        key, value = self.memory(memory).unflatten(2, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        context = F.scaled_dot_product_attention(query, key, value, attn_mask=shown)
        return self.output(context.transpose(1, 2).flatten(2))


class EncoderBlock(Block):
    """A block that sees what is shown of its whole input."""

    def __init__(self, d_model: int, heads: int, d_ff: int) -> None:
        super().__init__(d_model, heads, d_ff)
        self.attention = MaskedAttention(d_model, heads)

    def forward(self, x: Tensor, shown: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), shown)
        return x + self.feed_forward(self.feed_forward_norm(x))


class DecoderBlock(Block):
    """A block that sees its input up to each position, and what is shown of a memory."""

    def __init__(self, d_model: int, heads: int, d_ff: int) -> None:
        super().__init__(d_model, heads, d_ff)
        self.cross_norm = nn.LayerNorm(d_model, eps=1e-6)
        self.cross = CrossAttention(d_model, heads)

    def forward(self, x: Tensor, memory: Tensor, shown: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        x = x + self.cross(self.cross_norm(x), memory, shown)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Embedding(nn.Module):
    """Tokens `[B, N]` as vectors `[B, N, C]` with positions."""

    def __init__(self, vocabulary: int, d_model: int, max_length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, d_model)
        nn.init.normal_(self.tokens.weight, std=d_model**-0.5)
        self.register_buffer("positions", sinusoids(max_length, d_model))
        self.scale = math.sqrt(d_model)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.tokens(tokens) * self.scale + self.positions[: tokens.shape[1]]


class Encoder(nn.Module):
    """Blocks and a normalisation."""

    def __init__(self, layers: int, d_model: int, heads: int, d_ff: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(EncoderBlock(d_model, heads, d_ff) for _ in range(layers))
        self.norm = nn.LayerNorm(d_model, eps=1e-6)

    def forward(self, x: Tensor, shown: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x, shown)
        return self.norm(x)


class Classifier(nn.Module):
    """The mean of an encoder's states over the real tokens, mapped to classes."""

    def __init__(self, vocabulary: int, classes: int, layers: int, d_model: int, heads: int, d_ff: int, max_length: int) -> None:
        super().__init__()
        self.embedding = Embedding(vocabulary, d_model, max_length)
        self.encoder = Encoder(layers, d_model, heads, d_ff)
        self.output = nn.Linear(d_model, classes)

    def forward(self, tokens: Tensor, shown: Tensor) -> Tensor:
        states = self.encoder(self.embedding(tokens), shown)
        real = shown[:, 0, 0, :, None].float()
        return self.output((states * real).sum(dim=1) / real.sum(dim=1))


class Translator(nn.Module):
    """The encoder-decoder."""

    def __init__(self, vocabulary: int, layers: int, d_model: int, heads: int, d_ff: int, max_length: int) -> None:
        super().__init__()
        self.embedding = Embedding(vocabulary, d_model, max_length)
        self.encoder = Encoder(layers, d_model, heads, d_ff)
        self.blocks = nn.ModuleList(DecoderBlock(d_model, heads, d_ff) for _ in range(layers))
        self.norm = nn.LayerNorm(d_model, eps=1e-6)

    def forward(self, source: Tensor, shown: Tensor, target: Tensor) -> Tensor:
        """The decoder's states `[B, T, C]`."""
        memory = self.encoder(self.embedding(source), shown)
        x = self.embedding(target)
        for block in self.blocks:
            x = block(x, memory, shown)
        return self.norm(x)

    def logits(self, states: Tensor) -> Tensor:
        """Logits `[.., V]` of states `[.., C]`."""
        return F.linear(states, self.embedding.tokens.weight)


def padded(vocabulary: int, lengths: list[int]) -> tuple[Tensor, Tensor]:
    """Random tokens `[B, N]`, and `[B, 1, 1, N]` that shows the real ones."""
    real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return torch.randint(vocabulary, real.shape).masked_fill(~real, 0), real[:, None, None]


def classifier_step(sizes: dict[str, int], method: dict[str, Any], classes: int, lengths: list[int]) -> Callable[[], float]:
    """One step of a classifier on random sentences of these lengths, as `step_of` says."""
    model = Classifier(**sizes, classes=classes, max_length=max(lengths))
    tokens, shown = padded(sizes["vocabulary"], lengths)
    labels = torch.arange(len(lengths)) % classes
    return step_of(model, lambda: F.cross_entropy(model(tokens, shown), labels), method)


def translation_step(sizes: dict[str, int], method: dict[str, Any], source: list[int], target: list[int]) -> Callable[[], float]:
    """One step of an encoder-decoder on random pairs of these lengths, as `step_of` says. States of padding are not mapped to logits."""
    model = Translator(**sizes, max_length=max(source + target))
    sources, shown = padded(sizes["vocabulary"], source)
    inputs, real = padded(sizes["vocabulary"], target)
    indices = real.flatten().nonzero().flatten()
    targets = torch.randint(sizes["vocabulary"], indices.shape)

    def loss() -> Tensor:
        states = model(sources, shown, inputs).flatten(0, 1).index_select(0, indices)
        return F.cross_entropy(model.logits(states), targets)

    return step_of(model, loss, method)
