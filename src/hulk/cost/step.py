"""One job's step, compiled: stage times, memory, pipelines, gradient sync, update, from tables of numbers.

This is what search calls tens of thousands of times a second, and what `price` and `simulate` read their durations
from: the one home of how a step is put together.
"""

from __future__ import annotations

import numpy as np

from hulk.cost.arrays import (
    BLOCKED,
    EXPERT,
    FITS,
    PARAMETERS,
    SHARD,
    TOO_BIG,
    Durations,
    Encoded,
    Floats,
    Tables,
    durations_for,
    spared_seconds,
    transfer_seconds,
)
from hulk.cost.compiled import constant, inlined, inner, kernel, lean, maker
from hulk.cost.orders import group_of, is_ordered, is_split, most_held, run_orders, slots_of
from hulk.cost.pipeline import Passes, backward_position, run_pipeline
from hulk.cost.sharding import shards_of, shards_of_all
from hulk.cost.sharing import Resources, hold_back, resources_of
from hulk.cost.sync import sends_weights
from hulk.cost.sync_times import gradient_sets, sync_ends, tie_seconds
from hulk.cost.weights import weights_ends

ALL = constant(1 << 40)
"""A horizon that no pipeline reaches."""


@lean
def stage_memory(
    tables: Tables, a: int, b: int, ranks: int, in_flight: int, sends: bool, shards: int
) -> tuple[float, float, float, float]:
    """(bytes of one rank in all, its parameters, bytes of activations, bytes needed for a moment) of layers a..b with
    that many microbatches in flight. `sends`: whether a stage follows. No memory is enough for GPUs that cannot share
    sequences evenly."""
    tensor = ranks / tables.context
    if tensor != np.floor(tensor):
        return np.inf, 0.0, 0.0, 0.0
    params = (tables.split[b + 1] - tables.split[a]) / tensor + tables.whole[b + 1] - tables.whole[a]
    if a == 0:  # shared with the first layer, which is here too: one copy
        params -= tables.tied[b + 1] / tensor
    peak, layer = 0.0, a
    while layer <= b:  # when backward is at a layer, what the layers behind it held is free again
        end = min(tables.alike_until[layer], b + 1)
        later = (tables.held_split[b + 1] - tables.held_split[end]) / tensor
        later += tables.held_whole[b + 1] - tables.held_whole[end]
        peak = max(peak, tables.peak_split[layer] / tensor + tables.peak_whole[layer] - later)
        layer = end
    held = (tables.held_split[b + 1] - tables.held_split[a]) / tensor + tables.held_whole[b + 1] - tables.held_whole[a]
    if sends:  # what was sent on is kept until its gradient comes back
        held += tables.cut[b] / tables.context
    held *= in_flight
    state = params * (tables.state_bytes + tables.sharded_bytes / shards)
    if shards > 1:  # fewer split what an expert has
        state += (tables.elsewhere[b + 1] - tables.elsewhere[a]) / tensor * tables.sharded_bytes / shards
    return state + held + peak, params, held, peak


@lean
def memory_with_kept(
    tables: Tables, a: int, b: int, ranks: int, in_flight: int, sends: bool, shards: int, kept: int
) -> tuple[float, float, float, float]:
    """`stage_memory` where the last `kept` of the layers are not computed again. Apart from it: few plans ask."""
    whole, params, held, peak = stage_memory(tables, a, b, ranks, in_flight, sends, shards)
    if kept == 0 or whole == np.inf:
        return whole, params, held, peak
    tensor, end, row = ranks / tables.context, b + 1 - kept, 2 * tables.update.shape[0]
    split, unsplit = tables.kept[row], tables.kept[row + 1]
    moment_split, moment_whole = tables.kept[row + 2], tables.kept[row + 3]
    state = whole - held - peak
    behind = (split[b + 1] - split[end]) / tensor + unsplit[b + 1] - unsplit[end]
    others = (tables.held_split[b + 1] - tables.held_split[end]) / tensor
    others += tables.held_whole[b + 1] - tables.held_whole[end]
    held += in_flight * (behind - others)
    peak, layer = 0.0, a
    while layer <= b:
        after = min(tables.alike_until[layer], b + 1 if layer >= end else end)
        if layer >= end:
            later = (split[b + 1] - split[after]) / tensor + unsplit[b + 1] - unsplit[after]
            moment = moment_split[layer] / tensor + moment_whole[layer]
        else:
            later = behind + (tables.held_split[end] - tables.held_split[after]) / tensor
            later += tables.held_whole[end] - tables.held_whole[after]
            moment = tables.peak_split[layer] / tensor + tables.peak_whole[layer]
        peak = max(peak, moment - later)
        layer = after
    return state + held + peak, params, held, peak


@kernel
def durations(tables: Tables, plan: Encoded, out: Durations) -> tuple[int, int, int]:
    """Fill `out`. Returns (FITS, sets, 0), or (TOO_BIG, stage, 0), or (BLOCKED, stage, other stage), or (UNLIKE,
    pipeline, 0), or (SCATTERED, stage, 0)."""
    status, stage, other = stage_durations(tables, plan, out)
    return (status, stage, other) if status != FITS else gradient_sets(tables, plan, out)


@lean
def stage_durations(tables: Tables, plan: Encoded, out: Durations) -> tuple[int, int, int]:
    """Fill `out` but for the gradients' sets. Returns (FITS, 0, 0), or as `durations` does."""
    replicas, of_all = plan.microbatches.shape[0], shards_of_all(plan)
    ordered, split = is_ordered(plan), is_split(plan)
    for p in range(replicas):
        begin, end = plan.starts[p], plan.starts[p + 1]
        for n in range(begin, end):
            shards = of_all if of_all > 0 else shards_of(tables, plan, p, n)
            k, a, b, t = plan.kind[n], plan.first[n], plan.last[n], plan.ranks[n]
            out.forward[n] = tables.forward[k, b + 1] - tables.forward[k, a] + tables.rules.pass_overhead
            out.backward[n] = tables.backward[k, b + 1] - tables.backward[k, a] + tables.rules.pass_overhead
            if plan.kept[n] > 0:
                after, kinds = b + 1 - plan.kept[n], tables.update.shape[0]
                out.forward[n] -= spared_seconds(tables.forward[k], tables.kept[k], a, b, after)
                out.backward[n] -= spared_seconds(tables.backward[k], tables.kept[kinds + k], a, b, after)
            out.weights[n] = 0.0
            if split:
                out.weights[n] = tables.weights[k, b + 1] - tables.weights[k, a]
                out.backward[n] -= out.weights[n]
                out.weights[n] += tables.rules.pass_overhead
            in_flight = 1 if ordered else plan.warmup[n]  # of an order, `_join_rounds` says how many there are
            memory, params, held, peak = stage_memory(tables, a, b, t, in_flight, n + 1 < end, shards)
            if plan.kept[n] > 0:
                memory, params, held, peak = memory_with_kept(
                    tables, a, b, t, in_flight, n + 1 < end, shards, plan.kept[n]
                )
            out.memory[n], out.params[n], out.held[n], out.peak[n] = memory, params, held, peak
            if not ordered and memory > tables.capacity[plan.place[n]]:
                return TOO_BIG, n, 0
            updated = params
            if shards > 1 and plan.options[EXPERT] > 1:  # fewer split what an expert has
                updated += (tables.elsewhere[b + 1] - tables.elsewhere[a]) * tables.context / t
            out.update[n] = updated / shards * tables.update[k] + params * tables.join[k] + tables.rules.step_overhead
            out.tie_seconds[n] = 0.0
            if n > begin and not tables.rules.shares_once:
                status, out.tie_seconds[n] = tie_seconds(tables, plan, n, begin)
                if status != FITS:
                    return status, n, begin
            if n + 1 < end and not link_seconds(tables, plan, n, out):
                return BLOCKED, n, n + 1
        if ordered:
            too_big = _join_rounds(tables, plan, p, out)
            if too_big >= 0:
                return TOO_BIG, too_big, 0
    return FITS, 0, 0


@lean
def _join_rounds(tables: Tables, plan: Encoded, p: int, out: Durations) -> int:
    """What GPUs hold and update of all the stages they have in pipeline p, in place of what each stage has by itself.
    Returns the first stage whose GPUs have too little memory, −1 where all have enough."""
    begin, end, slots, of_all = plan.starts[p], plan.starts[p + 1], slots_of(plan, p), shards_of_all(plan)
    for s in range(slots):
        first = begin + s
        held, params, peak = most_held(plan, out, p, s), 0.0, 0.0
        for n in range(first, end, slots):
            params += out.params[n]
            peak = max(peak, out.peak[n])
        shards = of_all if of_all > 0 else shards_of(tables, plan, p, first)
        memory = params * (tables.state_bytes + tables.sharded_bytes / shards) + held + peak
        for n in range(first, end, slots):
            out.params[n], out.peak[n], out.held[n], out.memory[n] = params, peak, held, memory
            out.update[n] = params / shards * tables.update[plan.kind[n]] + tables.rules.step_overhead
        if memory > tables.capacity[plan.place[first]]:
            return first
    return -1


@lean
def link_seconds(tables: Tables, plan: Encoded, n: int, out: Durations) -> bool:
    """What moving a microbatch from stage n to the next takes, and back. False: the two cannot talk."""
    k, k2 = plan.kind[n], plan.kind[n + 1]
    size = tables.cut[plan.last[n]]
    ranks = min(plan.ranks[n], plan.ranks[n + 1])
    wait, wire = transfer_seconds(tables, plan, n, n + 1, size, ranks if tables.rules.flow_per_rank else 1)
    if wait == np.inf:
        return False
    out.rate[n] = size / wire if wire > 0 else np.inf
    wire += tables.rules.message_overhead
    out.latency[n] = wait
    out.send_forward[n] = wire + tables.gather_fixed[k2] + tables.gather_rate[k2] * size
    out.send_backward[n] = wire + tables.gather_fixed[k] + tables.gather_rate[k] * size
    out.blocking[n] = size / ranks > tables.rules.blocking_above and not is_ordered(plan)
    return True


@kernel
def step_seconds(
    tables: Tables,
    plan: Encoded,
    out: Durations,
    sets: int,
    stage_end: Floats,
    sync_end: Floats,
    horizon: int,
) -> float:
    """Seconds of one step. Where stages go on with the next one as soon as they are done themselves (`Rules.rolls`), a
    step takes as long as the stage that is longest at it. Fills stage_end [N], when a stage's last backward ends, and
    sync_end [N], when the last gradient it takes part in is summed up.

    A pipeline with more microbatches than `horizon` runs that many and goes on at the pace it has reached: a search's
    shortcut, not used for a price.
    """
    shared = resources_of(tables, plan)
    end_passes(tables, plan, out, shared, stage_end, horizon)
    return summed_seconds(tables, plan, out, sets, shared, stage_end, sync_end)


@inner
def end_passes(
    tables: Tables, plan: Encoded, out: Durations, shared: Resources, stage_end: Floats, horizon: int
) -> None:
    """The first half of `step_seconds`: fills stage_end."""
    _run_pipelines(plan, out, stage_end, horizon)
    hold_back(tables, plan, out, shared, stage_end)


@maker
def summed_seconds(
    tables: Tables, plan: Encoded, out: Durations, sets: int, shared: Resources, stage_end: Floats, sync_end: Floats
) -> float:
    """The second half of `step_seconds`: the sums of gradients and the updates, after `end_passes`."""
    replicas = plan.microbatches.shape[0]
    sync_end[:] = stage_end
    sync_ends(tables, plan, out, sets, shared, stage_end, sync_end)
    done = np.empty(plan.starts[replicas])
    if is_ordered(plan):
        _end_together(plan, sync_end)
    for n in range(done.shape[0]):
        done[n] = sync_end[n] + out.update[n]
    if sends_weights(tables, 0 < plan.options[SHARD] < PARAMETERS, replicas):
        weights_ends(tables, plan, out, sets, shared, done)
    return _longest(tables, plan, out, done, False)


@inner
def unsummed_seconds(tables: Tables, plan: Encoded, out: Durations, stage_end: Floats) -> float:
    """What a step takes at least, after `end_passes`: updates, but no sums."""
    return _longest(tables, plan, out, stage_end, True)


@inner
def _longest(tables: Tables, plan: Encoded, out: Durations, ends: Floats, before_update: bool) -> float:
    """Seconds of the stage that is longest at a step, from when each ends with it, or with all but its update."""
    total = 0.0
    for p in range(plan.microbatches.shape[0]):
        first = 0.0  # when the pipeline's first microbatch reaches a stage
        slots = slots_of(plan, p) if is_ordered(plan) else plan.starts[p + 1] - plan.starts[p]
        for s in range(slots):
            for n in range(plan.starts[p] + s, plan.starts[p + 1], slots):
                end = ends[n] + out.update[n] if before_update else ends[n]
                total = max(total, end - first)
            n = plan.starts[p] + s
            if tables.rules.rolls and n + 1 < plan.starts[p + 1]:
                first += out.forward[n] + out.send_forward[n] + out.latency[n]
    return total


@inner
def _end_together(plan: Encoded, ends: Floats) -> None:
    """Stages on the same GPUs all end when the last of them does."""
    for p in range(plan.microbatches.shape[0]):
        slots = slots_of(plan, p)
        for s in range(plan.starts[p], plan.starts[p] + slots):
            latest = 0.0
            for n in range(s, plan.starts[p + 1], slots):
                latest = max(latest, ends[n])
            for n in range(s, plan.starts[p + 1], slots):
                ends[n] = latest


@inner
def _microbatches_run(plan: Encoded, p: int, horizon: int) -> int:
    """How many microbatches of pipeline p are run before it is taken to go on at its pace."""
    return min(plan.microbatches[p], max(horizon, 3 * plan.warmup[plan.starts[p]] + 8))


@maker
def _run_pipelines(plan: Encoded, out: Durations, stage_end: Floats, horizon: int) -> None:
    """Fill `stage_end`, every message with its way to itself."""
    replicas = plan.microbatches.shape[0]
    for p in range(replicas):
        a, b = plan.starts[p], plan.starts[p + 1]
        if p > 0 and _runs_alike(plan, out, p, p - 1):
            stage_end[a:b] = stage_end[plan.starts[p - 1] : a]
            continue
        passes = Passes(
            out.forward[a:b],
            out.backward[a:b],
            out.latency[a:b],
            out.send_forward[a:b],
            out.send_backward[a:b],
            out.blocking[a:b],
            plan.warmup[a:b],
        )
        if is_ordered(plan):
            slots, group, split = slots_of(plan, p), group_of(plan, p), is_split(plan)
            run_orders(passes, out.weights[a:b], slots, plan.microbatches[p], group, split, stage_end[a:b])
            continue
        m = _microbatches_run(plan, p, horizon)
        ends = np.empty((b - a, 2 * m))
        run_pipeline(passes, m, ends)
        rest = 0.0
        if m < plan.microbatches[p]:
            # The first stage's backwards, up to where it has no more forwards to do; a long way round makes them come
            # in bursts of the warm-up's length, so at least that many.
            late = m - plan.warmup[a] - 1
            early = min(m // 2, late - plan.warmup[a])
            first = ends[0, backward_position(early, plan.warmup[a], m)]
            last = ends[0, backward_position(late, plan.warmup[a], m)]
            rest = (plan.microbatches[p] - m) * (last - first) / (late - early)
        for s in range(b - a):
            stage_end[a + s] = ends[s, 2 * m - 1] + rest


@inner
def _runs_alike(plan: Encoded, out: Durations, p: int, q: int) -> bool:
    """Whether two pipelines take the same time, pass by pass."""
    a, b = plan.starts[p], plan.starts[q]
    stages = plan.starts[p + 1] - a
    if plan.microbatches[p] != plan.microbatches[q] or plan.starts[q + 1] - b != stages:
        return False
    for i in range(stages):
        n, m = a + i, b + i
        if out.forward[n] != out.forward[m] or out.backward[n] != out.backward[m] or plan.warmup[n] != plan.warmup[m]:
            return False
        if out.weights[n] != out.weights[m]:
            return False
        if i + 1 < stages and (
            out.latency[n] != out.latency[m]
            or out.send_forward[n] != out.send_forward[m]
            or out.send_backward[n] != out.send_backward[m]
            or out.blocking[n] != out.blocking[m]
        ):
            return False
    return True


@lean
def seconds_of(tables: Tables, plan: Encoded) -> float:
    """Seconds of a step, or −1 where the plan cannot run."""
    return _with_room(tables, plan)


@maker
def _with_room(tables: Tables, plan: Encoded) -> float:
    stages = plan.machine.shape[0]
    return seconds_in(tables, plan, durations_for(stages), np.zeros((2, stages)))


@inlined
def seconds_in(tables: Tables, plan: Encoded, out: Durations, scratch: Floats) -> float:
    """The same with room to work in, which has the plan's durations then; `scratch` is [2, N]."""
    status, sets, _ = durations(tables, plan, out)
    if status != FITS:
        return -1.0
    return step_seconds(tables, plan, out, sets, scratch[0], scratch[1], ALL)
