"""How long chains take, compiled: the seconds of a chain's pipeline for every number of microbatches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hulk.cost.arrays import SCHEDULE, Durations, Encoded, Floats
from hulk.cost.compiled import inner, kernel
from hulk.cost.pipeline import Passes, run_pipeline
from hulk.cost.step import durations
from hulk.search.cut import set_warmup
from hulk.search.exact.case import Case, Room
from hulk.search.exact.chains import Chains, write_chain


class ChainTimes(NamedTuple):
    """Seconds of C chains in a step of `total` microbatches."""

    passes: Floats  # [C, total + 1] of the pipeline for 0, 1, 2 ... microbatches; inf: no plan in time can have it
    shared: Floats  # [C] that shared parameters add
    update: Floats  # [C] of the first stage's optimizer, not sharded
    backward: Floats  # [C] of the first stage's backward


def no_times() -> ChainTimes:
    """Where times are not known: without columns."""
    return ChainTimes(np.zeros((0, 0)), np.zeros(0), np.zeros(0), np.zeros(0))


@inner
def pipeline_at_least(plan: Encoded, out: Durations, m: int) -> float:
    """Seconds of the plan's first pipeline for m microbatches, at least, from its durations and its warm-up.

    Seen from a stage, a microbatch is on its way for `around` seconds from the start of its forward to the end of its
    backward, and a forward waits for the backward of the microbatch `warmup` before it.
    """
    stages = plan.starts[1]
    whole = 0.0  # one microbatch alone, through all stages and back
    for s in range(stages):
        whole += out.forward[s] + out.backward[s]
        if s + 1 < stages:
            whole += 2 * out.latency[s] + out.send_forward[s] + out.send_backward[s]
    least, before = whole, 0.0  # before: the way to the stage and back from it
    for s in range(stages):
        work = out.forward[s] + out.backward[s]
        around = whole - before
        least = max(least, before + m * work, whole + (m - 1) // plan.warmup[s] * around)
        least = max(least, whole + (m - 1) * max(out.forward[s], out.backward[s]))
        before += work
        if s + 1 < stages:
            least = max(least, whole + (m - 1) * max(out.send_forward[s], out.send_backward[s]))
            before += 2 * out.latency[s] + out.send_forward[s] + out.send_backward[s]
    return least


@kernel
def time_chains(case: Case, chains: Chains, room: Room, extra: int, seconds: float, known: ChainTimes) -> ChainTimes:
    """The times of all chains with so many extra forwards, as far as a plan below `seconds` can have them.

    case    with memory without end: memory is checked where the number of replicas is known
    known   the same with all the warm-up there can be, or `no_times`
    """
    plan, out, tables, offer, total = room.plan, room.out, case.tables, case.offer, case.total
    count = chains.stages.shape[0]
    times = ChainTimes(np.full((count, total + 1), np.inf), np.empty(count), np.empty(count), np.empty(count))
    ends = np.empty((chains.slot.shape[1], 2 * total))
    plan.options[SCHEDULE] = extra
    for c in range(count):
        stages = chains.stages[c]
        plan.starts[1] = write_chain(offer, chains, c, plan, 0)
        durations(tables, plan, out)
        fixed = out.tie_seconds[1:stages].sum()
        times.shared[c], times.update[c], times.backward[c] = fixed, out.update[0], out.backward[0]
        for m in range(1, min(total - 1, chains.most[c]) + 1):
            if stages == 1:
                took = m * (out.forward[0] + out.backward[0])
            elif extra >= m - 1 and known.passes.shape[1] > 0:
                took = known.passes[c, m]
            else:
                set_warmup(plan, 0, m)
                if pipeline_at_least(plan, out, m) + fixed >= seconds:
                    break
                own = Passes(
                    out.forward[:stages], out.backward[:stages], out.latency[:stages], out.send_forward[:stages],
                    out.send_backward[:stages], out.blocking[:stages], plan.warmup[:stages],
                )  # fmt: skip
                run_pipeline(own, m, ends)
                took = ends[0, 2 * m - 1]
            if took + fixed >= seconds:
                break
            times.passes[c, m] = took
    return times
