"""The file of `--metrics`, as somebody finds it who looks at it when a step is shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

pytest.importorskip("torch")

from cases import Case, write_case

from hulk.io.cluster_file import load_cluster
from hulk.io.jobs_file import load_jobs
from hulk.runtime.launch import Worker
from hulk.runtime.progress import Progress, StepReport, Watched
from hulk.runtime.seats import seat

ONE = Case("one", "gpt2", ((6, (("rome-1", (0,), 5),)),), size=2)


def done(step: int) -> Mapping[str, object]:
    """What a rank tells of a step."""
    times = {"started": float(step), "seconds": 1.0, "busy": 0.5, "waiting": 0.25, "sync": 0.1, "update": 0.1}
    return {"event": "step", "step": step, "loss": 2.0, "spans": [], **times}


def test_a_step_that_is_shown_is_in_the_file(tmp_path: Path) -> None:
    """So that Ctrl-C, pressed by who sees it, does not lose it."""
    write_case(ONE, tmp_path)
    cluster, (job,) = load_cluster(tmp_path / "cluster.yaml"), load_jobs(tmp_path / "jobs.yaml")
    file, found = tmp_path / "steps.jsonl", list[list[int]]()

    def look(report: StepReport | str) -> None:
        if isinstance(report, StepReport):
            found.append([json.loads(line)["step"] for line in file.read_text(encoding="utf-8").splitlines()])

    watched = Watched(job, seat(ONE.plan), 1.0, {(0, 0): 1e9}, {(0, 0): 0.5}, network=True)
    progress = Progress({job.name: watched}, cluster, look, file)
    progress.begin()
    (one,) = watched.seating.seats
    worker = Worker(job.name, one, None, tmp_path / "log", ())  # type: ignore[arg-type]
    for step in (1, 2):
        progress(worker, done(step))  # type: ignore[arg-type]
    assert found == [[1], [1, 2]]
