"""Sums up a log in which CubeCL writes the time of each kernel, as a table by kernels.

    python3 kernel_times.py LOG [--steps 10] [--last 6]

The log is that of so many steps of training. Those before the last ones compile kernels and are left out. Steps are taken to launch equally many kernels.
"""

import argparse
import re
import sys
from collections import defaultdict

LINE = re.compile(r"^\| ([0-9.]+)(ns|µs|ms|s) +\| ([^|]*[^| ].*)$")
SECONDS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def short(name: str) -> str:
    """The kernel without the types of its arguments, which make some names hundreds of letters long."""
    parts = [part.strip() for part in re.split(r"[<>|,]", name)]
    kept = [part for part in parts if part and not re.match(r"^(\(\)|TensorArgs|Dynamic.*|__.*)$", part)]
    return " / ".join(re.sub(r"_[0-9a-f]{8}$", "", part.rsplit("::", 1)[-1]) for part in kept[:4])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--last", type=int, default=6)
    options = parser.parse_args()
    with open(options.log, encoding="utf-8", errors="replace") as log:
        found = [(float(line[1]) * SECONDS[line[2]], short(line[3])) for line in map(LINE.match, log) if line]
    found = found[len(found) - len(found) * options.last // options.steps :]
    seconds: dict[str, float] = defaultdict(float)
    launches: dict[str, int] = defaultdict(int)
    for time, name in found:
        seconds[name] += time
        launches[name] += 1
    total = sum(seconds.values())
    print(f"Kernels of the last {options.last} of {options.steps} steps, each timed by itself.\n")
    print("| kernel | launches a step | ms a step | % |\n| --- | ---: | ---: | ---: |")
    for name in sorted(seconds, key=seconds.__getitem__, reverse=True):
        print(f"| {name} | {launches[name] / options.last:.1f} | {1e3 * seconds[name] / options.last:.3f} | {100 * seconds[name] / total:.1f} |")
    print(f"| all | {len(found) / options.last:.0f} | {1e3 * total / options.last:.1f} | 100 |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
