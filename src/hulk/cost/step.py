"""One job's step, compiled: stage times, memory, pipelines, gradient sync, update, from tables of numbers.

This is what search calls tens of thousands of times a second, and what `price` and `simulate` read their durations
from: the one home of how a step is put together. `hulk.cost.tables` makes the tables; nothing here knows names.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hulk.cost.compiled import constant, inner, is_cached, kernel, lean, maker
from hulk.cost.pipeline import backward_position, run_pipeline
from hulk.cost.sharing import Resources, hold_back, pass_through, resource_at, resources_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

FITS, TOO_BIG, BLOCKED = 0, 1, 2
ALL = constant(1 << 40)
"""A horizon that no pipeline reaches."""


class Tables(NamedTuple):
    """A job on some machines at one microbatch size. L layers, M places (machines, or machines that are alike), K kinds
    of stage (GPU type × tensor parallel).

    Prefix arrays have L + 1 entries: the sum over layers a..b is p[b + 1] − p[a]. Seconds, bytes, bytes/s, dollars.
    """

    forward: Floats  # [K, L + 1] prefix, seconds of one microbatch
    backward: Floats  # [K, L + 1] prefix, recomputation included
    update: Floats  # [K] seconds a parameter
    split: Floats  # [L + 1] prefix, parameters divided by tensor parallel
    whole: Floats  # [L + 1] prefix, parameters on every rank
    tied: Floats  # [L + 1] prefix, parameters shared with the first layer
    held_split: Floats  # [L + 1] prefix, bytes kept of one microbatch
    held_whole: Floats  # [L + 1] prefix
    peak_split: Floats  # [L] bytes needed for a moment
    peak_whole: Floats  # [L]
    alike_until: Ints  # [L] the first layer after l with other peaks: blocks are alike, so a range is a few steps
    cut: Floats  # [L] bytes sent on after layer l
    gather_fixed: Floats  # [K] seconds to put slices together at a receiver of this kind
    gather_rate: Floats  # [K] seconds a byte
    latency: Floats  # [M, M] one way, between two machines of these places; inf: blocked
    bandwidth: Floats  # [M, M] one flow
    ceiling: Floats  # [M, M] all flows: all cards of the two and the trunk
    card: Floats  # [M] bytes/s of all cards of a machine together, each direction
    trunk: Ints  # [M, M] which trunk is on the way, in this direction; −1: none
    trunk_rate: Floats  # [K] bytes/s that all flows on a trunk share
    local: Floats  # [M] bytes/s between GPUs of one machine
    ring_share: Floats  # [M] share of its bandwidth that a ring between machines reaches there
    region: Ints  # [M]
    capacity: Floats  # [M] bytes of one GPU that tensors can have
    state_bytes: float  # weights and gradients, a parameter
    optimizer_bytes: float
    gradient_bytes: float  # of a parameter, where gradients are added up over microbatches
    wire_bytes: float  # of a parameter's gradient on its way to other replicas
    bucket: float  # bytes on the wire that are summed at a time, as soon as backward has made them
    blocking_above: float
    message_overhead: float
    flow_per_rank: bool
    overlap_sync: bool
    any_blocked: bool  # whether any latency is inf


class Encoded(NamedTuple):
    """A job's plan in numbers: N stages of all pipelines one after the other, P pipelines."""

    starts: Ints  # [P + 1] first stage of each pipeline
    machine: Ints  # [N] which machine; the same number is the same machine
    place: Ints  # [N] its row in the tables
    kind: Ints  # [N]
    ranks: Ints  # [N] tensor parallel
    first: Ints  # [N]
    last: Ints  # [N]
    microbatches: Ints  # [P]
    warmup: Ints  # [N] forwards before the first backward
    by_region: bool
    shard_optimizer: bool


class Durations(NamedTuple):
    """What a step is made of. Per stage [N]; `latency`, `send_*` and `blocking` belong to the link to the next stage.

    Gradient sets: set i is the layers set_first[i]..set_last[i], the same stages hold it in all replicas; it takes
    set_seconds[i] to sync. `sets` says how many there are.
    """

    forward: Floats
    backward: Floats
    latency: Floats
    send_forward: Floats
    send_backward: Floats
    rate: Floats  # bytes/s that a message has at most, nobody else being on the way
    blocking: Bools
    params: Floats  # of one rank
    held: Floats  # bytes of activations at the peak, all microbatches in flight
    peak: Floats  # bytes needed for a moment on top
    memory: Floats  # bytes of one rank in all
    update: Floats
    set_first: Ints
    set_last: Ints
    set_seconds: Floats
    set_wait: Floats  # the part of it that is latency
    tie_seconds: Floats  # [N] adding up the gradients of parameters shared with the pipeline's first stage


@lean
def transfer_seconds(tables: Tables, plan: Encoded, n: int, m: int, size: float, flows: int) -> tuple[float, float]:
    """(latency, seconds on the wire) of `size` bytes from stage n to stage m: bandwidth is the least of the flows', the
    two network cards' and the trunk's; inside a machine, that of the GPUs' own link. Latency inf: they cannot talk."""
    a, b = plan.place[n], plan.place[m]
    if plan.machine[n] == plan.machine[m]:
        return 0.0, size / tables.local[a]
    rate = min(tables.bandwidth[a, b] * flows, tables.ceiling[a, b])
    return tables.latency[a, b], size / rate


@lean
def stage_memory(
    tables: Tables, a: int, b: int, ranks: int, in_flight: int, sends: bool, shards: int
) -> tuple[float, float, float, float]:
    """(bytes of one rank in all, its parameters, bytes of activations, bytes needed for a moment) of layers a..b with
    that many microbatches in flight. `sends`: whether a stage follows."""
    params = (tables.split[b + 1] - tables.split[a]) / ranks + tables.whole[b + 1] - tables.whole[a]
    if a == 0:  # shared with the first layer, which is here too: one copy
        params -= tables.tied[b + 1] / ranks
    peak, layer = 0.0, a
    while layer <= b:  # when backward is at a layer, what the layers behind it held is free again
        end = min(tables.alike_until[layer], b + 1)
        later = (tables.held_split[b + 1] - tables.held_split[end]) / ranks
        later += tables.held_whole[b + 1] - tables.held_whole[end]
        peak = max(peak, tables.peak_split[layer] / ranks + tables.peak_whole[layer] - later)
        layer = end
    held = (tables.held_split[b + 1] - tables.held_split[a]) / ranks + tables.held_whole[b + 1] - tables.held_whole[a]
    if sends:  # what was sent on is kept until its gradient comes back
        held += tables.cut[b]
    held *= in_flight
    return params * (tables.state_bytes + tables.optimizer_bytes / shards) + held + peak, params, held, peak


@kernel
def durations(tables: Tables, plan: Encoded, out: Durations) -> tuple[int, int, int]:
    """Fill `out`. Returns (FITS, sets, 0), or (TOO_BIG, stage, 0), or (BLOCKED, stage, other stage)."""
    status, stage, other = stage_durations(tables, plan, out)
    return (status, stage, other) if status != FITS else gradient_sets(tables, plan, out)


@lean
def stage_durations(tables: Tables, plan: Encoded, out: Durations) -> tuple[int, int, int]:
    """Fill `out` but for the gradients' sets. Returns (FITS, 0, 0), or as `durations` does."""
    replicas = plan.microbatches.shape[0]
    shards = replicas if plan.shard_optimizer else 1
    for p in range(replicas):
        begin, end = plan.starts[p], plan.starts[p + 1]
        for n in range(begin, end):
            k, a, b, t = plan.kind[n], plan.first[n], plan.last[n], plan.ranks[n]
            out.forward[n] = tables.forward[k, b + 1] - tables.forward[k, a]
            out.backward[n] = tables.backward[k, b + 1] - tables.backward[k, a]
            memory, params, held, peak = stage_memory(tables, a, b, t, plan.warmup[n], n + 1 < end, shards)
            out.memory[n], out.params[n], out.held[n], out.peak[n] = memory, params, held, peak
            if memory > tables.capacity[plan.place[n]]:
                return TOO_BIG, n, 0
            out.update[n] = params / shards * tables.update[k]
            out.tie_seconds[n] = 0.0
            if n > begin:
                shared = tables.tied[b + 1] - tables.tied[a]
                if shared > 0:
                    flows = min(t, plan.ranks[begin])
                    wait, wire = transfer_seconds(tables, plan, n, begin, shared * tables.wire_bytes, flows)
                    if wait == np.inf:
                        return BLOCKED, n, begin
                    out.tie_seconds[n] = 2 * wait + wire
            if n + 1 < end and not link_seconds(tables, plan, n, out):
                return BLOCKED, n, n + 1
    return FITS, 0, 0


@lean
def link_seconds(tables: Tables, plan: Encoded, n: int, out: Durations) -> bool:
    """What moving a microbatch from stage n to the next takes, and back. False: the two cannot talk."""
    k, k2 = plan.kind[n], plan.kind[n + 1]
    size = tables.cut[plan.last[n]]
    ranks = min(plan.ranks[n], plan.ranks[n + 1])
    wait, wire = transfer_seconds(tables, plan, n, n + 1, size, ranks if tables.flow_per_rank else 1)
    if wait == np.inf:
        return False
    out.rate[n] = size / wire if wire > 0 else np.inf
    wire += tables.message_overhead
    out.latency[n] = wait
    out.send_forward[n] = wire + tables.gather_fixed[k2] + tables.gather_rate[k2] * size
    out.send_backward[n] = wire + tables.gather_fixed[k] + tables.gather_rate[k] * size
    out.blocking[n] = size / ranks > tables.blocking_above
    return True


@kernel
def gradient_sets(tables: Tables, plan: Encoded, out: Durations) -> tuple[int, int, int]:
    """Cut the layers wherever any replica cuts them; each piece syncs among the stages that hold it. Returns as
    `durations` does."""
    replicas = plan.microbatches.shape[0]
    if replicas == 1:
        return FITS, 0, 0
    some_blocked = tables.any_blocked and _any_blocked(tables, plan)
    holders = plan.starts[:-1].copy()
    layers = tables.cut.shape[0]
    position, sets = 0, 0
    while position < layers:
        end = layers - 1
        flows = 1 << 30
        for p in range(replicas):
            end = min(end, plan.last[holders[p]])
            flows = min(flows, plan.ranks[holders[p]])
        params = tables.split[end + 1] - tables.split[position] + tables.whole[end + 1] - tables.whole[position]
        if some_blocked:
            for p in range(replicas):
                for q in range(p):
                    if transfer_seconds(tables, plan, holders[p], holders[q], 0.0, 1)[0] == np.inf:
                        return BLOCKED, holders[p], holders[q]
        size = params * tables.wire_bytes
        if plan.by_region:
            wire, wait = by_region_seconds(tables, plan, holders, size, flows)
        else:
            wire, wait = ring_seconds(tables, plan, holders, size, flows)
        out.set_first[sets] = position
        out.set_last[sets] = end
        out.set_seconds[sets] = wire + wait
        out.set_wait[sets] = wait
        sets += 1
        for p in range(replicas):
            if plan.last[holders[p]] == end and holders[p] + 1 < plan.starts[p + 1]:
                holders[p] += 1
        position = end + 1
    return FITS, sets, 0


@maker
def _any_blocked(tables: Tables, plan: Encoded) -> bool:
    """Whether any two machines of a plan may not be able to talk: mostly none, and then no two stages need to be looked
    at. Machines of one place may be kept from each other too."""
    found = np.empty(tables.latency.shape[0], np.int64)
    whose = np.empty(tables.latency.shape[0], np.int64)  # the first machine found there
    count = 0
    for n in range(plan.place.shape[0]):
        place = plan.place[n]
        known = False
        for i in range(count - 1, -1, -1):
            if found[i] == place:
                known = True
                if plan.machine[n] != whose[i] and tables.latency[place, place] == np.inf:
                    return True
                break
        if known:
            continue
        for i in range(count):
            if tables.latency[place, found[i]] == np.inf or tables.latency[found[i], place] == np.inf:
                return True
        found[count], whose[count] = place, plan.machine[n]
        count += 1
    return False


@lean
def ring_seconds(tables: Tables, plan: Encoded, members: Ints, size: float, flows: int) -> tuple[float, float]:
    """Ring all-reduce (Patarasuk and Yuan, 2009): 2 (n − 1) rounds of size / n bytes. (Seconds on the wire, as slow as
    the slowest hop; seconds of latency: nobody waits for the whole ring, so every part of the sum travels 2 (n − 1) of
    the hops, nearly twice around.)"""
    n = members.shape[0]
    if n < 2:
        return 0.0, 0.0
    slowest, around = 0.0, 0.0
    for i in range(n):
        a, b = members[i], members[(i + 1) % n]
        wait, wire = transfer_seconds(tables, plan, a, b, size / n, flows)
        if plan.machine[a] != plan.machine[b]:
            wire /= min(tables.ring_share[plan.place[a]], tables.ring_share[plan.place[b]])
        slowest = max(slowest, wire)
        around += wait
    return 2 * (n - 1) * slowest, 2 * (n - 1) / n * around


@kernel
def by_region_seconds(tables: Tables, plan: Encoded, members: Ints, size: float, flows: int) -> tuple[float, float]:
    """Region by region: a pipelined chain adds up inside each region onto its first member, the first members do a ring
    between the regions, and the chains spread the sum. Chains of all regions run side by side. (Seconds on the wire,
    seconds of latency.)"""
    n = members.shape[0]
    leaders = np.empty(n, np.int64)
    tails = np.empty(n, np.int64)  # last member of each region's chain so far
    wires = np.zeros(n)
    waits = np.zeros(n)
    regions = 0
    for i in range(n):
        region = tables.region[plan.place[members[i]]]
        found = -1
        for r in range(regions):
            if tables.region[plan.place[leaders[r]]] == region:
                found = r
        if found < 0:
            leaders[regions] = members[i]
            tails[regions] = members[i]
            regions += 1
            continue
        wait, wire = transfer_seconds(tables, plan, tails[found], members[i], size, flows)
        wires[found] = max(wires[found], wire)
        waits[found] += wait
        tails[found] = members[i]
    inside, its_wait = 0.0, 0.0
    for r in range(regions):
        if wires[r] + waits[r] > inside:
            inside, its_wait = wires[r] + waits[r], waits[r]
    wire, wait = ring_seconds(tables, plan, leaders[:regions], size, flows)
    return 2 * (inside - its_wait) + wire, 2 * its_wait + wait


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
    """Seconds of one step. Fills stage_end [N], when a stage's last backward ends, and sync_end [N], when the last
    gradient it takes part in is summed up.

    A pipeline with more microbatches than `horizon` runs that many and goes on at the pace it has reached: a search's
    shortcut, not used for a price.
    """
    replicas = plan.microbatches.shape[0]
    shared = resources_of(tables, plan)
    _run_pipelines(plan, out, stage_end, horizon)
    hold_back(tables, plan, out, shared, stage_end)
    sync_end[:] = stage_end
    _sync(tables, plan, out, sets, shared, stage_end, sync_end)
    total = 0.0
    for n in range(plan.starts[replicas]):
        total = max(total, sync_end[n] + out.update[n])
    return total


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
        m = _microbatches_run(plan, p, horizon)
        ends = np.empty((b - a, 2 * m))
        run_pipeline(
            out.forward[a:b],
            out.backward[a:b],
            out.latency[a:b],
            out.send_forward[a:b],
            out.send_backward[a:b],
            out.blocking[a:b],
            plan.warmup[a:b],
            m,
            ends,
        )
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
        if i + 1 < stages and (
            out.latency[n] != out.latency[m]
            or out.send_forward[n] != out.send_forward[m]
            or out.send_backward[n] != out.send_backward[m]
            or out.blocking[n] != out.blocking[m]
        ):
            return False
    return True


@maker
def _sync(
    tables: Tables, plan: Encoded, out: Durations, sets: int, shared: Resources, stage_end: Floats, sync_end: Floats
) -> None:
    """Gradient sets from the last layers to the first, each after its holders have it and are free; then shared
    parameters, added up between the pipeline's first stage and the stages that share with it.

    An engine that overlaps sums a set bucket by bucket while the last backward pass is still on its way through the
    set's layers; the last bucket comes after it.
    """
    replicas = plan.microbatches.shape[0]
    holders = plan.starts[1:] - 1
    free = np.zeros(stage_end.shape[0])  # when a stage's part in the set before is over
    for i in range(sets - 1, -1, -1):
        a, b = out.set_first[i], out.set_last[i]
        params = tables.split[b + 1] - tables.split[a] + tables.whole[b + 1] - tables.whole[a]
        size = params * tables.wire_bytes
        buckets = max(1.0, np.ceil(size / tables.bucket))
        last_share = 1.0 / buckets if tables.overlap_sync else 1.0
        begin, made = 0.0, 0.0  # when the first bucket can go, and when the last one is there
        for p in range(replicas):
            if plan.first[holders[p]] > a:
                holders[p] -= 1
            n = holders[p]
            ready = stage_end[n]
            k = plan.kind[n]
            if tables.overlap_sync:  # the layers before this set are still to do when its gradients are ready
                ready -= tables.backward[k, a] - tables.backward[k, plan.first[n]]
            made = max(made, ready, free[n])
            ready -= (1.0 - last_share) * (tables.backward[k, b + 1] - tables.backward[k, a])
            begin = max(begin, ready, free[n])
        waits = buckets * out.set_wait[i]  # each bucket's sum waits for its own messages
        wire = out.set_seconds[i] - out.set_wait[i]
        through = max(wire, _sum_through(tables, plan, shared, holders, size, begin) - begin)
        end = max(begin + through + waits, made + last_share * (through + waits))
        for p in range(replicas):
            n = holders[p]
            free[n] = end
            sync_end[n] = max(sync_end[n], end)
    for p in range(replicas):
        begin_stage = plan.starts[p]
        for n in range(begin_stage + 1, plan.starts[p + 1]):
            if out.tie_seconds[n] > 0:
                start = max(sync_end[begin_stage], sync_end[n])
                end = start + out.tie_seconds[n]
                if shared.host[n] != shared.host[begin_stage]:
                    size = (tables.tied[plan.last[n] + 1] - tables.tied[plan.first[n]]) * tables.wire_bytes
                    wait = 2 * tables.latency[plan.place[n], plan.place[begin_stage]]
                    there = pass_through(tables, plan, shared, n, begin_stage, size, start)
                    back = pass_through(tables, plan, shared, begin_stage, n, size, start)
                    end = max(end, max(there, back) + wait)
                sync_end[begin_stage] = end
                sync_end[n] = end


@maker
def _sum_through(tables: Tables, plan: Encoded, shared: Resources, members: Ints, size: float, at: float) -> float:
    """When a set's sum that starts at some time is through the cards and trunks it shares with others."""
    n = members.shape[0]
    end = at
    if not plan.by_region:
        part = 2 * (n - 1) / n * size
        for i in range(n):
            end = max(end, pass_through(tables, plan, shared, members[i], members[(i + 1) % n], part, at))
        return end
    # Three phases of this set's own; all its bytes count for what others have to wait.
    leaders, tails = np.empty(n, np.int64), np.empty(n, np.int64)
    gathered, around = np.zeros(shared.rate.shape[0]), np.zeros(shared.rate.shape[0])  # seconds of a resource
    regions = 0
    for i in range(n):
        found = -1
        for r in range(regions):
            if tables.region[plan.place[leaders[r]]] == tables.region[plan.place[members[i]]]:
                found = r
        if found < 0:
            leaders[regions] = tails[regions] = members[i]
            regions += 1
            continue
        end = max(end, pass_through(tables, plan, shared, members[i], tails[found], size, at))
        end = max(end, pass_through(tables, plan, shared, tails[found], members[i], size, at))
        _add_seconds(tables, plan, shared, members[i], tails[found], size, gathered)
        tails[found] = members[i]
    part = 2 * (regions - 1) / regions * size
    for r in range(regions):
        a, b = leaders[r], leaders[(r + 1) % regions]
        end = max(end, pass_through(tables, plan, shared, a, b, part, at))
        _add_seconds(tables, plan, shared, a, b, part, around)
    return max(end, at + 2 * gathered.max() + around.max())


@inner
def _add_seconds(tables: Tables, plan: Encoded, shared: Resources, a: int, b: int, size: float, load: Floats) -> None:
    """For how long `size` bytes from stage a to stage b keep each resource busy."""
    for which in range(3):
        r = resource_at(tables, plan, shared, a, b, which)
        if r >= 0:
            load[r] += size / shared.rate[r]


@kernel
def seconds_of(tables: Tables, plan: Encoded, out: Durations, scratch: Floats) -> float:
    """Seconds of a step, or −1 where the plan cannot run. `scratch` is [2, N]."""
    status, sets, _ = durations(tables, plan, out)
    if status != FITS:
        return -1.0
    return step_seconds(tables, plan, out, sets, scratch[0], scratch[1], ALL)


def is_compiled() -> bool:
    """Whether the compiled code of this very version lies in numba's cache."""
    return is_cached(step_seconds) and is_cached(durations)
