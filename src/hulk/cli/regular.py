"""Plans with regular pipelines, for `hulk plan --uniform` and `--for`: made of a free plan, with what that costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hulk.cli.headroom import with_headroom

if TYPE_CHECKING:
    from hulk.cost.report import PlanPrice
    from hulk.domain.cluster import Cluster
    from hulk.domain.job import Job
    from hulk.domain.plan import JobPlan, Plan
    from hulk.export import Target
    from hulk.planner import PlanResult
    from hulk.search.form import Form
    from hulk.search.request import Request

SECONDS = 30.0
"""How long regular plans are tried at most, after the free plan is found."""
Answer = tuple["Plan", "PlanPrice", list[str]]
"""A plan, its price, and in words what it costs each job against the free plan."""


def target_of(name: str | None, given: Mapping[str, bool]) -> Target | None:
    """The target to plan for; InputError beside options that it decides."""
    from hulk.errors import InputError
    from hulk.export import TARGETS

    if name is None:
        return None
    for option, is_given in given.items():
        if is_given:
            raise InputError(f"--for and {option} cannot go together", hint="--for chooses engine and form of the plan")
    target = TARGETS.get(name)
    if not target.starts:
        raise InputError(f"--for {name}: it starts no training, so it takes any plan", hint="plan without --for")
    return target


def check_jobs(target: Target | None, jobs: Sequence[Job], cluster: Cluster) -> None:
    """InfeasibleError where a target does not know a job's model, optimizer or precision, whatever the plan."""
    from hulk.domain.options import Options
    from hulk.domain.plan import JobPlan, Pipeline, Stage

    if target is None:
        return
    for job in jobs:
        everything = Stage(cluster.machines[0].name, (0,), 0, len(job.model.layers) - 1)
        _check(target, job, JobPlan((Pipeline((everything,), job.global_batch),), Options(1)), cluster)


def formed(target: Target | None, request: Request, free: PlanResult, *, uniform: bool, headroom: str | None) -> Answer:
    """The free plan, or one that a target can express, or one that is regular."""
    from hulk.search.form import ANY

    if target is not None:
        return _planned_for(target, request, free, headroom)
    if uniform:
        return _uniform_plan(request, free, ANY, "with pipelines all alike")
    return free.plan, free.price, []


def _uniform_plan(
    request: Request, free: PlanResult, form: Form, words: str, *, is_over: Callable[[], bool] = lambda: False
) -> Answer:
    """The best plan with regular pipelines alone."""
    from hulk.cost.price import price_plan
    from hulk.search.uniform import made_uniform

    made = made_uniform(request, free.plan, form, is_over=is_over)
    price = price_plan(made, request.cluster, request.jobs, compute=request.compute, engine=request.engine)
    return made, price, _compared(request, price, free.price, words)


def _planned_for(target: Target, request: Request, free: PlanResult, headroom: str | None) -> Answer:
    """The best plan that a target of `hulk export` can express; InfeasibleError, with the part, where it can express
    none."""
    words = f"as {target.name} can express it"
    if target.form is None:
        answer: Answer = (free.plan, free.price, _compared(request, free.price, free.price, words))
    else:
        end = time.monotonic() + SECONDS
        asked = replace(request, engine=with_headroom(target.engine, headroom))
        answer = _uniform_plan(asked, free, target.form, words, is_over=lambda: time.monotonic() > end)
    for job in request.jobs:
        if job.name in answer[0].jobs:
            _check(target, job, answer[0].jobs[job.name], request.cluster)
    return answer


def _compared(request: Request, price: PlanPrice, free: PlanPrice, words: str) -> list[str]:
    from hulk.cost.report import JobPrice
    from hulk.units import format_time

    notes = []
    for job in request.jobs:
        regular, best = price.jobs.get(job.name), free.jobs.get(job.name)
        if isinstance(regular, JobPrice) and isinstance(best, JobPrice):
            took, instead = format_time(regular.step), format_time(best.step)
            more = regular.step / best.step - 1.0
            notes.append(f"{job.name}: {took} a step {words}, {instead} without that: {more:+.1%}")
    return notes


def _check(target: Target, job: Job, plan: JobPlan, cluster: Cluster) -> None:
    """Try the export: what a target cannot say is told before people wait for a launch."""
    from hulk.export import Scene
    from hulk.io.hosts_file import HostList
    from hulk.runtime.settings import Settings

    places = HostList(regions={region.name: "aws" for region in cluster.regions})
    target.export(Scene(job, plan, cluster, places, settings=Settings(data=Path("text.txt"))))
