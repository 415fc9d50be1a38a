"""The twin of the mechanism distance-power in PyTorch, and what both make of the same weights and inputs.

    pip install torch safetensors numpy
    cargo build --release --manifest-path examples/third-party/Cargo.toml
    python examples/third-party/distance_power.py [examples/third-party/target/release/heedful]

Prints the greatest differences of the output, the weights and all gradients, and fails if one exceeds 1e-5.
"""

import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

BATCH, LENGTH, D_MODEL, HEADS, KV_HEADS = 3, 7, 32, 4, 2
WIDTH = D_MODEL // HEADS
TOLERANCE = 1e-5


def split_heads(x, heads):
    """[B, N, H D] to [B, H, N, D]."""
    return x.unflatten(2, (heads, -1)).transpose(1, 2)


def distance_power(x, weights, causal):
    """Output and attention weights. Linear maps are stored [d_in, d_out]."""
    q = split_heads(x @ weights["logits.query.weight"], HEADS)
    k = split_heads(x @ weights["logits.key.weight"], KV_HEADS).repeat_interleave(HEADS // KV_HEADS, dim=1)
    v = split_heads(x @ weights["value.weight"], KV_HEADS).repeat_interleave(HEADS // KV_HEADS, dim=1)
    position = torch.arange(LENGTH)
    distance = (position[:, None] - position).abs()
    power = torch.nn.functional.softplus(weights["logits.power"])[:, None, None]
    logits = q @ k.transpose(2, 3) / WIDTH**0.5 - power * torch.log1p(distance.float())
    if causal:
        logits = logits.masked_fill(position[:, None] < position, float("-inf"))
    attended = logits.softmax(3)
    return (attended @ v).transpose(1, 2).flatten(2) @ weights["output.weight"], attended


def main():
    binary = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "examples/third-party/target/release/heedful").resolve()
    generator = torch.Generator().manual_seed(1)
    shapes = {
        "logits.query.weight": (D_MODEL, D_MODEL),
        "logits.key.weight": (D_MODEL, KV_HEADS * WIDTH),
        "logits.power": (HEADS,),
        "value.weight": (D_MODEL, KV_HEADS * WIDTH),
        "output.weight": (D_MODEL, D_MODEL),
    }
    greatest = 0.0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for role in ["encoder", "decoder"]:
            weights = {name: torch.randn(shape, generator=generator) / D_MODEL**0.5 for name, shape in shapes.items()}
            x, cotangent = (torch.randn(BATCH, LENGTH, D_MODEL, generator=generator) for _ in range(2))
            save_file(weights | {"x": x, "cotangent": cotangent}, folder / "in.safetensors")
            settings = [f"role={role}", f"d_model={D_MODEL}", f"heads={HEADS}", f"kv_heads={KV_HEADS}", f"max_length={LENGTH}"]
            options = [word for setting in settings for word in ("--set", setting)]
            files = ["--inputs", folder / "in.safetensors", "--output", folder / "out.safetensors"]
            subprocess.run([binary, "parity", "--attention", "distance-power", *options, *files], check=True)
            found = load_file(folder / "out.safetensors")

            leaves = {name: tensor.requires_grad_() for name, tensor in (weights | {"x": x}).items()}
            output, attended = distance_power(leaves["x"], leaves, role == "decoder")
            (output * cotangent).sum().backward()
            expected = {"output": output, "weights": attended} | {f"grad.{name}": leaf.grad for name, leaf in leaves.items()}
            assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
            print(role)
            for name in sorted(expected):
                difference = (found[name] - expected[name]).abs().max().item()
                greatest = max(greatest, difference)
                print(f"  {name:28} {str(tuple(found[name].shape)):18} {difference:.1e}")
    print(f"greatest difference {greatest:.1e}")
    sys.exit(greatest > TOLERANCE)


if __name__ == "__main__":
    main()
