"""Hulk as one contestant among others: planned as `hulk plan` plans, answered as a baseline answers.

Whatever sets Hulk beside other planners gets its plan here, so that all of them show the Hulk that people use.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hulk.cost.compute import ComputeModel
from hulk.cost.engine import HEADROOM, HULK, Engine
from hulk.cost.report import JobPrice
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.planner import plan_in_parallel
from hulk.propose.network import Proposing
from hulk.search.baselines import BASELINES, BaselineResult, Placement
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


def with_paper_systems(
    cluster: Cluster, jobs: Sequence[Job], *, compute: ComputeModel, network: Proposing | None, effort: Effort
) -> Iterator[tuple[str, BaselineResult]]:
    """Hulk, and then the paper's systems, each with its title, planned for `hulk run` when it is asked for."""
    yield TITLE, hulk_result(cluster, jobs, compute=compute, network=network, effort=effort)
    for name in PAPER_SYSTEMS:
        entry = BASELINES.get(name)
        found = entry.run(
            cluster, jobs, compute=compute, engine=PLANNED, seed=effort.seed, time_limit=effort.time_limit
        )
        yield entry.title, found
