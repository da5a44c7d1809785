"""What moves between which machines: a job's messages and gradient sums, as bytes on routes.

Seconds come from `hulk.cost.step`; here they are taken apart into the wire's part, which contention stretches, and the
rest, which it does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

import numpy as np

from hulk.cost.arrays import transfer_seconds
from hulk.cost.compiled import plain
from hulk.cost.prepared import Prepared
from hulk.cost.sharding import is_near
from hulk.cost.sums import Share, owned
from hulk.cost.sync import chain_pieces, lanes, rails_of, sends_weights, still_to_do
from hulk.domain.cluster import Cluster
from hulk.domain.joined import joined


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
    """The cards and trunks of a cluster, each direction with a number of its own; `capacity` in bytes/s by number.
    Machines that hold stages together are one."""

    cluster: Cluster
    capacity: list[float] = field(default_factory=list)
    _numbers: dict[tuple[object, ...], int] = field(default_factory=dict)

    @classmethod
    def of(cls, prepared: Sequence[Prepared]) -> Fabric:
        """That of jobs that run side by side."""
        return cls(joined(prepared[0].cluster, [one.plan for one in prepared]))

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

    def among(self, machines: Sequence[str]) -> set[int]:
        """All that flows among these machines could share with others."""
        found = {number for one in machines for number in (self.sending(one), self.receiving(one))}
        links = (*self.cluster.region_links.values(), *self.cluster.machine_links.values())
        if any(link.trunk is not None for link in links):
            found.update(number for a in machines for b in machines for number in self.between(a, b))
        return found

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
    """One part of a step's sums, and what it waits for. Stages are rows of the job's arrays.

    number   of the part in its job
    moments  (stage, seconds): so long before the stage's last backward ends it has what it sends
    after    numbers of parts that must be over
    holders  stages that must have it before they update; of weights, before they are done
    layers   whose gradients, or weights, it is; None: of parameters that layers share
    updates  stages whose updates it waits for: it sends new weights
    """

    number: int
    phases: Phases
    moments: tuple[tuple[int, float], ...]
    after: tuple[int, ...]
    holders: tuple[int, ...]
    layers: tuple[int, int] | None
    updates: tuple[int, ...] = ()


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
        flows = self.ranks([sender, receiver]) if self._tables.rules.flow_per_rank else 1
        route, latency = self._route(sender, receiver, flows)
        fixed = float(seconds) - size / route.limit
        return Wire(route, size, max(fixed, 0.0), latency)

    def ring(self, members: Sequence[int], size: float, flows: int, buckets: int) -> Phases:
        """2 (n − 1) rounds of size / n bytes on every hop; each part travels as many hops. An engine's own all-reduce
        may reach only a share of the bandwidth."""
        n = len(members)
        rounds = 2 * (n - 1)
        each = self._tables.rules.hop_overhead
        ways = [self._route(a, b, flows, all_reduce=True) for a, b in pairwise((*members, members[0]))]
        hops = tuple(Hop(route, rounds * size / n) for route, _ in ways)
        around = sum(latency + each for _, latency in ways)
        return ((Branch(hops, buckets * rounds / n * around),),)

    def one_way(self, sender: int, receiver: int, size: float, flows: int, buckets: int) -> Phases:
        """All of it from one to another."""
        route, latency = self._route(sender, receiver, flows, all_reduce=True)
        return ((Branch((Hop(route, size),), buckets * (latency + self._tables.rules.hop_overhead)),),)

    def in_turn(self, stage: int, first: int, size: float) -> Phases:
        """A ring of a stage and its pipeline's first, for what they share."""
        ways = [self._route(a, b, self.ranks([stage, first])) for a, b in ((stage, first), (first, stage))]
        return ((Branch(tuple(Hop(route, size) for route, _ in ways), sum(latency for _, latency in ways)),),)

    def chain(self, members: Sequence[int], size: float, flows: int, buckets: int) -> Phases:
        """Every member passes on what it has from the one before, piece by piece, while more is coming."""
        ways = [self._route(a, b, flows) for a, b in pairwise(members)]
        pieces = plain(chain_pieces)(size / buckets)
        latency = sum(latency for _, latency in ways) + (pieces + len(ways) - 1) * self._tables.rules.hop_overhead
        filling = (len(ways) - 1) / pieces * max(size / route.limit for route, _ in ways)
        return ((Branch(tuple(Hop(route, size) for route, _ in ways), buckets * latency + filling),),)

    def handed_round(self, parts: dict[int, float], receiver: int, buckets: int) -> Phases:
        """What others have updated, to one of its holders, after word that it is expected."""
        hops, waits = [], [0.0]
        for sender, size in parts.items():
            if sender != receiver:
                route, latency = self._route(sender, receiver, self.ranks([sender, receiver]))
                hops.append(Hop(route, size))
                waits.append(buckets * (2 * latency + self._tables.rules.hop_overhead))
        return ((Branch(tuple(hops), max(waits)),),)

    def ranks(self, stages: Sequence[int]) -> int:
        """Ranks of these stages that have one of their own kind in each of the others: each sends in a flow of its
        own."""
        return int(plain(lanes)(self._tables, min(self._stages[n].ranks for n in stages)))

    def rails(self, members: Sequence[int]) -> int:
        """Flows that a sum among these stages has between machines."""
        if not self._tables.rules.flow_per_rank:
            return self.ranks(members)
        return int(plain(rails_of)(self._prepared.encoded, np.array(members)))

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


class _Sums:
    """Writes down the parts of a step's sums, each after what its stages did before."""

    def __init__(self, prepared: Prepared, traffic: Traffic) -> None:
        self._prepared, self._traffic = prepared, traffic
        self._swaps = prepared.book.tables.rules.swaps
        count = len(prepared.stages)
        self.found: list[Sum] = []
        self._busy: list[list[int]] = [[] for _ in range(count)]  # parts that must be over before a stage goes on
        self._sent: dict[tuple[int, tuple[int, int] | None], int] = {}  # what a stage has swapped of these layers
        self._ready = [inf] * count  # seconds before its last backward ends that a stage is at what it does now

    def add_up(self, share: Share, part: float, moments: dict[int, float], buckets: int) -> None:
        """A part of a share in so many buckets one after the other, each of which waits for its own messages."""
        for n, before in moments.items():
            self._ready[n] = min(self._ready[n], before)
        size, layers = part * share.size, share.layers
        flows = self._traffic.rails(share.members)
        # Chains add up onto their leaders, those do a ring, and the chains spread the sum.
        chains = [chain for chain in share.chains if len(chain) > 1]
        gathered: dict[int, int] = {}
        for chain in chains:
            phases = self._traffic.chain(chain[::-1], size, flows, buckets)
            gathered[chain[0]] = self._add(phases, chain, chain, (), layers)
        arrived = self._between(share, gathered, size, flows, buckets)
        for chain in chains:
            after = {gathered[chain[0]], *arrived.get(chain[0], ())}
            phases = self._traffic.chain(chain, size, flows, buckets)
            spread = self._add(phases, chain, (), after, layers)
            arrived |= {n: [spread] for n in chain}
        self._set_busy(arrived)

    def add_weights(self, share: Share, parts: dict[int, float]) -> None:
        """Updated weights, from each owner to all other holders near it."""
        tables, encoded = self._prepared.book.tables, self._prepared.encoded
        after = {n: list(self._busy[n]) for n in share.members}
        arrived = {}
        for n in share.members:
            senders = {m: size for m, size in parts.items() if m != n and plain(is_near)(tables, encoded, m, n)}
            if senders:
                phases = self._traffic.handed_round(senders, n, share.buckets)
                rows = tuple(sorted({n, *senders}))
                before = tuple(sorted({number for m in rows for number in after[m]}))
                self.found.append(Sum(len(self.found), phases, (), before, (n,), share.layers, updates=rows))
                arrived[n] = [len(self.found) - 1]
        self._set_busy(arrived)

    def add_pair(self, share: Share) -> None:
        """What a stage shares with its pipeline's first, after all else."""
        stage, first = share.members
        self._ready[stage] = self._ready[first] = 0.0
        number = self._add(self._traffic.in_turn(stage, first, share.size), share.members, share.members, (), None)
        self._set_busy({stage: [number], first: [number]})

    def forget(self) -> None:
        """Everything is added up: what follows waits for updates."""
        self._busy = [[] for _ in self._busy]

    def _between(
        self,
        share: Share,
        gathered: dict[int, int],
        size: float,
        flows: int,
        buckets: int,
    ) -> dict[int, list[int]]:
        """The leaders of the chains swap, or do a ring. By stage, the parts in which it gets what it has not."""
        leaders, layers = share.leaders, share.layers

        def add(phases: Phases, senders: Sequence[int], receivers: Sequence[int], before: Iterable[int] = ()) -> int:
            fresh = [n for n in senders if n not in gathered]  # the others have gathered before
            after = {*before, *(gathered[n] for n in senders if n in gathered)}
            return self._add(phases, receivers, fresh, after, layers)

        if len(leaders) < 2:
            return {}
        if len(leaders) > 2 or not self._swaps:
            number = add(self._traffic.ring(leaders, size, flows, buckets), leaders, leaders)
            return {n: [number] for n in leaders}
        arrived = {}
        for a, b in (leaders, leaders[::-1]):
            before = self._sent.get((a, layers))
            phases = self._traffic.one_way(a, b, size, flows, buckets)
            arrived[b] = [add(phases, [a], [b], () if before is None else (before,))]
            self._sent[a, layers] = arrived[b][0]
        return arrived

    def _add(
        self,
        phases: Phases,
        holders: Sequence[int],
        senders: Sequence[int],
        after: Iterable[int],
        layers: tuple[int, int] | None,
    ) -> int:
        """A part that its senders start when they are ready and free."""
        number = len(self.found)
        waits = {*after, *(busy for n in senders for busy in self._busy[n])}
        moments = tuple((n, self._ready[n]) for n in senders)
        self.found.append(Sum(number, phases, moments, tuple(sorted(waits)), tuple(holders), layers))
        return number

    def _set_busy(self, arrived: dict[int, list[int]]) -> None:
        """What comes next for a stage waits for what arrives now, and for what came before unless that did too."""
        for n, numbers in arrived.items():
            over = {before for number in numbers for before in self.found[number].after}
            self._busy[n] = [*(number for number in self._busy[n] if number not in over), *numbers]


def sums_of(prepared: Prepared, traffic: Traffic) -> list[Sum]:
    """All sums of a job's step, in the order of `hulk.cost.sums`, a set's last bucket apart where sums overlap with
    backward; then the weights that owners send to others."""
    tables = prepared.book.tables
    wanted = prepared.shares
    sums = _Sums(prepared, traffic)
    for share in wanted:
        if share.layers is None and not tables.rules.shares_once:
            sums.add_pair(share)
            continue
        overlaps = tables.rules.overlap_sync and share.layers is not None
        for count, is_last in [(share.buckets - 1, False), (1, True)] if overlaps else [(share.buckets, True)]:
            if count:
                part = count / share.buckets
                sums.add_up(share, part, _moments(prepared, share, 0.0 if is_last else part), count)
    if plain(sends_weights)(tables, prepared.plan.options.has_owners, len(prepared.plan.pipelines)):
        sums.forget()
        parts = owned(tables, prepared.encoded, wanted)
        for share, its in zip(wanted, parts, strict=True):
            sums.add_weights(share, its)
    return sums.found


def _moments(prepared: Prepared, share: Share, part: float) -> dict[int, float]:
    """For each member, how many seconds before its last backward ends it has its gradients, but for a part of them."""
    tables, encoded = prepared.book.tables, prepared.encoded
    members = zip(share.members, share.lowest, strict=True)
    ends = {n: (lowest, share.layers[1] if share.layers else lowest - 1) for n, lowest in members}
    return {n: float(plain(still_to_do)(tables, encoded, n, *layers, part)) for n, layers in ends.items()}
