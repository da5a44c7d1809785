"""`hulk validate`: what it refuses, and one small answer."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from cases import CONFIGS
from command import finish
from nursery import Launched
from rich.console import Console

import hulk.propose
from factories import job
from hulk.cli import main
from hulk.cli.validate import render
from hulk.runtime.measure import Measured
from hulk.runtime.validate import SystemResult
from hulk.testbed import missing, requirements

pytest.importorskip("torch")

CLUSTER = """
name: pair
regions: {rome: {}, oslo: {}}
assume: {between: blocked}
machines:
  - {name: a, region: rome, gpu: rtx-3090, gpus: 1}
  - {name: b, region: oslo, gpu: v100-32, gpus: 1}
links:
  - {between: [rome, oslo], latency: 10 ms, bandwidth: 100 Mbit/s}
"""
JOB = {"name": "tiny", "model": "./config.json", "sequence": 16, "global_batch": 8, "precision": "fp32"}
JOB |= {"weight": 2, "tokens": "12800"}  # 100 steps


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["gpt2"]))
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "jobs.yaml").write_text(json.dumps({"jobs": [JOB]}))
    return [str(tmp_path / "cluster.yaml"), str(tmp_path / "jobs.yaml")]


def refused(arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """The message with which a command ends that is given something wrong."""
    monkeypatch.setattr(sys, "argv", ["hulk", "validate", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    return capsys.readouterr().err


def test_refuses_too_many_machines(files, monkeypatch, capsys):
    assert "has 47 machines; a testbed takes 1 to 16" in refused(["hulk47", files[1]], monkeypatch, capsys)


def test_refuses_without_root(files, monkeypatch, capsys):
    monkeypatch.setattr(requirements.os, "geteuid", lambda: 1000)
    assert "a testbed needs root (try it with sudo)" in refused(files, monkeypatch, capsys)


def test_refuses_a_file_that_is_not_there(files, monkeypatch, capsys):
    assert "nowhere.yaml" in refused(["nowhere.yaml", files[1]], monkeypatch, capsys)


@pytest.mark.parametrize("option", ["--steps", "--time-limit", "--evaluations", "--workers"])
def test_refuses_options_out_of_range(option, files, monkeypatch, capsys):
    assert option in refused([*files, option, "0"], monkeypatch, capsys)


def test_asks_the_network_unless_told_not_to(files, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(requirements.os, "geteuid", lambda: 1000)  # so that it ends before it plans
    monkeypatch.setattr(hulk.propose, "bundled_network", lambda: hulk.propose.load_network(tmp_path))
    assert "warning: no graph network" in refused(files, monkeypatch, capsys)
    assert "warning" not in refused([*files, "--no-gnn"], monkeypatch, capsys)


def measured(name: str, *, concurrent: bool, heavy: float, light: float) -> SystemResult:
    """A system with two jobs and the seconds of their steps, as predicted as measured."""
    steps = {"heavy": heavy, "light": light}
    runs = {job: Measured(seconds, (9.0, seconds, seconds)) for job, seconds in steps.items()}
    return SystemResult(name, f"the system {name}", concurrent, steps, runs)


def test_the_winner_is_who_makes_the_objective_least(capsys):
    """By the slowest step A would win: 3 s, and Hulk takes 4 s. By weight × time to finish it takes twice as long."""
    budget = job(global_batch=10, tokens=1000.0)  # 10 steps
    jobs = [replace(budget, name="heavy", weight=9.0), replace(budget, name="light")]
    ours = measured("hulk", concurrent=True, heavy=1.0, light=4.0)
    theirs = measured("A", concurrent=True, heavy=2.5, light=3.0)
    render([ours, theirs], jobs, Console(width=120, highlight=False))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["★", "hulk", "2.17", "min", "×1"] in lines  # 10 × (9 × 1 + 4) = 130 s
    assert ["A", "4.25", "min", "×1.96"] in lines  # 10 × (9 × 2.5 + 3) = 255 s


def test_systems_that_run_jobs_in_turn_count_the_time_before(capsys):
    budget = job(global_batch=10, tokens=1000.0)
    jobs = [replace(budget, name="heavy", weight=9.0), replace(budget, name="light")]
    found = measured("B", concurrent=False, heavy=1.0, light=1.0).measured_score(jobs)
    assert found is not None
    assert found.finish == {"heavy": 10.0, "light": 20.0}
    assert found.running == 9 * 10.0 + 20.0


@pytest.mark.skipif(bool(missing()), reason=f"a testbed needs {', '.join(missing())}")
def test_measures_every_system_that_can_run(files):
    options = ["--steps", "3", "--time-limit", "30", "--evaluations", "300", "--seed", "1", "--workers", "1", "--json"]
    code, output, errors = finish(Launched(["validate", *files, *options]), 300)
    assert code == 0, errors
    answer = json.loads(output)
    assert answer["hulk"] == "validation/1" and answer["steps"] == 3
    systems = answer["systems"]
    assert list(systems) == ["hulk", "A", "B", "B-tour", "C"]
    for name in ("hulk", "A", "B", "B-tour"):
        job = systems[name]["jobs"]["tiny"]
        assert len(job["steps_s"]) == 3
        assert systems[name]["measured_total_s"] == job["measured_s"] == pytest.approx(sum(job["steps_s"][1:]) / 2)
        assert systems[name]["measured_objective_s"] == pytest.approx(2 * 100 * job["measured_s"])
        assert systems[name]["predicted_objective_s"] == pytest.approx(2 * 100 * job["predicted_s"])
    # A stage in each region: what crosses takes 10 ms a trip, there and back, and no processor makes that shorter.
    assert systems["B"]["jobs"]["tiny"]["measured_s"] > 0.02
    assert systems["hulk"]["measured_total_s"] < systems["B"]["measured_total_s"]
    assert systems["C"]["measured_total_s"] is None
    assert systems["C"]["measured_objective_s"] is None
    assert "predicted only" in systems["C"]["notes"]["tiny"]
