"""The twin of `glue`: tasks of one sentence and two classes."""

import random
from pathlib import Path
from typing import Any

import batches
import torch
import torch.nn.functional as F
from model import Classifier
from sklearn.metrics import accuracy_score, matthews_corrcoef
from text import Files
from tokenisers import CLASSIFY, PAD, SEPARATE, WordPieces
from torch import Tensor

# Columns of sentence and label, whether the first line names them, and the metric that selects a model.
TASKS = {"CoLA": (3, 1, False, "matthews"), "SST-2": (0, 1, True, "accuracy")}


class Classification:
    """The sentences of a task as `<cls> tokens <sep>`."""

    highest = True

    def __init__(self, settings: dict[str, Any], folder: Path, task: str) -> None:
        sentence, label, header, self.selection = TASKS[task]
        self.settings, self.dataset = settings, task
        files = Files()
        read = {}
        for part in ("train", "dev", "test"):
            # The test set has no labels. heedful reads it for a submission, and counts it to the data set.
            lines = files.lines(folder / task, f"{part}.tsv")
            if part != "test":
                fields = [line.split("\t") for line in lines[header:]]
                read[part] = [(row[sentence], int(row[label])) for row in fields]
        tokeniser = settings["tokeniser"]
        pieces = WordPieces((text for text, _ in read["train"]), tokeniser["vocabulary"], tokeniser["lowercase"])
        most = settings["model"]["max_length"] - 2
        self.train, self.dev = (
            [([CLASSIFY, *pieces.encode(text)[:most], SEPARATE], label) for text, label in read[part]] for part in ("train", "dev")
        )
        self.vocabulary = pieces.size
        self.sha256 = files.sha256()

    def model(self) -> Classifier:
        return Classifier(self.settings["model"], self.vocabulary, classes=2)

    def epoch(self, source: random.Random) -> list[list[int]]:
        return batches.shuffled([(len(tokens), 0) for tokens, _ in self.train], self.settings["data"]["batch_tokens"], source)

    def logits(self, model: Classifier, examples: list[tuple[list[int], int]]) -> Tensor:
        lengths = [len(tokens) for tokens, _ in examples]
        rows = [tokens + [PAD] * (max(lengths) - len(tokens)) for tokens, _ in examples]
        return model(torch.tensor(rows), lengths)

    def loss(self, model: Classifier, items: list[int]) -> tuple[Tensor, int]:
        examples = [self.train[item] for item in items]
        labels = torch.tensor([label for _, label in examples])
        return F.cross_entropy(self.logits(model, examples), labels, reduction="sum"), len(items)

    def validate(self, model: Classifier) -> dict[str, float]:
        actual, predicted = [], []
        for items in batches.by_length([(len(tokens), 0) for tokens, _ in self.dev], self.settings["data"]["batch_tokens"]):
            examples = [self.dev[item] for item in items]
            actual += [label for _, label in examples]
            predicted += self.logits(model, examples).argmax(dim=1).tolist()
        scores = {"accuracy": float(accuracy_score(actual, predicted))}
        if self.selection == "matthews":
            scores["matthews"] = float(matthews_corrcoef(actual, predicted))
        return scores

    def score(self, model: Classifier, _folder: Path) -> tuple[dict[str, float], dict[str, str]]:
        """Scores of the development set, since the test set has no labels, and what they are of."""
        scores = self.validate(model)
        return scores, dict.fromkeys(scores, f"dev, {len(self.dev)} examples")
