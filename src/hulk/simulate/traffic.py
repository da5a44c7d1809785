"""What moves between which machines: a job's messages and gradient sums, as bytes on routes.

Seconds come from `hulk.cost.step`; here they are taken apart into the wire's part, which contention stretches, and the
rest, which it does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from hulk.cost.compiled import plain
from hulk.cost.price import Prepared
from hulk.cost.step import transfer_seconds
from hulk.domain.cluster import Cluster
from hulk.simulate.network import Resource, Route


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
    """The cards and trunks of a cluster, each made once for all jobs."""

    cluster: Cluster
    _sending: dict[str, Resource] = field(default_factory=dict)
    _receiving: dict[str, Resource] = field(default_factory=dict)
    _trunks: dict[tuple[str, str, float], Resource] = field(default_factory=dict)

    def between(self, a: str, b: str) -> tuple[Resource, ...]:
        """What flows from machine a to machine b share with others; nothing where they are the same machine."""
        if a == b:
            return ()
        cards = (self.sending(a), self.receiving(b))
        trunk = self.cluster.link(a, b).trunk
        if trunk is None:
            return cards
        # A link between two machines may name a trunk of its own: links that name the same number share it.
        key = (self.cluster.machine(a).region, self.cluster.machine(b).region, trunk)
        return (*cards, self._trunks.setdefault(key, Resource(trunk)))

    def sending(self, machine: str) -> Resource:
        """A machine's network card, outwards."""
        return self._sending.setdefault(machine, Resource(self.cluster.machine(machine).network))

    def receiving(self, machine: str) -> Resource:
        """A machine's network card, inwards."""
        return self._receiving.setdefault(machine, Resource(self.cluster.machine(machine).network))


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

    def gradient_set(self, index: int, share: float, *, is_last: bool) -> Phases:
        """The sum of a share of a gradient set over its holders, as the job's plan says: a ring, or region by region.
        Shares of a set follow each other closely: latency counts once, with the last one."""
        durations = self._prepared.durations
        params = self._tables.split + self._tables.whole
        params_in_set = float(params[durations.set_last[index] + 1] - params[durations.set_first[index]])
        size = share * params_in_set * self._tables.wire_bytes
        members = self._prepared.holders(index)
        if self._prepared.encoded.by_region:
            phases = self._by_region(members, size)
        else:
            phases = (self._ring(members, size, self._ranks(members), all_reduce=True),)
        if is_last:
            return phases
        return tuple(tuple(Branch(branch.hops, 0.0) for branch in phase) for phase in phases)

    def shared_parameters(self, stage: int, first: int) -> Phases:
        """The sum of the gradients of parameters that a stage shares with its pipeline's first: a ring of the two."""
        held = self._stages[stage]
        shared = float(self._tables.tied[held.last + 1] - self._tables.tied[held.first])
        pair = [stage, first]
        return (self._ring(pair, shared * self._tables.wire_bytes, self._ranks(pair), all_reduce=False),)

    def _ring(self, members: Sequence[int], size: float, flows: int, *, all_reduce: bool) -> tuple[Branch, ...]:
        """2 (n − 1) rounds of size / n bytes on every hop; each round waits for the longest way. An engine's own
        `all_reduce` may reach only a share of the bandwidth."""
        n = len(members)
        if n < 2:
            return ()
        rounds = 2 * (n - 1)
        ways = [
            self._route(a, b, flows, all_reduce=all_reduce)
            for a, b in zip(members, [*members[1:], members[0]], strict=True)
        ]
        hops = tuple(Hop(route, rounds * size / n) for route, _ in ways)
        return (Branch(hops, rounds * max(latency for _, latency in ways)),)

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
