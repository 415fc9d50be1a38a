"""The twin of `lm`: words of a text in the files of the Penn Treebank."""

import math
import random
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from model import LanguageModel
from text import Files
from tokenisers import END, Words
from torch import Tensor


class Language:
    """The text as one row of tokens for each part: every line ends with a token, and one more stands before the first line."""

    selection, highest = "perplexity", False

    def __init__(self, settings: dict[str, Any], folder: Path) -> None:
        self.settings = settings
        files = Files()
        name = next((path.name.split(".")[0] for path in sorted(folder.glob("*.train.txt*"))), "ptb")
        parts = [files.lines(folder, f"{name}.{part}.txt") for part in ("train", "valid", "test")]
        words = Words(parts[0])
        rows = [torch.tensor([END] + [token for line in part for token in [*words.encode(line), END]]) for part in parts]
        self.train, self.valid, self.test = rows
        self.vocabulary = words.size
        self.dataset, self.sha256 = folder.resolve().name, files.sha256()

    def model(self) -> LanguageModel:
        return LanguageModel(self.settings["model"], self.vocabulary)

    def epoch(self, source: random.Random) -> list[list[int]]:
        """First positions of windows that lie end to end from a random offset, in shuffled batches."""
        context, rows = self.settings["data"]["context"], self.settings["data"]["batch"]
        targets = len(self.train) - 1
        offset = source.randint(0, min(targets - context, context - 1))
        starts = list(range(offset, targets - context + 1, context))
        source.shuffle(starts)
        return [starts[index : index + rows] for index in range(0, len(starts), rows)]

    def loss(self, model: LanguageModel, items: list[int]) -> tuple[Tensor, int]:
        windows = torch.stack([self.train[start : start + self.settings["data"]["context"] + 1] for start in items])
        targets = windows[:, 1:].flatten()
        logits = model.embedding.logits(model(windows[:, :-1]).flatten(0, 1))
        return F.cross_entropy(logits, targets, reduction="sum"), len(targets)

    def validate(self, model: LanguageModel) -> dict[str, float]:
        return {"perplexity": math.exp(self.nats_per_token(model, self.valid))}

    def nats_per_token(self, model: LanguageModel, text: Tensor) -> float:
        """Each token but the first is predicted once, by a window of `context` tokens that moves on by `stride` and counts what is new to it."""
        data = self.settings["data"]
        context, stride, last = data["context"], data["stride"], len(text) - 1
        ends = [min(context, last)]
        while ends[-1] < last:
            ends.append(min(last, ends[-1] + stride))
        nats, before = 0.0, 0
        for index in range(0, len(ends), data["batch"]):
            batch = ends[index : index + data["batch"]]
            starts = [max(0, end - context) for end in batch]
            inputs = torch.stack([text[start:end] for start, end in zip(starts, batch)])
            states = model(inputs)
            for row, (start, end) in enumerate(zip(starts, batch)):
                logits = model.embedding.logits(states[row, before - start :])
                nats += F.cross_entropy(logits, text[before + 1 : end + 1], reduction="sum").item()
                before = end
        return nats / last

    def score(self, model: LanguageModel, _folder: Path) -> tuple[dict[str, float], dict[str, str]]:
        """Scores of the test text and how they are computed, in heedful's words."""
        data = self.settings["data"]

        def signature(text: Tensor) -> str:
            return f"unit:word|context:{data['context']}|stride:{data['stride']}|memory:0|ends of lines:scored|units:{len(text) - 1}"

        test, valid = self.nats_per_token(model, self.test), self.nats_per_token(model, self.valid)
        scores = {"bits per unit": test / math.log(2), "perplexity": math.exp(test), "valid perplexity": math.exp(valid)}
        return scores, {name: signature(self.valid if name.startswith("valid") else self.test) for name in scores}
