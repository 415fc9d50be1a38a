from __future__ import annotations

import subprocess
from pathlib import Path

import heedful
import pytest

LONG = "dot-product+gaussian+uniform+alibi+rotary+synthesizer-dense+synthesizer-random+learned-relative+t5-bias+shaw+forgetting+shared-qk"


@pytest.fixture(scope="session")
def recorded() -> Path:
    """The recorded results of the repository."""
    return Path(__file__).parents[3] / "results"


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of two runs of four steps, one of them with a name that is longer than names of folders are."""
    out = tmp_path_factory.mktemp("runs") / "classify"
    arguments = ["classify", "--quiet", "--steps", "4", "--attention", f"dot-product,{LONG}", "--out", str(out)]
    for setting in [
        "model={d_model=8,heads=1,d_ff=8,layers=1}",
        "training={log_every=2,evaluate_every=2,checkpoint_every=4}",
        "data.generated_texts=100",
    ]:
        arguments += ["--set", setting]
    subprocess.run([heedful.find_program(), *arguments], check=True, stdout=subprocess.DEVNULL)
    return out
