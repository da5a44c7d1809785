"""What the router emulates: hosts with network cards and the wires between them, taken from a cluster.

A wire carries the least of the flow's bandwidth and the two network cards', as the price takes it
(`hulk.cost.step.transfer_seconds`). Everything here is a value that turns into JSON and back, because the router lives
in a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

from hulk.domain.cluster import Cluster
from hulk.errors import InputError, nearest

MOST_MACHINES = 16
INTERFACE = "wan0"  # the same in every namespace
_SUBNET = "10.77.0"

# Packets are as large as IPv4 nearly allows, which keeps their rate low: 500 Mbit/s are a thousand a second. On a slow
# wire they are smaller, so that none holds it up for long; TCP takes a silence of 0.2 s for a loss.
LARGEST_PACKET = 60000
_SMALLEST_PACKET = 1500
_PACKET_SECONDS = 2e-3


@dataclass(frozen=True, slots=True)
class Host:
    """A machine in the testbed. `card` is bytes/s of the network card, per direction."""

    name: str
    region: str
    address: str
    card: float


@dataclass(frozen=True, slots=True)
class Wire:
    """Between hosts `a` and `b` (indices, a < b), the same both ways. `latency` in seconds one way, `bandwidth` in
    bytes/s per direction with the cards counted in, `trunk` the bytes/s that all wires between two regions share."""

    a: int
    b: int
    latency: float
    bandwidth: float
    trunk: float | None = None

    @property
    def most(self) -> float:
        """Bytes/s that one direction carries when nothing else is going on."""
        return self.bandwidth if self.trunk is None else min(self.bandwidth, self.trunk)

    @property
    def packet(self) -> int:
        """The largest packet in bytes."""
        return int(min(max(self.most * _PACKET_SECONDS, _SMALLEST_PACKET), LARGEST_PACKET))


@dataclass(frozen=True)
class Network:
    """All hosts and wires. A pair without a wire is blocked: its packets are dropped."""

    cluster: str
    hosts: tuple[Host, ...]
    wires: tuple[Wire, ...]

    @classmethod
    def of(cls, cluster: Cluster) -> Network:
        """The network of a cluster; InputError where it has no machines or more than the testbed takes."""
        machines = cluster.machines
        if not 1 <= len(machines) <= MOST_MACHINES:
            raise InputError(
                f"cluster {cluster.name!r} has {len(machines):,} machines; a testbed takes 1 to {MOST_MACHINES}",
                hint="write a smaller cluster file",
            )
        hosts = tuple(Host(m.name, m.region, f"{_SUBNET}.{i}", m.network) for i, m in enumerate(machines, start=1))
        wires = []
        for a, b in combinations(range(len(machines)), 2):
            link = cluster.link(machines[a].name, machines[b].name)
            bandwidth = min(link.bandwidth, machines[a].card, machines[b].card)
            if not link.blocked and bandwidth > 0:
                wires.append(Wire(a, b, link.latency, bandwidth, link.trunk or None))
        return cls(cluster.name, hosts, tuple(wires))

    @cached_property
    def _by_name(self) -> dict[str, int]:
        return {host.name: index for index, host in enumerate(self.hosts)}

    @cached_property
    def _by_pair(self) -> dict[tuple[int, int], Wire]:
        return {(wire.a, wire.b): wire for wire in self.wires}

    def index(self, name: str) -> int:
        """Which host has that name; InputError with the nearest known one otherwise."""
        if name not in self._by_name:
            raise InputError(f"no machine {name!r} in the testbed", hint=nearest(name, self._by_name))
        return self._by_name[name]

    def wire(self, a: int, b: int) -> Wire | None:
        """The wire between two different hosts; None where they are blocked."""
        return self._by_pair.get((min(a, b), max(a, b)))

    def packets(self, host: int) -> dict[str, int]:
        """The largest packet in bytes to each address that a host can reach."""
        found = {}
        for index, other in enumerate(self.hosts):
            wire = self.wire(host, index)
            if wire is not None:
                found[other.address] = wire.packet
        return found

    def pairs(self) -> Iterator[tuple[int, int, Wire | None]]:
        """Every pair of hosts once, with its wire."""
        for a, b in combinations(range(len(self.hosts)), 2):
            yield a, b, self._by_pair.get((a, b))

    def to_json(self) -> dict[str, Any]:
        """For the router process and the state file."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Network:
        """What `to_json` wrote."""
        hosts = tuple(Host(**host) for host in data["hosts"])
        return cls(data["cluster"], hosts, tuple(Wire(**wire) for wire in data["wires"]))
