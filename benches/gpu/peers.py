"""PyTorch beside heedful on one GPU: products, attention, a training step and decoding.

    python3 peers.py device    --out peers.jsonl
    python3 peers.py attention --out peers.jsonl --lengths 512,2048 --dtypes f32,bf16
    python3 peers.py layer     --out peers.jsonl --lengths 512,2048
    python3 peers.py step      --out peers.jsonl --dtypes f32,bf16 --dropout 0.0,0.1 [--compile]
    python3 peers.py decode    --out peers.jsonl --lengths 128,1024 --batch 1,16

Each measurement appends one JSON object to the file of `--out` at once. It says what was measured (`command`, sizes, `dtype`) and

* `ms`, `ms_min`, `ms_max`, `repetitions`: the median, least and greatest time of the repetitions, on the GPU by CUDA events;
* `peak_bytes`: most memory that tensors took at a time, less what they took before the measurement began. `held_bytes` of it were inputs, weights and
  the optimiser's state, there before and after each repetition. On a CPU both are null;
* or `error`, if it failed; the next measurement goes on.

`first_s` is the time of the first run, compilation included. `device` adds `gb_per_s` (read and written) or `tflops`, `step` and `decode` add
`tokens_per_s`. In decode the times are those of single tokens, and `ms_per_token` is that of the whole sequence divided by its length.

Types are `f32` (full single precision), `tf32` (the same tensors, products may round their factors to TF32), `bf16` and `f16`. Once `--limit` seconds
have passed, the line `{"stopped": ...}` follows and the program ends with success. `--device cpu` rehearses it all without a GPU.
"""

import argparse
import contextlib
import gc
import json
import math
import platform
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

DTYPES = {"f32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
MODEL = ("layers", "d_model", "heads", "vocabulary", "positions")
Point = dict[str, Any]


class Stopped(Exception):
    """The time is up."""


class Bench:
    """Times what it is given on one device and writes the results down."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.begun = time.perf_counter()
        self.options = options
        self.device = torch.device(options.device)
        self.on_gpu = self.device.type == "cuda"
        self.out = open(options.out, "a", encoding="utf-8")
        self.before = 0
        # What libraries allocate once, for each type and each thread, is no measurement's own.
        for dtype in set(DTYPES.values()) if self.on_gpu else ():
            x = torch.randn(64, 64, device=self.device, dtype=dtype, requires_grad=True)
            (x @ x).sum().backward()

    def write(self, line: Point) -> None:
        """Appends one line, which stays even if the process is ended after."""
        self.out.write(json.dumps(line) + "\n")
        self.out.flush()

    def point(self, what: Point, measure: Callable[[], Point]) -> None:
        """Writes down what `measure` finds, or how it fails, under the name `what`. Raises `Stopped` if no time is left."""
        what = {"command": self.options.command, "device": self.device.type, **what}
        if time.perf_counter() - self.begun > self.options.limit:
            self.write({"stopped": f"{self.options.limit:g} s have passed", "next": what})
            raise Stopped
        self.forget()
        # False is the default; a product of f32 may use TF32 only where its type says so.
        torch.backends.cuda.matmul.allow_tf32 = what.get("dtype") == "tf32"
        try:
            found = measure()
        except Exception as error:  # noqa: BLE001: whatever fails, the next measurement goes on.
            found = {"error": f"{type(error).__name__}: {error}"[:500]}
        self.write({**what, **found})
        name = " ".join(f"{key}={value}" for key, value in what.items() if key not in ("command", "device"))
        print(what["command"], name, "->", summary(found), flush=True)

    def forget(self) -> None:
        """Frees what the last measurement left, and begins to count memory anew."""
        gc.collect()
        if self.on_gpu:
            # A kernel's error turns up at any later call: it was written down already.
            with contextlib.suppress(RuntimeError):
                torch.cuda.synchronize()
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            self.before = torch.cuda.memory_allocated()

    def wait(self) -> None:
        """Until the device has done its work."""
        if self.on_gpu:
            torch.cuda.synchronize()

    def marks(self, run: Callable[[Callable[[], None]], None]) -> list[float]:
        """Milliseconds between the calls that `run` makes of the function it is given, which waits for nothing."""
        if not self.on_gpu:
            moments: list[float] = []
            run(lambda: moments.append(time.perf_counter()))
            return [1e3 * (end - start) for start, end in zip(moments, moments[1:])]
        events: list[torch.cuda.Event] = []

        def mark() -> None:
            events.append(torch.cuda.Event(enable_timing=True))
            events[-1].record()

        run(mark)
        torch.cuda.synchronize()
        return [start.elapsed_time(end) for start, end in zip(events, events[1:])]

    def memory(self, run: Callable[[], object]) -> Point:
        """Memory of one `run`."""
        if not self.on_gpu:
            run()
            return {"peak_bytes": None, "held_bytes": None}
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated() - self.before
        run()
        torch.cuda.synchronize()
        return {"peak_bytes": torch.cuda.max_memory_allocated() - self.before, "held_bytes": held}

    def time(self, run: Callable[[], object], warm_ups: int = 3, least: int = 5) -> Point:
        """Time and memory of `run`: at least `least` repetitions, and as many as fit into the seconds of a point."""
        begun = time.perf_counter()
        run()
        self.wait()
        first = time.perf_counter() - begun
        for _ in range(warm_ups - 2):
            run()
        self.wait()
        begun = time.perf_counter()
        memory = self.memory(run)
        once = time.perf_counter() - begun
        count = min(max(least, int(self.options.seconds_per_point / once)), 1000)

        def repeat(mark: Callable[[], None]) -> None:
            mark()
            for _ in range(count):
                run()
                mark()

        return {**spread(self.marks(repeat)), "first_s": round(first, 4), **memory}


def spread(times: list[float]) -> Point:
    """The median of milliseconds, and their range."""
    return {"ms": statistics.median(times), "ms_min": min(times), "ms_max": max(times), "repetitions": len(times)}


def summary(found: Point) -> str:
    """What a person wants to see of a result."""
    if "error" in found:
        return found["error"].splitlines()[0][:120]
    units = {"ms": "ms", "ms_per_token": "ms/token", "tflops": "TFLOP/s", "gb_per_s": "GB/s", "tokens_per_s": "tokens/s"}
    parts = [f"{found[key]:.4g} {unit}" for key, unit in units.items() if key in found]
    if found.get("peak_bytes") is not None:
        parts.append(f"{found['peak_bytes'] / 2**20:.0f} MiB")
    return ", ".join(parts) or json.dumps(found)


def device(bench: Bench) -> None:
    """What the device is, and how fast it copies and multiplies."""
    options = bench.options

    def about() -> Point:
        versions = {"python": platform.python_version(), "torch": torch.__version__, "cuda": torch.version.cuda}
        if not bench.on_gpu:
            return {"name": platform.machine(), "threads": torch.get_num_threads(), **versions}
        found = torch.cuda.get_device_properties(bench.device)
        try:
            query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
            driver = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout.split()[0]
        except (OSError, subprocess.SubprocessError, IndexError) as error:
            driver = f"unknown: {error}"
        sizes = {"multiprocessors": found.multi_processor_count, "memory_bytes": found.total_memory, "l2_bytes": found.L2_cache_size}
        return {"name": found.name, "driver": driver, "capability": f"{found.major}.{found.minor}", **sizes, **versions}

    def copy() -> Point:
        source = torch.ones(options.copy_bytes, dtype=torch.uint8, device=bench.device)
        target = torch.empty_like(source)
        found = bench.time(lambda: target.copy_(source))
        return {**found, "gb_per_s": 2 * options.copy_bytes / found["ms"] / 1e6}

    def product(size: int, dtype: torch.dtype) -> Point:
        left, right = (torch.randn(size, size, device=bench.device, dtype=dtype) for _ in range(2))
        result = torch.empty_like(left)
        found = bench.time(lambda: torch.mm(left, right, out=result))
        return {**found, "tflops": 2 * size**3 / found["ms"] / 1e9}

    bench.point({"what": "about"}, about)
    bench.point({"what": "copy", "bytes": options.copy_bytes}, copy)
    for dtype in options.dtypes:
        for size in options.sizes:
            bench.point({"what": "product", "dtype": dtype, "size": size}, lambda: product(size, DTYPES[dtype]))


def passes(bench: Bench, forward: Callable[[], Tensor], leaves: list[Tensor], training: bool) -> Point:
    """Time of `forward`, with the backward pass to `leaves` if `training`."""
    if not training:
        with torch.no_grad():
            return bench.time(forward)
    for leaf in leaves:
        leaf.requires_grad_(True)
    with torch.no_grad():
        gradient = torch.randn_like(forward())

    def both() -> None:
        forward().backward(gradient)
        for leaf in leaves:
            assert leaf.grad is not None
            leaf.grad = None

    return bench.time(both)


def sdpa_backend(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> str:
    """Which implementation scaled_dot_product_attention takes, by a function of PyTorch that is not public."""
    try:
        return torch.nn.attention.SDPBackend(torch._fused_sdp_choice(query, key, value, is_causal=causal)).name
    except Exception as error:  # noqa: BLE001: a note, not a measurement.
        return f"unknown: {type(error).__name__}"


def attention(bench: Bench) -> None:
    """scaled_dot_product_attention alone: queries, keys and values `[B, H, N, D]` in, and their gradients out."""
    options = bench.options
    causal = not options.full

    def measure(length: int, batch: int, dtype: torch.dtype, training: bool) -> Point:
        shape = (batch, options.heads, length, options.width)
        inputs = [torch.randn(shape, device=bench.device, dtype=dtype).requires_grad_(training) for _ in range(3)]
        backend = sdpa_backend(*inputs, causal)
        return {"backend": backend, **passes(bench, lambda: F.scaled_dot_product_attention(*inputs, is_causal=causal), inputs, training)}

    by_length(bench, measure, {"causal": causal})


def layer(bench: Bench) -> None:
    """Multi-head attention `[B, N, C]` with its projections, and the gradients of its input and weights."""
    options = bench.options
    d_model, causal = options.heads * options.width, not options.full

    def measure(length: int, batch: int, dtype: torch.dtype, training: bool) -> Point:
        module = SelfAttention(d_model, options.heads, bias=options.bias, causal=causal).to(bench.device, dtype)
        x = torch.randn(batch, length, d_model, device=bench.device, dtype=dtype)
        return passes(bench, lambda: module(x), [x, *module.parameters()], training)

    by_length(bench, measure, {"d_model": d_model, "causal": causal, "bias": options.bias})


def by_length(bench: Bench, measure: Callable[[int, int, torch.dtype, bool], Point], what: Point) -> None:
    """Both passes at each length, in batches that keep the number of tokens."""
    options = bench.options
    for dtype in options.dtypes:
        for length in options.lengths:
            batch = max(1, options.tokens // length)
            for name in ("forward", "forward+backward"):
                point = {"pass": name, "dtype": dtype, "length": length, "batch": batch, "heads": options.heads, "width": options.width, **what}
                bench.point(point, lambda: measure(length, batch, DTYPES[dtype], name != "forward"))


class Cache:
    """Keys and values `[B, H, N, D]` of the positions so far, in buffers that are large enough from the start."""

    def __init__(self, shape: tuple[int, int, int, int], like: Tensor) -> None:
        self.keys, self.values = like.new_empty(shape), like.new_empty(shape)
        self.length = 0

    def extended(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values with those of the next position."""
        self.keys[:, :, self.length : self.length + 1] = key
        self.values[:, :, self.length : self.length + 1] = value
        self.length += 1
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]


class SelfAttention(nn.Module):
    """Multi-head attention with one product for queries, keys and values."""

    def __init__(self, d_model: int, heads: int, bias: bool = False, causal: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.causal, self.dropout = heads, causal, dropout
        self.inputs = nn.Linear(d_model, 3 * d_model, bias=bias)
        self.output = nn.Linear(d_model, d_model, bias=bias)

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        query, key, value = self.inputs(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        if cache is None:
            dropout = self.dropout if self.training else 0.0
            context = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=self.causal)
        else:
            context = F.scaled_dot_product_attention(query, *cache.extended(key, value))
        return self.output(context.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Self-attention and a feed-forward network, each normalised before, dropped from and added to its input."""

    def __init__(self, d_model: int, heads: int, dropout: float, attention_dropout: float) -> None:
        super().__init__()
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(d_model, eps=1e-6), nn.LayerNorm(d_model, eps=1e-6)
        self.attention = SelfAttention(d_model, heads, dropout=attention_dropout)
        self.feed_forward = nn.Sequential(nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x), cache))
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))


class LanguageModel(nn.Module):
    """A decoder-only Transformer with heedful's formulas: pre-norm, tied output; dropout of embeddings and sublayer outputs."""

    def __init__(self, options: argparse.Namespace, max_length: int, dropout: float = 0.0, attention_dropout: float = 0.0) -> None:
        super().__init__()
        d_model = options.d_model
        self.embedding = nn.Embedding(options.vocabulary, d_model)
        nn.init.normal_(self.embedding.weight, std=d_model**-0.5)
        if options.positions == "learned":
            self.positions = nn.Parameter(0.02 * torch.randn(max_length, d_model))
        else:
            rates = 10_000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
            angles = torch.arange(max_length, dtype=torch.float64)[:, None] * rates
            self.register_buffer("positions", torch.stack((angles.sin(), angles.cos()), dim=2).flatten(1).float())
        self.blocks = nn.ModuleList(Block(d_model, options.heads, dropout, attention_dropout) for _ in range(options.layers))
        self.norm = nn.LayerNorm(d_model, eps=1e-6)
        self.dropout = nn.Dropout(dropout)
        self.scale = math.sqrt(d_model)

    def forward(self, tokens: Tensor, caches: list[Cache] | None = None) -> Tensor:
        """Logits `[B, N, V]` of tokens `[B, N]`; with caches, `N` is 1 and the tokens follow those that the caches hold."""
        start = caches[0].length if caches else 0
        x = self.dropout(self.embedding(tokens) * self.scale + self.positions[start : start + tokens.shape[1]])
        for index, block in enumerate(self.blocks):
            x = block(x, caches[index] if caches else None)
        return F.linear(self.norm(x), self.embedding.weight)


def step(bench: Bench) -> None:
    """One step of AdamW on random tokens, the loss left on the device. `bf16` has parameters of that type; with autocast they are `f32`."""
    options = bench.options

    def measure(dtype: torch.dtype, autocast: bool, dropout: float) -> Point:
        model = LanguageModel(options, options.length, dropout, options.attention_dropout)
        model.to(bench.device, torch.float32 if autocast else dtype)
        optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-8, weight_decay=0.01, fused=True)
        tokens = torch.randint(options.vocabulary, (options.batch, options.length + 1), device=bench.device)
        inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].flatten()

        def loss_of(inputs: Tensor, targets: Tensor) -> Tensor:
            return F.cross_entropy(model(inputs).flatten(0, 1), targets)

        if options.compile:
            torch._dynamo.reset()
            loss_of = torch.compile(loss_of)
        loss = torch.zeros((), device=bench.device)

        def run() -> None:
            nonlocal loss
            with torch.autocast(bench.device.type, dtype, enabled=autocast):
                computed = loss_of(inputs, targets)
            computed.backward()
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            loss = computed.detach()

        found = bench.time(run, warm_ups=3, least=10)
        last = loss.item()
        rate = 1e3 * options.batch * options.length / found["ms"]
        parameters = sum(each.numel() for each in model.parameters())
        return {**found, "tokens_per_s": rate, "parameters": parameters, "last_loss": last if math.isfinite(last) else None}

    variants = [(dtype, autocast) for dtype in options.dtypes for autocast in ((False, True) if dtype in ("bf16", "f16") else (False,))]
    sizes = {key: getattr(options, key) for key in ("attention_dropout", *MODEL, "length", "batch")}
    for dropout in options.dropout:
        for dtype, autocast in variants:
            what = {"dtype": dtype, "autocast": autocast, "compiled": options.compile, "dropout": dropout, **sizes}
            bench.point(what, lambda: measure(DTYPES[dtype], autocast, dropout))


def decode(bench: Bench) -> None:
    """Greedy decoding of a whole sequence from its first token, each token fed back on the device, with a cache of keys and values; without cuDNN's attention."""
    options = bench.options

    @torch.inference_mode()
    def measure(dtype: torch.dtype, length: int, batch: int) -> Point:
        # With it, lengths not seen before took 38 ms a token on an H200 and others 2.9 ms: it seems to be prepared for each number of keys.
        torch.backends.cuda.enable_cudnn_sdp(False)
        model = LanguageModel(options, length).to(bench.device, dtype).eval()
        shape = (batch, options.heads, length, options.d_model // options.heads)
        caches = [Cache(shape, model.norm.weight) for _ in model.blocks]

        def tokens(count: int, mark: Callable[[], None] = lambda: None) -> None:
            for cache in caches:
                cache.length = 0
            last = torch.zeros(batch, 1, dtype=torch.long, device=bench.device)
            mark()
            for _ in range(count):
                last = model(last, caches).argmax(dim=2)
                mark()

        tokens(min(length, 16))
        times: list[float] = []
        memory = bench.memory(lambda: times.extend(bench.marks(lambda mark: tokens(length, mark))))
        per_token = sum(times) / length
        ends = {"ms_first_16": statistics.median(times[:16]), "ms_last_16": statistics.median(times[-16:])}
        return {**spread(times), "ms_per_token": per_token, **ends, "tokens_per_s": 1e3 * batch / per_token, **memory}

    sizes = {key: getattr(options, key) for key in MODEL}
    for dtype in options.dtypes:
        for batch in options.batch:
            for length in options.lengths:
                bench.point({"dtype": dtype, "length": length, "batch": batch, **sizes}, lambda: measure(DTYPES[dtype], length, batch))


def listed(kind: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    """Reads values with commas between."""
    return lambda text: [kind(each) for each in text.split(",")]


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description="PyTorch's times on one GPU, as JSON lines.")
    commands = parser.add_subparsers(dest="command", required=True)

    def command(run: Callable[[Bench], None], dtypes: str) -> Callable[..., argparse.Action]:
        add = commands.add_parser(run.__name__, help=(run.__doc__ or "").splitlines()[0]).add_argument
        add("--out", required=True, help="file that lines are appended to")
        add("--device", default="cuda", help="cuda or cpu")
        add("--limit", type=float, default=math.inf, help="seconds after which no measurement begins")
        add("--seconds-per-point", type=float, default=1.0, help="seconds of repetitions")
        add("--dtypes", type=listed(str), default=dtypes.split(","), help=f"some of {','.join(DTYPES)}")
        return add

    def model(add: Callable[..., argparse.Action]) -> None:
        for name, default in (("--layers", 12), ("--d-model", 768), ("--heads", 12), ("--vocabulary", 50257)):
            add(name, type=int, default=default)
        add("--positions", choices=("sinusoidal", "learned"), default="sinusoidal")

    add = command(device, "f32,tf32,bf16,f16")
    add("--sizes", type=listed(int), default=[1024, 2048, 4096, 8192])
    add("--copy-bytes", type=int, default=2_000_000_000)
    for run in (attention, layer):
        add = command(run, "f32,bf16")
        add("--lengths", type=listed(int), default=[512, 1024, 2048, 4096, 8192, 16384])
        add("--tokens", type=int, default=16384, help="tokens of a batch, as far as the length divides them")
        add("--heads", type=int, default=16)
        add("--width", type=int, default=64, help="width of a head")
        add("--full", action="store_true", help="without a causal mask")
    add("--bias", action="store_true", help="projections with biases")
    add = command(step, "f32,bf16")
    model(add)
    add("--length", type=int, default=1024)
    add("--batch", type=int, default=16)
    add("--dropout", type=listed(float), default=[0.0, 0.1], help="of embeddings and sublayer outputs")
    add("--attention-dropout", type=float, default=0.0, help="of attention weights")
    add("--compile", action="store_true", help="through torch.compile; the first step is then compilation")
    add = command(decode, "f32,bf16")
    model(add)
    add("--lengths", type=listed(int), default=[128, 1024])
    add("--batch", type=listed(int), default=[1, 16])
    return parser.parse_args()


def main() -> int:
    """Runs one command."""
    options = arguments()
    # The old names of PyTorch's switch for TF32 still work, with a warning.
    warnings.filterwarnings("ignore", message=".*TF32.*")
    torch.manual_seed(0)
    if options.device != "cpu" and not torch.cuda.is_available():
        print("no CUDA device: give --device cpu to rehearse", file=sys.stderr)
        return 1
    with contextlib.suppress(Stopped):
        globals()[options.command](Bench(options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
