"""The best plan of one pipeline."""

from __future__ import annotations

from typing import NamedTuple

from hulk.cost.arrays import SCHEDULE, Encoded, Tables
from hulk.cost.compiled import inner, kernel
from hulk.cost.step import ALL, durations, stage_memory, step_seconds
from hulk.search.cut import set_warmup
from hulk.search.exact.bounds import all_work
from hulk.search.exact.case import Case, Room, room_for
from hulk.search.exact.chains import FOUND, NOTHING, Chains, write_chain
from hulk.search.exact.listing import Lister
from hulk.search.exact.mode import Mode
from hulk.search.exact.plans import Known, Replicas, plan_of, to_beat
from hulk.search.exact.timing import pipeline_at_least


class Single(NamedTuple):
    """A chain as the only replica."""

    seconds: float
    chain: int
    extra: int  # forwards


def solve_alone(mode: Mode, case: Case, lister: Lister, seconds: float) -> Known | None:
    """The best plan of one pipeline that is faster than `seconds`."""
    below = to_beat(seconds)
    if not mode.options.shard_optimizer or all_work(case) >= below:
        return None  # one replica has nobody to share with: the same plans as with it
    chains = lister.chains(mode, case, below, alone=True, shards=1)
    status, best = best_alone(case, mode.open_tables, chains, room_for(mode.options, 1, mode.layers), below)
    if status == NOTHING:
        return None
    replicas = Replicas((best.chain,), (case.total,), best.extra, by_region=False)
    return Known(best.seconds, plan_of(mode, case.offer, chains, replicas), exact=True)


@kernel
def best_alone(case: Case, open_tables: Tables, chains: Chains, room: Room, seconds: float) -> tuple[int, Single]:
    """The fastest of the chains as the only replica: FOUND, or NOTHING where none is faster than `seconds`.
    `open_tables`: with memory without end."""
    tables, plan, out, scratch = case.tables, room.plan, room.out, room.scratch
    status, best, its_extra = NOTHING, 0, 0
    plan.microbatches[0] = case.total
    for c in range(chains.stages.shape[0]):
        plan.starts[1] = write_chain(case.offer, chains, c, plan, 0)
        stages = chains.stages[c]
        _, sets, _ = durations(open_tables, plan, out)
        added = out.tie_seconds[1:stages].sum() + out.update[0]
        for extra in range(case.total if stages > 1 else 1):
            plan.options[SCHEDULE] = extra
            set_warmup(plan, 0, case.total)
            if not _fits(tables, plan):
                break  # more warm-up takes more memory
            if pipeline_at_least(plan, out, case.total) + added >= seconds:
                continue
            trial = step_seconds(tables, plan, out, sets, scratch[0], scratch[1], ALL)
            if trial < seconds:
                status, seconds, best, its_extra = FOUND, trial, c, extra
    return status, Single(seconds, best, its_extra)


@inner
def _fits(tables: Tables, plan: Encoded) -> bool:
    """Whether the only replica's stages fit into memory."""
    stages = plan.starts[1]
    for n in range(stages):
        needs = stage_memory(tables, plan.first[n], plan.last[n], plan.ranks[n], plan.warmup[n], n + 1 < stages, 1)[0]
        if needs > tables.capacity[plan.place[n]]:
            return False
    return True
