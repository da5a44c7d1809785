"""Gradient sync in closed forms, compiled: who adds up what with whom, how long that takes, and when it is over.

`hulk.cost.sums` says the same in names, for `hulk.cost.play` and the simulator to play message by message.
"""

from __future__ import annotations

import numpy as np

from hulk.cost.arrays import BLOCKED, FITS, Durations, Encoded, Floats, Ints, Tables, transfer_seconds
from hulk.cost.compiled import constant, inner, kernel, lean, maker
from hulk.cost.sharing import Resources, pass_through, resource_at

PIECE = 2.0**20
"""Bytes of a chain's pieces, at least: small ones would cost more in messages than they hide."""
MOST_PIECES = constant(16)
_NONE, _ONE, _MANY = constant(0), constant(1), constant(1 << 30)


@inner
def chain_pieces(size: float) -> int:
    """In how many pieces a chain adds up `size` bytes."""
    return int(min(max(size // PIECE, 1.0), MOST_PIECES))


@inner
def buckets_of(tables: Tables, size: float) -> float:
    """In how many buckets `size` bytes are added up."""
    return max(1.0, float(np.ceil(size / tables.rules.bucket)))


@inner
def set_bytes(tables: Tables, a: int, b: int, apart: bool) -> float:
    """Bytes on the wire of the gradients of layers a..b. `apart`: what layers share has a sum of its own."""
    params: float = tables.split[b + 1] - tables.split[a] + tables.whole[b + 1] - tables.whole[a]
    if tables.rules.shares_once:  # it counts with the first layer
        params -= tables.tied[b + 1] - tables.tied[a]
        if apart and a == 0:
            params -= tables.shared
    return params * tables.wire_bytes


@inner
def is_apart(tables: Tables, plan: Encoded) -> bool:
    """Whether what layers share has a sum of its own: some stage has it besides the first of its pipeline."""
    if tables.shared == 0.0 or not tables.rules.shares_once:
        return False
    for p in range(plan.microbatches.shape[0]):
        for n in range(plan.starts[p] + 1, plan.starts[p + 1]):
            if tables.tied[plan.last[n] + 1] > tables.tied[plan.first[n]]:
                return True
    return False


@maker
def shared_holders(tables: Tables, plan: Encoded) -> Ints:
    """The stages that hold what layers share, in the plan's order."""
    count = 0
    members = np.empty(plan.starts[-1], np.int64)
    for p in range(plan.microbatches.shape[0]):
        for n in range(plan.starts[p], plan.starts[p + 1]):
            if n == plan.starts[p] or tables.tied[plan.last[n] + 1] > tables.tied[plan.first[n]]:
                members[count] = n
                count += 1
    return members[:count]


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
    n = members.shape[0]
    leaders = np.empty(n, np.int64)
    tails = np.empty(n, np.int64)  # last member of each region's chain so far
    hops = np.zeros(n)
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
        hops[found] += 1
        tails[found] = members[i]
    pieces = chain_pieces(min(size, tables.rules.bucket))
    inside, its_wait = 0.0, 0.0
    for r in range(regions):
        if hops[r] == 0:
            continue
        wire = wires[r] * (1.0 + (hops[r] - 1) / pieces)
        wait = waits[r] + (pieces + hops[r] - 1) * tables.rules.hop_overhead
        if wire + wait > inside:
            inside, its_wait = wire + wait, wait
    wire, wait = ring_seconds(tables, plan, leaders[:regions], size, flows)
    return 2 * (inside - its_wait) + wire, 2 * its_wait + wait


@maker
def sum_seconds(tables: Tables, plan: Encoded, members: Ints, size: float, flows: int) -> tuple[float, float]:
    """(Seconds on the wire, seconds of latency) of adding up `size` bytes among these stages, as the plan says."""
    if plan.by_region:
        return by_region_seconds(tables, plan, members, size, flows)
    return ring_seconds(tables, plan, members, size, flows)


@maker
def gradient_sets(tables: Tables, plan: Encoded, out: Durations) -> tuple[int, int, int]:
    """Cut the layers wherever any replica cuts them; each piece syncs among the stages that hold it. Returns (FITS,
    sets, 0), or (BLOCKED, stage, other stage)."""
    apart = is_apart(tables, plan)
    if apart:
        status, stage, other = _shared_seconds(tables, plan, out)
        if status != FITS:
            return status, stage, other
    replicas = plan.microbatches.shape[0]
    if replicas == 1:
        return FITS, 0, 0
    some_blocked = tables.any_blocked and _any_blocked(tables, plan)
    holders = plan.starts[:-1].copy()
    layers = tables.cut.shape[0]
    position, sets = _NONE, 0
    while position < layers:
        end = layers - 1
        flows = _MANY
        for p in range(replicas):
            end = min(end, plan.last[holders[p]])
            flows = min(flows, plan.ranks[holders[p]])
        if some_blocked:
            for p in range(replicas):
                for q in range(p):
                    if transfer_seconds(tables, plan, holders[p], holders[q], 0.0, _ONE)[0] == np.inf:
                        return BLOCKED, holders[p], holders[q]
        wire, wait = sum_seconds(tables, plan, holders, set_bytes(tables, position, end, apart), flows)
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
def _shared_seconds(tables: Tables, plan: Encoded, out: Durations) -> tuple[int, int, int]:
    """Fill in what the sum of shared parameters among all their holders takes; it stands with the first stage. Returns
    (FITS, 0, 0), or (BLOCKED, stage, other stage)."""
    members = shared_holders(tables, plan)
    flows = _MANY
    for i in range(members.shape[0]):
        flows = min(flows, plan.ranks[members[i]])
        for j in range(i):
            if transfer_seconds(tables, plan, members[i], members[j], 0.0, _ONE)[0] == np.inf:
                return BLOCKED, members[i], members[j]
    size = tables.shared * tables.wire_bytes
    wire, wait = sum_seconds(tables, plan, members, size, flows)
    out.tie_seconds[0] = wire + buckets_of(tables, size) * wait
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
    apart = is_apart(tables, plan)
    overlaps = tables.rules.overlap_sync
    for i in range(sets - 1, -1, -1):
        a, b = out.set_first[i], out.set_last[i]
        size = set_bytes(tables, a, b, apart)
        buckets = buckets_of(tables, size)
        last_share = 1.0 / buckets if overlaps else 1.0
        begin, all_made = 0.0, 0.0  # when the first bucket can go, and when the last one is there
        for p in range(replicas):
            if plan.first[holders[p]] > a:
                holders[p] -= 1
            n = holders[p]
            ready = stage_end[n]
            k = plan.kind[n]
            if overlaps:  # the layers before this set are still to do when its gradients are ready
                ready -= tables.backward[k, a] - tables.backward[k, plan.first[n]]
            made[p] = max(ready, free[n])
            begins[p] = max(ready - (1.0 - last_share) * (tables.backward[k, b + 1] - tables.backward[k, a]), free[n])
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
    if apart:
        _sum_shared(tables, plan, out, shared, sync_end)
    elif not tables.rules.shares_once and tables.shared > 0.0:
        _sum_in_pipelines(tables, plan, out, shared, sync_end)


@inner
def _are_even(tables: Tables, plan: Encoded, two: Ints) -> bool:
    """Whether two stages swap: in one region, a sync by region makes them a chain."""
    return not plan.by_region or tables.region[plan.place[two[0]]] != tables.region[plan.place[two[1]]]


@maker
def _sum_shared(tables: Tables, plan: Encoded, out: Durations, shared: Resources, sync_end: Floats) -> None:
    """Shared parameters, once, among all who hold them."""
    members = shared_holders(tables, plan)
    n = members.shape[0]
    size = tables.shared * tables.wire_bytes
    start = 0.0
    for i in range(n):
        start = max(start, sync_end[members[i]])
    through = _sum_through(tables, plan, shared, members, size, start) - start
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
def weights_ends(tables: Tables, plan: Encoded, out: Durations, sets: int, shared: Resources, done: Floats) -> None:
    """Move on `done`, when a stage has updated what it owns, to when it has from the others what they own: as many
    parameters each; what layers share, the first who has it. They send it to everyone, bucket by bucket, after word
    that it is expected."""
    apart = is_apart(tables, plan)
    holders = plan.starts[1:] - 1
    for i in range(sets - 1, -1, -1):
        a = out.set_first[i]
        for p in range(holders.shape[0]):
            if plan.first[holders[p]] > a:
                holders[p] -= 1
        size = set_bytes(tables, a, out.set_last[i], apart)
        _hand_round(tables, plan, shared, holders, size, holders.shape[0], done)
    if apart:
        _hand_round(tables, plan, shared, shared_holders(tables, plan), tables.shared * tables.wire_bytes, _ONE, done)


@maker
def _hand_round(
    tables: Tables, plan: Encoded, shared: Resources, members: Ints, size: float, owners: int, done: Floats
) -> None:
    """The first so many of the members own a share of `size` bytes each and send it to all others."""
    buckets, part = buckets_of(tables, size), size / owners
    before = done[members]
    at = before.max()
    for j in range(members.shape[0]):
        b = members[j]
        for i in range(owners):
            a = members[i]
            if a == b:
                continue
            wait, wire = transfer_seconds(tables, plan, a, b, part, min(plan.ranks[a], plan.ranks[b]))
            through = pass_through(tables, plan, shared, a, b, part, at) - at
            start = max(before[i], before[j] + wait)
            trips = buckets * (wait + tables.rules.hop_overhead) + (buckets - 1) * wait
            done[b] = max(done[b], start + max(wire, through) + trips)


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
    return max(end, at + 2 * float(gathered.max()) + float(around.max()))


@inner
def _add_seconds(tables: Tables, plan: Encoded, shared: Resources, a: int, b: int, size: float, load: Floats) -> None:
    """For how long `size` bytes from stage a to stage b keep each resource busy."""
    for which in range(3):
        r = resource_at(tables, plan, shared, a, b, which)
        if r >= 0:
            load[r] += size / shared.rate[r]
