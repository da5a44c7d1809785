"""`hulk run --compile`: blocks as torch.compile makes them train alike, and what hides inside of them is refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

from cases import Case, write_case
from command import TWO, arguments, finish, start

from hulk.io.cluster_file import load_cluster
from hulk.io.jobs_file import load_jobs
from hulk.runtime.launch import Worker
from hulk.runtime.progress import Progress, StepReport, Watched
from hulk.runtime.seats import seat

ONE = Case("one", "gpt2", ((6, (("rome-1", (0,), 5),)),), size=2, recompute=True)


@pytest.mark.skipif(not (shutil.which("g++") or shutil.which("c++")), reason="torch.compile needs a C++ compiler")
def test_compiled_blocks_train_alike(tmp_path: Path) -> None:
    losses = []
    for more in ([], ["--compile"]):
        metrics = tmp_path / "metrics.jsonl"
        argv = arguments(ONE, tmp_path / "run", "--steps", "3", "--metrics", str(metrics), *more)
        code, _, errors = finish(start(argv), 400.0)
        assert code == 0, errors
        losses.append([json.loads(line)["loss"] for line in metrics.read_text().splitlines()])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5) and losses[0][-1] < losses[0][0]


@pytest.mark.parametrize(
    ("case", "more", "words"),
    [
        (replace(TWO, schedule="zb"), [], "`schedule: zb` with --compile"),
        (replace(TWO, recompute="operations"), [], "`recompute: operations` with --compile"),
        (TWO, ["--compute", "emulated"], "nothing to compile"),
    ],
)
def test_what_compiled_blocks_hide_is_refused(case: Case, more: list[str], words: str, tmp_path: Path) -> None:
    code, output, errors = finish(start(arguments(case, tmp_path, "--compile", *more)))
    assert code == 2 and words in errors and "Traceback" not in errors
    assert "step" not in output


@pytest.mark.parametrize("compiled", [False, True])
def test_compiled_runs_are_not_compared_with_their_prediction(compiled: bool, tmp_path: Path) -> None:
    write_case(ONE, tmp_path)
    cluster, (job,) = load_cluster(tmp_path / "cluster.yaml"), load_jobs(tmp_path / "jobs.yaml")
    shown: list[StepReport | str] = []
    watched = Watched(job, seat(ONE.plan), 1.0, {}, {}, network=True, compiled=compiled)
    progress = Progress({job.name: watched}, cluster, shown.append)
    (one,) = watched.seating.seats
    worker = Worker(job.name, one, None, tmp_path / "log", ())  # type: ignore[arg-type]
    progress(worker, {"event": "phase", "device": "NVIDIA GeForce RTX 3090"})
    assert any("these blocks are compiled" in str(each) for each in shown) == compiled
    assert (job.name in progress.other) == compiled
