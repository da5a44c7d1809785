"""How `hulk run` adds up gradients, message by message, and how its steps follow one another.

`hulk.cost.step` has closed forms, which a search can afford tens of thousands of times a second. A price is asked for
once, so an engine with buckets (`Engine.bucket`) gets the messages of `hulk.runtime.exchange` played through. What the
closed forms leave out:

- Two ranks send each other everything at once, and nobody waits for what it sent: the one that comes late finds the
  other's part already there, and goes on.
- A parameter that several stages share is added up once, among all stages of all replicas that hold it.
- A sharded optimizer sends the weights it has updated.
- No step waits for the one before it to end everywhere: a stage begins when it is done itself. What counts is the time
  between the ends of steps, once several have gone by.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil

import numpy as np

from hulk.cost.step import Durations, Encoded, Floats, Tables, transfer_seconds

PIECE = 2.0**20
"""Bytes of a chain's pieces, at least: small ones would cost more in messages than they hide."""
MOST_PIECES = 16
MOST_BUCKETS = 32
"""Buckets that are played through: of more, each stands for several."""
STEPS, COUNTED = 10, 4
"""How many steps are played, and over how many of the last ones the time of one is taken."""

Times = dict[int, float]
"""Seconds by stage; stages are counted over all pipelines."""


def _buckets(size: float, bucket: float) -> int:
    return min(max(1, ceil(size / bucket)), MOST_BUCKETS)


def chain_pieces(size: float) -> int:
    """In how many pieces a chain adds up `size` bytes."""
    return int(min(max(size // PIECE, 1), MOST_PIECES))


@dataclass(frozen=True)
class Share:
    """`size` bytes of gradients that the stages `members` add up, once their backward passes have reached `layers`,
    which is the lowest of their layers for each member. `owned`: the bytes that each member updates for all, where the
    optimizer is sharded."""

    members: tuple[int, ...]
    size: float
    layers: tuple[int, ...]
    owned: dict[int, float] = field(default_factory=dict)


@dataclass
class Wires:
    """The way between stages. Messages in one direction between two machines wait for each other, and for others on the
    same network card or trunk."""

    tables: Tables
    plan: Encoded
    free: dict[tuple[object, ...], float] = field(default_factory=dict)

    def send(self, a: int, b: int, size: float, at: float) -> float:
        """When `size` bytes that stage a has ready at some time are at stage b."""
        wait, wire = transfer_seconds(self.tables, self.plan, a, b, size, 1)
        way = (int(self.plan.machine[a]), int(self.plan.machine[b]))
        end = max(at, self.free.get(way, 0.0)) + float(wire) + self.tables.message_overhead
        if way[0] != way[1]:
            for shared, rate in self._shared(a, b):
                self.free[shared] = max(at, self.free.get(shared, 0.0)) + size / rate
                end = max(end, self.free[shared])
        self.free[way] = end
        return end + float(wait)

    def _shared(self, a: int, b: int) -> Iterator[tuple[tuple[object, ...], float]]:
        """What messages from stage a to stage b share with others, and its bytes/s."""
        place = self.plan.place[a], self.plan.place[b]
        yield ("out", int(self.plan.machine[a])), float(self.tables.card[place[0]])
        yield ("in", int(self.plan.machine[b])), float(self.tables.card[place[1]])
        trunk = int(self.tables.trunk[place])
        if trunk >= 0:
            yield ("trunk", trunk), float(self.tables.trunk_rate[trunk])


def shares(tables: Tables, plan: Encoded, durations: Durations, sets: int) -> list[Share]:
    """What is added up in a step, in the order in which every rank goes through it: the last layers first."""
    tied = [int(layer) for layer in np.flatnonzero(np.diff(tables.tied) > 0)]
    holders = _holders(plan, [0, *tied]) if tied else ()
    shared = float(tables.tied[-1]) / max(1, len(tied)) * tables.wire_bytes
    params = tables.split + tables.whole - tables.tied  # what layers share counts with the first one
    apart = len(holders) > 1 and any(_holders(plan, [layer]) != holders for layer in (0, *tied))
    result = []
    for i in reversed(range(sets)):
        first, last = int(durations.set_first[i]), int(durations.set_last[i])
        size = float(params[last + 1] - params[first]) * tables.wire_bytes - (shared if apart and first == 0 else 0)
        members = _holders(plan, [first])
        result.append(Share(members, size, (first,) * len(members)))
    if apart:
        lowest = tuple(min(layer for layer in (0, *tied) if layer >= plan.first[n]) for n in holders)
        result.append(Share(holders, shared, lowest))
    if plan.shard_optimizer:
        _deal_out(tables, plan, result, shared if tied else 0.0)
    return result


def _deal_out(tables: Tables, plan: Encoded, dealt: Sequence[Share], shared: float) -> None:
    """Who updates what, as `hulk.runtime.entries.owners` deals parameters out: each to the holder with the least so
    far; here in pieces of a layer."""
    load = np.zeros(len(plan.first))

    def give(share: Share, size: float) -> None:
        n = min(share.members, key=lambda member: (load[member], member))
        load[n] += size
        share.owned[n] = share.owned.get(n, 0.0) + size

    by_members = {share.members: share for share in dealt}
    if shared and dealt:
        give(dealt[-1], shared)  # apart, or with the first layers: the last in either case
    for layer in range(len(tables.cut)):
        share = by_members.get(_holders(plan, [layer]))
        if share is None:
            continue
        tied = shared / tables.wire_bytes if layer == 0 else float(tables.tied[layer + 1] - tables.tied[layer])
        split = float(tables.split[layer + 1] - tables.split[layer]) - tied
        for part in (split, float(tables.whole[layer + 1] - tables.whole[layer])):
            if part > 0:
                give(share, part * tables.wire_bytes)


def blocked_pair(tables: Tables, plan: Encoded, wanted: Sequence[Share]) -> tuple[int, int] | None:
    """Two stages that would have to talk but cannot; None where all can."""
    for share in wanted:
        for a in share.members:
            for b in share.members:
                if a != b and np.isinf(transfer_seconds(tables, plan, a, b, 0.0, 1)[0]):
                    return a, b
    return None


def steady_step(
    tables: Tables, plan: Encoded, durations: Durations, wanted: Sequence[Share], stage_end: Floats, bucket: float
) -> tuple[float, Floats]:
    """(seconds between the ends of steps, when each stage has its sums in the first step). `stage_end`: when its
    passes end."""
    wires = Wires(tables, plan)
    arrives = _first_arrivals(plan, durations)
    # From word that a stage is ready to its first message: there, and back with it.
    trip = np.concatenate([[0.0], 2 * durations.latency[:-1] + durations.send_forward[:-1]])
    replicas = len(plan.microbatches)
    begin = np.zeros(replicas)
    pipeline = np.repeat(np.arange(replicas), np.diff(plan.starts))
    ends: list[float] = []
    first = stage_end.copy()
    for step in range(STEPS):
        summed = stage_end + begin[pipeline]
        now = dict.fromkeys(range(len(summed)), 0.0)  # when a stage's part in what came before is over
        for share in wanted:
            ready = {}
            for n, layer in zip(share.members, share.layers, strict=True):
                table = tables.backward[plan.kind[n]]
                before = float(table[layer] - table[plan.first[n]])  # of these layers' backward passes, still to do
                ready[n] = max(now[n], float(stage_end[n]) + float(begin[pipeline[n]]) - before)
            now |= add_up(wires, share, ready, bucket)
        summed = np.maximum(summed, [now[n] for n in range(len(summed))])
        if step == 0:
            first = summed
        done = {n: float(summed[n] + durations.update[n]) for n in range(len(summed))}
        if plan.shard_optimizer:
            for share in wanted:
                done |= _send_weights(wires, share, {n: done[n] for n in share.members}, bucket)
        ends.append(max(done.values()))
        posted = stage_end + begin[pipeline]  # word that a stage is ready for the next step leaves with its last pass
        for p in range(replicas):
            own = range(plan.starts[p], plan.starts[p + 1])
            free = [done[n] - arrives[n] for n in own]
            heard = [float(posted[n] + trip[n] - arrives[n]) for n in own[1:]]
            begin[p] = max([*free, *heard])
    return (ends[-1] - ends[-1 - COUNTED]) / COUNTED, first


def _holders(plan: Encoded, layers: Sequence[int]) -> tuple[int, ...]:
    """The stages with any of these layers, in the plan's order."""
    return tuple(n for n in range(len(plan.first)) if any(plan.first[n] <= layer <= plan.last[n] for layer in layers))


def _first_arrivals(plan: Encoded, durations: Durations) -> Floats:
    """When a pipeline's first microbatch reaches each stage, from when its first stage begins."""
    result = np.zeros(len(plan.first))
    for a, b in pairwise(plan.starts):
        for n in range(a, b - 1):
            hop = durations.forward[n] + durations.send_forward[n] + durations.latency[n]
            result[n + 1] = result[n] + hop
    return result


def add_up(wires: Wires, share: Share, ready: Times, bucket: float) -> Times:
    """When each member has the sum: bucket by bucket."""
    count = _buckets(share.size, bucket)
    sizes = [share.size / count] * count
    if any(wires.plan.ranks[n] > 1 for n in share.members):
        sizes.append(0.0)  # what every slice has whole goes by itself, and is small
    now = ready
    for size in sizes:
        now = _by_region(wires, now, size) if wires.plan.by_region else _between(wires, now, size)
    return now


def _by_region(wires: Wires, ready: Times, size: float) -> Times:
    chains: dict[int, list[int]] = {}
    for n in ready:
        chains.setdefault(int(wires.tables.region[wires.plan.place[n]]), []).append(n)
    there = {chain[0]: _chain(wires, chain[::-1], ready, size)[chain[0]] for chain in chains.values()}
    summed = _between(wires, there, size)
    return {n: at for chain in chains.values() for n, at in _chain(wires, chain, summed, size).items()}


def _between(wires: Wires, ready: Times, size: float) -> Times:
    """A swap, or a ring: everyone sends what came last, then waits for the next part."""
    members, n = list(ready), len(ready)
    if n == 1:
        return ready
    rounds, part = (1, size) if n == 2 else (2 * (n - 1), size / n)
    now = [ready[m] for m in members]
    for _ in range(rounds):
        there = [wires.send(members[i - 1], members[i], part, now[i - 1]) for i in range(n)]
        now = [max(now[i], there[i]) for i in range(n)]
    return dict(zip(members, now, strict=True))


def _chain(wires: Wires, members: Sequence[int], ready: Times, size: float) -> Times:
    """From the first member to the last, in pieces; when each has all of them. A member that has a part of its own
    passes nothing on before it is ready."""
    pieces = chain_pieces(size)
    there = [ready[members[0]]] * pieces
    result = {members[0]: there[-1]}
    for a, b in pairwise(members):
        there = [max(wires.send(a, b, size / pieces, at), ready.get(b, 0.0)) for at in there]
        result[b] = there[-1]
    return result


def _send_weights(wires: Wires, share: Share, ready: Times, bucket: float) -> Times:
    """When each member has what others have updated: they send it to everyone, after word that it is expected."""
    count = _buckets(share.size, bucket)
    now = ready
    for _ in range(count):
        after = dict(now)
        for b in share.members:
            for a, size in share.owned.items():
                if a != b:
                    word = now[b] + float(transfer_seconds(wires.tables, wires.plan, b, a, 0.0, 1)[0])
                    after[b] = max(after[b], wires.send(a, b, size / count, max(now[a], word)))
        now = after
    return now
