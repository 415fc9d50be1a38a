"""A decoder-only Transformer with the sizes and the formulas of heedful's: pre-norm, sinusoids, tied output, no dropout."""

import math
import os
import shutil
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from attention import CausalAttention
from torch import Tensor, nn


class Cache:
    """Keys and values `[B, H, N, D]` of the positions so far, in buffers that are large enough from the start."""

    def __init__(self, shape: tuple[int, int, int, int]) -> None:
        self.keys = torch.empty(shape)
        self.values = torch.empty(shape)
        self.length = 0

    def extended(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values with those of the next position."""
        self.keys[:, :, self.length : self.length + 1] = key
        self.values[:, :, self.length : self.length + 1] = value
        self.length += 1
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]


class Block(nn.Module):
    """Self-attention and a feed-forward network, each normalised before and added to its input."""

    def __init__(self, d_model: int, heads: int, d_ff: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(d_model, eps=1e-6)
        self.attention = CausalAttention("sdpa", d_model, heads)
        self.feed_forward_norm = nn.LayerNorm(d_model, eps=1e-6)
        self.feed_forward = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        normed = self.attention_norm(x)
        if cache is None:
            x = x + self.attention(normed)
        else:
            query, key, value = self.attention.split(normed)
            x = x + self.attention.merged(F.scaled_dot_product_attention(query, *cache.extended(key, value)))
        return x + self.feed_forward(self.feed_forward_norm(x))


class LanguageModel(nn.Module):
    """The decoder-only Transformer."""

    def __init__(self, vocabulary: int, layers: int, d_model: int, heads: int, d_ff: int, max_length: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, d_model)
        nn.init.normal_(self.embedding.weight, std=d_model**-0.5)
        self.register_buffer("positions", sinusoids(max_length, d_model))
        self.blocks = nn.ModuleList(Block(d_model, heads, d_ff) for _ in range(layers))
        self.norm = nn.LayerNorm(d_model, eps=1e-6)
        self.scale = math.sqrt(d_model)

    def hidden(self, tokens: Tensor, caches: list[Cache] | None = None) -> Tensor:
        """Last hidden states `[B, N, C]` of tokens `[B, N]`; with caches, `N` is 1 and the tokens follow those that the caches hold."""
        start = caches[0].length if caches else 0
        x = self.embedding(tokens) * self.scale + self.positions[start : start + tokens.shape[1]]
        for index, block in enumerate(self.blocks):
            x = block(x, caches[index] if caches else None)
        return self.norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits `[.., V]` of hidden states `[.., C]`."""
        return F.linear(hidden, self.embedding.weight)


def sinusoids(length: int, d_model: int) -> Tensor:
    """Sines and cosines of Vaswani et al. 2017, section 3.5, `[length, d_model]`."""
    rates = 10_000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * rates
    return torch.stack((angles.sin(), angles.cos()), dim=2).flatten(1).float()


def step_of(model: nn.Module, loss: Callable[[], Tensor], method: dict[str, Any]) -> Callable[[], float]:
    """One step of AdamW, which returns the loss.

    `method["fused"]` says which implementation of AdamW runs, and `method["compiled"]` whether torch.compile makes code of the loss and
    its gradients. That happens here: the step that is returned has been compiled.
    """
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-8, weight_decay=0.01, fused=method["fused"])
    if method["compiled"]:
        # Where torch.compile looks for it.
        compiler = os.environ.get("CXX", "g++")
        if shutil.which(compiler) is None:
            raise RuntimeError(f"left out: torch.compile needs a C++ compiler, and there is no {compiler}")
        loss = torch.compile(loss)

    def step() -> float:
        optimiser.zero_grad(set_to_none=True)
        found = loss()
        found.backward()
        optimiser.step()
        return found.item()

    if method["compiled"]:
        step()
    return step


def training_step(sizes: dict[str, int], method: dict[str, Any], batch: int, length: int) -> Callable[[], float]:
    """One step of a language model on random tokens, as `step_of` says."""
    model = LanguageModel(**sizes, max_length=length)
    tokens = torch.randint(sizes["vocabulary"], (batch, length + 1))
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].flatten()
    return step_of(model, lambda: F.cross_entropy(model.logits(model.hidden(inputs)).flatten(0, 1), targets), method)


def decoding(sizes: dict[str, int], batch: int, tokens: int, recomputed_at: int | None) -> Callable[[], float]:
    """Greedy decoding of `tokens` tokens, which returns its seconds.

    With a cache of keys and values; or without one, timed at `recomputed_at` evenly spaced lengths of the prefix and scaled up to all of them.
    """
    model = LanguageModel(**sizes, max_length=tokens).eval()

    def with_cache() -> float:
        shape = (batch, sizes["heads"], tokens, sizes["d_model"] // sizes["heads"])
        begun = time.perf_counter()
        with torch.inference_mode():
            caches = [Cache(shape) for _ in model.blocks]
            last = torch.zeros(batch, 1, dtype=torch.long)
            for _ in range(tokens):
                last = model.logits(model.hidden(last, caches)).argmax(dim=2)
        return time.perf_counter() - begun

    def from_prefixes(count: int) -> float:
        spent = 0.0
        for index in range(count):
            prefix = torch.randint(sizes["vocabulary"], (batch, (2 * index + 1) * tokens // (2 * count) + 1))
            begun = time.perf_counter()
            with torch.inference_mode():
                model.logits(model.hidden(prefix)[:, -1]).argmax(dim=1)
            spent += time.perf_counter() - begun
        return spent * tokens / count

    return with_cache if recomputed_at is None else lambda: from_prefixes(recomputed_at)
