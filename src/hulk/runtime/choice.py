"""Which jobs of a plan are meant. Apart from what runs them, so that `hulk export` need not import a price."""

from __future__ import annotations

from collections.abc import Sequence

from hulk.domain.job import Job
from hulk.domain.plan import Plan
from hulk.errors import InputError, nearest


def choose_jobs(plan: Plan, jobs: Sequence[Job], only: str | None) -> list[Job]:
    """The jobs of a plan that run: all, or the one asked for."""
    if only is not None and only not in plan.jobs:
        raise InputError(f"no job {only!r} in this plan", hint=nearest(only, plan.jobs))
    return [job for job in jobs if job.name in plan.jobs and only in (None, job.name)]
