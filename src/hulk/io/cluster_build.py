"""From what cluster files say to a `Cluster`: names resolved, groups spread out, what is missing estimated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hulk.domain.cluster import Cluster, Machine, Region
from hulk.domain.gpu import GpuType
from hulk.errors import InputError, nearest
from hulk.io.fields import Several
from hulk.io.links import Names, build_links
from hulk.io.own_gpus import gpu_here, own_gpu
from hulk.io.yamlfile import Document, Loc
from hulk.units import format_size

if TYPE_CHECKING:
    from hulk.io.cluster_file import ClusterFile, LinkEntry, MachineEntry

MAX_MACHINES = 200_000
DEFAULT = "default"
"""In `storage`: all regions that are not named."""
DEFAULT_NETWORK = 25e9 / 8  # bytes/s: a usual card of a rented GPU machine


@dataclass(frozen=True)
class Part:
    """One file of a cluster: a cluster that extends another has several, the base first."""

    document: Document
    file: ClusterFile

    def error(self, message: str, loc: Loc, hint: str | None = None) -> InputError:
        """An error at a place of this file."""
        return InputError(message, where=self.document.where(loc), hint=hint)

    def links(self) -> Iterator[tuple[Loc, LinkEntry]]:
        """The links with their places."""
        return ((("links", index), entry) for index, entry in enumerate(self.file.links))


def build_cluster(parts: Sequence[Part], *, default_name: str) -> Cluster:
    """The cluster that the files describe together; what a later file says wins."""
    last = parts[-1]
    regions: dict[str, Region] = {}
    for part in parts:
        for name, entry in part.file.regions.items():
            latitude, longitude = entry.at or (None, None)
            regions[name] = Region(name, latitude, longitude, label=entry.label or name, egress=entry.egress)
    gpus = _gpus(parts)
    machines, groups = _machines(parts, regions, gpus)
    if not machines:
        raise last.error("the cluster has no machines", ("machines",))
    names = Names(regions, machines, groups)
    region_links, machine_links = build_links(parts, names)
    return Cluster(
        name=last.file.name or default_name,
        regions=tuple(regions.values()),
        machines=tuple(machines.values()),
        region_links=region_links,
        machine_links=machine_links,
        about=next((part.file.about for part in reversed(parts) if part.file.about), ""),
        gpus=tuple(gpus.values()),
        storage=_storage(parts, regions),
        sources=tuple(dict.fromkeys(source for part in parts for source in part.file.sources)),
    )


def _storage(parts: Sequence[Part], regions: Mapping[str, Region]) -> dict[str, float]:
    """What each region reads from where checkpoints are kept, bytes/s; those of which nothing is said are left out."""
    given: dict[str, float] = {}
    for part in parts:
        for name, rate in part.file.storage.items():
            if name in regions and name == DEFAULT:
                raise part.error("is it the region or all others?", ("storage", name), "rename the region")
            if name not in regions and name != DEFAULT:
                hint = nearest(name, [*regions, DEFAULT])
                raise part.error(f"unknown region {name!r}", ("storage", name), hint)
            given[name] = rate
    others = dict.fromkeys(regions, given[DEFAULT]) if DEFAULT in given else {}
    return others | {name: rate for name, rate in given.items() if name != DEFAULT}


def _gpus(parts: Sequence[Part]) -> dict[str, GpuType]:
    """The GPU types that the files bring, by name in lower case."""
    own: dict[str, GpuType] = {}
    for part in parts:
        for index, entry in enumerate(part.file.gpus):
            try:
                own[entry.name.lower()] = own_gpu(entry, own)
            except InputError as error:
                raise error.at(part.document.where(("gpus", index))) from None
    return own


def _machines(
    parts: Sequence[Part], regions: Mapping[str, Region], gpus: Mapping[str, GpuType]
) -> tuple[dict[str, Machine], dict[str, tuple[str, ...]]]:
    """All machines by name, and the machine groups (entries with a count above 1) with their machines' names."""
    machines: dict[str, Machine] = {}
    groups: dict[str, tuple[str, ...]] = {}
    for part in parts:
        for index, entry in enumerate(part.file.machines):
            loc: Loc = ("machines", index)
            template = _template(part, entry, loc, regions, gpus)
            if len(machines) + entry.count > MAX_MACHINES:
                raise part.error(f"more than {MAX_MACHINES} machines in all", (*loc, "count"))
            members = _members(entry)
            for name in members:
                if name in machines or name in groups:
                    raise part.error(f"machine {name!r} is given twice", loc, "every machine needs its own name")
                machines[name] = replace(template, name=name)
            if entry.count > 1:
                if entry.name in machines or entry.name in groups:
                    raise part.error(f"machine {entry.name!r} is given twice", loc, "a group needs its own name")
                groups[entry.name] = members
    return machines, groups


def _members(entry: MachineEntry) -> tuple[str, ...]:
    if entry.count == 1:
        return (entry.name,)
    return tuple(f"{entry.name}-{number}" for number in range(1, entry.count + 1))


def _template(
    part: Part, entry: MachineEntry, loc: Loc, regions: Mapping[str, Region], gpus: Mapping[str, GpuType]
) -> Machine:
    """The machine that the entry describes; a group's machines differ from it by name."""
    if entry.region not in regions:
        raise part.error(f"unknown region {entry.region!r}", (*loc, "region"), nearest(entry.region, regions))
    try:
        kind = gpu_here(entry.gpu, gpus)
    except InputError as error:
        raise part.error(error.message, (*loc, "gpu"), error.hint) from None
    if entry.memory is not None and entry.memory > 1.1 * kind.memory:
        hint = "memory is that of one GPU, not of the machine; a GPU with more is one of gpus: {name: …, like: …}"
        raise part.error(f"a {kind.name} has {format_size(kind.memory)}", (*loc, "memory"), hint)
    cards = entry.network or Several(1, DEFAULT_NETWORK)
    return Machine(
        name=entry.name,
        region=entry.region,
        gpu=kind,
        gpus=entry.gpus,
        memory=kind.memory if entry.memory is None else entry.memory,
        network=cards.count * cards.each,
        price=entry.gpus * kind.price if entry.price is None else entry.price,
        cards=cards.count,
    )
