"""The other half of the binary `peers`: runs the same work in PyTorch.

Started as `python benches/peers --threads N`. Each line of standard input is a request and each line of standard output the reply to it, both JSON
objects; benches/src/peers/protocol.rs documents them. Times are those of the run alone, in seconds.
"""

import argparse
import ctypes
import gc
import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

Run = Callable[[], float]


def timed(run: Callable[[], object]) -> Run:
    """What runs `run` and returns the seconds that it took."""

    def measured() -> float:
        begun = time.perf_counter()
        run()
        return time.perf_counter() - begun

    return measured


def prepare(work: dict[str, Any]) -> Run:
    """Builds what `work` describes."""
    import attention
    import language_model
    import padded

    kind = work["kind"]
    if kind == "attention":
        module = attention.layer(work["method"], **work["sizes"], dropout=work["dropout"])
        return timed(attention.pass_of(module, **work["sizes"], training=work["training"]))
    if kind == "projections":
        module = attention.Projections(work["sizes"]["d_model"], work["count"])
        return timed(attention.pass_of(module, **work["sizes"], training=work["training"]))
    if kind == "training-step":
        return timed(language_model.training_step(work["model"], work["method"], work["batch"], work["length"]))
    if kind == "classifier-step":
        return timed(padded.classifier_step(work["model"], work["method"], work["classes"], work["lengths"]))
    if kind == "translation-step":
        return timed(padded.translation_step(work["model"], work["method"], work["source"], work["target"]))
    if kind == "decoding":
        return language_model.decoding(work["model"], work["batch"], work["tokens"], work["recomputed_at"])
    raise ValueError(f"unknown kind of work: {kind}")


def about() -> dict[str, str]:
    """Versions of what is measured. Fails if PyTorch cannot be used."""
    import torch

    found = {"python": sys.version.split()[0], "torch": torch.__version__}
    for package in ("fla-core", "linformer", "local-attention", "reformer-pytorch", "transformers", "x-transformers"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            pass
    return found


def return_freed_memory() -> None:
    """Gives freed memory back to the system, where the C library is glibc: what comes next would grow into it unseen."""
    gc.collect()
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):
        pass


def answer(request: dict[str, Any], runs: dict[int, Run]) -> dict[str, Any]:
    """Does what is asked, keeping what was prepared in `runs`."""
    match request["do"]:
        case "about":
            return {"versions": about()}
        case "prepare":
            runs[request["id"]] = prepare(request["work"])
            return {}
        case "run":
            return {"seconds": runs[request["id"]]()}
        case "forget":
            del runs[request["id"]]
            return_freed_memory()
            return {}
        case unknown:
            raise ValueError(f"unknown request: {unknown}")


def main() -> None:
    """Answers requests until standard input ends."""
    parser = argparse.ArgumentParser(description="The PyTorch half of the binary `peers`, which starts it.")
    parser.add_argument("--threads", type=int, required=True, help="threads that PyTorch computes with")
    threads = parser.parse_args().threads
    replies = sys.stdout
    # What a package prints must not stand between the replies.
    sys.stdout = sys.stderr
    try:
        import torch

        torch.set_num_threads(threads)
        torch.manual_seed(0)
    except (ImportError, OSError, ValueError):
        # The reply to the first request says what is wrong.
        pass
    runs: dict[int, Run] = {}
    for line in sys.stdin:
        try:
            reply = answer(json.loads(line), runs)
        except Exception as error:  # noqa: BLE001: whatever fails is the other side's to report.
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main()
