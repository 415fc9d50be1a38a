"""The test of equivalence (Schuirmann 1987) with Welch's standard error, and its verdict. It needs the standard library alone."""

import math
import statistics
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MARGINS = Path(__file__).parent / "margins.toml"


def student_above(t: float, freedom: float) -> float:
    """Probability that a variable with Student's distribution is greater than `t`."""
    share = incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t)) / 2
    return share if t >= 0 else 1 - share


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (Lentz's algorithm)."""
    if x in (0.0, 1.0):
        return x
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, 1 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 500):
        for step in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d, c = 1 / (1 + step * d), 1 + step / c
            fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return front * fraction


@dataclass
class Verdict:
    """What a test of equivalence says of a metric, in the unit of the metric or in logarithms."""

    difference: float
    low: float
    high: float
    margin: float
    p: float

    def is_equivalent(self, alpha: float) -> bool:
        return self.p < alpha


def test(own: list[float], twin: list[float], margin: float, alpha: float) -> Verdict:
    """Two one-sided Welch tests of the difference of means against `-margin` and `margin`; the interval has confidence `1 - 2 alpha`."""
    difference = statistics.fmean(own) - statistics.fmean(twin)
    shares = [statistics.variance(side) / len(side) for side in (own, twin)]
    error = math.sqrt(sum(shares))
    if error == 0.0:
        return Verdict(difference, difference, difference, margin, 0.0 if abs(difference) < margin else 1.0)
    freedom = sum(shares) ** 2 / sum(share**2 / (len(side) - 1) for share, side in zip(shares, (own, twin)))
    p = max(student_above((difference + margin) / error, freedom), student_above((margin - difference) / error, freedom))
    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if student_above(middle, freedom) > alpha else (low, middle)
    return Verdict(difference, difference - low * error, difference + low * error, margin, p)


HEADER = [
    "| experiment, data | metric | heedful | PyTorch | difference | interval | margin | p | verdict |",
    "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
]


def lines(own: list[dict[str, Any]], twin: list[dict[str, Any]]) -> tuple[list[str], bool]:
    """A table in Markdown of all margins for whose data set there are runs, notes below it, and whether everything is equivalent."""
    stated = tomllib.loads(MARGINS.read_text(encoding="utf-8"))
    rows: list[str] = []
    notes: list[str] = []
    is_shown = True
    for margin in stated["margin"]:
        sides = [of_margin(records, margin) for records in (own, twin)]
        if not any(sides):
            continue
        title = f"{margin['experiment']}, {margin['dataset']}"
        values = [[each["metrics"].get(margin["metric"]) for each in side] for side in sides]
        if min(map(len, values)) < stated["seeds"] or any(value is None for side in values for value in side):
            notes.append(f"{title}: {len(values[0])} and {len(values[1])} runs; {stated['seeds']} with a score are needed on each side")
            is_shown = False
            continue
        cells, is_equivalent = judged(margin, values[0], values[1], stated["alpha"])
        rows.append(f"| {' | '.join([title, margin['metric'], *cells])} |")
        different, remarks = circumstances(*sides)
        is_shown &= is_equivalent and not different
        notes += [f"{title}: {note}" for note in different + remarks]
    table = [*HEADER, *rows, ""] if rows else []
    return table + (notes or ["no runs for which there is a margin"]), is_shown and bool(rows)


def of_margin(records: list[dict[str, Any]], margin: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs that a margin is about."""
    wanted = (margin["experiment"], margin["dataset"], "dot-product")
    return [each for each in records if (each["experiment"], each["dataset"], each["attention"]) == wanted]


def judged(margin: dict[str, Any], own: list[float], twin: list[float], alpha: float) -> tuple[list[str], bool]:
    """The cells of a row, and whether both sides are equivalent."""
    if "relative" in margin:
        logs = [[math.log(value) for value in side] for side in (own, twin)]
        found = test(*logs, math.log1p(margin["relative"]), alpha)
        numbers = [f"{100 * math.expm1(value):+.2f} %" for value in (found.difference, found.low, found.high)]
        bound = f"{100 * margin['relative']:g} %"
    else:
        found = test(own, twin, margin["absolute"], alpha)
        numbers = [f"{value:+.4f}" for value in (found.difference, found.low, found.high)]
        bound = f"{margin['absolute']:g}"
    is_equivalent = found.is_equivalent(alpha)
    verdict = "equivalent" if is_equivalent else "not shown to be equivalent"
    shown = [f"{statistics.fmean(side):.4g} ± {statistics.stdev(side):.2g}" for side in (own, twin)]
    return [*shown, numbers[0], f"{numbers[1]} to {numbers[2]}", bound, f"{found.p:.2g}", verdict], is_equivalent


def circumstances(own: list[dict[str, Any]], twin: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """What must be the same and is not; and the seconds of both sides."""
    different = []
    for field in ("parameters", "steps", "data_sha256"):
        found = [sorted({each[field] for each in side}) for side in (own, twin)]
        if found[0] != found[1]:
            different.append(f"{field} must be the same and are {found[0]} and {found[1]}")
    seconds = [f"{statistics.median(each['wall_seconds'] for each in side):.0f} s" for side in (own, twin)]
    remark = f"{own[0]['steps']} steps, seconds of a run (median): heedful {seconds[0]}, PyTorch {seconds[1]}"
    if any(each.get("disturbed") for each in own + twin):
        remark += "; other programs used the same cores, so that these say nothing"
    return different, [remark]
