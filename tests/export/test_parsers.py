"""The targets' own parsers read the golden files as what the plans say."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from parser_python import PYTHON, needs_parsers

from golden import FOLDER

HALL = [f"oslo-{i}" for i in (1, 2, 3, 4)]
EXPECTED: dict[str, Any] = {
    "megatron": {
        "layout": [
            ["embedding", *["decoder"] * 8], ["decoder"] * 9, ["decoder"] * 9, [*["decoder"] * 6, "loss"],
        ],
        "rotation": "500000",
    },
    "torchtitan": {
        "world": 32,
        "rotation": [[500_000.0, "none"]],
        "parts": [15, 20],
        "schedule": "1F1B",
        "layers": 32,
        "batch": [16, 64],
    },
    "automodel": {
        "recipe": "nemo_automodel.recipes.llm.train_ft.TrainFinetuneRecipeForNextTokenPrediction",
        "sizes": [4, 2, 2, 2, 2],
        "parts": [16, 21],
        "layers": 32,
        "rotation": [500_000.0, "default"],
        "seed": [0, 0],
        "batch": [16, 64, 1, 4096],
        "steps": 20,
        "tokenizer": None,
    },
    "deepspeed": {
        "gpus": {name: list(range(8)) for name in HALL},
        "world": 32,
        "batch": [64, 1, 8],
        "zero": 1,
        "starts": [0, 9, 18, 27, 34],
    },
    "accelerate": {name: [rank, 4, 32, "HYBRID_SHARD", "0,1,2,3,4,5,6,7"] for rank, name in enumerate(HALL)},
    "skypilot": {
        "g0-rome": [1, [["AWS", "eu-south-1", {"RTX3090": 1}]]],
        "g1-oslo": [1, [["GCP", "europe-north1", {"V100-32GB": 2}]]],
        "g2-oslo": [1, [["GCP", "europe-north1", {"V100-32GB": 1}]]],
    },
    "jobset": {"g0-rome": 1, "g1-oslo": 1, "g2-oslo": 1},
}  # fmt: skip


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what every parser has read and said."""
    out = tmp_path_factory.mktemp("read")
    program = [str(PYTHON), str(Path(__file__).parent / "parsers.py"), str(FOLDER), str(out), *EXPECTED]
    variables = {**os.environ, "HOME": str(out), "DS_ACCELERATOR": "cpu", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    variables.pop("PYTHONPATH", None)
    done = subprocess.run(program, capture_output=True, text=True, env=variables, cwd=out, timeout=400, check=False)
    assert (out / f"{list(EXPECTED)[-1]}.txt").exists(), done.stderr[-2000:]
    return out


@needs_parsers
@pytest.mark.parametrize("target", EXPECTED)
def test_a_parser_reads_what_the_plan_says(target: str, read: Path) -> None:
    found = read / f"{target}.json"
    assert found.exists(), (read / f"{target}.txt").read_text(errors="replace")[-2000:]
    assert json.loads(found.read_text()) == EXPECTED[target]
