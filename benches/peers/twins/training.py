"""The training loop: Adam with a linear schedule, clipping, and the weights with the best development score or the mean of the last checkpoints."""

import copy
import json
import random
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn


class Task(Protocol):
    """What is trained. Losses are sums over units (tokens, examples), scores those of the development set."""

    selection: str
    highest: bool

    def epoch(self, source: random.Random) -> list[list[int]]: ...
    def loss(self, model: Any, items: list[int]) -> tuple[Tensor, int]: ...
    def validate(self, model: Any) -> dict[str, float]: ...


@dataclass
class Trained:
    """The weights of the best evaluation or the mean of the last checkpoints, in the model, and what training took."""

    units: int
    seconds: float


def learning_rate(settings: dict, step: int) -> float:
    """A line up to `learning_rate` at the end of the warm-up, then one down to `end` at the last step. `step` counts from 1."""
    top, steps = settings["learning_rate"], settings["steps"]
    warmup, end = settings["schedule"]["warmup"], settings["schedule"]["end"]
    if step <= warmup:
        return top * step / warmup
    return top + (end - top) * min(1.0, (step - warmup) / max(1, steps - warmup))


def mean(checkpoints: deque[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each weight."""
    return {name: torch.stack([weights[name] for weights in checkpoints]).mean(dim=0) for name in checkpoints[0]}


def train(task: Task, model: nn.Module, settings: dict, seed: int, log: Path) -> Trained:
    """Trains `model` in place. Each line of `log` is as in heedful's log.jsonl."""
    optimiser = torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True)
    best: float | None = None
    weights: dict[str, Tensor] = {}
    # The last regular checkpoints; none are kept where the best weights are the result.
    checkpoints: deque[dict[str, Tensor]] = deque(maxlen=settings["average"] if settings["average"] > 1 else 0)
    order: list[list[int]] = []
    epoch = units = logged_units = 0
    seconds = logged = 0.0
    begun = time.perf_counter()
    with log.open("w", encoding="utf-8") as file:
        for step in range(1, settings["steps"] + 1):
            if not order:
                epoch += 1
                order = task.epoch(random.Random(f"{seed} {epoch}"))[::-1]
            started = time.perf_counter()
            model.train()
            rate = learning_rate(settings, step)
            for group in optimiser.param_groups:
                group["lr"] = rate
            optimiser.zero_grad(set_to_none=True)
            loss, count = task.loss(model, order.pop())
            (loss / count).backward()
            gradient = float(nn.utils.clip_grad_norm_(model.parameters(), settings["max_gradient_norm"]))
            optimiser.step()
            logged += loss.item()
            logged_units += count
            units += count
            seconds += time.perf_counter() - started
            if step % settings["log_every"] == 0:
                line = {"step": step, "epoch": epoch, "loss": logged / logged_units, "learning_rate": rate, "gradient_norm": gradient}
                print(json.dumps(line | {"tokens": units, "seconds": time.perf_counter() - begun}), file=file, flush=True)
                logged, logged_units = 0.0, 0
            if step % settings["evaluate_every"] == 0 or step == settings["steps"]:
                model.eval()
                with torch.inference_mode():
                    scores = task.validate(model)
                line = {"step": step, "epoch": epoch, "seconds": time.perf_counter() - begun, "dev": scores}
                print(json.dumps(line), file=file, flush=True)
                value = scores[task.selection]
                if best is None or (value > best if task.highest else value < best):
                    best, weights = value, copy.deepcopy(model.state_dict())
            if checkpoints.maxlen and (step % settings["checkpoint_every"] == 0 or step == settings["steps"]):
                checkpoints.append(copy.deepcopy(model.state_dict()))
    if len(checkpoints) > 1:
        weights = mean(checkpoints)
    model.load_state_dict(weights)
    model.eval()
    return Trained(units, seconds)
