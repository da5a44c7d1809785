"""A job of Slurm whose queue cannot always be asked, with programs that stand for Slurm's."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import factories
from hulk.domain.cluster import Link
from hulk.errors import InputError
from hulk.io.hosts_file import Host, HostList
from hulk.launch import slurm
from hulk.launch.batch import _ready_here
from hulk.launch.follow import LOST, Part
from hulk.launch.main import Asked
from hulk.launch.needs import Need
from hulk.launch.slurm import SlurmJob
from hulk.launch.srun import IN_USE, SlurmSite
from hulk.probe.wire import WireError
from hulk.runtime.settings import Settings

# Answers one line of `answers` a call, the last one for ever: a state, nothing, or what it complains of.
SQUEUE = """#!/bin/bash
if [[ "$*" == *%r* ]]; then echo Priority; exit; fi
line=$(head -n 1 answers)
[ "$(wc -l < answers)" -gt 1 ] && sed -i 1d answers
case "$line" in *error*) echo "$line" >&2; exit 1 ;; *) echo "$line" ;; esac
"""
MACHINE = factories.cluster({"a": "A", "b": "B"}, {("A", "B"): Link(1e-3, 1e9)}).machines[0]
NEED = Need(replace(MACHINE, gpus=8), {2: 5.0, 5: 6.0})
DOWN = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
GONE = "slurm_load_jobs error: Invalid job id specified"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    programs = {
        "sbatch": "echo 7",
        "squeue": SQUEUE,
        "scancel": "echo gone > cancelled",
        "scontrol": "echo JobId=7 ExitCode=0:0",
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(text if text.startswith("#!") else f"#!/bin/bash\n{text}\n", encoding="ascii")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "slurm-7.out").write_text("a line\n", encoding="ascii")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(slurm, "_LOOK", 0.02)
    monkeypatch.setattr(slurm, "_READ", 0.02)
    return tmp_path


def followed(folder: Path, answers: list[str]) -> tuple[Part, list[str]]:
    """A part whose job's queue gives these answers, and what was said meanwhile."""
    (folder / "answers").write_text("".join(f"{answer}\n" for answer in answers), encoding="ascii")
    said: list[str] = []
    job = SlurmJob(SimpleNamespace(job=SimpleNamespace(name="tiny")), folder, said.append)  # type: ignore[arg-type]
    part = Part(folder / "log")
    job.follow(part)
    for _ in range(500):
        if part.poll() is not None:
            break
        slurm.time.sleep(0.02)
    job.cancel()
    return part, said


@pytest.mark.parametrize("end", ["", GONE])
def test_a_look_that_fails_is_not_the_end(folder: Path, end: str) -> None:
    part, said = followed(folder, [DOWN, "PENDING", DOWN, "RUNNING", DOWN, DOWN, "RUNNING", end])
    assert part.poll() == 0
    assert (folder / "answers").read_text(encoding="ascii") == f"{end}\n"
    assert said == ["tiny is job 7 of Slurm and waits for its turn: Priority"]
    assert not (folder / "cancelled").exists()


def test_a_slurm_that_stays_silent_is_given_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "_PATIENCE", 0.3)
    monkeypatch.setattr(slurm, "_LEAVE", 0.3)
    (folder / "scancel").write_text("#!/bin/bash\nexit 1\n", encoding="ascii")
    (folder / "scontrol").write_text("#!/bin/bash\nexit 1\n", encoding="ascii")
    part, said = followed(folder, ["RUNNING", DOWN])
    assert part.poll() == LOST
    silent, left = said
    assert "tiny: Slurm has not answered for" in silent and "Unable to contact slurm controller" in silent
    assert left == "tiny could not be cancelled, since Slurm does not answer: scancel 7"


def test_a_job_is_cancelled_also_while_slurm_is_silent(folder: Path) -> None:
    (folder / "answers").write_text(f"{DOWN}\n{DOWN}\n\n", encoding="ascii")
    job = SlurmJob(SimpleNamespace(job=SimpleNamespace(name="tiny")), folder, print)  # type: ignore[arg-type]
    job.cancel()
    assert (folder / "cancelled").exists()


def test_nothing_is_told_twice(folder: Path) -> None:
    _, said = followed(folder, ["PENDING", "PENDING", "PENDING", ""])
    assert json.dumps(said).count("waits for its turn") == 1


def test_a_computer_without_the_nodes_storage_goes_on_from_nothing() -> None:
    nowhere = Settings(data=Path("/nowhere/text.txt"), checkpoints=Path("/nowhere/saved"))
    scene = SimpleNamespace(settings=nowhere, job=SimpleNamespace(name="tiny"))
    with ExitStack() as stack, pytest.raises(InputError, match=r"this computer has no /nowhere/text\.txt"):
        _ready_here(scene, stack, Asked(resume=True))  # type: ignore[arg-type]


def test_a_node_in_use_and_one_without_hulk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHON", raising=False)
    monkeypatch.setenv("SBATCH_PARTITION", "few")
    monkeypatch.delenv("SLURM_PARTITION", raising=False)
    said = {
        "srun: error: Unable to allocate resources: Requested nodes are busy": f"{IN_USE}: what it lacks shows",
        "/usr/bin/python3: Error while finding module specification (ModuleNotFoundError: No module named 'hulk')": (
            "the Python that the job runs there has no hulk"
        ),
        "slurmstepd: error: execve(): python3: No such file or directory": "the job's Python is not there",
        "srun: error: something else": "srun: error: something else",
    }
    site = SlurmSite(HostList({"a": Host("a", "a", "n7")}), {"b": "no such node"}, {"a": NEED, "b": NEED}, gpus=True)
    for line, wanted in said.items():
        (folder / "srun").write_text(
            f'#!/bin/bash\necho "$SLURM_PARTITION $@" > asked\necho "{line}" >&2\nexit 1\n', encoding="utf-8"
        )
        (folder / "srun").chmod(0o755)
        with pytest.raises(WireError) as caught:
            site.line("a").greeting(20.0)
        assert str(caught.value).startswith(wanted)
    asked = (folder / "asked").read_text(encoding="utf-8")
    assert asked.startswith("few --quiet") and "--nodelist=n7" in asked and "--gpus-per-node=2" in asked
    with pytest.raises(WireError, match="no such node"):
        site.line("b")
    assert site.needed(NEED).gpus == {0: 5.0, 1: 6.0}
    assert replace(site, gpus=False).needed(NEED) is NEED
