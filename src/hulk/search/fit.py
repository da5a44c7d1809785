"""From an order of slots to a priced plan, compiled: where to cut the layers, how to share the batch, what a step
takes.

Search decides which GPUs stand where in which pipeline. Everything after that is settled here:

- Cuts: the slowest stage is made as fast as it can be, memory permitting. For a given limit on a stage's time, filling
  the stages from the first to the last as far as limit and memory allow is optimal; bisection finds the least limit.
- Shares: every replica gets as many microbatches as it can do while the slowest one is at work.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from hulk.cost import pipeline, step
from hulk.cost.compiled import constant, drop_stale, inner
from hulk.cost.step import ALL, FITS, Durations, Encoded, Tables, durations, stage_memory, step_seconds

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# What fit() returns instead of seconds where a plan cannot be: below zero, and the further below the further from
# fitting.
TOO_FEW_MICROBATCHES = -1e6
_BISECTIONS = 22
# Microbatches after which a pipeline is taken to go on at its pace.
HORIZON = constant(48)
_ONCE, _STAY = constant(1), constant(0)
# Microbatches × stages² up to which cuts and shares are refined at once.
SMALL = 1200


@njit(cache=True)
def fill(tables: Tables, plan: Encoded, p: int, limit: float, first: Ints, last: Ints) -> int:
    """Fill pipeline p's stages up to `limit` seconds a microbatch. Returns how many layers found no room."""
    begin, end = plan.starts[p], plan.starts[p + 1]
    layers = tables.cut.shape[0]
    shards = plan.microbatches.shape[0] if plan.shard_optimizer else 1
    a = 0
    for n in range(begin, end):
        k, t = plan.kind[n], plan.ranks[n]
        room = tables.capacity[plan.place[n]]
        sends = n + 1 < end
        last_allowed = layers - 1 - (end - 1 - n)  # every later stage needs a layer
        # The largest b for which the stage fits in time and memory: both grow with b, so halve the range.
        low, high = a - 1, last_allowed
        start = tables.forward[k, a] + tables.backward[k, a]
        while low < high:
            b = (low + high + 1) // 2
            seconds = tables.forward[k, b + 1] + tables.backward[k, b + 1] - start
            fits = seconds <= limit
            if fits:
                fits = stage_memory(tables, a, b, t, plan.warmup[n], sends, shards)[0] <= room
            if fits:
                low = b
            else:
                high = b - 1
        if low < a:
            return layers - a
        first[n], last[n] = a, low
        a = low + 1
    return layers - a


@njit(cache=True)
def cut(tables: Tables, plan: Encoded, p: int) -> int:
    """Cut pipeline p so that its slowest stage is as fast as possible. Returns how many layers find no room at all."""
    begin, end = plan.starts[p], plan.starts[p + 1]
    most, fastest = 0.0, 0.0
    layers = tables.cut.shape[0]
    for n in range(begin, end):
        k = plan.kind[n]
        whole = tables.forward[k, layers] + tables.backward[k, layers]
        most = max(most, whole)
        fastest += 1.0 / whole
    missing = fill(tables, plan, p, most, plan.first, plan.last)
    if missing > 0:
        return missing
    low, high = 1.0 / fastest * 0.999, most  # no cut beats the work spread evenly over the stages' speeds
    for _ in range(_BISECTIONS):
        if high - low <= 1e-4 * high:
            break
        middle = 0.5 * (low + high)
        if fill(tables, plan, p, middle, plan.first, plan.last) == 0:
            high = middle
        else:
            low = middle
    fill(tables, plan, p, high, plan.first, plan.last)
    return 0


@njit(cache=True)
def same_pipeline(plan: Encoded, p: int, q: int) -> bool:
    """Whether two pipelines are made of the same kinds of slots in the same places, and so are cut alike."""
    a, b = plan.starts[p], plan.starts[q]
    if plan.starts[p + 1] - a != plan.starts[q + 1] - b:
        return False
    for i in range(plan.starts[p + 1] - a):
        if plan.kind[a + i] != plan.kind[b + i] or plan.place[a + i] != plan.place[b + i]:
            return False
        if plan.warmup[a + i] != plan.warmup[b + i]:
            return False
    return True


@njit(cache=True)
def set_warmup(plan: Encoded, p: int, extra: int, gpipe: bool, microbatches: int) -> None:
    """Forwards before the first backward, as `hulk.domain.plan.Schedule.warmup` says it."""
    begin, end = plan.starts[p], plan.starts[p + 1]
    for n in range(begin, end):
        plan.warmup[n] = microbatches if gpipe else min(microbatches, end - n + extra)


@njit(cache=True)
def share(tables: Tables, plan: Encoded, out: Durations, total: int) -> bool:
    """Give each replica its microbatches. False where there are fewer microbatches than replicas.

    A replica takes about fill + (m − 1) × period: fill is one microbatch alone through all stages and back; period is
    the slowest of a stage's work, a link's, and a round trip over the microbatches that may be in flight.
    """
    replicas = plan.microbatches.shape[0]
    if total < replicas:
        return False
    alone = np.zeros(replicas)
    period = np.zeros(replicas)
    for p in range(replicas):
        tail = 0.0
        for n in range(plan.starts[p + 1] - 1, plan.starts[p] - 1, -1):
            work = out.forward[n] + out.backward[n]
            if n + 1 < plan.starts[p + 1]:
                tail += 2 * out.latency[n] + out.send_forward[n] + out.send_backward[n]
                period[p] = max(period[p], out.send_forward[n], out.send_backward[n])
            tail += work
            period[p] = max(period[p], work, tail / plan.warmup[n])
        alone[p] = tail
    low, high = 0.0, 0.0
    for p in range(replicas):
        high = max(high, alone[p] + total * period[p])
    for _ in range(60):
        middle = 0.5 * (low + high)
        done = 0
        for p in range(replicas):
            done += max(1, 1 + int((middle - alone[p]) / period[p])) if middle > alone[p] else 1
        if done >= total:
            high = middle
        else:
            low = middle
        if high - low <= 1e-9 * high:
            break
    done = 0
    for p in range(replicas):
        plan.microbatches[p] = max(1, 1 + int((high - alone[p]) / period[p])) if high > alone[p] else 1
        done += plan.microbatches[p]
    while done > total:  # give back where the time to finish is longest
        worst, latest = -1, -1.0
        for p in range(replicas):
            if plan.microbatches[p] > 1:
                ends = alone[p] + (plan.microbatches[p] - 1) * period[p]
                if ends > latest:
                    worst, latest = p, ends
        plan.microbatches[worst] -= 1
        done -= 1
    while done < total:
        best, earliest = 0, np.inf
        for p in range(replicas):
            ends = alone[p] + plan.microbatches[p] * period[p]
            if ends < earliest:
                best, earliest = p, ends
        plan.microbatches[best] += 1
        done += 1
    return True


@njit(cache=True)
def refine(
    tables: Tables, plan: Encoded, out: Durations, scratch: Floats, extra: int, gpipe: bool, seconds: float, rounds: int
) -> float:
    """Improve cuts and shares of a fitted plan by the true price: move one layer across one cut or across two, one
    microbatch between replicas, as long as it pays. Returns the seconds of the improved plan."""
    replicas = plan.microbatches.shape[0]
    for _ in range(rounds):
        before = seconds
        for p in range(replicas):
            begin, end = plan.starts[p], plan.starts[p + 1]
            if replicas > 1 and (p == 0 or not _cut_alike(plan, p, p - 1)):
                for n in range(begin, end - 1):
                    for way in (-1, 1):
                        seconds = _try_cut_of_all(tables, plan, out, scratch, seconds, p, n - begin, way)
            for n in range(begin, end - 1):
                for way in (-1, 1):
                    seconds = _try_cuts(tables, plan, out, scratch, seconds, n, way, n, _STAY)
                    for m in range(n + 1, end - 1):
                        for other in (-1, 1):
                            seconds = _try_cuts(tables, plan, out, scratch, seconds, n, way, m, other)
        for p in range(replicas):
            for q in range(replicas):
                if p == q or plan.microbatches[p] < 2:
                    continue
                _give_microbatch(plan, p, q, extra, gpipe)
                trial = _price(tables, plan, out, scratch)
                if 0 <= trial < seconds * (1 - 1e-9):
                    seconds = trial
                else:
                    _give_microbatch(plan, q, p, extra, gpipe)
        if seconds >= before * (1 - 1e-6):
            break
    return seconds


@inner
def _try_cuts(
    tables: Tables, plan: Encoded, out: Durations, scratch: Floats, seconds: float, n: int, way: int, m: int, other: int
) -> float:
    """Move the cut after stage n by `way` layers and the one after stage m by `other`; keep it if it pays."""
    _shift(plan, n, way)
    _shift(plan, m, other)
    whole = plan.first[n] <= plan.last[n] and plan.first[n + 1] <= plan.last[n + 1]
    whole = whole and plan.first[m] <= plan.last[m] and plan.first[m + 1] <= plan.last[m + 1]
    trial = _price(tables, plan, out, scratch) if whole else -1.0
    if 0 <= trial < seconds * (1 - 1e-9):
        return trial
    _shift(plan, n, -way)
    _shift(plan, m, -other)
    return seconds


@inner
def _cut_alike(plan: Encoded, p: int, q: int) -> bool:
    """Whether two pipelines have the same number of stages and the same cuts."""
    a, b = plan.starts[p], plan.starts[q]
    if plan.starts[p + 1] - a != plan.starts[q + 1] - b:
        return False
    return bool(np.all(plan.last[a : plan.starts[p + 1]] == plan.last[b : plan.starts[q + 1]]))


@inner
def _try_cut_of_all(
    tables: Tables, plan: Encoded, out: Durations, scratch: Floats, seconds: float, p: int, stage: int, way: int
) -> float:
    """Move a cut in pipeline p and in all that are cut like it; keep it if it pays."""
    replicas = plan.microbatches.shape[0]
    alike = np.zeros(replicas, np.bool_)
    whole = True
    for q in range(replicas):
        alike[q] = _cut_alike(plan, q, p)
    for q in range(replicas):
        if alike[q]:
            n = plan.starts[q] + stage
            _shift(plan, n, way)
            whole = whole and plan.first[n] <= plan.last[n] and plan.first[n + 1] <= plan.last[n + 1]
    trial = _price(tables, plan, out, scratch) if whole else -1.0
    if 0 <= trial < seconds * (1 - 1e-9):
        return trial
    for q in range(replicas):
        if alike[q]:
            _shift(plan, plan.starts[q] + stage, -way)
    return seconds


@inner
def _shift(plan: Encoded, n: int, layers: int) -> None:
    plan.last[n] += layers
    plan.first[n + 1] += layers


@inner
def _give_microbatch(plan: Encoded, p: int, q: int, extra: int, gpipe: bool) -> None:
    plan.microbatches[p] -= 1
    plan.microbatches[q] += 1
    set_warmup(plan, p, extra, gpipe, plan.microbatches[p])
    set_warmup(plan, q, extra, gpipe, plan.microbatches[q])


@inner
def _price(tables: Tables, plan: Encoded, out: Durations, scratch: Floats) -> float:
    status, sets, _ = durations(tables, plan, out)
    if status != FITS:
        return -1.0
    return step_seconds(tables, plan, out, sets, scratch[0], scratch[1], ALL)


@njit(cache=True)
def fit(tables: Tables, plan: Encoded, out: Durations, scratch: Floats, total: int, extra: int, gpipe: bool) -> float:
    """Cut, share and price. `plan` comes with its slots; first, last, warmup and microbatches are filled in.

    Returns the seconds of a step, or a number below zero that says how far the plan is from fitting.
    """
    replicas = plan.microbatches.shape[0]
    layers = tables.cut.shape[0]
    if total < replicas:
        return TOO_FEW_MICROBATCHES - replicas + total
    missing = 0
    for p in range(replicas):
        begin, end = plan.starts[p], plan.starts[p + 1]
        if end - begin > layers:
            return TOO_FEW_MICROBATCHES - (end - begin)
        set_warmup(plan, p, extra, gpipe, total - replicas + 1)
        if p > 0 and same_pipeline(plan, p, p - 1):
            before = plan.starts[p - 1]
            for i in range(end - begin):
                plan.first[begin + i] = plan.first[before + i]
                plan.last[begin + i] = plan.last[before + i]
            continue
        missing += cut(tables, plan, p)
    if missing > 0:
        return -float(missing)
    status, sets, _ = durations(tables, plan, out)
    if status != FITS:
        return -0.5 if status == 1 else -1000.0
    if replicas == 1:
        plan.microbatches[0] = total
    elif not share(tables, plan, out, total):
        return TOO_FEW_MICROBATCHES
    for p in range(replicas):
        set_warmup(plan, p, extra, gpipe, plan.microbatches[p])
    seconds = step_seconds(tables, plan, out, sets, scratch[0], scratch[1], HORIZON)
    stages = plan.starts[replicas]
    if stages > replicas and total * stages * stages <= SMALL:
        # With few microbatches the slowest stage does not decide alone.
        seconds = refine(tables, plan, out, scratch, extra, gpipe, seconds, _ONCE)
    return seconds


drop_stale(fit, step, pipeline)
drop_stale(refine, step, pipeline)
