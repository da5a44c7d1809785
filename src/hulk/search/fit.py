"""From an order of slots to a priced plan, compiled: where to cut the layers, how to share the batch, what a step
takes. Search decides which GPUs stand where in which pipeline; everything after that is settled here."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hulk.cost.arrays import FITS, PARAMETERS, SCHEDULE, SHARD, TOO_BIG, Durations, Encoded, Tables
from hulk.cost.compiled import constant, inner, kernel, lean
from hulk.cost.sharing import resources_of
from hulk.cost.step import end_passes, stage_durations, summed_seconds, unsummed_seconds
from hulk.cost.sync import buckets_of, is_apart, sends_weights, set_bytes
from hulk.cost.sync_times import first_sums, in_passes, other_sums
from hulk.cost.weights import least_weights_end
from hulk.domain.options import ALL_AHEAD
from hulk.search.cut import TOO_SLOW, cut, cut_by_rules, least_whole, same_pipeline, set_warmup
from hulk.search.least import EACH, UNCOUNTED, is_counted, recompute_least
from hulk.search.refine import Desk, refine
from hulk.search.results import CUT_OFF, LACKS, OVER, RUNS, TOO_FULL, TOO_MANY_PIPELINES
from hulk.search.share import share

Floats = NDArray[np.float64]

# Microbatches after which a pipeline is taken to go on at its pace.
HORIZON = constant(32)
_ONCE = constant(1)
# Microbatches × stages² up to which cuts and shares are refined at once.
SMALL = 1200
_REFINING = 1.3  # times the seconds after refining is more than it was before


@inner
def _fastest_pace(tables: Tables, plan: Encoded, p: int) -> float:
    """Microbatches a second that pipeline p does at most, however it is cut: all stages at work all the time, and so
    many on their way as the warm-up allows."""
    begin, end = plan.starts[p], plan.starts[p + 1]
    pace, trip, least = 0.0, 0.0, np.inf
    for n in range(begin, end):
        k = plan.kind[n]
        whole = least_whole(tables, k)
        pace += 1.0 / whole
        least = min(least, whole)
        if n + 1 < end and plan.machine[n] != plan.machine[n + 1]:
            trip += 2 * tables.latency[plan.place[n], plan.place[n + 1]]
    extra = plan.options[SCHEDULE]
    return pace if extra == ALL_AHEAD else min(pace, (end - begin + extra) / (trip + least))


@inner
def _fastest_paces(tables: Tables, plan: Encoded, paces: Floats) -> float:
    """Fill in the fastest pace of each pipeline; returns that of all together."""
    every = 0.0
    for p in range(plan.microbatches.shape[0]):
        is_known = p > 0 and same_pipeline(plan, p, p - 1)
        paces[p] = paces[p - 1] if is_known else _fastest_pace(tables, plan, p)
        every += paces[p]
    return every


@inner
def _longest_pass(plan: Encoded, p: int, total: int, limit: float, paces: Floats) -> float:
    """Seconds that a stage of pipeline p, and of those after it that are like it, may take for a microbatch where the
    step is to take less than `limit`: all other pipelines do as much as they can, these the rest. Infinite where that
    says nothing: so few microbatches that fewer are under way than was assumed need less memory, and other cuts fit."""
    if limit == np.inf:
        return np.inf
    alike, others = 1, 0.0
    for q in range(plan.microbatches.shape[0]):
        if q > p and q == p + alike and same_pipeline(plan, q, p):
            alike += 1
        elif q != p:
            others += paces[q]
    rest = (total - limit * others) / alike
    return limit / rest if rest > plan.warmup[plan.starts[p]] + 1 else np.inf


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


@inner
def _least_with_sums(tables: Tables, plan: Encoded, out: Durations, least: float) -> float:
    """What a step of several replicas takes at least, sums counted that come after the first stages' last backward:
    their own layers' gradients, then what layers share, which its owner then hands round."""
    replicas, apart = plan.microbatches.shape[0], is_apart(tables, plan)
    if not (replicas == 2 and tables.rules.swaps):
        buckets = buckets_of(tables, set_bytes(tables, 0, out.set_last[0], apart))
        wire = out.set_seconds[0] - out.set_wait[0]
        least += out.set_wait[0] + wire / (buckets if tables.rules.overlap_sync else 1.0)
    if not apart:
        return least
    least += out.tie_seconds[0]
    if sends_weights(tables, 0 < plan.options[SHARD] < PARAMETERS, replicas):
        return least_weights_end(tables, plan, out, least)
    return least


@inner
def _passed(plan: Encoded, stage_end: Floats) -> float:
    """When the last of the first stages is through its last backward."""
    last = 0.0
    for p in range(plan.microbatches.shape[0]):
        last = max(last, stage_end[plan.starts[p]])
    return last


@kernel
def fit(
    tables: Tables,
    plan: Encoded,
    out: Durations,
    scratch: Floats,
    total: int,
    limit: float,
) -> tuple[int, float]:
    """Cut, share and price. `plan` comes with its slots; first, last, kept, warmup and microbatches are filled in.

    Returns status and value, as `hulk.search.results` has them; OVER as soon as a step is known to take `limit` seconds
    or more.
    """
    replicas = plan.microbatches.shape[0]
    layers = tables.cut.shape[0]
    if total < replicas:
        return LACKS, TOO_MANY_PIPELINES + replicas - total
    missing, is_ruled, paces = 0, tables.held_until.shape[0] > 0, scratch[0]
    for p in range(replicas):
        if plan.starts[p + 1] - plan.starts[p] > layers:
            return LACKS, TOO_MANY_PIPELINES + plan.starts[p + 1] - plan.starts[p]
        set_warmup(plan, p, total - replicas + 1)
    if limit < np.inf and total >= limit * _fastest_paces(tables, plan, paces):
        return OVER, limit
    for n in range(plan.starts[replicas]):
        plan.kept[n] = 0
    for p in range(replicas):
        begin, end = plan.starts[p], plan.starts[p + 1]
        if p > 0 and same_pipeline(plan, p, p - 1):
            before = plan.starts[p - 1]
            for i in range(end - begin):
                plan.first[begin + i] = plan.first[before + i]
                plan.last[begin + i] = plan.last[before + i]
                plan.kept[begin + i] = plan.kept[before + i]
            continue
        if is_ruled:
            missing += cut_by_rules(tables, plan, p)
        else:
            left = cut(tables, plan, p, _longest_pass(plan, p, total, limit, paces))
            if left == TOO_SLOW:
                return OVER, limit
            missing += left
        if missing > 0 and limit < np.inf:  # how far it is from fitting counts only where nothing fits yet
            break
    if missing > 0:
        return LACKS, float(missing)
    status, _, _ = stage_durations(tables, plan, out)
    if status != FITS:
        return LACKS, TOO_FULL if status == TOO_BIG else CUT_OFF
    if replicas == 1:
        plan.microbatches[0] = total
    elif not share(plan, out, total):
        return LACKS, TOO_MANY_PIPELINES
    has_more_room = False
    for p in range(replicas):
        ahead = plan.warmup[plan.starts[p]]
        set_warmup(plan, p, plan.microbatches[p])
        has_more_room = has_more_room or plan.warmup[plan.starts[p]] < ahead
    if has_more_room and is_counted(tables):
        recompute_least(tables, plan, out, plan.kept[:0], EACH)
        stage_durations(tables, plan, out)
    stages = plan.starts[replicas]
    is_small = stages > replicas and total * stages * stages <= SMALL
    enough = limit * _REFINING if is_small else limit
    least = least_seconds(plan, out) if limit < np.inf else 0.0
    if least >= enough:
        return OVER, limit
    status, sets, _ = first_sums(tables, plan, out)
    if status != FITS:
        return LACKS, CUT_OFF
    # Passes take longer to work out than these sums, and all other sums longer than passes.
    is_limited, sums_first = limit < np.inf and replicas > 1, in_passes(plan)
    if is_limited and _least_with_sums(tables, plan, out, least) >= enough:
        return OVER, limit
    shared = resources_of(tables, plan)
    if not sums_first:
        end_passes(tables, plan, out, shared, scratch[0], HORIZON)
        if limit < np.inf and unsummed_seconds(tables, plan, out, scratch[0]) >= enough:
            return OVER, limit
        if is_limited and _least_with_sums(tables, plan, out, _passed(plan, scratch[0])) >= enough:
            return OVER, limit
    status, sets, _ = other_sums(tables, plan, out, sets)
    if status != FITS:
        return LACKS, CUT_OFF
    if sums_first:
        end_passes(tables, plan, out, shared, scratch[0], HORIZON)
    seconds = summed_seconds(tables, plan, out, sets, shared, scratch[0], scratch[1])
    if seconds >= enough:
        return OVER, limit  # not its price: refined it might take less
    if is_small:
        # With few microbatches the slowest stage does not decide alone.
        way = EACH if is_counted(tables) else UNCOUNTED
        seconds = refine(tables, plan, Desk(out, scratch, plan.kept[:0], way), seconds, _ONCE)
    return RUNS, seconds
