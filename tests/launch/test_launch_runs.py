"""Launched plans really train: on this computer and by Slurm, with the loss of one process; and they end without a
trace. Over ssh: the tutorial, in the tests of the testbed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

for folder in ("export", "runtime"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))

from cases import write_case, write_text  # noqa: E402
from export_runs import STEPS, TWO, free_port, single, variables  # noqa: E402
from loopback import left_behind  # noqa: E402
from slurm_nodes import Slurm  # noqa: E402

pytest.importorskip("torch")

PLAN = ("plan.json", "-c", "cluster.yaml", "-j", "jobs.yaml", "--data", "text.txt", "--steps", str(STEPS))
COMMAND = (sys.executable, "-c", "from hulk.cli import main; main()", "launch", *PLAN)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    return single(tmp_path_factory.mktemp("single"))


@pytest.fixture
def case(tmp_path: Path) -> Path:
    write_case(TWO, tmp_path)
    write_text(tmp_path / "text.txt")
    return tmp_path


def losses(path: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in path.read_text(encoding="utf-8").splitlines()]


def test_on_this_computer(case: Path, expected: list[float]) -> None:
    rooms = Path(tempfile.mkdtemp())
    own = variables(HULK_MARK=str(case), TMPDIR=str(rooms))
    more = ("--on", "local", "--metrics", "steps.jsonl", "--trace", "trace.json", "--checkpoint-dir", "saved")
    done = subprocess.run(
        [*COMMAND, *more], cwd=case, env=own, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr
    assert losses(case / "steps.jsonl") == pytest.approx(expected, rel=1e-5)
    assert "starting 2 processes on this computer" in done.stdout and f"tiny step {STEPS}/{STEPS}" in done.stdout
    assert len(json.loads((case / "trace.json").read_text(encoding="utf-8"))["traceEvents"]) > 50
    assert [path.name for path in (case / "saved" / "tiny").iterdir()] == [f"step-{STEPS:08d}"]
    assert left_behind(str(case)) == []
    assert not list(rooms.glob("hulk-*"))
    shutil.rmtree(rooms)


def test_ctrl_c_ends_everything(case: Path) -> None:
    own = variables(HULK_MARK=str(case))
    argv = [word if word != str(STEPS) else "1000000" for word in COMMAND]
    with subprocess.Popen(
        [*argv, "--on", "local"], cwd=case, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None and running.stderr is not None
        for line in running.stdout:
            if "tiny step" in line:
                break
        assert len(left_behind(str(case))) >= 5  # this, two agents, two workers
        running.send_signal(signal.SIGINT)
        words = running.stderr.read()
        assert running.wait(60) == 130
    assert "interrupted after step" in words
    assert left_behind(str(case)) == []


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Slurm]:
    if os.geteuid() != 0 or not all(shutil.which(name) for name in ("munged", "slurmctld", "slurmd")):
        pytest.skip("needs root, slurm-wlm and munge")
    with Slurm(tmp_path / "slurm") as running:
        yield running


def test_by_slurm(case: Path, slurm: Slurm, expected: list[float]) -> None:
    own = variables(SLURM_CONF=str(slurm.config))
    nodes = {"rome-1": "n1", "oslo-1": "n2"}

    def launched(*more: str) -> subprocess.CompletedProcess[str]:
        hosts = {name: {"address": "127.0.0.1", "node": node, "interface": "lo"} for name, node in nodes.items()}
        (case / "hosts.json").write_text(json.dumps({"hosts": hosts}), encoding="utf-8")
        given = ("--on", "slurm", "--hosts", "hosts.json", "--port", str(free_port()), *more)
        return subprocess.run(
            [*COMMAND, *given], cwd=case, env=own, capture_output=True, text=True, timeout=400, check=False
        )

    # Half of the steps, and the others from the checkpoint.
    given = ("--metrics", "steps.jsonl", "--checkpoint-dir", "saved")
    nothing = launched(*given, "--resume")
    assert nothing.returncode == 2 and "no whole checkpoint to resume from" in nothing.stderr
    assert not (case / "saved").exists()
    done = launched(*given, "--steps", "1")
    assert done.returncode == 0, done.stderr
    first = losses(case / "steps.jsonl")
    refused = launched(*given)
    assert refused.returncode == 2 and "has checkpoints of an earlier run" in refused.stderr
    elsewhere = launched(*given, "--resume", "--data", "/nowhere/text.txt")
    assert elsewhere.returncode == 2 and "this computer has no /nowhere/text.txt" in elsewhere.stderr
    done = launched(*given, "--resume")
    assert done.returncode == 0, done.stderr
    assert "tiny goes on from" in done.stdout
    assert first + losses(case / "steps.jsonl") == pytest.approx(expected, rel=1e-5)
    again = launched(*given, "--resume")
    assert again.returncode == 0 and "tiny has nothing left to do: 2 steps are done" in again.stdout
    queue = subprocess.run(["squeue", "-h"], env=own, capture_output=True, text=True, check=True).stdout
    assert queue.strip() == ""
    assert not list(case.glob("hulk-launch-*"))
    nodes["oslo-1"] = "n9"
    done = launched("--check")
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        2,
        "oslo-1: no node 'n9' in this Slurm: give `node` in the hosts file",
    )
