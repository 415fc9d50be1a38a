"""Products of matrices by each of CubeK's strategies, and by PyTorch.

    python3 products.py ./products --out products.jsonl

The strategies of a type are compiled side by side, a process each, and then measured in turn. A strategy that is not ready after `--limit` seconds is left
out. Each line of the file is one product, with `ms`, `tflops`, or `error`.
"""

import argparse
import json
import selectors
import subprocess
import sys
import time
from typing import Any

import torch

# As in src/products.rs: rows, inner dimension, columns, and which factor is a transpose.
PRODUCTS = [
    ("forward", (16_384, 768, 3072), (False, False)),
    ("gradient of rows", (16_384, 3072, 768), (False, True)),
    ("gradient of weights", (768, 16_384, 3072), (True, False)),
    ("forward, square", (16_384, 768, 768), (False, False)),
    ("gradient of weights, square", (768, 16_384, 768), (True, False)),
    ("logits", (2048, 768, 50_257), (False, True)),
    ("gradient of states", (2048, 50_257, 768), (False, False)),
    ("gradient of embeddings", (50_257, 2048, 768), (True, False)),
]
DTYPES = {"f32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16}
REPETITIONS = 10


def of_pytorch(dtype: str) -> list[dict[str, Any]]:
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"

    def matrix(rows: int, columns: int, transposed: bool) -> torch.Tensor:
        sizes = (columns, rows) if transposed else (rows, columns)
        made = torch.rand(sizes, device="cuda", dtype=DTYPES[dtype]) - 0.5
        return made.T if transposed else made

    lines = []
    for what, sizes, transposed in PRODUCTS:
        rows, inner, columns = sizes
        left, right = matrix(rows, inner, transposed[0]), matrix(inner, columns, transposed[1])
        result = torch.empty(rows, columns, device="cuda", dtype=DTYPES[dtype])
        for _ in range(3):
            torch.mm(left, right, out=result)
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(REPETITIONS):
            torch.mm(left, right, out=result)
        torch.cuda.synchronize()
        seconds = (time.perf_counter() - begun) / REPETITIONS
        about = {"command": "products", "strategy": "PyTorch", "dtype": dtype, "what": what, "sizes": sizes}
        lines.append({**about, "ms": seconds * 1e3, "tflops": 2 * rows * inner * columns / seconds / 1e12})
    return lines


def of_strategies(program: str, dtype: str, limit: float) -> list[dict[str, Any]]:
    names = subprocess.run([program, "products"], capture_output=True, text=True, check=True).stdout.split()
    command = [program, "products", "--backend", "cuda", "--precision", dtype, "--wait", "--strategy"]
    pipe = subprocess.PIPE
    processes = {name: subprocess.Popen([*command, name], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) for name in names}
    selector = selectors.DefaultSelector()
    for name, process in processes.items():
        selector.register(process.stdout, selectors.EVENT_READ, name)
    # Each says a line when all its products are compiled.
    end, ready = time.monotonic() + limit, set()
    while len(ready) < len(names) and time.monotonic() < end:
        for key, _ in selector.select(timeout=1):
            selector.unregister(key.fileobj)
            key.fileobj.readline()
            ready.add(key.data)
    lines = []
    for name, process in processes.items():
        if name in ready:
            try:
                lines += map(json.loads, process.communicate("go\n", timeout=20)[0].splitlines())
                if process.returncode == 0:
                    continue
                failure = f"the program ended with {process.returncode}"
            except (subprocess.TimeoutExpired, BrokenPipeError, json.JSONDecodeError) as error:
                failure = str(error)
        else:
            failure = f"not compiled after {limit} s"
        process.kill()
        lines.append({"command": "products", "strategy": name, "dtype": dtype, "error": failure})
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the program that has the command `products`")
    parser.add_argument("--out", required=True, help="file to append lines to")
    parser.add_argument("--limit", type=float, default=60, help="seconds that compiling may take")
    parser.add_argument("--dtypes", nargs="+", default=["bf16", "f32"], choices=["bf16", "f32"])
    options = parser.parse_args()
    with open(options.out, "a", encoding="utf-8") as out:
        for dtype in options.dtypes:
            ours = ["f32", "tf32"] if dtype == "f32" else [dtype]
            lines = of_strategies(options.program, dtype, options.limit) + [line for kind in ours for line in of_pytorch(kind)]
            out.writelines(json.dumps(line) + "\n" for line in lines)
            out.flush()
            for line in lines:
                print(line["strategy"], line["dtype"], line.get("what"), f"{line['tflops']:.0f}" if "tflops" in line else line.get("error"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
