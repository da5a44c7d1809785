"""A plan's emulated run as a measurement: what a step takes beside what it should take. Works without torch."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from hulk.cost.compute import ComputeModel
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.plan import Plan
from hulk.io.plan_file import save_plan
from hulk.runtime.hosts import Hosts
from hulk.runtime.run import Workload, run
from hulk.runtime.settings import Compute, RunFiles, Settings


@dataclass(frozen=True)
class Trial:
    """Where plans are tried: a cluster and its jobs with their `files`, as workers read them, the hosts that stand for
    its machines, what prices plans, and how many steps a run has."""

    cluster: Cluster
    jobs: Sequence[Job]
    files: tuple[str, str]
    hosts: Hosts
    compute: ComputeModel
    steps: int


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds a step of one job: as the price has it, and of each step that was run."""

    predicted: float
    steps: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """The median of the steps after the first, in which connections are made and find their rate."""
        return median(self.steps[1:] or self.steps)

    @property
    def error(self) -> float:
        """How far the prediction is off, as a share of what was measured; negative where it is too low."""
        return self.predicted / self.seconds - 1


def measure(plan: Plan, trial: Trial) -> dict[str, Measured]:
    """Run all jobs of a plan with emulated compute."""
    with tempfile.TemporaryDirectory(prefix="hulk-measure-") as folder:
        path = Path(folder) / "plan.json"
        save_plan(plan, path, cluster=trial.cluster.name)
        jobs = [job for job in trial.jobs if job.name in plan.jobs]
        progress = run(
            Workload(plan, trial.cluster, jobs, trial.compute, RunFiles(str(path), *trial.files)),
            Settings(steps=trial.steps, compute=Compute.EMULATED),
            hosts=trial.hosts,
            show=lambda news: None,
        )
    return {
        name: Measured(watched.predicted, tuple(r.seconds for r in progress.reports if r.job == name))
        for name, watched in progress.jobs.items()
    }
