"""A whole run: all jobs of a plan (or one), from the check to the last step. Works without torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from hulk.cost.compute import ComputeModel
from hulk.cost.engine import HULK
from hulk.cost.price import price_job
from hulk.cost.report import Infeasible
from hulk.domain.cluster import Cluster
from hulk.domain.gpu import Precision
from hulk.domain.job import Job
from hulk.domain.plan import Plan
from hulk.errors import InfeasibleError, InputError
from hulk.runtime.checkpoint import find_checkpoint, read_head
from hulk.runtime.ending import told_early, undisturbed
from hulk.runtime.folder import locked, log_folder, prepare_folder, remove_leftovers
from hulk.runtime.hosts import Hosts, LocalHosts
from hulk.runtime.launch import OwnWorker, end_workers, start_workers
from hulk.runtime.options import arguments_of
from hulk.runtime.progress import Progress, StepReport, Watched
from hulk.runtime.resume import compare, facts_of
from hulk.runtime.runnable import check_engine, check_inputs, check_runnable
from hulk.runtime.seats import seat
from hulk.runtime.settings import RunFiles, Settings
from hulk.runtime.watch import PortTakenError, watch

PATIENCE = 10.0
"""How many predicted steps one exchange between ranks may take; a run is also given `SLOWEST` seconds, since what
computes here may be slower than the plan's GPUs."""
SLOWEST = 120.0
COMPILING = 600.0
"""Seconds that ranks wait longer for each other where their first passes compile blocks."""
PORTS = 3
"""How many ports are tried for the ranks to meet on: one that was free may be taken before the first rank has it."""


@dataclass(frozen=True)
class Workload:
    """What is to be run: jobs by their plan, on a cluster; `compute` prices them, and workers read `files` again."""

    plan: Plan
    cluster: Cluster
    jobs: Sequence[Job]
    compute: ComputeModel
    files: RunFiles


def run(
    workload: Workload,
    settings: Settings,
    *,
    hosts: Hosts,
    resume: bool = False,
    overwrite: bool = False,
    metrics: Path | None = None,
    show: Callable[[StepReport | str], None],
) -> Progress:
    """Run jobs by their plans until their last step. Everything that can be known to be wrong is found before anything
    starts; RunError where a run ends early. No process is left behind in any case.

    resume       go on from the newest whole checkpoints; what has all its steps is left alone
    overwrite    remove the checkpoints of an earlier run
    """
    check_engine()
    check_inputs(settings)
    watched = {
        job.name: watched_of(job, workload, settings, network=not isinstance(hosts, LocalHosts))
        for job in workload.jobs
    }
    own = {name: own_settings(settings, one) for name, one in watched.items()}
    with ExitStack() as stack:
        folders = [one.checkpoints for one in own.values() if one.checkpoints is not None]
        locks: list[int] = []
        for folder in folders:
            if resume and not folder.is_dir():
                raise InputError("no checkpoint to resume from: no such folder", where=str(folder))
            locks.append(stack.enter_context(locked(folder)))
        if resume and folders:
            own = {name: resumed(watched[name].job, one, show) for name, one in own.items()}
        for folder in folders:
            prepare_folder(folder, resume=resume, overwrite=overwrite, say=show)
        progress = Progress(watched, workload.cluster, show, metrics)
        progress.saved |= {name: str(one.resume) for name, one in own.items() if one.resume is not None}
        todo = {name: one for name, one in own.items() if not is_done(name, one, show)}
        try:
            if todo:
                _start(progress, todo, workload.files, hosts, locks)
        finally:
            for one in todo.values():
                if one.checkpoints is not None:
                    remove_leftovers(one.checkpoints)
    return progress


def watched_of(job: Job, workload: Workload, settings: Settings, *, network: bool) -> Watched:
    """A job with its price. InputError or InfeasibleError where it cannot run by its plan."""
    job_plan = workload.plan.jobs[job.name]
    check_runnable(job, job_plan, settings)
    asked = job if settings.precision is None else replace(job, precision=Precision(settings.precision))
    engine = replace(HULK, dropout=settings.dropout)
    price = price_job(asked, job_plan, workload.cluster, compute=workload.compute, engine=engine)
    if isinstance(price, Infeasible):
        raise InfeasibleError(f"{job.name} cannot run by this plan: {price.reason}")
    memory = {
        (p, s): stage.memory.used for p, pipeline in enumerate(price.pipelines) for s, stage in enumerate(pipeline)
    }
    busy = {
        (p, s): stage.busy * price.step
        for p, pipeline in enumerate(price.pipelines)
        for s, stage in enumerate(pipeline)
    }
    seating = seat(job_plan)
    return Watched(job, seating, price.step, memory, busy, network=network, compiled=settings.compiled)


def own_settings(settings: Settings, watched: Watched) -> Settings:
    """A job's own settings: its patience and, where there are checkpoints, its folder for them."""
    patience = max(settings.timeout, SLOWEST, PATIENCE * watched.predicted)
    changes: dict[str, object] = {"patience": patience + (COMPILING if settings.compiled else 0.0)}
    if settings.checkpoints is not None:
        changes["checkpoints"] = settings.checkpoints / watched.job.name
    return settings.model_copy(update=changes)


def resumed(job: Job, settings: Settings, say: Callable[[str], None]) -> Settings:
    """The settings with the checkpoint that a job goes on from."""
    assert settings.checkpoints is not None
    found, wrong = find_checkpoint(settings.checkpoints)
    for problem in wrong:
        say(f"{job.name} passes over a damaged checkpoint: {problem}")
    if found is None:
        raise InputError("no whole checkpoint to resume from", where=str(settings.checkpoints))
    told = compare(read_head(found).facts, facts_of(job, settings), where=found)
    say(f"{job.name} goes on from {found}")
    for difference in told:
        say(f"{job.name}: {difference}")
    return settings.model_copy(update={"resume": found})


def is_done(name: str, settings: Settings, say: Callable[[str], None]) -> bool:
    """Whether a checkpoint has all steps already."""
    if settings.resume is None:
        return False
    step = read_head(settings.resume).step
    if step < settings.steps:
        return False
    say(f"{name} has nothing left to do: {step} steps are done, --steps is {settings.steps}")
    return True


def _start(
    progress: Progress, own: Mapping[str, Settings], files: RunFiles, hosts: Hosts, locks: Sequence[int]
) -> None:
    """Start the workers of all jobs and watch them to the end."""
    progress.begin()
    with told_early(progress, lambda: own):
        for last in (False,) * (PORTS - 1) + (True,):
            try:
                _attempt(progress, own, files, hosts, locks)
                return
            except PortTakenError:
                if last or progress.reports:
                    raise
                progress.show("the port on which the ranks were to meet was taken; trying another")


def _attempt(
    progress: Progress, own: Mapping[str, Settings], files: RunFiles, hosts: Hosts, locks: Sequence[int]
) -> None:
    seatings = {name: progress.jobs[name].seating for name in own}
    threads = max(1, (os.cpu_count() or 1) // max(1, sum(seating.size for seating in seatings.values())))
    workers: list[OwnWorker] = []
    with log_folder() as logs:
        try:
            for name, seating in seatings.items():
                arguments = [*files.argv(name), *arguments_of(own[name])]
                memory = progress.jobs[name].memory
                workers += start_workers(
                    name, seating, hosts, arguments, logs=logs, threads=threads, locks=locks, memory=memory
                )
            watch(workers, progress, timeout=next(iter(own.values())).timeout)
        finally:
            with undisturbed():
                end_workers(workers)
