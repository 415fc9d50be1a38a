"""Causal layers of linear time: recurrences of packages in plain PyTorch, with the maps, convolutions and gates of heedful's layers."""

import inspect
import math
from collections.abc import Callable
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import torch
import torch.nn.functional as F
from attention import CausalAttention
from torch import Tensor, nn


def naive(recurrence: str) -> ModuleType:
    """`fla.ops.<recurrence>.naive` of fla-core, from its file: the package itself cannot be imported without Triton."""
    package = find_spec("fla")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("No module named 'fla'; it is in the package fla-core")
    path = Path(package.submodule_search_locations[0]) / "ops" / recurrence / "naive.py"
    spec = spec_from_file_location(f"naive_{recurrence}", path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def torch_rule() -> Callable[..., tuple[Tensor, Tensor | None]]:
    """The gated delta rule of transformers in plain PyTorch. Unwrapped, since transformers calls fla-core in its place where that is installed."""
    from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

    return inspect.unwrap(torch_chunk_gated_delta_rule)


class LinearAttention(CausalAttention):
    """Linear attention with features `elu(x) + 1`, in the chunks of fla."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__("linear-attention", d_model, heads)
        self.attend = naive("linear_attn").naive_chunk_linear_attn

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (part.transpose(1, 2) for part in self.split(x))
        context = self.attend(F.elu(query) + 1, F.elu(key) + 1, value, scale=1.0, normalize=True)
        return self.merged(context.transpose(1, 2))


class RecurrentLayer(nn.Module):
    """Queries, keys and values pass through short convolutions and a recurrence, which subclasses have; heads are normalised and gated."""

    EPSILON = 1e-5
    TAPS = 4

    def __init__(self, d_model: int, heads: int, key_width: int, value_width: int) -> None:
        super().__init__()
        self.heads = heads
        self.widths = [heads * key_width, heads * key_width, heads * value_width]
        channels = sum(self.widths)
        # Queries, keys, values and the gate.
        self.inputs = nn.Linear(d_model, channels + heads * value_width, bias=False)
        self.convolution = nn.Conv1d(channels, channels, self.TAPS, groups=channels, padding=self.TAPS - 1, bias=False)
        self.gain = nn.Parameter(torch.ones(value_width))
        self.output = nn.Linear(heads * value_width, d_model, bias=False)

    def recur(self, x: Tensor, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """What is read, `[B, N, H, V]`, of elements `[B, N, C]` with queries and keys `[B, N, H, K]` and values `[B, N, H, V]`."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        mixed, gate = self.inputs(x).split([sum(self.widths), self.widths[2]], dim=2)
        mixed = self.convolution(mixed.transpose(1, 2).contiguous())[:, :, : x.shape[1]]
        parts = F.silu(mixed).transpose(1, 2).split(self.widths, dim=2)
        context = self.recur(x, *(part.unflatten(2, (self.heads, -1)) for part in parts))
        context = F.rms_norm(context, self.gain.shape, self.gain, self.EPSILON)
        return self.output(context.flatten(2) * F.silu(gate))


class SimpleGla(RecurrentLayer):
    """Simple gated linear attention in the chunks of fla."""

    NORMALISER = 16

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__(d_model, heads, d_model // heads, d_model // heads)
        self.rate = nn.Linear(d_model, heads)
        self.rule = naive("simple_gla").naive_chunk_simple_gla

    def recur(self, x: Tensor, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return self.rule(query, key, value, F.logsigmoid(self.rate(x)) / self.NORMALISER)[0]


class GatedDeltaNet(RecurrentLayer):
    """Gated DeltaNet. `package` is `fla` or `transformers`, whose chunks it has."""

    KEY_EXPANSION, VALUE_EXPANSION = 0.75, 2
    LENGTH_EPSILON = 1e-6

    def __init__(self, package: str, d_model: int, heads: int) -> None:
        key_width = math.ceil(self.KEY_EXPANSION * (d_model // heads))
        super().__init__(d_model, heads, key_width, self.VALUE_EXPANSION * key_width)
        self.strength = nn.Linear(d_model, heads, bias=False)
        self.step = nn.Linear(d_model, heads)
        self.a_log = nn.Parameter(torch.empty(heads).uniform_(1, 16).log())
        # The bias of which the softplus is a step size between 0.001 and 0.1.
        steps = torch.empty(heads).uniform_(math.log(1e-3), math.log(0.1)).exp()
        with torch.no_grad():
            self.step.bias.copy_(steps + torch.log(-torch.expm1(-steps)))
        self.rule = naive("gated_delta_rule").naive_chunk_gated_delta_rule if package == "fla" else torch_rule()

    def of_length_one(self, x: Tensor) -> Tensor:
        """Vectors `[..., K]` divided by their lengths."""
        return x * torch.rsqrt(x.square().sum(dim=-1, keepdim=True) + self.LENGTH_EPSILON)

    def recur(self, x: Tensor, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        log_decay = -self.a_log.exp() * F.softplus(self.step(x))
        query, key = self.of_length_one(query), self.of_length_one(key)
        return self.rule(query, key, value, g=log_decay, beta=self.strength(x).sigmoid())[0]
