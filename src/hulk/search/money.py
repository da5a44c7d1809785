"""Dollars of a step, from the same tables as its seconds; used where an objective asks for money."""

from __future__ import annotations

from hulk.cost.price import price_job
from hulk.cost.report import JobPrice
from hulk.search.evaluate import JobSpace
from hulk.search.skeleton import Skeleton


def dollars_per_step(space: JobSpace, skeleton: Skeleton, seconds: float) -> float:
    """GPU price × time, and egress, as the price has it."""
    plan, _ = space.plan(skeleton, rounds=0)
    price = price_job(space.job, plan, space.cluster, compute=space.compute, engine=space.engine)
    return price.money.total if isinstance(price, JobPrice) else float("inf") if seconds else 0.0
