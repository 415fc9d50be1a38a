"""The configuration of a preset, as far as a twin has it: what a twin cannot do is refused and never ignored."""

import copy
import tomllib
from pathlib import Path
from typing import Any

# The defaults of the experiments' configuration for what presets may leave out.
MODEL = {"layers": 2, "d_model": 64, "heads": 4, "d_ff": 256, "max_length": 64, "dropout": 0.1, "norm_order": "pre"}
TRAINING = {
    "steps": 10_000,
    "learning_rate": 3e-4,
    "schedule": {"kind": "linear", "warmup": 0, "end": 0.0},
    "max_gradient_norm": 1.0,
    "average": 1,
    "evaluate_every": 500,
    "checkpoint_every": 500,
    "log_every": 50,
}
DEFAULTS: dict[str, dict[str, Any]] = {
    "lm": {"tied": True, "data": {"context": 64, "batch": 16, "stride": 32}, "tokeniser": {"kind": "word"}},
    "mt": {
        "tying": "three-way",
        "label_smoothing": 0.1,
        "data": {"source": "en", "target": "de", "batch_tokens": 1000},
        "tokeniser": {"kind": "bpe", "vocabulary": 5000},
        "decoding": {"beam": 4, "length_penalty": 0.6, "extra_length": 50, "batch_tokens": 2000},
    },
    "glue": {
        "pooling": "mean",
        "data": {"tasks": ["CoLA"], "batch_tokens": 1000},
        "tokeniser": {"kind": "word-piece", "vocabulary": 5000, "lowercase": False},
    },
}
# Fields with one value that the twins have.
FIXED = {
    ("tied",): True,
    ("tying",): "three-way",
    ("pooling",): "mean",
    ("model", "norm_order"): "pre",
    ("training", "schedule", "kind"): "linear",
}
TOKENISERS = {"lm": "word", "mt": "bpe", "glue": "word-piece"}


class SettingsError(ValueError):
    """A configuration that a twin cannot follow."""


def read(experiment: str, path: Path, changes: list[str]) -> dict[str, Any]:
    """The complete configuration: that of the file at `path` with `changes` such as `training.steps=600`, whose values are TOML.

    Raises `SettingsError` for a field that the twin does not have and a value that it cannot follow.
    """
    given = tomllib.loads(path.read_text(encoding="utf-8"))
    # Which mechanisms are compared is no matter of the twin, which has dot-product attention.
    given.pop("run", None)
    for change in changes:
        name, separator, value = change.partition("=")
        if not separator:
            raise SettingsError(f"--set {change}: give FIELD=VALUE")
        place = given
        *tables, field = name.split(".")
        for table in tables:
            place = place.setdefault(table, {})
        try:
            place[field] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError as error:
            raise SettingsError(f"--set {change}: {error}; the value must be TOML, strings in quotes") from None
    settings = copy.deepcopy(DEFAULTS[experiment] | {"model": MODEL, "training": TRAINING})
    merge(settings, given, "")
    for place, wanted in {**FIXED, ("tokeniser", "kind"): TOKENISERS[experiment]}.items():
        found: Any = settings
        for field in place:
            found = found.get(field) if isinstance(found, dict) else None
        if found is not None and found != wanted:
            raise SettingsError(f"{'.'.join(place)} = {found!r}: the twin has {wanted!r} alone")
    return settings


def merge(settings: dict[str, Any], given: dict[str, Any], prefix: str) -> None:
    """Sets the fields of `given`, all of which `settings` must have already."""
    for field, value in given.items():
        if field not in settings:
            raise SettingsError(f"the twin has no {prefix}{field}; its fields there are {', '.join(sorted(settings))}")
        if isinstance(settings[field], dict) != isinstance(value, dict):
            raise SettingsError(f"{prefix}{field} = {value!r} is {'no' if isinstance(settings[field], dict) else 'a'} table")
        if isinstance(value, dict):
            merge(settings[field], value, f"{prefix}{field}.")
        else:
            settings[field] = value
