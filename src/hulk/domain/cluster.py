"""The cluster: regions, machines, and the links between them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import TypeVar

from hulk.domain.gpu import GpuType
from hulk.errors import InputError, nearest

T = TypeVar("T")


class Origin(StrEnum):
    """Where a number of a link comes from."""

    MEASURED = "measured"
    ESTIMATED = "estimated"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True)
class Region:
    """A place; machines in one region see each other quickly. Degrees; `egress` in dollars per byte sent out."""

    name: str
    latitude: float | None = None
    longitude: float | None = None
    label: str = ""
    egress: float = 0.0


@dataclass(frozen=True, slots=True)
class Span:
    """What lies between `machines` that hold stages together: `latency` seconds one way between two of them, bytes/s of
    one `flow`, and of all that one of them sends at a time, `network`."""

    machines: int
    latency: float
    flow: float
    network: float


@dataclass(frozen=True, slots=True)
class Machine:
    """A host. `memory` is bytes of one GPU, `network` bytes/s of its `cards` network cards together, per direction,
    `price` dollars a second. One that stands for several (`hulk.domain.joined`) has the names of the others, `beside`,
    and what lies between them."""

    name: str
    region: str
    gpu: GpuType
    gpus: int
    memory: float
    network: float
    price: float
    cards: int = 1
    beside: tuple[str, ...] = ()
    span: Span | None = None

    @property
    def card(self) -> float:
        """Bytes/s of one network card: one flow goes through one of them."""
        return self.network / self.cards


@dataclass(frozen=True, slots=True)
class Link:
    """Between two machines. `latency` in seconds one way, `bandwidth` of one flow in bytes/s, `trunk` the bytes/s that
    all flows between the two regions share (None: not limited), `egress` dollars a byte (None: the region's)."""

    latency: float
    bandwidth: float
    latency_origin: Origin = Origin.MEASURED
    bandwidth_origin: Origin = Origin.MEASURED
    trunk: float | None = None
    egress: float | None = None

    @property
    def blocked(self) -> bool:
        """Whether the two ends cannot talk."""
        return self.latency_origin is Origin.BLOCKED

    @property
    def origin(self) -> Origin:
        """Blocked, or where the latency comes from: the one word for a table."""
        return self.latency_origin


BLOCKED = Link(latency=float("inf"), bandwidth=0.0, latency_origin=Origin.BLOCKED, bandwidth_origin=Origin.BLOCKED)


def pair(a: str, b: str) -> tuple[str, str]:
    """The key of an undirected pair."""
    return (a, b) if a <= b else (b, a)


@dataclass(frozen=True)
class Cluster:
    """One snapshot. Links live at region level (`region_links`, with (r, r) for inside a region); `machine_links` holds
    the exceptions, so that ten thousand machines need no matrix of machines. Keys are made by `pair`. `gpus` are the
    GPU types of its own: those that no catalogue has. `storage`: by region, bytes/s that all its machines together read
    from where checkpoints are kept; regions that are not there have no limit that is known."""

    name: str
    regions: tuple[Region, ...]
    machines: tuple[Machine, ...]
    region_links: Mapping[tuple[str, str], Link]
    machine_links: Mapping[tuple[str, str], Link] = field(default_factory=dict)
    about: str = ""
    sources: tuple[str, ...] = ()
    gpus: tuple[GpuType, ...] = ()
    storage: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def _machines_by_name(self) -> dict[str, Machine]:
        return {m.name: m for m in self.machines}

    @cached_property
    def _regions_by_name(self) -> dict[str, Region]:
        return {r.name: r for r in self.regions}

    def machine(self, name: str) -> Machine:
        """The machine of that name; InputError with the nearest known one otherwise."""
        return _named(name, self._machines_by_name, "machine", self.name)

    def region(self, name: str) -> Region:
        """The region of that name; InputError with the nearest known one otherwise."""
        return _named(name, self._regions_by_name, "region", self.name)

    def has_machine(self, name: str) -> bool:
        """Whether there is a machine of that name."""
        return name in self._machines_by_name

    def link(self, a: str, b: str) -> Link:
        """The link between two different machines, by name."""
        exception = self.machine_links.get(pair(a, b))
        if exception is not None:
            return exception
        return self.region_link(self.machine(a).region, self.machine(b).region)

    def region_link(self, a: str, b: str) -> Link:
        """The link between machines of two regions, or inside one."""
        return self.region_links[pair(a, b)]

    def egress(self, a: str, b: str) -> float:
        """Dollars for one byte sent from machine a to machine b."""
        source, target = self.machine(a).region, self.machine(b).region
        if source == target:
            return 0.0
        own = self.link(a, b).egress
        return self.region(source).egress if own is None else own

    @property
    def gpu_count(self) -> int:
        """All GPUs of all machines."""
        return sum(m.gpus for m in self.machines)

    def in_region(self, region: str) -> Iterable[Machine]:
        """The machines of a region, in file order."""
        return (m for m in self.machines if m.region == region)


def restrict(cluster: Cluster, names: Collection[str]) -> Cluster:
    """The cluster with these machines only; regions and their links stay."""
    kept = set(names)
    return replace(
        cluster,
        machines=tuple(machine for machine in cluster.machines if machine.name in kept),
        machine_links={ends: link for ends, link in cluster.machine_links.items() if kept.issuperset(ends)},
    )


def change_cluster(cluster: Cluster, lost: Sequence[str], joined: Sequence[Machine]) -> Cluster:
    """The cluster without the lost machines and with the joined ones, which get the links of their region."""
    for machine in joined:
        cluster.region(machine.region)
        if cluster.has_machine(machine.name):
            raise InputError(
                f"machine {machine.name!r} joins, but is in cluster {cluster.name!r} already",
                hint="give the one that joins a name of its own",
            )
    names = [cluster.machine(name).name for name in lost]
    grown = replace(cluster, machines=(*cluster.machines, *joined))
    return restrict(grown, {machine.name for machine in grown.machines}.difference(names))


def _named(name: str, known: Mapping[str, T], what: str, cluster: str) -> T:
    try:
        return known[name]
    except KeyError:
        raise InputError(f"no {what} {name!r} in cluster {cluster!r}", hint=nearest(name, known)) from None
