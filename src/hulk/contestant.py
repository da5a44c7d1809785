"""Hulk as one contestant among others: planned as `hulk plan` plans, answered as a baseline answers.

Whatever sets Hulk beside other planners gets its plan here, so that all of them show the Hulk that people use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hulk.cost.compute import ComputeModel
from hulk.cost.engine import HEADROOM, HULK, Engine
from hulk.cost.report import JobPrice
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.errors import HulkError
from hulk.planner import plan_in_parallel
from hulk.propose.network import Proposing
from hulk.search.baselines import BASELINES, BaselineResult, Entry, Placement
from hulk.search.budget import Effort
from hulk.search.request import Request

NAME, TITLE = "hulk", "this planner"
PLANNED = replace(HULK, headroom=HEADROOM)
"""What plans are made for where nobody says otherwise: all leave as much memory free as `hulk plan` does."""
PAPER_SYSTEMS = ("A", "B", "B-tour", "C")
"""The paper's: data parallel, GPipe in file order and on a tour, tensor parallel over everything."""


def hulk_result(
    cluster: Cluster,
    jobs: Sequence[Job],
    *,
    compute: ComputeModel,
    network: Proposing | None,
    effort: Effort,
    engine: Engine = PLANNED,
) -> BaselineResult:
    """Hulk's plan and its price. `network`: the bundled one (`hulk.propose.bundled_network`); None only where it cannot
    be used or is not wanted."""
    found = plan_in_parallel(Request(cluster, tuple(jobs), compute, engine), effort, network=network)
    placed: dict[str, Placement] = {}
    waiting = dict(found.plan.waiting)
    for name, price in found.price.jobs.items():
        if isinstance(price, JobPrice):
            placed[name] = Placement(found.plan.jobs[name], price.step, price.breakdown)
        else:
            waiting[name] = price.reason
    return BaselineResult(NAME, concurrent=True, placed=placed, waiting=waiting, hurried=found.hurried)


@dataclass(frozen=True)
class Compared:
    """Hulk, and the baselines after it, each with its title; and why others are left out, by name."""

    results: list[tuple[str, BaselineResult]]
    left_out: dict[str, str]


def compared(
    cluster: Cluster,
    jobs: Sequence[Job],
    baselines: Sequence[Entry],
    *,
    compute: ComputeModel,
    network: Proposing | None,
    effort: Effort,
    engine: Engine = PLANNED,
    say: Callable[[str], None] = lambda name: None,
) -> Compared:
    """Hulk beside baselines: all plan anew, for `engine`. One that cannot plan at all is left out, with its reason.
    `say` is told who plans next."""
    say(NAME)
    ours = hulk_result(cluster, jobs, compute=compute, network=network, effort=effort, engine=engine)
    results, left_out = [(TITLE, ours)], {}
    for entry in baselines:
        say(entry.name)
        try:
            found = entry.run(
                cluster, jobs, compute=compute, engine=engine, seed=effort.seed, time_limit=effort.time_limit
            )
        except HulkError as error:
            left_out[entry.name] = str(error)
        else:
            results.append((entry.title, found))
    return Compared(results, left_out)


def paper_systems() -> list[Entry]:
    """The baselines that the paper compares with."""
    return [BASELINES.get(name) for name in PAPER_SYSTEMS]
