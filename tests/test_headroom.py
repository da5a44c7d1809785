"""`--headroom`: a plan leaves a share of every GPU's memory free."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hulk.cli.app import app

CLUSTER = """
name: one
regions: {here: {at: [50, 8]}}
machines: [{name: box, region: here, gpu: h200, gpus: 1, network: 100 Gbit/s}]
"""
JOBS = {"jobs": [{"name": "small", "model": "gpt2-xl", "global_batch": 64, "precision": "bf16"}]}


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "jobs.yaml").write_text(json.dumps(JOBS))
    return [str(tmp_path / "cluster.yaml"), str(tmp_path / "jobs.yaml")]


def fullness(files: list[str], *more: str) -> float:
    """The share of the GPU's memory that a plan fills."""
    asked = ["plan", *files, "--json", "--no-gnn", "--workers", "1", "--evaluations", "50", *more]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    memory = json.loads(done.stdout)["price"]["jobs"]["small"]["pipelines"][0][0]["memory"]
    return (sum(memory.values()) - memory["capacity"]) / memory["capacity"]


def test_a_plan_leaves_that_much_free(files: list[str]) -> None:
    most = fullness(files, "--headroom", "0%")
    assert 0.5 < fullness(files) <= 0.97
    assert fullness(files, "--headroom", "40 %") <= 0.6 < most


def test_a_price_says_what_must_stay_free(files: list[str], tmp_path: Path) -> None:
    plan, options = str(tmp_path / "plan.json"), ["--cluster", files[0], "--jobs", files[1]]
    asked = ["plan", *files, "--no-gnn", "--workers", "1", "--evaluations", "50", "--out", plan]
    assert CliRunner().invoke(app, asked).exit_code == 0
    assert CliRunner().invoke(app, ["price", plan, *options]).exit_code == 0
    refused = CliRunner().invoke(app, ["price", plan, *options, "--headroom", "90%", "--json"])
    assert refused.exit_code == 3
    assert "90% of it to stay free" in json.loads(refused.stdout)["jobs"]["small"]["reason"]


@pytest.mark.parametrize("verb", ["plan", "price", "replan"])
@pytest.mark.parametrize("share", ["100%", "250 %", "-3%", "nan%", "5", "lots", ""])
def test_impossible_shares_are_refused(verb: str, share: str, files: list[str]) -> None:
    given = files if verb == "plan" else ["plan.json", "--cluster", files[0], "--jobs", files[1]]
    done = CliRunner().invoke(app, [verb, *given, f"--headroom={share}"])
    assert done.exit_code == 2 or getattr(done.exception, "exit_code", 0) == 2
    assert "--headroom" in done.output + str(done.exception)


def test_a_headroom_of_all_memory_leaves_room_for_nothing(files: list[str]) -> None:
    done = CliRunner().invoke(app, ["plan", *files, "--no-gnn", "--workers", "1", "--headroom", "99.9%"])
    assert done.exit_code == 3
    assert "h200 has no room for anything" in " ".join(done.output.split()) and " -" not in done.output
