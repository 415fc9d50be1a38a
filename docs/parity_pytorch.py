"""Compares `dot-product` with torch.nn.MultiheadAttention: output, attention weights and all gradients.

    pip install torch safetensors numpy
    cargo build --release --bin heedful
    python docs/parity_pytorch.py [target/release/heedful]

Prints the greatest differences and fails if one exceeds 1e-5.
"""

import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

BATCH, LENGTH, MEMORY, D_MODEL, HEADS = 3, 7, 5, 32, 4
TOLERANCE = 1e-5


def multihead_attention(role, generator):
    """PyTorch's side: the tensors of in.safetensors, and what out.safetensors should hold."""
    module = torch.nn.MultiheadAttention(D_MODEL, HEADS, bias=False, batch_first=True)
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator) / D_MODEL**0.5)
    x = torch.randn(BATCH, LENGTH, D_MODEL, generator=generator, requires_grad=True)
    memory = torch.randn(BATCH, MEMORY, D_MODEL, generator=generator, requires_grad=True) if role == "cross" else x
    cotangent = torch.randn(BATCH, LENGTH, D_MODEL, generator=generator)

    # True = hidden, in both masks. The last row of the batch ends with two padded keys.
    key_padding = torch.zeros(BATCH, memory.shape[1], dtype=torch.bool)
    key_padding[-1, -2:] = True
    future = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1) if role == "decoder" else None

    output, weights = module(x, memory, memory, key_padding_mask=key_padding, attn_mask=future, average_attn_weights=False)
    (output * cotangent).sum().backward()

    # in_proj_weight holds the three projections on top of each other, [d_out, d_in] each; heedful has [d_in, d_out].
    def projections(in_proj, out_proj):
        query, key, value = in_proj.chunk(3)
        named = {"logits.query.weight": query, "logits.key.weight": key, "value.weight": value, "output.weight": out_proj}
        return {name: weight.detach().T.contiguous() for name, weight in named.items()}

    inputs = projections(module.in_proj_weight, module.out_proj.weight)
    inputs |= {"x": x.detach(), "key_padding": key_padding, "cotangent": cotangent}
    expected = {"output": output.detach(), "weights": weights.detach(), "grad.x": x.grad}
    gradients = projections(module.in_proj_weight.grad, module.out_proj.weight.grad)
    expected |= {f"grad.{name}": gradient for name, gradient in gradients.items()}
    if role == "cross":
        inputs["memory"] = memory.detach()
        expected["grad.memory"] = memory.grad
    return inputs, expected


def heedful(binary, folder, role, inputs):
    """heedful's side: what out.safetensors holds."""
    config, source, target = folder / "mechanism.toml", folder / "in.safetensors", folder / "out.safetensors"
    config.write_text(
        f'attention = {{ name = "dot-product" }}\nrole = "{role}"\nd_model = {D_MODEL}\nheads = {HEADS}\nmax_length = {LENGTH}\n'
    )
    save_file(inputs, source)
    subprocess.run([binary, "parity", "--config", config, "--inputs", source, "--output", target], check=True)
    return load_file(target)


def main():
    binary = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "target/release/heedful").resolve()
    generator = torch.Generator().manual_seed(1)
    greatest = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for role in ["encoder", "decoder", "cross"]:
            inputs, expected = multihead_attention(role, generator)
            found = heedful(binary, pathlib.Path(folder), role, inputs)
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
