"""How long it takes until everyone has the weights that others have updated, compiled: where the optimizer's state is
sharded, every parameter has an owner, who sends it to the other holders."""

from __future__ import annotations

import numpy as np

from hulk.cost.arrays import EVERYWHERE, WITHIN, Durations, Encoded, Floats, Ints, Tables, transfer_seconds
from hulk.cost.compiled import inner, lean, maker
from hulk.cost.orders import is_ordered
from hulk.cost.sharding import is_near
from hulk.cost.sharing import Resources, pass_through
from hulk.cost.sync import buckets_of, is_apart, lanes, move_to, set_bytes, shared_bytes, shared_holders, tied_bytes


@maker
def weights_ends(tables: Tables, plan: Encoded, out: Durations, sets: int, shared: Resources, done: Floats) -> None:
    """Move on `done`, when a stage has updated what it owns, to when it has from the others what they own. They send it
    to everyone near, bucket by bucket, after word that it is expected."""
    apart = is_apart(tables, plan)
    owned, in_common = np.zeros((sets, plan.microbatches.shape[0])), np.zeros(plan.starts[-1])
    _deal_out(tables, plan, out, apart, owned, in_common)
    holders, before = plan.starts[1:] - 1, np.empty(plan.starts[-1])
    for i in range(sets - 1, -1, -1):
        move_to(plan, holders, out.set_first[i])
        size = set_bytes(tables, out.set_first[i], out.set_last[i], apart)
        _hand_round(tables, plan, shared, holders, size, owned[i], done, before)
    if apart:
        members = shared_holders(tables, plan)
        _hand_round(tables, plan, shared, members, shared_bytes(tables), in_common[members], done, before)


@maker
def _deal_out(tables: Tables, plan: Encoded, out: Durations, apart: bool, owned: Floats, in_common: Floats) -> None:
    """Fill in who owns what, as `hulk.cost.sums.owned` has it: `owned` [sets, P] bytes of each set, `in_common` [N] of
    what layers share where that is apart."""
    load = np.zeros(plan.starts[-1])
    holders = plan.starts[:-1].copy()
    group, best = np.zeros((2, load.shape[0]), np.int64)
    if tables.shared > 0.0 and apart:
        members = shared_holders(tables, plan)
        parts = np.zeros(members.shape[0])
        groups = _number_groups(tables, plan, members, group)
        _give(members, shared_bytes(tables), group, best[:groups], load, parts)
        in_common[members] = parts
    for i in range(owned.shape[0]):
        move_to(plan, holders, out.set_first[i])
        groups = _number_groups(tables, plan, holders, group)
        if i == 0 and tables.shared > 0.0 and not apart:
            _give(holders, shared_bytes(tables), group, best[:groups], load, owned[i])
        for layer in range(out.set_first[i], out.set_last[i] + 1):
            tied = tables.shared if layer == 0 else tables.tied[layer + 1] - tables.tied[layer]
            split = tables.split[layer + 1] - tables.split[layer] - tied
            whole = tables.whole[layer + 1] - tables.whole[layer]
            _give(holders, split * tables.wire_bytes, group, best[:groups], load, owned[i])
            _give(holders, whole * tables.wire_bytes, group, best[:groups], load, owned[i])


@inner
def _number_groups(tables: Tables, plan: Encoded, members: Ints, group: Ints) -> int:
    """Fill in which group each member is in: all in one or, where each region or machine has all of it, those near each
    other. Returns how many there are."""
    if plan.options[WITHIN] == EVERYWHERE:
        group[: members.shape[0]] = 0
        return 1
    groups = 0
    for i in range(members.shape[0]):
        group[i] = groups
        for j in range(i):
            if is_near(tables, plan, members[j], members[i]):
                group[i] = group[j]
                break
        if group[i] == groups:
            groups += 1
    return groups


@inner
def _give(members: Ints, size: float, group: Ints, best: Ints, load: Floats, parts: Floats) -> None:
    """`size` bytes to the member of each group that has least so far; `best` is room for one number a group."""
    if size <= 0:
        return
    best[:] = -1
    for i in range(members.shape[0]):
        g = group[i]
        if best[g] < 0 or load[members[i]] < load[members[best[g]]]:
            best[g] = i
    for g in range(best.shape[0]):
        load[members[best[g]]] += size
        parts[best[g]] += size


@inner
def _hand_round(
    tables: Tables,
    plan: Encoded,
    shared: Resources,
    members: Ints,
    size: float,
    parts: Floats,
    done: Floats,
    before: Floats,
) -> None:
    """Members send the bytes that they own of `size`, `parts`, to all others; where each region or machine has all of
    it, to those near them. `before` [N] is room to work in."""
    buckets, in_groups = buckets_of(tables, size), plan.options[WITHIN] != EVERYWHERE
    at = 0.0
    for i in range(members.shape[0]):
        before[i] = done[members[i]]
        at = max(at, before[i])
    for j in range(members.shape[0]):
        b = members[j]
        for i in range(members.shape[0]):
            a = members[i]
            if a == b or parts[i] <= 0 or (in_groups and not is_near(tables, plan, a, b)):
                continue
            wait, wire, trips = _hand_over(tables, plan, a, b, parts[i], buckets)
            if shared.host[a] != shared.host[b]:
                wire = max(wire, pass_through(shared, a, b, parts[i], at) - at)
            done[b] = max(done[b], max(before[i], before[j] + wait) + wire + trips)


@inner
def _hand_over(
    tables: Tables, plan: Encoded, a: int, b: int, size: float, buckets: float
) -> tuple[float, float, float]:
    """Seconds of latency, on the wire and of going to and fro for the bytes that stage a hands to stage b."""
    flows = lanes(tables, min(plan.ranks[a], plan.ranks[b]))
    wait, wire = transfer_seconds(tables, plan, a, b, size, flows)
    return wait, wire, buckets * (wait + tables.rules.hop_overhead) + (buckets - 1) * wait


@lean
def least_weights_end(tables: Tables, plan: Encoded, out: Durations, at: float) -> float:
    """Seconds of a step at least for the first pipeline's last stage, which gets what it shares with the first layer
    from the very first stage, all sums being over at some time; `at` where it shares nothing or gets it otherwise."""
    last = plan.starts[1] - 1
    is_handed = last > 0 and tied_bytes(tables, plan, last) > 0
    if not is_handed or plan.options[WITHIN] != EVERYWHERE or is_ordered(plan):
        return at
    size = shared_bytes(tables)
    wait, wire, trips = _hand_over(tables, plan, 0, last, size, buckets_of(tables, size))
    first = 0.0
    for n in range(last if tables.rules.rolls else 0):
        first += out.forward[n] + out.send_forward[n] + out.latency[n]
    return max(at, at + wait + wire + trips - first)
