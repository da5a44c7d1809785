"""`hulk validate`: what it refuses, and one small answer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cases import CONFIGS

from hulk.cli import main
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


@pytest.mark.skipif(bool(missing()), reason=f"a testbed needs {', '.join(missing())}")
def test_measures_every_system_that_can_run(files):
    command = [sys.executable, "-c", "from hulk.cli import main; main()", "validate", *files]
    command += ["--steps", "3", "--time-limit", "0.5", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["hulk"] == "validation/1" and answer["steps"] == 3
    systems = answer["systems"]
    assert list(systems) == ["hulk", "A", "B", "B-tour", "C"]
    for name in ("hulk", "A", "B", "B-tour"):
        job = systems[name]["jobs"]["tiny"]
        assert len(job["steps_s"]) == 3
        assert systems[name]["measured_total_s"] == job["measured_s"] == pytest.approx(sum(job["steps_s"][1:]) / 2)
    # A stage in each region: what crosses takes 10 ms a trip, there and back, and no processor makes that shorter.
    assert systems["B"]["jobs"]["tiny"]["measured_s"] > 0.02
    assert systems["hulk"]["measured_total_s"] < systems["B"]["measured_total_s"]
    assert systems["C"]["measured_total_s"] is None
    assert "predicted only" in systems["C"]["notes"]["tiny"]
