"""The Transformer of Vaswani et al. 2017 with pre-norm (the default of tensor2tensor), in the parts that the twins are made of.

As heedful documents its models: no biases in attention, ReLU, layer normalisation with epsilon 1e-6 and one more at the end of a stack,
Xavier-uniform maps, embeddings of deviation `d_model^-0.5` times `sqrt(d_model)`, interleaved sinusoids, dropout of embeddings and of what sublayers
add.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def linear(inputs: int, outputs: int, bias: bool) -> nn.Linear:
    """A map with Xavier-uniform weights and zero biases."""
    made = nn.Linear(inputs, outputs, bias=bias)
    nn.init.xavier_uniform_(made.weight)
    if bias:
        nn.init.zeros_(made.bias)
    return made


def norm(width: int) -> nn.LayerNorm:
    return nn.LayerNorm(width, eps=1e-6)


def sinusoids(length: int, width: int) -> Tensor:
    """Section 3.5 of the paper, `[length, width]`."""
    rates = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10_000.0) / width))
    angles = torch.arange(length, dtype=torch.float64).unsqueeze(1) * rates
    table = torch.empty(length, width, dtype=torch.float64)
    table[:, 0::2], table[:, 1::2] = angles.sin(), angles.cos()
    return table.float()


def real(lengths: list[int]) -> Tensor:
    """Which positions of padded rows hold something, `[rows, longest]`."""
    return torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)


class Embedding(nn.Module):
    """Tokens and positions; the matrix also projects to logits where it is tied."""

    def __init__(self, vocabulary: int, width: int, max_length: int, dropout: float) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.empty(vocabulary, width).normal_(std=width**-0.5))
        self.register_buffer("positions", sinusoids(max_length, width), persistent=False)
        self.dropout = nn.Dropout(dropout)
        self.scale = math.sqrt(width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Vectors `[B, N, C]` of tokens `[B, N]`."""
        return self.dropout(F.embedding(tokens, self.matrix) * self.scale + self.positions[: tokens.shape[1]])

    def logits(self, states: Tensor) -> Tensor:
        return states @ self.matrix.T


class MultiHead(nn.Module):
    """Dot-product attention with projections of their own for queries, keys, values and output."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (linear(width, width, bias=False) for _ in range(4))

    def forward(self, x: Tensor, memory: Tensor, visible: Tensor | None, causal: bool) -> Tensor:
        """`[B, N, C]` from queries of `x` `[B, N, C]` and keys and values of `memory` `[B, K, C]`; `visible` `[B, K]` tells what is no padding."""

        def split(y: Tensor) -> Tensor:
            return y.unflatten(2, (self.heads, -1)).transpose(1, 2)

        mask = None if visible is None else visible[:, None, None, :]
        query, key, value = split(self.query(x)), split(self.key(memory)), split(self.value(memory))
        found = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal)
        return self.output(found.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """Self-attention, attention to another sequence where `cross` says so, and a feed-forward network."""

    def __init__(self, width: int, heads: int, d_ff: int, dropout: float, causal: bool, cross: bool) -> None:
        super().__init__()
        self.causal = causal
        self.self_norm, self.self_attention = norm(width), MultiHead(width, heads)
        self.cross_norm, self.cross_attention = (norm(width), MultiHead(width, heads)) if cross else (None, None)
        self.forward_norm = norm(width)
        self.forward_network = nn.Sequential(linear(width, d_ff, bias=True), nn.ReLU(), linear(d_ff, width, bias=True))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, visible: Tensor | None, memory: Tensor | None, memory_visible: Tensor | None) -> Tensor:
        y = self.self_norm(x)
        x = x + self.dropout(self.self_attention(y, y, visible, self.causal))
        if self.cross_attention is not None:
            x = x + self.dropout(self.cross_attention(self.cross_norm(x), memory, memory_visible, False))
        return x + self.dropout(self.forward_network(self.forward_norm(x)))


class Stack(nn.Module):
    """Layers and the normalisation after them."""

    def __init__(self, settings: dict, causal: bool, cross: bool = False) -> None:
        super().__init__()
        width, heads, d_ff, dropout = (settings[field] for field in ("d_model", "heads", "d_ff", "dropout"))
        self.layers = nn.ModuleList(Layer(width, heads, d_ff, dropout, causal, cross) for _ in range(settings["layers"]))
        self.norm = norm(width)

    def forward(self, x: Tensor, visible: Tensor | None = None, memory: Tensor | None = None, memory_visible: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            x = layer(x, visible, memory, memory_visible)
        return self.norm(x)


def embedding(settings: dict, vocabulary: int) -> Embedding:
    return Embedding(vocabulary, settings["d_model"], settings["max_length"], settings["dropout"])


class LanguageModel(nn.Module):
    """A decoder with tied output."""

    def __init__(self, settings: dict, vocabulary: int) -> None:
        super().__init__()
        self.embedding, self.decoder = embedding(settings, vocabulary), Stack(settings, causal=True)

    def forward(self, tokens: Tensor) -> Tensor:
        """Last states `[B, N, C]` of tokens `[B, N]`."""
        return self.decoder(self.embedding(tokens))


class Classifier(nn.Module):
    """An encoder, the mean of its states, and a map to classes."""

    def __init__(self, settings: dict, vocabulary: int, classes: int) -> None:
        super().__init__()
        self.embedding, self.encoder = embedding(settings, vocabulary), Stack(settings, causal=False)
        self.dropout = nn.Dropout(settings["dropout"])
        self.output = linear(settings["d_model"], classes, bias=True)

    def forward(self, tokens: Tensor, lengths: list[int]) -> Tensor:
        """Logits `[B, classes]` of padded rows `[B, N]`."""
        visible = real(lengths)
        states = self.encoder(self.embedding(tokens), visible)
        mean = (states * visible.unsqueeze(2)).sum(dim=1) / visible.sum(dim=1, keepdim=True)
        return self.output(self.dropout(mean))


class Translator(nn.Module):
    """An encoder and a decoder with one matrix for both vocabularies and the output."""

    def __init__(self, settings: dict, vocabulary: int) -> None:
        super().__init__()
        self.embedding = embedding(settings, vocabulary)
        self.encoder, self.decoder = Stack(settings, causal=False), Stack(settings, causal=True, cross=True)

    def encode(self, source: Tensor, visible: Tensor) -> Tensor:
        return self.encoder(self.embedding(source), visible)

    def decode(self, target: Tensor, memory: Tensor, memory_visible: Tensor) -> Tensor:
        """States `[B, T, C]`. Padding is behind what is real, where nothing real looks."""
        return self.decoder(self.embedding(target), None, memory, memory_visible)
