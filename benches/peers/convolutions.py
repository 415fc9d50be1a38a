"""Causal lightweight and dynamic convolutions (Wu et al. 2019) in operations of PyTorch."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Convolution(nn.Module):
    """A gated linear unit, a depth-wise convolution whose normalised taps the channels of a head share, and an output projection.

    The taps end at the query. They are parameters, or predicted from each position if `is_dynamic`. `execution` says how they are applied:
    `unfold` multiplies the windows of all positions by them, as fairseq's modules do; `shifted` adds one shifted copy of the sequence for
    each tap; `conv1d` is torch.nn.functional.conv1d, which cannot have taps of each position.
    """

    def __init__(self, is_dynamic: bool, execution: str, kernel: int, d_model: int, heads: int) -> None:
        super().__init__()
        self.kernel = kernel
        self.heads = heads
        self.convolve = {"unfold": self.unfolded, "shifted": self.shifted, "conv1d": self.grouped}[execution]
        self.input = nn.Linear(d_model, 2 * d_model)
        self.output = nn.Linear(d_model, d_model)
        self.predictor = nn.Linear(d_model, heads * kernel, bias=False) if is_dynamic else None
        if not is_dynamic:
            self.taps = nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, kernel)))

    def forward(self, x: Tensor) -> Tensor:
        x = F.glu(self.input(x), dim=2)
        logits = self.predictor(x).unflatten(2, (self.heads, self.kernel)) if self.predictor else self.taps
        padded = F.pad(x, (0, 0, self.kernel - 1, 0))
        return self.output(self.convolve(padded, logits.softmax(dim=-1)))

    def unfolded(self, padded: Tensor, weights: Tensor) -> Tensor:
        """The sum `[B, N, C]` over the taps of `[B, N + k - 1, C]`, with weights `[B, N, H, k]` or `[H, k]`."""
        windows = padded.unfold(1, self.kernel, 1)
        batch, length, d_model, _ = windows.shape
        rows = batch * length * self.heads
        weights = weights.expand(batch, length, -1, -1).reshape(rows, self.kernel, 1)
        return torch.bmm(windows.reshape(rows, d_model // self.heads, self.kernel), weights).view(batch, length, d_model)

    def shifted(self, padded: Tensor, weights: Tensor) -> Tensor:
        """The same, from shifted copies."""
        padded = padded.unflatten(2, (self.heads, -1))
        length = padded.shape[1] - self.kernel + 1
        return sum(padded[:, tap : tap + length] * weights[..., tap, None] for tap in range(self.kernel)).flatten(2)

    def grouped(self, padded: Tensor, weights: Tensor) -> Tensor:
        """The same with weights `[H, k]`, as a convolution with one group for each channel."""
        d_model = padded.shape[2]
        weights = weights.repeat_interleave(d_model // self.heads, dim=0)[:, None]
        return F.conv1d(padded.transpose(1, 2), weights, groups=d_model).transpose(1, 2)
