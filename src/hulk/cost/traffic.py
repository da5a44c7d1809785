"""What moves between which machines: a job's messages and gradient sums, as bytes on routes.

Seconds come from `hulk.cost.step`; here they are taken apart into the wire's part, which contention stretches, and the
rest, which it does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil

from hulk.cost.compiled import plain
from hulk.cost.prepared import Prepared
from hulk.cost.step import transfer_seconds
from hulk.domain.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Route:
    """The way from one machine to another: what a flow on it can have at most, in bytes/s, and what it shares with
    others, by the fabric's numbers."""

    limit: float
    resources: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Wire:
    """One direction of the link between two neighbouring stages, and what each message on it costs: `fixed` seconds
    before the `size` bytes are on their way, `latency` seconds until the last of them is there."""

    route: Route
    size: float
    fixed: float
    latency: float


@dataclass(frozen=True, slots=True)
class Hop:
    """Bytes that go from one member of a collective operation to another."""

    route: Route
    size: float


@dataclass(frozen=True, slots=True)
class Branch:
    """Hops that run side by side; the branch is done `latency` seconds after the last of them."""

    hops: tuple[Hop, ...]
    latency: float


Phases = tuple[tuple[Branch, ...], ...]
"""A collective operation: phases one after the other, each done when all its branches are."""


@dataclass(frozen=True, slots=True)
class Fabric:
    """The cards and trunks of a cluster, each direction with a number of its own; `capacity` in bytes/s by number."""

    cluster: Cluster
    capacity: list[float] = field(default_factory=list)
    _numbers: dict[tuple[object, ...], int] = field(default_factory=dict)

    def between(self, a: str, b: str) -> tuple[int, ...]:
        """What flows from machine a to machine b share with others; nothing where they are the same machine."""
        if a == b:
            return ()
        cards = (self.sending(a), self.receiving(b))
        trunk = self.cluster.link(a, b).trunk
        if trunk is None:
            return cards
        # A link between two machines may name a trunk of its own: links that name the same number share it.
        ends = (self.cluster.machine(a).region, self.cluster.machine(b).region)
        return (*cards, self._number(("trunk", *ends, trunk), trunk))

    def sending(self, machine: str) -> int:
        """A machine's network cards, outwards."""
        return self._number(("out", machine), self.cluster.machine(machine).network)

    def receiving(self, machine: str) -> int:
        """A machine's network cards, inwards."""
        return self._number(("in", machine), self.cluster.machine(machine).network)

    def _number(self, key: tuple[object, ...], capacity: float) -> int:
        if key not in self._numbers:
            self._numbers[key] = len(self.capacity)
            self.capacity.append(capacity)
        return self._numbers[key]


@dataclass(frozen=True, slots=True)
class Sum:
    """One sum of a step, and what it waits for. Stages are rows of the job's arrays.

    number   of the sum in its job
    holders  stages that take part
    moments  (stage, seconds): so long before the stage's last backward ends it has its part
    after    numbers of sums that must be over
    layers   whose gradients it is; None: of parameters that its two holders share
    """

    number: int
    phases: Phases
    holders: tuple[int, ...]
    moments: tuple[tuple[int, float], ...]
    after: tuple[int, ...]
    layers: tuple[int, int] | None


class Traffic:
    """What one job moves. Stages are rows of the job's arrays: all pipelines' stages one after the other."""

    def __init__(self, prepared: Prepared, fabric: Fabric) -> None:
        """`fabric` is that of all jobs that run side by side."""
        self._prepared = prepared
        self._fabric = fabric
        self._tables = prepared.book.tables
        self._stages = prepared.stages

    def message(self, sender: int, receiver: int) -> Wire:
        """A microbatch's activation on its way to the next stage, or its gradient on its way to the stage before."""
        durations = self._prepared.durations
        link = min(sender, receiver)  # a link's durations stand with its first stage
        seconds = durations.send_forward[link] if sender < receiver else durations.send_backward[link]
        size = float(self._tables.cut[self._stages[link].last])
        flows = self._ranks([sender, receiver]) if self._tables.flow_per_rank else 1
        route, latency = self._route(sender, receiver, flows)
        fixed = float(seconds) - size / route.limit
        return Wire(route, size, max(fixed, 0.0), latency)

    def gradient_set(self, index: int, share: float, *, buckets: int) -> Phases:
        """The sum of a share of a gradient set over its holders, as the job's plan says: a ring, or region by region;
        in so many buckets one after the other, each of which waits for its own messages."""
        durations = self._prepared.durations
        params = self._tables.split + self._tables.whole
        params_in_set = float(params[durations.set_last[index] + 1] - params[durations.set_first[index]])
        size = share * params_in_set * self._tables.wire_bytes
        members = self._prepared.holders(index)
        if self._prepared.encoded.by_region:
            phases = self._by_region(members, size)
        else:
            phases = (self._ring(members, size, self._ranks(members), all_reduce=True),)
        return tuple(tuple(Branch(branch.hops, buckets * branch.latency) for branch in phase) for phase in phases)

    def shared_parameters(self, stage: int, first: int) -> Phases:
        """The sum of the gradients of parameters that a stage shares with its pipeline's first: a ring of the two."""
        held = self._stages[stage]
        shared = float(self._tables.tied[held.last + 1] - self._tables.tied[held.first])
        pair = [stage, first]
        return (self._ring(pair, shared * self._tables.wire_bytes, self._ranks(pair), all_reduce=False),)

    def _ring(self, members: Sequence[int], size: float, flows: int, *, all_reduce: bool) -> tuple[Branch, ...]:
        """2 (n − 1) rounds of size / n bytes on every hop; each part travels as many hops. An engine's own `all_reduce`
        may reach only a share of the bandwidth."""
        n = len(members)
        if n < 2:
            return ()
        rounds = 2 * (n - 1)
        ways = [
            self._route(a, b, flows, all_reduce=all_reduce)
            for a, b in zip(members, [*members[1:], members[0]], strict=True)
        ]
        hops = tuple(Hop(route, rounds * size / n) for route, _ in ways)
        return (Branch(hops, rounds / n * sum(latency for _, latency in ways)),)

    def _by_region(self, members: Sequence[int], size: float) -> Phases:
        """Chains add up inside each region onto its first member, those do a ring, and the chains spread the sum."""
        flows = self._ranks(members)
        chains: dict[int, list[int]] = {}
        for member in members:
            region = int(self._tables.region[self._prepared.encoded.place[member]])
            chains.setdefault(region, []).append(member)
        leaders = [chain[0] for chain in chains.values()]
        gather = tuple(self._chain(chain[::-1], size, flows) for chain in chains.values())
        spread = tuple(self._chain(chain, size, flows) for chain in chains.values())
        return gather, self._ring(leaders, size, flows, all_reduce=True), spread

    def _chain(self, members: Sequence[int], size: float, flows: int) -> Branch:
        """Every member passes on what it has from the one before while more is coming."""
        ways = [self._route(a, b, flows) for a, b in pairwise(members)]
        return Branch(tuple(Hop(route, size) for route, _ in ways), sum(latency for _, latency in ways))

    def _ranks(self, stages: Sequence[int]) -> int:
        """Ranks of these stages that have one of their own kind in each of the others: each sends in a flow of its
        own."""
        return min(self._stages[n].tensor_parallel for n in stages)

    def _route(self, sender: int, receiver: int, flows: int, *, all_reduce: bool = False) -> tuple[Route, float]:
        """The way between two stages, and its latency in seconds."""
        encoded = self._prepared.encoded
        # Uncompiled: for a few numbers, handing over the tables would take longer than the work.
        latency, per_byte = plain(transfer_seconds)(self._tables, encoded, sender, receiver, 1.0, flows)
        limit = 1.0 / float(per_byte)
        if all_reduce and encoded.machine[sender] != encoded.machine[receiver]:
            limit *= float(min(self._tables.ring_share[encoded.place[[sender, receiver]]]))
        shared = self._fabric.between(self._stages[sender].machine, self._stages[receiver].machine)
        return Route(limit, shared), float(latency)


def sums_of(prepared: Prepared, traffic: Traffic) -> list[Sum]:
    """All sums of a job's step, in the order of `hulk.cost.step`: gradient sets from the last layers to the first, a
    set's last bucket apart where sums overlap with backward; then shared parameters, one stage after the other."""
    durations, starts = prepared.durations, prepared.encoded.starts
    found: list[Sum] = []
    of_stage: dict[int, list[int]] = {n: [] for n in range(len(prepared.stages))}

    def add(phases: Phases, moments: dict[int, float], after: set[int], layers: tuple[int, int] | None) -> None:
        number = len(found)
        found.append(Sum(number, phases, tuple(moments), tuple(moments.items()), tuple(sorted(after)), layers))
        for n in moments:
            of_stage[n].append(number)

    for i in reversed(range(prepared.sets)):
        layers = int(durations.set_first[i]), int(durations.set_last[i])
        buckets = _buckets(prepared, layers)
        parts = [(buckets - 1, False), (1, True)] if prepared.book.tables.overlap_sync else [(buckets, True)]
        for count, is_last in parts:
            if count == 0:
                continue
            share = count / buckets
            moments = {n: _still_to_do(prepared, n, layers, 0.0 if is_last else share) for n in prepared.holders(i)}
            after = {of_stage[n][-1] for n in moments if of_stage[n]}
            add(traffic.gradient_set(i, share, buckets=count), moments, after, layers)
    for begin, end in pairwise(starts.tolist()):
        for n in range(begin + 1, end):
            if durations.tie_seconds[n] > 0:
                after = {*of_stage[begin], *of_stage[n]}
                add(traffic.shared_parameters(n, begin), {n: 0.0, begin: 0.0}, after, None)
    return found


def _buckets(prepared: Prepared, layers: tuple[int, int]) -> int:
    """In how many buckets a set of layers is summed."""
    tables = prepared.book.tables
    params = tables.split + tables.whole
    size = float(params[layers[1] + 1] - params[layers[0]]) * tables.wire_bytes
    return max(1, ceil(size / tables.bucket))


def _still_to_do(prepared: Prepared, row: int, layers: tuple[int, int], share: float) -> float:
    """Seconds of a stage's last backward after it has been through a set's layers, but for a share of them."""
    tables, encoded = prepared.book.tables, prepared.encoded
    if not tables.overlap_sync:
        return 0.0
    backward = tables.backward[encoded.kind[row]]
    inside = float(backward[layers[1] + 1] - backward[layers[0]])
    return float(backward[layers[0]] - backward[encoded.first[row]]) + share * inside
