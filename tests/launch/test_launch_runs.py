"""Launched plans really train: on this computer and by Slurm, with the loss of one process; and they end without a
trace. Over ssh: the tutorial, in the tests of the testbed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

for folder in ("export", "runtime"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))

from cases import write_case, write_text  # noqa: E402
from export_runs import STEPS, TWO, free_port, single, variables  # noqa: E402
from loopback import left_behind  # noqa: E402
from saved import OLD, losses, old_checkpoint, saved_steps  # noqa: E402
from slurm_nodes import BARE, Slurm  # noqa: E402

from hulk.cli import main  # noqa: E402

pytest.importorskip("torch")

PLAN = ("plan.json", "-c", "cluster.yaml", "-j", "jobs.yaml", "--data", "text.txt", "--steps", str(STEPS))
COMMAND = (sys.executable, "-c", "from hulk.cli import main; main()", "launch")


@pytest.fixture
def case(tmp_path: Path) -> Path:
    write_case(TWO, tmp_path)
    write_text(tmp_path / "text.txt")
    return tmp_path


def test_on_this_computer_and_on_its_page(case: Path, tmp_path: Path) -> None:
    rooms = Path(tempfile.mkdtemp())
    own = variables(HULK_MARK=str(case), TMPDIR=str(rooms))
    more = ("--on", "local", "--metrics", "steps.jsonl", "--trace", "trace.json", "--checkpoint-dir", "saved", "--page")
    run = subprocess.Popen(
        [*COMMAND, *PLAN, *more], cwd=case, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert run.stdout
    before = [run.stdout.readline()]
    while before[-1] and not before[-1].startswith("the page: "):
        before.append(run.stdout.readline())
    page = before[-1].split()[-1]
    with httpx.stream("GET", f"{page}api/live/events", timeout=400) as answer:
        told = [json.loads(each[6:]) for each in answer.iter_lines() if each.startswith("data: ")]
    output, errors = run.communicate(timeout=400)
    assert run.returncode == 0, errors
    output = "".join(before) + output
    expected = single(tmp_path / "single")
    [job] = told[-1]["jobs"]
    assert (told[-1]["state"], job["job"], len(job["stages"])) == ("done", "tiny", 2)
    assert [loss for _, loss in job["loss"]] == pytest.approx(expected, rel=1e-5)
    assert losses([case / "steps.jsonl"]) == pytest.approx(dict(enumerate(expected, 1)), rel=1e-5)
    assert "starting 2 processes on this computer" in output and f"tiny step {STEPS}/{STEPS}" in output
    assert len(json.loads((case / "trace.json").read_text(encoding="utf-8"))["traceEvents"]) > 50
    assert [path.name for path in (case / "saved" / "tiny").iterdir()] == [f"step-{STEPS:08d}"]
    assert left_behind(str(case)) == []
    assert not list(rooms.glob("hulk-*"))
    shutil.rmtree(rooms)


def test_ctrl_c_ends_everything(case: Path) -> None:
    own = variables(HULK_MARK=str(case))
    argv = [word if word != str(STEPS) else "1000000" for word in (*COMMAND, *PLAN)]
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


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    if os.geteuid() != 0 or not all(shutil.which(name) for name in ("munged", "slurmctld", "slurmd")):
        pytest.skip("needs root, slurm-wlm and munge")
    with Slurm(tmp_path_factory.mktemp("slurm")) as running:
        yield running


GIVEN = ("--checkpoint-dir", "saved", "--every", "1")


# Stands for the driver of NVIDIA's on nodes whose GPUs are files: those of the plan, unless a file says otherwise.
NVML = """
import os
from types import SimpleNamespace
class NVMLError(Exception): ...
NVMLError_NotSupported = NVMLError_InvalidArgument = NVMLError
NODE = os.environ.get("SLURMD_NODENAME")
FREE = float(os.environ.get("FREE_BYTES", 20e9))
nvmlInit = nvmlShutdown = lambda: None
nvmlDeviceGetCount = lambda: 4
nvmlDeviceGetHandleByIndex = lambda number: number
nvmlDeviceGetName = lambda handle: {"n1": "NVIDIA GeForce RTX 3090", "n2": "Tesla V100-SXM2-32GB"}.get(NODE, "none")
nvmlDeviceGetMemoryInfo = lambda handle: SimpleNamespace(total=FREE, free=FREE)
def nvmlDeviceGetNvLinkState(handle, link): raise NVMLError
"""


@dataclass(frozen=True)
class BySlurm:
    """The case's folder, which is the current one, and on which node of a Slurm each machine is."""

    folder: Path
    capsys: pytest.CaptureFixture[str]
    monkeypatch: pytest.MonkeyPatch
    nodes: dict[str, str] = field(default_factory=lambda: {"rome-1": "n1", "oslo-1": "n2"})

    def argv(self, *more: str) -> list[str]:
        """What follows `hulk launch`."""
        hosts = {name: {"address": "127.0.0.1", "node": node, "interface": "lo"} for name, node in self.nodes.items()}
        (self.folder / "hosts.json").write_text(json.dumps({"hosts": hosts}), encoding="utf-8")
        return [*PLAN, "--on", "slurm", "--hosts", "hosts.json", "--port", str(free_port()), *more]

    def launch(self, *more: str) -> tuple[int | str | None, str, str]:
        """`hulk launch` in this process: exit code, output, errors."""
        self.monkeypatch.setattr(sys, "argv", ["hulk", "launch", *self.argv(*more)])
        with pytest.raises(SystemExit) as stopped:
            main()
        return stopped.value.code, *self.capsys.readouterr()

    def queue(self) -> str:
        """What Slurm has to do once the jobs that have ended are cleared away, which takes it a moment."""
        end = time.monotonic() + 30
        while jobs := subprocess.run(["squeue", "-h"], capture_output=True, text=True, check=True).stdout.strip():
            if time.monotonic() > end:
                break
            time.sleep(0.1)
        return jobs


@pytest.fixture
def by_slurm(case: Path, slurm: Slurm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> BySlurm:
    monkeypatch.chdir(case)
    for name, value in variables(SLURM_CONF=str(slurm.config)).items():
        monkeypatch.setenv(name, value)
    (case / "driver").mkdir()
    (case / "driver" / "pynvml.py").write_text(NVML, encoding="ascii")
    before = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", f"{case / 'driver'}{f':{before}' if before else ''}")
    return BySlurm(case, capsys, monkeypatch)


def test_what_slurm_is_not_asked_for(by_slurm: BySlurm) -> None:
    code, _, words = by_slurm.launch(*GIVEN, "--resume")
    assert code == 2 and "no whole checkpoint to resume from" in words
    assert not (by_slurm.folder / "saved").exists()
    old_checkpoint(by_slurm.folder)
    for more, wanted in (
        ((), f"has checkpoints of an earlier run, the newest is step-{OLD:08d}"),
        (("--resume", "--overwrite"), "--resume goes on from checkpoints that --overwrite would remove"),
        (("--resume", "--data", "/nowhere/text.txt"), "oslo-1: --data: /nowhere/text.txt: cannot be read"),
    ):
        code, _, words = by_slurm.launch(*GIVEN, *more)
        assert code == 2 and wanted in words
    assert by_slurm.launch(*GIVEN, "--overwrite", "--check")[0] == 0
    assert saved_steps(by_slurm.folder) == [OLD]
    for node, wanted in (
        ("n9", "no node 'n9' in this Slurm: give `node` in the hosts file"),
        (BARE, f"node {BARE} has 0 GPUs for Slurm, the plan needs 1: correct gres.conf, or --no-gpus"),
    ):
        by_slurm.nodes["oslo-1"] = node
        code, _, words = by_slurm.launch(*GIVEN, "--overwrite")
        assert (code, words.splitlines()[0]) == (2, f"oslo-1: {wanted}")
    by_slurm.nodes["oslo-1"] = "n2"
    assert by_slurm.launch("--compute", "emulated", "--check")[0] == 0
    assert saved_steps(by_slurm.folder) == [OLD] and by_slurm.queue() == ""
    assert not list(by_slurm.folder.glob("hulk-launch-*"))


def test_what_nodes_of_slurm_lack_is_listed_at_once(by_slurm: BySlurm) -> None:
    by_slurm.monkeypatch.setenv("FREE_BYTES", "1e6")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, _, words = by_slurm.launch("--checkpoint-dir", "/proc/x", "--tokenizer", "/nowhere/t", "--port", port)
    *lines, last = words.splitlines()
    assert code == 2 and last == "error: 2 of 2 machines are not ready, and nothing was started"
    for name in ("rome-1", "oslo-1"):
        mine = "\n".join(line for line in lines if line.startswith(f"{name}: "))
        assert "GPU 0 there has 977 KiB free, the plan needs" in mine
        assert "--tokenizer: /nowhere/t" in mine and "copy it there" in mine
        assert ("--checkpoint-dir: 0 B free there, a checkpoint takes" in mine) is (name == "rome-1")
        assert (f"port {port} of 127.0.0.1 is in use by another program" in mine) is (name == "rome-1")
    by_slurm.monkeypatch.delenv("FREE_BYTES")
    # A node of other GPUs than the plan's, and one whose Python has no hulk.
    by_slurm.nodes.update({"rome-1": "n2", "oslo-1": "n3"})
    code, _, words = by_slurm.launch()
    first, second, _ = words.splitlines()
    assert code == 2 and first.startswith("rome-1: GPU 0 there is Tesla V100-SXM2-32GB, the plan is for rtx-3090")
    assert second.startswith("oslo-1: GPU 0 there is none")
    by_slurm.monkeypatch.setenv("PYTHON", "/nowhere/python")
    code, _, words = by_slurm.launch()
    assert code == 2 and words.splitlines()[0] == (
        "rome-1: the job's Python is not there: set PYTHON to the one that has hulk"
    )
    # One that others use is not waited for.
    by_slurm.nodes["rome-1"] = "n1"
    by_slurm.monkeypatch.setenv("PYTHON", sys.executable)
    by_slurm.monkeypatch.setattr("hulk.launch.srun._WAIT", 1)
    submit = ["sbatch", "--parsable", "--exclusive", "--nodelist=n3", "--output=/dev/null", "--wrap=sleep 600"]
    other = subprocess.run(submit, capture_output=True, text=True, check=True).stdout.strip()
    while "R" not in subprocess.run(["squeue", "-h", "-o", "%t"], capture_output=True, text=True, check=True).stdout:
        time.sleep(0.1)
    code, output, words = by_slurm.launch("--check")
    subprocess.run(["scancel", other], check=True)
    assert code == 0, words
    assert "oslo-1 is not checked: its node is in use: what it lacks shows when the job's turn comes" in output
    assert "1 machines are ready, 1 are in use" in output
    assert by_slurm.queue() == "" and not list(by_slurm.folder.glob("hulk-launch-*"))


def test_slurm_ends_on_ctrl_c_and_goes_on(by_slurm: BySlurm) -> None:
    case = by_slurm.folder
    old_checkpoint(case)
    first = by_slurm.argv(*GIVEN, "--overwrite", "--steps", "1000000", "--metrics", "first.jsonl")
    with subprocess.Popen([*COMMAND, *first], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None and running.stderr is not None
        assert any("removed 1 checkpoints of an earlier run" in line for line in running.stdout)
        assert any("tiny checkpoint" in line for line in running.stdout), running.stderr.read()
        assert any("tiny step" in line for line in running.stdout)  # ranks are heard one after the other
        running.send_signal(signal.SIGINT)
        words = running.stderr.read()
        assert running.wait(120) == 130
    assert "interrupted after step" in words and "Traceback" not in words
    assert by_slurm.queue() == "" and not list(case.glob("hulk-launch-*"))
    assert OLD not in saved_steps(case)
    # The other steps on a node that has no GPUs.
    by_slurm.nodes["oslo-1"] = BARE
    steps = max(saved_steps(case)) + 1
    second = (*GIVEN, "--no-gpus", "--resume", "--steps", str(steps))
    code, output, words = by_slurm.launch(*second, "--metrics", "second.jsonl", "--trace", "trace.json")
    assert code == 0, words
    assert "tiny goes on from" in output and f"tiny step {steps}/{steps}" in output
    found = losses([case / "first.jsonl", case / "second.jsonl"])
    assert found.keys() >= {1, steps}
    alone = dict(enumerate(single(case / "single", max(found)), 1))
    assert found == pytest.approx({step: alone[step] for step in found}, rel=1e-5)
    assert len(json.loads((case / "trace.json").read_text(encoding="utf-8"))["traceEvents"]) > 50
    assert max(saved_steps(case)) == steps
    code, output, _ = by_slurm.launch(*second)
    assert code == 0 and f"tiny has nothing left to do: {steps} steps are done" in output
    assert by_slurm.queue() == "" and not list(case.glob("hulk-launch-*"))
