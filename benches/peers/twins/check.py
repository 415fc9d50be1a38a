"""Checks the twins in seconds: tokenisers, batches and the test of equivalence by the standard library, the rest where PyTorch is installed.

    python benches/peers/twins/check.py

Prints a line for each check, and fails at the first that does not hold.
"""

import gzip
import importlib.util
import itertools
import json
import math
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import batches
import equivalence
import settings
import tokenisers

HERE = Path(__file__).parent
PRESETS = HERE.parents[2] / "experiments" / "presets"
PACKAGES = ("torch", "sacrebleu", "sklearn")


def close(found: float, wanted: float, tolerance: float) -> None:
    assert abs(found - wanted) <= tolerance, f"{found} is not {wanted}"


def student_and_equivalence() -> None:
    # Quantiles of Student's distribution from tables, and what SciPy's ttest_ind(equal_var=False) says of the shifted samples.
    for t, freedom, above in ((2.01505, 5, 0.05), (1.85955, 8, 0.05), (2.99800, 7, 0.01), (-1.85955, 8, 0.95), (0.0, 3, 0.5)):
        close(equivalence.student_above(t, freedom), above, 1e-6)
    own, twin = [183.0, 182.4, 182.2, 182.9, 182.1], [180.3, 181.1, 182.1, 181.0, 181.4]
    wide, narrow = (equivalence.test(own, twin, margin, 0.05) for margin in (3.6, 1.5))
    close(wide.difference, 1.34, 1e-9)
    close(wide.p, 0.00018908688021865012, 1e-12)
    close(narrow.p, 0.3285872865618925, 1e-12)
    close(wide.low, 0.6827747271190547, 1e-9)
    close(wide.high, 1.997225272880895, 1e-9)
    assert wide.is_equivalent(0.05) and not narrow.is_equivalent(0.05)
    assert equivalence.test([1.0, 1.0], [1.0, 1.0], 0.1, 0.05).p == 0.0 and equivalence.test([1.0, 1.0], [1.2, 1.2], 0.1, 0.05).p == 1.0


def run(seed: int, value: float, **fields: object) -> dict:
    same = {"experiment": "lm", "dataset": "ptb", "attention": "dot-product", "backend": "flex", "parameters": 9, "steps": 7}
    same |= {"data_sha256": "a", "wall_seconds": 1.0}
    return same | {"seed": seed, "metrics": {"perplexity": value}} | fields


def verdicts() -> None:
    def verdict(own: list[dict], twin: list[dict]) -> tuple[int, str]:
        with tempfile.TemporaryDirectory() as name:
            folders = [Path(name, side) for side in ("own", "twin")]
            for folder, side in zip(folders, (own, twin)):
                folder.mkdir()
                (folder / "results.json").write_text(json.dumps(side), encoding="utf-8")
            return twins("verdict", *map(str, folders))

    own = [run(seed, 180 + 0.2 * seed) for seed in range(1, 6)]
    status, said = verdict(own, [run(seed, 181 + 0.3 * seed) for seed in range(1, 6)])
    assert status == 0 and "| equivalent |" in said, said
    status, said = verdict(own, [run(seed, 190 + 0.3 * seed) for seed in range(1, 6)])
    assert status == 1 and "not shown to be equivalent" in said, said
    status, said = verdict(own, own[:4])
    assert status == 1 and "5 and 4 runs" in said, said
    status, said = verdict(own, [each | {"parameters": 8} for each in own])
    assert status == 1 and "parameters must be the same" in said, said


def twins(*arguments: str) -> tuple[int, str]:
    """Exit status and output of the program."""
    found = subprocess.run([sys.executable, str(HERE), *arguments], capture_output=True, text=True, check=False)
    return found.returncode, found.stdout + found.stderr


def presets_and_refusals() -> None:
    for experiment, preset in (("lm", "ptb"), ("mt", "multi30k"), ("glue", "glue")):
        settings.read(experiment, PRESETS / f"{preset}.toml", ["training.steps=3"])
    for change, word in (
        ("model.norm_order=\"post\"", "model.norm_order"),
        ("model.activation=\"relu\"", "no model.activation"),
        ("training.steps", "FIELD=VALUE"),
        ("tied=false", "tied"),
        ("training.schedule={kind=\"cosine\"}", "training.schedule.kind"),
        ("model=3", "table"),
        ("training.steps=x", "TOML"),
    ):
        status, said = twins("lm", "--config", str(PRESETS / "ptb.toml"), "--data", ".", "--out", "nowhere", "--set", change)
        assert status == 2 and word in said, (change, said)


def words_and_pieces() -> None:
    words = tokenisers.Words([" a b a ", "c <unk> a"])
    assert words.size == 10 and words.encode(" a <unk> new b") == [7, tokenisers.UNKNOWN, tokenisers.UNKNOWN, 8]

    # The example of Sennrich et al. 2016, section 3.2: their first merges.
    text = ["low low low low low lower lower newest newest newest newest newest newest widest widest widest"]
    pairs = tokenisers.BytePairs(text, 7 + 256 + 6)
    assert list(pairs.ranks)[:2] == [(b"e", b"s"), (b"es", b"t")], list(pairs.ranks)
    assert pairs.size == 269 and [pairs.tokens[token] for token in pairs.encode(" lowest")][-1] == b"est"
    for line in ("Über 1.234 €, it's   naïve\t!", "", " two  spaces "):
        assert pairs.decode(pairs.encode(line)) == line

    pieces = tokenisers.WordPieces(["Playing play played, plays"], 40, lowercase=True)
    assert pieces.words("Don't stop\u200b\u4e00!") == ["don", "'", "t", "stop", "\u4e00", "!"]
    spelt = {index: piece for piece, index in pieces.ids.items()}
    found = [spelt[token] for token in pieces.encode("PLAYED")]
    assert "".join(found).replace("##", "") == "played" and len(found) < 6, found
    assert pieces.encode("z") == [tokenisers.UNKNOWN]


def budgets() -> None:
    source = random.Random(1)
    lengths = [(source.randint(1, 30), source.randint(1, 30)) for _ in range(5000)]
    for found in (batches.shuffled(lengths, 200, random.Random(2)), batches.by_length(lengths, 200)):
        assert sorted(itertools.chain(*found)) == list(range(5000))
        widths = [max(max(lengths[item]) for item in batch) for batch in found]
        assert all(width * len(batch) <= 200 for width, batch in zip(widths, found))
        real = sum(max(lengths[item]) for item in range(5000))
        assert real > 0.9 * sum(width * len(batch) for width, batch in zip(widths, found)), "little is padding"
    assert batches.by_length([(500, 0), (1, 0)], 200) == [[1], [0]]


def averages() -> None:
    import torch
    from torch import nn
    from training import train

    class Steps:
        """A weight whose loss is itself: each step takes the learning rate from it."""

        selection, highest = "score", False
        epoch = staticmethod(lambda source: [[0]])
        loss = staticmethod(lambda model, items: (model.weight.sum(), 1))
        validate = staticmethod(lambda model: {"score": float(model.weight.detach().sum())})

    rate = 0.125
    settings = {"steps": 5, "learning_rate": rate, "schedule": {"warmup": 0, "end": rate}, "max_gradient_norm": 1.0}
    settings |= {"evaluate_every": 1, "checkpoint_every": 2, "log_every": 5}
    # Of the weights -1, ..., -5 rates: the best, and the mean of those after steps 2, 4 and 5 and after the last two of these.
    for average, wanted in ((1, -5.0), (3, -11 / 3), (2, -4.5), (9, -11 / 3)):
        model = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(model.weight)
        with tempfile.TemporaryDirectory() as folder:
            train(Steps(), model, settings | {"average": average}, 1, Path(folder) / "log.jsonl")
        assert abs(float(model.weight) / rate - wanted) < 1e-3, (average, float(model.weight) / rate, wanted)


def schedule() -> None:
    from training import learning_rate

    given = {"learning_rate": 1.0, "steps": 110, "schedule": {"warmup": 10, "end": 0.1}}
    for step, rate in ((1, 0.1), (10, 1.0), (60, 0.55), (110, 0.1)):
        close(learning_rate(given, step), rate, 1e-12)


def padding_and_future() -> None:
    import torch
    from model import Classifier, LanguageModel

    torch.manual_seed(1)
    small = {"layers": 2, "d_model": 16, "heads": 2, "d_ff": 32, "max_length": 8, "dropout": 0.1}
    with torch.inference_mode():
        classifier = Classifier(small, 11, 2).eval()
        alone = classifier(torch.tensor([[4, 5]]), [2])
        beside = classifier(torch.tensor([[4, 5, 9, 9], [1, 2, 3, 4]]), [2, 4])
        assert torch.allclose(alone[0], beside[0], atol=1e-6)
        decoder = LanguageModel(small, 11).eval()
        one, other = decoder(torch.tensor([[1, 2, 3]])), decoder(torch.tensor([[1, 2, 7]]))
        assert torch.allclose(one[:, :2], other[:, :2], atol=1e-6) and not torch.allclose(one[:, 2], other[:, 2], atol=1e-3)


def exhaustive_search() -> None:
    """A beam that is wide enough finds the best of all translations of at most three tokens."""
    import torch
    from model import Translator
    from translation import BEGIN, END, PAD, Translation

    torch.manual_seed(3)
    vocabulary, limit = 6, 3
    model = Translator({"layers": 1, "d_model": 8, "heads": 2, "d_ff": 16, "max_length": limit, "dropout": 0.0}, vocabulary).eval()
    task = Translation.__new__(Translation)
    task.settings = {"model": {"max_length": limit}, "decoding": {"beam": vocabulary**limit, "length_penalty": 0.6, "extra_length": 50}}

    def value(source: list[int], target: list[int]) -> float:
        visible = torch.ones(1, len(source), dtype=torch.bool)
        states = model.decode(torch.tensor([[BEGIN, *target]]), model.encode(torch.tensor([source]), visible), visible)
        logs = model.embedding.logits(states).log_softmax(dim=2)[0]
        total = sum(float(logs[place, token]) for place, token in enumerate([*target, END]))
        return total / ((5 + len(target) + 1) / 6) ** 0.6

    letters = [token for token in range(vocabulary) if token not in (PAD, BEGIN, END)]
    with torch.inference_mode():
        for source in ([4, 5], [1, 5], [5]):
            all_targets = [list(target) for length in range(limit) for target in itertools.product(letters, repeat=length)]
            best = max(all_targets, key=lambda target: value(source, target))
            assert task.search(model, [source, [4]])[0] == best, source


def write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def trained(experiment: str, data: Path, preset: str, changes: list[str]) -> dict:
    """The record of a tiny run, which a second command leaves as it is and another configuration does not replace."""
    out = data.parent / f"out-{experiment}"
    sizes = ["model.layers=1", "model.d_model=32", "model.heads=2", "model.d_ff=64"]
    sizes += ["training.evaluate_every=50", "training.schedule.warmup=10"]
    command = [experiment, "--config", str(PRESETS / f"{preset}.toml"), "--data", str(data), "--out", str(out), "--seeds", "1"]
    command += [part for change in sizes + changes for part in ("--set", change)]
    status, said = twins(*command)
    assert status == 0, said
    text = (out / "results.json").read_text(encoding="utf-8")
    assert twins(*command) == (0, "") and (out / "results.json").read_text(encoding="utf-8") == text
    status, said = twins(*command, "--set", "model.dropout=0.5")
    assert status == 2 and "another configuration" in said, said
    [record] = json.loads(text)
    log = [json.loads(line) for line in (out / "dot-product-seed1" / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert log[0]["step"] == 50 and any("dev" in line for line in log), log
    return record


def tiny_runs() -> None:
    source = random.Random(1)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        # The second word of a line follows from its first one, which only the context tells.
        lines = [f" w{number} v{number} x " for number in (source.randrange(20) for _ in range(600))]
        for part, chosen in (("train.txt.gz", lines[:500]), ("valid.txt", lines[500:550]), ("test.txt", lines[550:])):
            write(root / "ptb" / f"ptb.{part}", chosen)
        changes = ["training.steps=150", "training.learning_rate=1e-2", "data.context=16", "data.stride=8", "model.max_length=16"]
        record = trained("lm", root / "ptb", "ptb", changes)
        bound = math.exp(math.log(20) / 4)
        assert record["dataset"] == "ptb" and bound * 0.9 < record["metrics"]["perplexity"] < bound * 1.3, record["metrics"]

        for part, count in (("train", 400), ("dev", 60), ("test", 3)):
            rows = [(word, int(word == "good")) for word in (source.choice(["good", "bad"]) for _ in range(count))]
            lines = [f"index\tfilm {word}" if part == "test" else f"a film that is {word} \t{label}" for word, label in rows]
            write(root / "glue" / "SST-2" / f"{part}.tsv", ["sentence\tlabel", *lines])
        changes = ["training.steps=100", "tokeniser.vocabulary=40", "data.tasks=[\"SST-2\"]", "data.batch_tokens=200"]
        record = trained("glue", root / "glue", "glue", changes)
        assert record["dataset"] == "SST-2" and record["metrics"]["accuracy"] == 1.0, record["metrics"]

        for part, count in (("train", 600), ("val", 40), ("test_2016", 20)):
            numbers = [[source.randrange(10) for _ in range(source.randint(2, 5))] for _ in range(count)]
            for side, letter in (("en", "a"), ("de", "b")):
                write(root / "pairs" / "raw" / f"{part}.{side}", [" ".join(f"{letter}{number}" for number in row) for row in numbers])
        changes = ["training.steps=250", "tokeniser.vocabulary=290", "data.batch_tokens=300", "training.learning_rate=5e-3", "model.dropout=0.1"]
        changes += ["training.average=1", "training.schedule={kind=\"linear\", warmup=40, end=1e-4}"]
        record = trained("mt", root / "pairs" / "raw", "multi30k", changes)
        assert record["dataset"] == "pairs/raw en-de" and record["metrics"]["BLEU"] > 60, record["metrics"]


def main() -> None:
    checks: list[Callable[[], None]] = [student_and_equivalence, verdicts, presets_and_refusals, words_and_pieces, budgets]
    missing = [package for package in PACKAGES if importlib.util.find_spec(package) is None]
    if missing:
        print(f"left out: the checks of training, since there is no Python package {', '.join(missing)}")
    else:
        checks += [schedule, averages, padding_and_future, exhaustive_search, tiny_runs]
    for check in checks:
        check()
        print(f"{check.__name__}: as it should be", flush=True)


if __name__ == "__main__":
    main()
