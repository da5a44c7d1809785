"""From an order of slots to a priced plan, compiled: where to cut the layers, how to share the batch, what a step
takes.

Search decides which GPUs stand where in which pipeline. Everything after that is settled here:

- Cuts: the slowest stage is made as fast as it can be, memory permitting. For a given limit on a stage's time, filling
  the stages from the first to the last as far as limit and memory allow is optimal; bisection finds the least limit.
- Shares: every replica gets as many microbatches as it can do while the slowest one is at work.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hulk.cost.arrays import FITS, SCHEDULE, SHARD, Durations, Encoded, Tables
from hulk.cost.compiled import constant, inner, kernel, lean, maker
from hulk.cost.step import ALL, durations, stage_durations, stage_memory, step_seconds
from hulk.cost.sync import buckets_of, is_apart, set_bytes
from hulk.cost.sync_times import gradient_sets
from hulk.domain.options import ALL_AHEAD

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# What fit() returns instead of seconds where a plan cannot be: below zero, and the further below the further from
# fitting.
TOO_FEW_MICROBATCHES = -1e6
_NEAR, _NARROW = 1.1, 1e-6  # of the limits: the first to try, over the least there is; how close to end
# Microbatches after which a pipeline is taken to go on at its pace.
HORIZON = constant(32)
_ONCE, _STAY = constant(1), constant(0)
# Microbatches × stages² up to which cuts and shares are refined at once.
SMALL = 1200
_REFINING = 1.3  # times the seconds after refining is more than it was before


@lean
def fill(tables: Tables, plan: Encoded, p: int, limit: float, first: Ints, last: Ints) -> tuple[int, float, float]:
    """Fill pipeline p's stages up to `limit` seconds a microbatch. Returns how many layers found no room, the slowest
    stage's seconds, and the least limit that would fill them otherwise."""
    begin, end = plan.starts[p], plan.starts[p + 1]
    layers = tables.cut.shape[0]
    shards = plan.microbatches.shape[0] if plan.options[SHARD] == 1 else 1
    a, slowest, following = 0, 0.0, np.inf
    for n in range(begin, end):
        k, t = plan.kind[n], plan.ranks[n]
        start = tables.forward[k, a] + tables.backward[k, a]
        # The largest b for which the stage fits in time, then in memory: both grow with b, so halve the range.
        low, high = a - 1, layers - 1 - (end - 1 - n)  # every later stage needs a layer
        most = high
        while low < high:
            b = (low + high + 1) // 2
            if tables.forward[k, b + 1] + tables.backward[k, b + 1] - start <= limit:
                low = b
            else:
                high = b - 1
        if low < most:
            following = min(following, tables.forward[k, low + 2] + tables.backward[k, low + 2] - start)
        room, sends, held = tables.capacity[plan.place[n]], n + 1 < end, plan.warmup[n]
        if low >= a and stage_memory(tables, a, low, t, held, sends, shards)[0] > room:
            low, high = a - 1, low - 1
            while low < high:
                b = (low + high + 1) // 2
                if stage_memory(tables, a, b, t, held, sends, shards)[0] <= room:
                    low = b
                else:
                    high = b - 1
        if low < a:
            return layers - a, slowest, following
        first[n], last[n] = a, low
        slowest = max(slowest, tables.forward[k, low + 1] + tables.backward[k, low + 1] - start)
        a = low + 1
    return layers - a, slowest, following


@lean
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
    missing, high, _ = fill(tables, plan, p, most, plan.first, plan.last)
    if missing > 0:
        return missing
    low = 1.0 / fastest * 0.999  # no cut beats the work spread evenly over the stages' speeds
    middle, is_filled = _NEAR * low, True  # where the best cut is mostly found; after that, halve the range
    while high - low > _NARROW * high:
        missing, slowest, following = fill(tables, plan, p, middle, plan.first, plan.last)
        is_filled = missing == 0
        if is_filled:
            high = slowest
        else:
            low = following
        middle = 0.5 * (low + high)
    if not is_filled:
        fill(tables, plan, p, high, plan.first, plan.last)
    return 0


@lean
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


@lean
def set_warmup(plan: Encoded, p: int, microbatches: int) -> None:
    """Forwards before the first backward, as `hulk.domain.options.Schedule.warmup` says it."""
    begin, end, extra = plan.starts[p], plan.starts[p + 1], plan.options[SCHEDULE]
    for n in range(begin, end):
        plan.warmup[n] = microbatches if extra == ALL_AHEAD else min(microbatches, end - n + extra)


@kernel
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


@inner
def _fastest_pace(tables: Tables, plan: Encoded, p: int) -> float:
    """Microbatches a second that pipeline p does at most, however it is cut: all stages at work all the time, and so
    many on their way as the warm-up allows."""
    begin, end = plan.starts[p], plan.starts[p + 1]
    layers = tables.cut.shape[0]
    pace, trip, least = 0.0, 0.0, np.inf
    for n in range(begin, end):
        k = plan.kind[n]
        whole = tables.forward[k, layers] + tables.backward[k, layers]
        pace += 1.0 / whole
        least = min(least, whole)
        if n + 1 < end and plan.machine[n] != plan.machine[n + 1]:
            trip += 2 * tables.latency[plan.place[n], plan.place[n + 1]]
    extra = plan.options[SCHEDULE]
    return pace if extra == ALL_AHEAD else min(pace, (end - begin + extra) / (trip + least))


@lean
def least_seconds(plan: Encoded, out: Durations) -> float:
    """What a step takes at least, gradients not counted: in each pipeline, the way to a stage and back, and between
    them all that the stage or its link has to do, or as many round trips as its warm-up makes of the microbatches."""
    least = 0.0
    for p in range(plan.microbatches.shape[0]):
        m = plan.microbatches[p]
        tail = 0.0  # from a stage's forward to its backward, alone
        for n in range(plan.starts[p + 1] - 1, plan.starts[p] - 1, -1):
            tail += out.forward[n] + out.backward[n]
            if n + 1 < plan.starts[p + 1]:
                tail += 2 * out.latency[n] + out.send_forward[n] + out.send_backward[n]
        ahead = 0.0  # from the first stage to this one, and back
        for n in range(plan.starts[p], plan.starts[p + 1]):
            work = out.forward[n] + out.backward[n]
            trips = (m - 1) // plan.warmup[n] + 1
            least = max(least, ahead + m * work, ahead + trips * tail)
            if n + 1 < plan.starts[p + 1]:
                link = 2 * out.latency[n] + out.send_forward[n] + out.send_backward[n]
                slowest = max(out.send_forward[n], out.send_backward[n])
                least = max(least, ahead + work + link + (m - 1) * slowest)
                ahead += work + link
                tail -= work + link
    return least


@kernel
def refine(tables: Tables, plan: Encoded, out: Durations, scratch: Floats, seconds: float, rounds: int) -> float:
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
                _give_microbatch(plan, p, q)
                trial = _price(tables, plan, out, scratch)
                if 0 <= trial < seconds * (1 - 1e-9):
                    seconds = trial
                else:
                    _give_microbatch(plan, q, p)
        if seconds >= before * (1 - 1e-6):
            break
    return seconds


@maker
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
    for i in range(plan.starts[p + 1] - a):  # noqa: SIM110 - numba has no all() of a generator
        if plan.last[a + i] != plan.last[b + i]:
            return False
    return True


@maker
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
def _give_microbatch(plan: Encoded, p: int, q: int) -> None:
    plan.microbatches[p] -= 1
    plan.microbatches[q] += 1
    set_warmup(plan, p, plan.microbatches[p])
    set_warmup(plan, q, plan.microbatches[q])


@maker
def _price(tables: Tables, plan: Encoded, out: Durations, scratch: Floats) -> float:
    status, sets, _ = durations(tables, plan, out)
    if status != FITS:
        return -1.0
    return step_seconds(tables, plan, out, sets, scratch[0], scratch[1], ALL)


@kernel
def fit(
    tables: Tables,
    plan: Encoded,
    out: Durations,
    scratch: Floats,
    total: int,
    limit: float,
) -> float:
    """Cut, share and price. `plan` comes with its slots; first, last, warmup and microbatches are filled in.

    Returns the seconds of a step, or a number below zero that says how far the plan is from fitting; infinite as soon
    as it is known to take `limit` seconds or more.
    """
    replicas = plan.microbatches.shape[0]
    layers = tables.cut.shape[0]
    if total < replicas:
        return TOO_FEW_MICROBATCHES - replicas + total
    missing, pace = 0, 0.0
    for p in range(replicas):
        begin, end = plan.starts[p], plan.starts[p + 1]
        if end - begin > layers:
            return TOO_FEW_MICROBATCHES - (end - begin)
        if limit < np.inf:
            pace += _fastest_pace(tables, plan, p)
    if limit < np.inf and total >= limit * pace:
        return np.inf
    for p in range(replicas):
        begin, end = plan.starts[p], plan.starts[p + 1]
        set_warmup(plan, p, total - replicas + 1)
        if p > 0 and same_pipeline(plan, p, p - 1):
            before = plan.starts[p - 1]
            for i in range(end - begin):
                plan.first[begin + i] = plan.first[before + i]
                plan.last[begin + i] = plan.last[before + i]
            continue
        missing += cut(tables, plan, p)
        if missing > 0 and limit < np.inf:  # how far it is from fitting counts only where nothing fits yet
            break
    if missing > 0:
        return -float(missing)
    status, _, _ = stage_durations(tables, plan, out)
    if status != FITS:
        return -0.5 if status == 1 else -1000.0
    if replicas == 1:
        plan.microbatches[0] = total
    elif not share(tables, plan, out, total):
        return TOO_FEW_MICROBATCHES
    for p in range(replicas):
        set_warmup(plan, p, plan.microbatches[p])
    stages = plan.starts[replicas]
    is_small = stages > replicas and total * stages * stages <= SMALL
    enough = limit * _REFINING if is_small else limit
    least = least_seconds(plan, out) if limit < np.inf else 0.0
    if least >= enough:
        return np.inf
    status, sets, _ = gradient_sets(tables, plan, out)
    if status != FITS:
        return -1000.0
    if replicas > 1 and not (replicas == 2 and tables.rules.swaps):  # the first layers' gradients are last
        buckets = buckets_of(tables, set_bytes(tables, 0, out.set_last[0], is_apart(tables, plan)))
        last = out.set_wait[0] + (out.set_seconds[0] - out.set_wait[0]) / (
            buckets if tables.rules.overlap_sync else 1.0
        )
        if least + last >= enough:
            return np.inf
    seconds = step_seconds(tables, plan, out, sets, scratch[0], scratch[1], HORIZON)
    if seconds >= enough:
        return np.inf  # not its price: refined it might take less
    if is_small:
        # With few microbatches the slowest stage does not decide alone.
        seconds = refine(tables, plan, out, scratch, seconds, _ONCE)
    return seconds
