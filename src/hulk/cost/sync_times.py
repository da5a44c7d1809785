"""How long gradient sync takes, in closed forms, compiled: each sum by itself, and when the last of a stage is over.

`hulk.cost.sync` says who adds up what with whom; `hulk.cost.play` and the simulator play it message by message.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hulk.cost.arrays import (
    BLOCKED,
    BY_REGION,
    FITS,
    GRADIENTS,
    SHARD,
    SYNC,
    Durations,
    Encoded,
    Floats,
    Ints,
    Tables,
    transfer_seconds,
)
from hulk.cost.compiled import constant, inlined, inner, kernel, lean, maker
from hulk.cost.sharding import mismatch, stretch_passes
from hulk.cost.sharing import Resources, pass_through, resource_at
from hulk.cost.sync import (
    buckets_of,
    chain_pieces,
    chain_up,
    cut_sets,
    flows_of,
    is_apart,
    lanes,
    move_to,
    rails_of,
    shared_bytes,
    shared_holders,
    still_to_do,
    tied_bytes,
)

_ONE = constant(1)


class _Chains(NamedTuple):
    """Members by region: `of` says in which chain each is, `before` (−1: it leads) who is before it, `leaders` who
    leads each chain. All but `leaders`, which are stages, are numbers of members."""

    of: Ints
    before: Ints
    leaders: Ints


@maker
def _chains_of(regions: Ints, places: Ints, members: Ints) -> _Chains:
    n = members.shape[0]
    rows = np.empty((4, n), np.int64)
    region, of, before, leaders = rows[0], rows[1], rows[2], rows[3]
    for i in range(n):
        region[i] = regions[places[members[i]]]
    count = chain_up(region, of, before)
    for i in range(n):
        if before[i] < 0:
            leaders[of[i]] = members[i]
    return _Chains(of, before, leaders[:count])


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


@inner
def _blocked_pair(tables: Tables, plan: Encoded, members: Ints) -> tuple[int, int, int]:
    """(BLOCKED, stage, other stage) of the first two members that cannot talk; (FITS, 0, 0) where all can."""
    for i in range(members.shape[0]):
        for j in range(i):
            if transfer_seconds(tables, plan, members[i], members[j], 0.0, _ONE)[0] == np.inf:
                return BLOCKED, members[i], members[j]
    return FITS, 0, 0


@lean
def ring_seconds(tables: Tables, plan: Encoded, members: Ints, size: float, flows: int) -> tuple[float, float]:
    """Ring all-reduce (Patarasuk and Yuan, 2009): 2 (n − 1) rounds of size / n bytes. (Seconds on the wire, as slow as
    the slowest hop; seconds of latency: nobody waits for the whole ring, so every part of the sum travels 2 (n − 1) of
    the hops, nearly twice around.) Two that swap send as many bytes in half the rounds."""
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
        around += wait + tables.rules.hop_overhead
    if n == 2 and tables.rules.swaps:
        return 2 * slowest, around / 2
    return 2 * (n - 1) * slowest, 2 * (n - 1) / n * around


@kernel
def by_region_seconds(tables: Tables, plan: Encoded, members: Ints, size: float, flows: int) -> tuple[float, float]:
    """Region by region: a chain adds up inside each region onto its first member, piece by piece, the first members do
    a ring between the regions, and the chains spread the sum. Chains of all regions run side by side. (Seconds on the
    wire, seconds of latency.)"""
    chains = _chains_of(tables.region, plan.place, members)
    regions = chains.leaders.shape[0]
    hops, wires, waits = np.zeros((3, regions))
    for i in range(members.shape[0]):
        if chains.before[i] < 0:
            continue
        r = chains.of[i]
        wait, wire = transfer_seconds(tables, plan, members[chains.before[i]], members[i], size, flows)
        wires[r] = max(wires[r], wire)
        waits[r] += wait
        hops[r] += 1
    pieces = chain_pieces(min(size, tables.rules.bucket))
    inside, its_wait = 0.0, 0.0
    for r in range(regions):
        if hops[r] == 0:
            continue
        wire = wires[r] * (1.0 + (hops[r] - 1) / pieces)
        wait = waits[r] + (pieces + hops[r] - 1) * tables.rules.hop_overhead
        if wire + wait > inside:
            inside, its_wait = wire + wait, wait
    wire, wait = ring_seconds(tables, plan, chains.leaders, size, flows)
    return 2 * (inside - its_wait) + wire, 2 * its_wait + wait


@lean
def sum_seconds(tables: Tables, plan: Encoded, members: Ints, size: float) -> tuple[float, float]:
    """(Seconds on the wire, seconds of latency) of adding up `size` bytes among these stages, as the plan says."""
    flows = rails_of(plan, members) if tables.rules.flow_per_rank else lanes(tables, flows_of(plan, members))
    if plan.options[SYNC] == BY_REGION:
        return by_region_seconds(tables, plan, members, size, flows)
    return ring_seconds(tables, plan, members, size, flows)


@lean
def tie_seconds(tables: Tables, plan: Encoded, n: int, first: int) -> tuple[int, float]:
    """(FITS, seconds of adding up what stage n shares with its pipeline's first stage), or (BLOCKED, 0)."""
    size = tied_bytes(tables, plan, n)
    if size <= 0:
        return FITS, 0.0
    wait, wire = transfer_seconds(tables, plan, n, first, size, lanes(tables, min(plan.ranks[n], plan.ranks[first])))
    if wait == np.inf:
        return BLOCKED, 0.0
    return FITS, 2 * wait + wire


@inlined
def in_passes(plan: Encoded) -> bool:
    """Whether passes wait for other holders, since these split gradients or parameters."""
    return bool(plan.options[SHARD] >= GRADIENTS and plan.microbatches.shape[0] > 1)


@maker
def gradient_sets(tables: Tables, plan: Encoded, out: Durations) -> tuple[int, int, int]:
    """Fill in the gradient sets and how long each takes, and the sum of what layers share among all its holders, which
    stands with the first stage. Where gradients or parameters are sharded, passes get what they wait for the other
    holders. Returns (FITS, sets, 0), or (BLOCKED, stage, other stage), or (UNLIKE, pipeline, 0), or (SCATTERED,
    stage, 0)."""
    status, sets, other = first_sums(tables, plan, out)
    return other_sums(tables, plan, out, sets) if status == FITS else (status, sets, other)


@maker
def first_sums(tables: Tables, plan: Encoded, out: Durations) -> tuple[int, int, int]:
    """What `gradient_sets` begins with: which sets there are, and how long those two take that are over last, the first
    set's and that of what layers share. Returns as it does."""
    status, where = mismatch(tables, plan)
    if status != FITS:
        return status, where, 0
    apart = is_apart(tables, plan)
    if apart:
        members, size = shared_holders(tables, plan), shared_bytes(tables)
        if tables.any_blocked:
            status, stage, other = _blocked_pair(tables, plan, members)
            if status != FITS:
                return status, stage, other
        wire, wait = sum_seconds(tables, plan, members, size)
        out.tie_seconds[0] = wire + buckets_of(tables, size) * wait
    sets = cut_sets(tables, plan, apart, out)
    if sets > 0:
        holders = plan.starts[:-1].copy()
        status, stage, other = _fill_set(tables, plan, out, 0, holders, tables.any_blocked)
        if status != FITS:
            return status, stage, other
    return FITS, sets, 0


@maker
def other_sums(tables: Tables, plan: Encoded, out: Durations, sets: int) -> tuple[int, int, int]:
    """The rest of `gradient_sets`, after `first_sums`. Returns as it does."""
    if sets > 1:
        some_blocked = tables.any_blocked and _any_blocked(tables, plan)
        holders = plan.starts[:-1].copy()
        for i in range(1, sets):
            status, stage, other = _fill_set(tables, plan, out, i, holders, some_blocked)
            if status != FITS:
                return status, stage, other
    if sets > 0 and in_passes(plan):
        stretch_passes(tables, plan, out, sets)
    return FITS, sets, 0


@inner
def _fill_set(
    tables: Tables, plan: Encoded, out: Durations, i: int, holders: Ints, some_blocked: bool
) -> tuple[int, int, int]:
    """How long set i takes, `holders` being those of a set before it. Returns (FITS, 0, 0), or (BLOCKED, stage, other
    stage)."""
    move_to(plan, holders, out.set_first[i])
    if some_blocked:
        status, stage, other = _blocked_pair(tables, plan, holders)
        if status != FITS:
            return status, stage, other
    wire, wait = sum_seconds(tables, plan, holders, out.set_size[i])
    out.set_seconds[i] = wire + wait
    out.set_wait[i] = wait
    return FITS, 0, 0


@maker
def sync_ends(
    tables: Tables, plan: Encoded, out: Durations, sets: int, shared: Resources, stage_end: Floats, sync_end: Floats
) -> None:
    """Move on `sync_end` to when the last gradient that a stage takes part in is summed up: gradient sets from the last
    layers to the first, each after its holders have it and are free; then shared parameters.

    An engine that overlaps sums a set bucket by bucket while the last backward pass is still on its way through the
    set's layers; the last bucket comes after it. Of two that swap, the one that comes late finds the other's part
    already there.
    """
    replicas = plan.microbatches.shape[0]
    holders = plan.starts[1:] - 1
    free = np.zeros(stage_end.shape[0])  # when a stage's part in the set before is over
    made, begins = np.empty(replicas), np.empty(replicas)
    for i in range(sets - 1, -1, -1):
        a, b, size = out.set_first[i], out.set_last[i], out.set_size[i]
        move_to(plan, holders, a)
        buckets = buckets_of(tables, size)
        last_share = 1.0 / buckets if tables.rules.overlap_sync else 1.0
        begin, all_made = 0.0, 0.0  # when the first bucket can go, and when the last one is there
        for p in range(replicas):
            n = holders[p]
            made[p] = max(stage_end[n] - still_to_do(tables, plan, n, a, b, 0.0), free[n])
            begins[p] = max(stage_end[n] - still_to_do(tables, plan, n, a, b, 1.0 - last_share), free[n])
            begin, all_made = max(begin, begins[p]), max(all_made, made[p])
        waits = buckets * out.set_wait[i]  # each bucket's sum waits for its own messages
        wire = out.set_seconds[i] - out.set_wait[i]
        seconds = max(wire, _sum_through(tables, plan, shared, holders, size, begin) - begin) + waits
        swap = replicas == 2 and tables.rules.swaps and _are_even(tables, plan, holders)
        for p in range(replicas):
            if swap:
                end = max(made[p], begins[1 - p] + seconds, made[1 - p] + last_share * seconds)
                if last_share < 1.0:  # the other goes on when it has this one's first buckets
                    end = max(end, begins[p] + seconds)
            else:
                end = max(begin + seconds, all_made + last_share * seconds)
            free[holders[p]] = end
            sync_end[holders[p]] = max(sync_end[holders[p]], end)
    if is_apart(tables, plan):
        _sum_shared(tables, plan, out, shared, sync_end)
    elif not tables.rules.shares_once and tables.shared > 0.0:
        _sum_in_pipelines(tables, plan, out, shared, sync_end)


@inner
def _are_even(tables: Tables, plan: Encoded, two: Ints) -> bool:
    """Whether two stages swap: in one region, a sync by region makes them a chain."""
    return bool(
        plan.options[SYNC] != BY_REGION or tables.region[plan.place[two[0]]] != tables.region[plan.place[two[1]]]
    )


@maker
def _sum_shared(tables: Tables, plan: Encoded, out: Durations, shared: Resources, sync_end: Floats) -> None:
    """Shared parameters, once, among all who hold them."""
    members = shared_holders(tables, plan)
    n = members.shape[0]
    start = 0.0
    for i in range(n):
        start = max(start, sync_end[members[i]])
    through = _sum_through(tables, plan, shared, members, shared_bytes(tables), start) - start
    seconds = max(through, out.tie_seconds[0])
    if n == 2 and tables.rules.swaps and _are_even(tables, plan, members):
        a, b = members[0], members[1]
        first, second = sync_end[a], sync_end[b]
        sync_end[a], sync_end[b] = max(first, second + seconds), max(second, first + seconds)
        return
    for i in range(n):
        sync_end[members[i]] = start + seconds


@maker
def _sum_in_pipelines(tables: Tables, plan: Encoded, out: Durations, shared: Resources, sync_end: Floats) -> None:
    """Shared parameters, between each pipeline's first stage and the others that have them."""
    for p in range(plan.microbatches.shape[0]):
        first = plan.starts[p]
        for n in range(first + 1, plan.starts[p + 1]):
            if out.tie_seconds[n] > 0:
                start = max(sync_end[first], sync_end[n])
                end = start + out.tie_seconds[n]
                if shared.host[n] != shared.host[first]:
                    size = tied_bytes(tables, plan, n)
                    wait = 2 * tables.latency[plan.place[n], plan.place[first]]
                    there = pass_through(shared, n, first, size, start)
                    back = pass_through(shared, first, n, size, start)
                    end = max(end, max(there, back) + wait)
                sync_end[first] = end
                sync_end[n] = end


@inner
def _sum_through(tables: Tables, plan: Encoded, shared: Resources, members: Ints, size: float, at: float) -> float:
    """When a set's sum that starts at some time is through the cards and trunks it shares with others."""
    if plan.options[SYNC] == BY_REGION:
        return _through_regions(tables, shared, members, size, at)
    n, end = members.shape[0], at
    part = 2 * (n - 1) / n * size
    for i in range(n):
        end = max(end, pass_through(shared, members[i], members[(i + 1) % n], part, at))
    return end


@maker
def _through_regions(tables: Tables, shared: Resources, members: Ints, size: float, at: float) -> float:
    """The same region by region: three phases of this set's own; all its bytes count for what others have to wait."""
    end = at
    chains = _chains_of(tables.region, shared.place, members)
    gathered, around = np.zeros((2, shared.rate.shape[0]))  # seconds of a resource
    for i in range(members.shape[0]):
        if chains.before[i] < 0:
            continue
        a, b = members[i], members[chains.before[i]]
        end = max(end, pass_through(shared, a, b, size, at))
        end = max(end, pass_through(shared, b, a, size, at))
        _add_seconds(shared, a, b, size, gathered)
    regions = chains.leaders.shape[0]
    part = 2 * (regions - 1) / regions * size
    for r in range(regions):
        a, b = chains.leaders[r], chains.leaders[(r + 1) % regions]
        end = max(end, pass_through(shared, a, b, part, at))
        _add_seconds(shared, a, b, part, around)
    return max(end, at + 2 * float(gathered.max()) + float(around.max()))


@inner
def _add_seconds(shared: Resources, a: int, b: int, size: float, load: Floats) -> None:
    """For how long `size` bytes from stage a to stage b keep each resource busy."""
    for which in range(3):
        r = resource_at(shared, a, b, which)
        if r >= 0:
            load[r] += size / shared.rate[r]
