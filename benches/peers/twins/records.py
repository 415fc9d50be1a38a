"""Results in the format of heedful's result.json and results.json."""

import hashlib
import json
import os
import platform
import resource
import shlex
import sys
import time
from pathlib import Path
from typing import Any

ATTENTION = "dot-product"


def run_folder(out: Path, dataset: str, several: bool, seed: int) -> Path:
    """Where a run lies: in a folder of its data set where there are several."""
    return (out / dataset.replace("/", "-") if several else out) / f"{ATTENTION}-seed{seed}"


def digest(settings: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def machine() -> dict[str, Any]:
    """Processor, threads and system, as heedful names them."""
    cpu = "unknown"
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        cpu = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), cpu)
    except OSError:
        pass
    return {"cpu": cpu, "cores": os.cpu_count(), "os": f"{platform.system().lower()} {platform.machine()}"}


def write(path: Path, value: object) -> None:
    """Writes JSON that is whole or not there."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)


def record(**fields: Any) -> dict[str, Any]:
    """A record with what is the same for all runs of this process."""
    import torch

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    same = {
        "attention": ATTENTION,
        "backend": "pytorch",
        "peak_memory_bytes": peak,
        "command": shlex.join(["python", *sys.argv]),
        "version": f"torch {torch.__version__}, {torch.get_num_threads()} threads",
        "machine": machine(),
        "finished_ms": int(time.time() * 1000),
    }
    return same | fields


def results(out: Path) -> list[dict[str, Any]]:
    """All records of an output folder, of a twin or of heedful; results.json has those whose folders are not there."""
    found = json.loads((out / "results.json").read_text(encoding="utf-8")) if (out / "results.json").exists() else []
    known = {key(each): each for each in found}
    for path in sorted(out.glob("**/result.json")):
        each = json.loads(path.read_text(encoding="utf-8"))
        known[key(each)] = each
    return sorted(known.values(), key=lambda each: (each["dataset"], each["seed"]))


def key(each: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(each[field] for field in ("experiment", "dataset", "attention", "backend", "seed"))
