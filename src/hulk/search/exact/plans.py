"""From chains to plans, and what is known of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hulk.domain.options import Schedule, Sync
from hulk.domain.plan import JobPlan
from hulk.search.exact.case import Offer
from hulk.search.exact.chains import Chains
from hulk.search.exact.mode import Mode
from hulk.search.skeleton import Held, Skeleton, Slot, to_job_plan

_STRICTLY = 1 - 1e-7


@dataclass(frozen=True)
class Known:
    """A job on the machines of a set: its best plan, or, where `plan` is None, a bound (inf: no plan fits)."""

    seconds: float
    plan: JobPlan | None
    exact: bool


@dataclass(frozen=True)
class Replicas:
    """Chains that stand side by side, by their numbers, and what is decided with them."""

    chains: tuple[int, ...]
    shares: tuple[int, ...]  # microbatches of each
    extra: int  # forwards
    by_region: bool


def to_beat(seconds: float) -> float:
    """Seconds below which a plan is so much faster that it is looked at."""
    return seconds * _STRICTLY


def plan_of(mode: Mode, offer: Offer, chains: Chains, replicas: Replicas) -> JobPlan:
    """The plan of these replicas."""
    made, held = [], list[Held]()
    for c in replicas.chains:
        slots = chains.slot[c, : chains.stages[c]].tolist()
        lasts = chains.last[c, : chains.stages[c]].tolist()
        made.append(tuple(Slot(int(offer.machine[q]), int(offer.ranks[q])) for q in slots))
        held += map(Held, [0, *(last + 1 for last in lasts[:-1])], lasts)
    sync = Sync.BY_REGION if replicas.by_region else Sync.RING
    options = replace(mode.options, schedule=Schedule.ahead(replicas.extra), sync=sync)
    names = tuple(machine.name for machine in mode.space.cluster.machines)
    return to_job_plan(Skeleton(tuple(made), options), names, held, list(replicas.shares))
