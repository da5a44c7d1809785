"""What a person asks of a plan beside its files: pins, avoided machines, limits; and what of it a plan breaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hulk.cost.report import JobPrice, PlanPrice
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.plan import Plan
from hulk.errors import InputError, nearest
from hulk.search.objective import Objective, Outcome
from hulk.units import Dimension, parse, positive_finite


@dataclass(frozen=True)
class Wishes:
    """Job → machines it must use (`pins`), and machines it must not use (`avoid`)."""

    pins: Mapping[str, frozenset[str]]
    avoid: Mapping[str, frozenset[str]]


def read_wishes(pins: Sequence[str], avoids: Sequence[str], jobs: Sequence[Job], cluster: Cluster) -> Wishes:
    """The options --pin and --avoid, each JOB=MACHINE. InputError where they name nothing or contradict each other."""
    by_name = {job.name: job for job in jobs}
    pinned: dict[str, set[str]] = {name: set() for name in by_name}
    avoided: dict[str, set[str]] = {name: set() for name in by_name}
    owner: dict[str, str] = {}
    for text in avoids:
        job, machine = _pair(text, "--avoid", by_name, cluster)
        avoided[job].add(machine)
    for text in pins:
        job, machine = _pair(text, "--pin", by_name, cluster)
        if machine in avoided[job]:
            raise InputError(f"--pin and --avoid both name {text!r}", hint="choose one of them")
        if owner.setdefault(machine, job) != job:
            raise InputError(f"--pin {text!r}: {machine} is pinned to {owner[machine]!r} already", hint="pin it once")
        region = cluster.machine(machine).region
        if not by_name[job].may_run_in(region):
            raise InputError(f"--pin {text!r}: {job!r} may not run in {region!r}", hint="see its allow and deny")
        if not any(by_name[job].may_hold(layer, region) for layer in range(len(by_name[job].model.layers))):
            hint = "see its `place`"
            raise InputError(f"--pin {text!r}: no layer of {job!r} may be in {region!r}", hint=hint)
        pinned[job].add(machine)
    return Wishes(
        {job: frozenset(names) for job, names in pinned.items()},
        {job: frozenset(names) for job, names in avoided.items()},
    )


def _pair(text: str, option: str, jobs: Mapping[str, Job], cluster: Cluster) -> tuple[str, str]:
    job, separator, machine = text.partition("=")
    if not separator:
        raise InputError(f"{option} {text!r}: write JOB=MACHINE")
    if job not in jobs:
        raise InputError(f"{option} {text!r}: no job {job!r}", hint=nearest(job, jobs))
    return job, cluster.machine(machine).name  # an unknown machine is an error with the nearest known name


def objective_of(max_cost: str | None, min_throughput: float | None, *, cheapest: bool) -> Objective:
    """The options --max-cost, --min-throughput and --cheapest."""
    if max_cost is not None and min_throughput is not None and not cheapest:
        hint = "choose one of them, or add --cheapest to keep both"
        raise InputError("--max-cost and --min-throughput cannot go together: which is to be best?", hint=hint)
    most = None if max_cost is None else positive_finite(parse(max_cost, Dimension.HOURLY), "--max-cost")
    if min_throughput is not None:
        positive_finite(min_throughput, "--min-throughput")
    return Objective(most_dollars_per_second=most, least_tokens_per_second=min_throughput, cheapest=cheapest)


def broken_promises(
    plan: Plan, price: PlanPrice, jobs: Sequence[Job], objective: Objective, wishes: Wishes
) -> list[str]:
    """What a plan does not keep, by its price, in words: limits, deadlines, and pins of the jobs that run."""
    outcomes = []
    for job in jobs:
        found = price.jobs.get(job.name)
        outcomes.append(Outcome(found.step, found.money.total) if isinstance(found, JobPrice) else Outcome(None))
    broken = objective.broken(jobs, outcomes)
    for name, own in plan.jobs.items():
        used = set(own.machines)
        broken += [
            f"{name} does not use {machine}, which is pinned to it" for machine in sorted(wishes.pins[name] - used)
        ]
        broken += [f"{name} uses {machine}, which it must avoid" for machine in sorted(wishes.avoid[name] & used)]
    return broken
