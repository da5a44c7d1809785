"""A whole run: all jobs of a plan (or one), from the check to the last step. Works without torch."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import NoReturn

from hulk.cost.compute import ComputeModel
from hulk.cost.engine import TORCH
from hulk.cost.price import price_job
from hulk.cost.report import Infeasible
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.plan import Plan
from hulk.errors import InfeasibleError, InputError, nearest
from hulk.runtime.checkpoint import find_checkpoint
from hulk.runtime.hosts import Hosts
from hulk.runtime.launch import Worker, end_workers, start_workers
from hulk.runtime.progress import Progress, StepReport, Watched
from hulk.runtime.runnable import check_engine, check_runnable
from hulk.runtime.seats import seat
from hulk.runtime.settings import Settings
from hulk.runtime.watch import RunError, watch

PATIENCE = 10.0
"""How many predicted steps one exchange between ranks may take; a run is also given `SLOWEST` seconds, since what
computes here may be slower than the plan's GPUs."""
SLOWEST = 120.0


@dataclass(frozen=True)
class RunFiles:
    """Where the plan came from, as the workers read it again."""

    plan: str
    cluster: str
    jobs: str

    def argv(self, job: str) -> list[str]:
        """The worker's arguments that name them."""
        return ["--plan", self.plan, "--cluster", self.cluster, "--jobs", self.jobs, "--job", job]


def choose_jobs(plan: Plan, jobs: Sequence[Job], only: str | None) -> list[Job]:
    """The jobs of a plan that run: all, or the one asked for."""
    if only is not None and only not in plan.jobs:
        raise InputError(f"no job {only!r} in this plan", hint=nearest(only, plan.jobs))
    return [job for job in jobs if job.name in plan.jobs and only in (None, job.name)]


def resume_settings(settings: Settings, job: str, *, resume: bool, say: Callable[[str], None]) -> Settings:
    """The settings of one job: its own folder of checkpoints, and the checkpoint it goes on from."""
    if settings.checkpoints is None:
        if resume:
            raise InputError("nowhere to resume from", hint="--checkpoint-dir FOLDER")
        return settings
    settings = replace(settings, checkpoints=settings.checkpoints / job)
    if not resume:
        return settings
    assert settings.checkpoints is not None
    found, wrong = find_checkpoint(settings.checkpoints)
    for problem in wrong:
        say(f"{job} passes over a damaged checkpoint: {problem}")
    if found is None:
        raise InputError("no whole checkpoint to resume from", where=str(settings.checkpoints))
    say(f"{job} goes on from {found}")
    return replace(settings, resume=found)


def run(
    plan: Plan,
    cluster: Cluster,
    jobs: Sequence[Job],
    settings: Settings,
    *,
    files: RunFiles,
    hosts: Hosts,
    compute: ComputeModel,
    resume: bool = False,
    metrics: Path | None = None,
    show: Callable[[StepReport | str], None],
) -> Progress:
    """Run jobs by their plans until their last step. Everything that can be known to be wrong is found before anything
    starts; RunError where a run ends early. No process is left behind in any case."""
    check_engine()
    watched: dict[str, Watched] = {}
    own: dict[str, Settings] = {}
    for job in jobs:
        job_plan = plan.jobs[job.name]
        check_runnable(job, job_plan, settings)
        price = price_job(job, job_plan, cluster, compute=compute, engine=TORCH)
        if isinstance(price, Infeasible):
            raise InfeasibleError(f"{job.name} cannot run by this plan: {price.reason}")
        watched[job.name] = Watched(job, seat(job_plan), price.step)
        patience = max(settings.timeout, SLOWEST, PATIENCE * price.step)
        own[job.name] = resume_settings(replace(settings, patience=patience), job.name, resume=resume, say=show)
        if settings.data is not None and not settings.data.exists():
            raise InputError("no such file or folder", where=str(settings.data))
    progress = Progress(watched, cluster, show, metrics)
    processes = sum(one.seating.size for one in watched.values())
    threads = max(1, (os.cpu_count() or 1) // max(1, processes))
    logs = Path(tempfile.mkdtemp(prefix="hulk-run-"))
    workers: list[Worker] = []
    previous = signal.signal(signal.SIGTERM, _stop)
    keep = False  # a message may point to a log
    try:
        for name, one in watched.items():
            arguments = [*files.argv(name), *own[name].argv()]
            workers += start_workers(name, one.seating, hosts, arguments, logs=logs, threads=threads)
        watch(workers, progress, timeout=settings.timeout)
    except RunError as error:
        keep = str(logs) in str(error)
        raise
    finally:
        end_workers(workers)
        signal.signal(signal.SIGTERM, previous)
        if not keep:
            shutil.rmtree(logs, ignore_errors=True)
    return progress


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    del number, frame
    raise KeyboardInterrupt
