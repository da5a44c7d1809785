"""The cluster file: which machines there are, where, and what connects them. `load_cluster` reads it.

This module holds the format; `hulk.io.cluster_build` turns what was read into a `Cluster`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import FailFast, Field, model_validator
from pydantic_core import PydanticCustomError

from hulk.domain.cluster import Cluster
from hulk.errors import InputError
from hulk.io.cluster_build import Part, build_cluster
from hulk.io.fields import Entry, Flag, Name, Number, Quantity, Several, Stated, Text, validate, whole
from hulk.io.files import find_file
from hulk.io.own_gpus import MAX_OWN_GPUS, OwnGpuEntry
from hulk.io.yamlfile import Document, read_document
from hulk.units import Dimension

MAX_GPUS = 1024
MAX_CARDS = 64
MAX_COUNT = 100_000
MAX_REGIONS = 500
_MAX_EXTENDS = 8

Latency = Annotated[Stated, Quantity(Dimension.TIME, "120 ms", most=60.0, zero=True, stated=True)]
FlowBandwidth = Annotated[Stated, Quantity(Dimension.BANDWIDTH, "25 Gbit/s", most=1e14, least=1.0, stated=True)]
Cards = Annotated[Several, Quantity(Dimension.BANDWIDTH, "200 Gbit/s", most=1e14, least=1.0, several=MAX_CARDS)]
PlainLatency = Annotated[float, Quantity(Dimension.TIME, "120 ms", most=60.0, zero=True)]
Bandwidth = Annotated[float, Quantity(Dimension.BANDWIDTH, "25 Gbit/s", most=1e14, least=1.0)]
Memory = Annotated[float, Quantity(Dimension.SIZE, "80 GiB", most=1e14, least=2.0**20)]
Price = Annotated[float, Quantity(Dimension.HOURLY, "16 $/h", most=1e4, zero=True)]
Egress = Annotated[float, Quantity(Dimension.VOLUME_PRICE, "0.09 $/GB", most=1e-3, zero=True)]


class RegionEntry(Entry):
    """A place with machines that see each other quickly."""

    label: Text = ""
    """The name for people; the key is the name for files."""
    at: Annotated[list[Number], Field(min_length=2, max_length=2)] | None = None
    """Latitude and longitude in degrees: where latencies are estimated from, and where the map shows it."""
    egress: Egress = 0.0
    """Price of a byte sent out of the region."""

    @model_validator(mode="after")
    def _on_earth(self) -> RegionEntry:
        if self.at is not None and (abs(self.at[0]) > 90 or abs(self.at[1]) > 180):
            hint = "first the latitude (-90 to 90), then the longitude (-180 to 180)"
            raise PydanticCustomError("on_earth", "not a place on Earth", {"at": "at", "hint": hint})
        return self


class MachineEntry(Entry):
    """One machine, or `count` equal ones."""

    name: Name
    """The machine's name; with a count above 1 the group's, and the machines are name-1, name-2, ..."""
    count: Annotated[int, whole(1, MAX_COUNT)] = 1
    """How many such machines."""
    region: Name
    """The region it is in."""
    gpu: Text
    """The GPU type, as `hulk list gpus` lists them, or one of `gpus`."""
    gpus: Annotated[int, whole(1, MAX_GPUS)]
    """GPUs in one machine."""
    memory: Memory | None = None
    """Memory of one GPU, where it is not the type's usual."""
    network: Cards | None = None
    """What the machine's network card does, per direction; 25 Gbit/s if not given. "8 x 200 Gbit/s": eight cards; one
    flow goes through one of them."""
    price: Price | None = None
    """Price of the whole machine; the GPU type's price times the GPUs if not given."""


class SpreadEntry(Entry):
    """Between which two figures most of what was measured lies (from the 10th to the 90th of a hundred)."""

    latency: Annotated[list[PlainLatency], Field(min_length=2, max_length=2)] | None = None
    """The lower and the higher one."""
    bandwidth: Annotated[list[Bandwidth], Field(min_length=2, max_length=2)] | None = None
    """The lower and the higher one."""


class LinkEntry(Entry):
    """What connects two machines, machine groups or regions (`between`), or those of one region or group (`inside`).

    A number is taken as measured; with a leading "~" it is the author's estimate. What is left out is estimated.
    """

    between: Annotated[list[Name], Field(min_length=2, max_length=2)] | None = None
    """The two ends: machines, machine groups or regions."""
    inside: Name | None = None
    """The region or the machine group whose machines this connects."""
    latency: Latency | None = None
    """One way."""
    bandwidth: FlowBandwidth | None = None
    """Of one flow."""
    trunk: Bandwidth | None = None
    """What all flows between the two regions share."""
    egress: Egress | None = None
    """Price of a byte sent over it, where it is not the region's usual."""
    blocked: Flag = False
    """The two ends cannot talk to each other."""
    measured: Annotated[str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")] | None = None
    """The day on which this was measured, as 2026-11-30; `hulk probe` writes it."""
    spread: SpreadEntry | None = None
    """How far measurements lay apart; `hulk probe` writes it."""

    @model_validator(mode="after")
    def _consistent(self) -> LinkEntry:
        if (self.between is None) == (self.inside is None):
            raise PydanticCustomError("ends", "a link has either 'between' with two names or 'inside' with one")
        given = [key for key in ("latency", "bandwidth", "trunk", "egress") if getattr(self, key) is not None]
        given += ["spread"] * (self.blocked and self.spread is not None)
        if self.blocked and given:
            raise PydanticCustomError("blocked", "a blocked link has no {key}", {"key": given[0], "at": given[0]})
        if not self.blocked and not given:
            hint = "give a latency, a bandwidth, or blocked: true"
            raise PydanticCustomError("empty", "this link says nothing", {"hint": hint})
        return self


class InsideEntry(Entry):
    """What to assume between two machines of one region."""

    latency: Latency | None = None
    """One way; 0.5 ms if not given."""
    bandwidth: FlowBandwidth | None = None
    """Of one flow; estimated from the latency if that is given, else what the slowest network card there does."""
    blocked: Flag = False
    """They cannot talk to each other."""


class AssumeEntry(Entry):
    """What to assume where nothing was measured."""

    inside: InsideEntry = InsideEntry()
    """Between the machines of a region with no link inside it."""
    between: Literal["estimate", "blocked"] = "estimate"
    """Between two regions with no link at all: estimate it from the distance, or take it as blocked."""
    unmeasured_pairs: Literal["median", "blocked"] = "median"
    """Where only some machine pairs of two regions (or inside one) are measured: the median of those, or blocked."""


class ClusterFile(Entry):
    """The machines one can reach, where they are, and what connects them."""

    hulk: Literal["cluster/1"] = "cluster/1"
    """The format and its version."""
    extends: Text | None = None
    """A bundled cluster or a path, relative to this file: start from that one; what stands here is added or wins."""
    name: Name | None = None
    """The cluster's name; the file's if not given."""
    about: Text = ""
    """What this is, and what in it is assumed."""
    sources: Annotated[list[Text], FailFast()] = Field(default_factory=list)
    """Where the figures come from."""
    regions: dict[Name, RegionEntry] = Field(default_factory=dict, max_length=MAX_REGIONS)
    """The regions by name."""
    gpus: Annotated[list[OwnGpuEntry], FailFast(), Field(max_length=MAX_OWN_GPUS)] = Field(default_factory=list)
    """GPU types that Hulk does not know, and variations of those that it knows."""
    machines: Annotated[list[MachineEntry], FailFast()] = Field(default_factory=list)
    """The machines."""
    links: Annotated[list[LinkEntry], FailFast()] = Field(default_factory=list)
    """What is known of the network. Links between machines win over those of groups, these over those of regions."""
    assume: AssumeEntry = AssumeEntry()
    """What to assume of the network where nothing was measured."""
    storage: dict[Name, Bandwidth] = Field(default_factory=dict, max_length=MAX_REGIONS + 1)
    """By region, what all its machines together read from where checkpoints are kept; `default` is for those that are
    not named. Without it, only the network card of a machine limits how soon it has its checkpoint."""


def load_cluster(path_or_name: str | Path) -> Cluster:
    """The cluster of a file, or a bundled one by name ("hulk47"). InputError for anything wrong in it."""
    return build_cluster(load_parts(path_or_name), default_name=find_file(path_or_name, "clusters").stem)


def load_parts(path_or_name: str | Path) -> list[Part]:
    """A cluster file and what it extends, the base first."""
    path = find_file(path_or_name, "clusters")
    return _parts(path, read_document(path), ())


def read_cluster(document: Document, *, folder: Path | None = None) -> Cluster:
    """The cluster of a document that is already here; `folder` is what `extends` is relative to."""
    path = (folder or Path()) / document.name
    return build_cluster(_parts(path, document, ()), default_name=path.stem)


def _parts(path: Path, document: Document, seen: tuple[Path, ...]) -> list[Part]:
    """The file and what it extends, the base first."""
    file = validate(document, ClusterFile)
    if file.extends is None:
        return [Part(document, file)]
    where = document.where(("extends",))
    here = path.resolve()
    if here in seen or len(seen) >= _MAX_EXTENDS:
        raise InputError("files extend each other in a circle, or too deep", where=where)
    try:
        base = find_file(file.extends, "clusters", beside=path.parent)
        base_document = read_document(base)
    except InputError as error:
        raise InputError(f"cannot extend {file.extends!r}: {error.message}", where=where, hint=error.hint) from None
    return [*_parts(base, base_document, (*seen, here)), Part(document, file)]
