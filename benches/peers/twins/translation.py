"""The twin of `mt`: pairs of sentences with one vocabulary, beam search, and BLEU by sacreBLEU."""

import math
import random
from pathlib import Path
from typing import Any

import batches
import sacrebleu
import torch
import torch.nn.functional as F
from model import Translator, real
from text import Files
from tokenisers import BEGIN, END, PAD, BytePairs
from torch import Tensor

Pair = tuple[list[int], list[int]]


def padded(rows: list[list[int]]) -> Tensor:
    longest = max(len(row) for row in rows)
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])


class Translation:
    """A parallel corpus in the files `train.SRC`, `train.TGT`, `val.*` and `test_*.*`, of which there is one."""

    selection, highest = "perplexity", False

    def __init__(self, settings: dict[str, Any], folder: Path) -> None:
        self.settings = settings
        data, most = settings["data"], settings["model"]["max_length"]
        files = Files()
        tests = sorted({path.name.split(".")[0] for path in folder.glob("test*")})
        if len(tests) != 1:
            raise ValueError(f"{folder} has {len(tests)} test sets, the twin takes one")
        self.test_name = tests[0]
        texts = {
            part: list(zip(*(files.lines(folder, f"{part}.{data[side]}") for side in ("source", "target")), strict=True))
            for part in ("train", "val", self.test_name)
        }
        # heedful leaves pairs with an empty side out.
        train = [pair for pair in texts["train"] if all(side.strip() for side in pair)]
        self.pieces = BytePairs((side for pair in train for side in pair), settings["tokeniser"]["vocabulary"])

        def encoded(pairs: list[tuple[str, str]]) -> list[Pair]:
            return [(self.pieces.encode(source), self.pieces.encode(target)) for source, target in pairs]

        self.train = [pair for pair in encoded(train) if len(pair[0]) <= most and len(pair[1]) < most]
        self.valid = encoded(texts["val"])
        self.sources = [self.pieces.encode(source) for source, _ in texts[self.test_name]]
        self.references = [target for _, target in texts[self.test_name]]
        self.vocabulary = self.pieces.size
        place = folder.resolve()
        # A folder `raw` or `tok` says little without the one that it is in.
        self.dataset = f"{place.parent.name}/{place.name} {data['source']}-{data['target']}"
        self.sha256 = files.sha256()

    def model(self) -> Translator:
        return Translator(self.settings["model"], self.vocabulary)

    def lengths(self, pairs: list[Pair]) -> list[tuple[int, int]]:
        return [(len(source), len(target) + 1) for source, target in pairs]

    def epoch(self, source: random.Random) -> list[list[int]]:
        return batches.shuffled(self.lengths(self.train), self.settings["data"]["batch_tokens"], source)

    def loss(self, model: Translator, items: list[int]) -> tuple[Tensor, int]:
        return self.of(model, [self.train[item] for item in items], self.settings["label_smoothing"])

    def of(self, model: Translator, pairs: list[Pair], smoothing: float) -> tuple[Tensor, int]:
        """The loss summed over target tokens, the end included, and their number."""
        visible = real([len(source) for source, _ in pairs])
        memory = model.encode(padded([source for source, _ in pairs]), visible)
        states = model.decode(padded([[BEGIN, *target] for _, target in pairs]), memory, visible)
        wanted = padded([[*target, END] for _, target in pairs])
        is_real = real([len(target) + 1 for _, target in pairs])
        logits = model.embedding.logits(states[is_real])
        return F.cross_entropy(logits, wanted[is_real], reduction="sum", label_smoothing=smoothing), int(is_real.sum())

    def validate(self, model: Translator) -> dict[str, float]:
        nats, tokens = 0.0, 0
        for items in batches.by_length(self.lengths(self.valid), self.settings["decoding"]["batch_tokens"]):
            loss, count = self.of(model, [self.valid[item] for item in items], 0.0)
            nats += loss.item()
            tokens += count
        return {"perplexity": math.exp(nats / tokens)}

    def score(self, model: Translator, folder: Path) -> tuple[dict[str, float], dict[str, str]]:
        """Scores of the test set and how they are computed; the translations go into `folder`."""
        found = [""] * len(self.sources)
        rows = self.settings["decoding"]["batch_tokens"] // self.settings["decoding"]["beam"]
        for items in batches.by_length([(len(source), 0) for source in self.sources], rows):
            for item, tokens in zip(items, self.search(model, [self.sources[item] for item in items])):
                found[item] = self.pieces.decode(tokens)
        (folder / f"{self.test_name}.txt").write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
        bleu, chrf = sacrebleu.BLEU(), sacrebleu.CHRF()
        scores = {
            "BLEU": bleu.corpus_score(found, [self.references]).score,
            "chrF2": chrf.corpus_score(found, [self.references]).score,
            "valid perplexity": self.validate(model)["perplexity"],
        }
        signatures = {"BLEU": str(bleu.get_signature()), "chrF2": str(chrf.get_signature())}
        return scores, signatures | {"valid perplexity": "per token of the joint vocabulary, without label smoothing"}

    def search(self, model: Translator, sources: list[list[int]]) -> list[list[int]]:
        """Beam search with the length penalty of Wu et al. 2016; the whole prefix is computed anew at every step.

        Of all continuations the first `beam` count: those that end are finished. The first `beam` that do not end live on. It ends when `beam` have
        finished, when no live one can beat the best finished one any more, or at the limit.
        """
        decoding = self.settings["decoding"]
        beam, most = decoding["beam"], self.settings["model"]["max_length"]
        visible = real([len(source) for source in sources])
        memory = model.encode(padded(sources), visible)
        limits = [min(len(source) + decoding["extra_length"], most) for source in sources]
        live: list[list[tuple[float, list[int]]]] = [[(0.0, [])] for _ in sources]
        finished: list[list[tuple[float, list[int]]]] = [[] for _ in sources]

        def penalised(value: float, length: int) -> float:
            return value / ((5 + length) / 6) ** decoding["length_penalty"]

        while any(live):
            owners = [sentence for sentence, hypotheses in enumerate(live) for _ in hypotheses]
            prefixes = [tokens for hypotheses in live for _, tokens in hypotheses]
            states = model.decode(torch.tensor([[BEGIN, *tokens] for tokens in prefixes]), memory[owners], visible[owners])[:, -1]
            logs = F.log_softmax(model.embedding.logits(states), dim=1)
            logs[:, [PAD, BEGIN]] = -math.inf
            # At most one of them is the end.
            values, tokens = (found.tolist() for found in logs.topk(min(beam + 1, logs.shape[1]), dim=1))
            row = 0
            for sentence, hypotheses in enumerate(live):
                ranked = []
                for value, prefix in hypotheses:
                    ranked += [(value + more, prefix, token) for more, token in zip(values[row], tokens[row]) if more > -math.inf]
                    row += 1
                ranked.sort(key=lambda entry: -entry[0])
                done = finished[sentence]
                done += [(penalised(value, len(prefix) + 1), prefix) for value, prefix, token in ranked[:beam] if token == END]
                kept = [(value, [*prefix, token]) for value, prefix, token in ranked if token != END][:beam]
                if not kept:
                    continue
                best = max((score for score, _ in done), default=-math.inf)
                is_full = len(kept[0][1]) >= limits[sentence]
                if len(done) >= beam or is_full or best >= penalised(kept[0][0], limits[sentence]):
                    if not done:
                        done += [(penalised(value, len(prefix)), prefix) for value, prefix in kept]
                    kept = []
                live[sentence] = kept
        return [max(hypotheses, key=lambda entry: entry[0])[1] for hypotheses in finished]
