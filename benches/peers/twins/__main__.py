"""Experiments of heedful written a second time, in plain PyTorch, to compare whole pipelines: tokens, batches, model, optimiser, schedule, score.

    python benches/peers/twins lm --config experiments/presets/ptb-quick.toml --data ptb --seeds 5 --set training.steps=1300 --out runs/twin-lm
    python benches/peers/twins verdict runs/lm runs/twin-lm

A twin follows the preset and what heedful documents, and shares no code with it; README.md beside this file says what it implements. It writes
the record format of heedful, which `heedful compare` reads. `verdict` tests the scores of both sides for equivalence within margins.toml.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import equivalence
import records
import settings


def train(experiment: str, options: argparse.Namespace) -> None:
    """Makes every run that has no record yet."""
    configuration = settings.read(experiment, options.config, options.set)
    import torch

    torch.set_num_threads(options.threads)
    if experiment == "lm":
        from language import Language

        makers: list[Any] = [lambda: Language(configuration, options.data)]
    elif experiment == "mt":
        from translation import Translation

        makers = [lambda: Translation(configuration, options.data)]
    else:
        from classification import TASKS, Classification

        unknown = [task for task in configuration["data"]["tasks"] if task not in TASKS]
        if unknown:
            raise settings.SettingsError(f"data.tasks: the twin has no {', '.join(unknown)}; it has {', '.join(TASKS)}")
        makers = [lambda task=task: Classification(configuration, options.data, task) for task in configuration["data"]["tasks"]]
    for maker in makers:
        task = maker()
        for seed in range(1, options.seeds + 1):
            run(experiment, task, configuration, options, seed, several=len(makers) > 1)
    options.out.mkdir(parents=True, exist_ok=True)
    records.write(options.out / "results.json", records.results(options.out))


def run(experiment: str, task: Any, configuration: dict[str, Any], options: argparse.Namespace, seed: int, several: bool) -> None:
    """Makes one run, unless its record is there."""
    import torch
    from training import train as trained

    folder = records.run_folder(options.out, task.dataset, several, seed)
    digest = records.digest(configuration)
    if (folder / "result.json").exists():
        if any(each["configuration"] != digest for each in records.results(folder)):
            raise settings.SettingsError(f"{folder} has a run of another configuration; choose another --out")
        return
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.perf_counter()
    torch.manual_seed(seed)
    model = task.model()
    took = trained(task, model, configuration["training"], seed, folder / "log.jsonl")
    with torch.inference_mode():
        scores, signatures = task.score(model, folder)
    record = records.record(
        experiment=experiment,
        dataset=task.dataset,
        seed=seed,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        steps=configuration["training"]["steps"],
        metrics=scores,
        signatures=signatures,
        tokens_per_second=took.units / took.seconds,
        wall_seconds=time.perf_counter() - begun,
        data_sha256=task.sha256,
        configuration=digest,
        budget={"steps": configuration["training"]["steps"], "minutes": None},
        disturbed=options.disturbed,
    )
    records.write(folder / "result.json", record)
    print(f"{experiment} {task.dataset} seed {seed}: " + ", ".join(f"{name} {value:.4f}" for name, value in scores.items()), flush=True)


def main() -> int:
    """Follows the command line: 0 done, 1 a failure or no equivalence, 2 a usage error."""
    parser = argparse.ArgumentParser(prog="twins", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, what in (("lm", "language modelling"), ("mt", "translation"), ("glue", "tasks of GLUE")):
        command = commands.add_parser(name, help=f"trains the twin of {what}")
        command.add_argument("--config", type=Path, required=True, help="a preset of the experiment")
        command.add_argument("--data", type=Path, required=True, help="the folder that heedful's --data is given")
        command.add_argument("--out", type=Path, required=True, help="folder for records and logs; runs with a record there are not repeated")
        command.add_argument("--seeds", type=int, default=5, help="seeds 1 to N (default 5)")
        command.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="changes a field of the preset")
        command.add_argument("--threads", type=int, default=1, help="threads that PyTorch computes with (default 1)")
        command.add_argument("--disturbed", action="store_true", help="records that other programs used the same cores: times say nothing")
    verdict = commands.add_parser("verdict", help="tests the scores of two output folders for equivalence; 1 unless it is shown")
    verdict.add_argument("own", type=Path, help="output folder of heedful")
    verdict.add_argument("twin", type=Path, help="output folder of the twin")
    options = parser.parse_args()
    try:
        if options.command != "verdict":
            train(options.command, options)
            return 0
        sides = [records.results(folder) for folder in (options.own, options.twin)]
        found, all_equivalent = equivalence.lines(*sides)
        print("\n".join(found))
        return 0 if all_equivalent else 1
    except settings.SettingsError as error:
        print(f"twins: {error}", file=sys.stderr)
        return 2
    except (OSError, ValueError, ImportError) as error:
        print(f"twins: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
