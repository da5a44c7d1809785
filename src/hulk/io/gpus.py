"""The GPU types Hulk knows, from data/gpus.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import Field

from hulk.domain.gpu import GpuType, Precision
from hulk.errors import InputError, nearest
from hulk.io.fields import Entry, Name, Quantity, Text, validate
from hulk.io.files import data_path
from hulk.io.yamlfile import Document, read_document
from hulk.units import Dimension

# Wider than anything that is sold, narrow enough to catch a slip of the unit.
Rate = Annotated[float, Quantity(Dimension.RATE, "312 TFLOP/s", most=1e17, least=1e9)]
Memory = Annotated[float, Quantity(Dimension.SIZE, "80 GiB", most=4e12, least=2.0**28)]
MemoryBandwidth = Annotated[float, Quantity(Dimension.BANDWIDTH, "2 TB/s", most=1e14, least=1e9)]
LinkBandwidth = Annotated[float, Quantity(Dimension.BANDWIDTH, "300 GB/s", most=1e14, least=1e6)]
LinkKind = Literal["nvlink", "pcie"]
Rent = Annotated[float, Quantity(Dimension.HOURLY, "2.50 $/h", most=1e3, zero=True)]
Power = Annotated[float, Quantity(Dimension.POWER, "400 W", most=1e4, least=1.0)]
Capability = Annotated[str, Field(pattern=r"^[0-9]{1,3}\.[0-9]{1,3}$")]


class SomeRates(Entry):
    """Peak dense matrix rates by precision."""

    fp32: Rate | None = None
    """Plain single precision."""
    tf32: Rate | None = None
    """fp32 storage, tensor core products."""
    fp16: Rate | None = None
    """Half precision, fp32 accumulation."""
    bf16: Rate | None = None
    """bfloat16, fp32 accumulation."""
    fp8: Rate | None = None
    """8 bits, fp32 accumulation."""


class RatesEntry(SomeRates):
    """Peak dense matrix rates by precision; a precision that the card has no unit for is left out."""

    fp32: Rate
    """Plain single precision."""


class SomeLink(Entry):
    """How the GPUs of one machine are connected."""

    kind: LinkKind | None = None
    """nvlink or pcie."""
    bandwidth: LinkBandwidth | None = None
    """Per GPU and direction."""


class GpuLinkEntry(SomeLink):
    """How the GPUs of one machine are connected."""

    kind: LinkKind
    """nvlink or pcie."""
    bandwidth: LinkBandwidth
    """Per GPU and direction."""


class GpuEntry(Entry):
    """One GPU type."""

    name: Name
    """How cluster files name it."""
    label: Text
    """The vendor's name."""
    aliases: list[Name] = Field(default_factory=list)
    """Other names that mean the same."""
    capability: Capability
    """CUDA compute capability."""
    memory: Memory
    """Memory of one GPU, as its driver reports it."""
    memory_bandwidth: MemoryBandwidth
    """Peak memory bandwidth."""
    rates: RatesEntry
    """Peak matrix rates."""
    link: GpuLinkEntry
    """How the GPUs of one machine are connected."""
    power: Power | None = None
    """What the card may draw, as its datasheet says."""
    price: Rent
    """Rent of one GPU; cluster files may override it."""
    price_source: Text = ""
    """Where the price comes from."""
    source: Text
    """Where the figures come from."""


class GpusFile(Entry):
    """The file of GPU types."""

    gpus: Annotated[list[GpuEntry], Field(min_length=1)]
    """The types."""


@cache
def load_gpus() -> Mapping[str, GpuType]:
    """All bundled GPU types by name and by alias."""
    return read_gpus(read_document(data_path("gpus.yaml")))


def read_gpus(document: Document) -> Mapping[str, GpuType]:
    """The GPU types of a document, by name and by alias; InputError for a name that is given twice."""
    types: dict[str, GpuType] = {}
    for index, entry in enumerate(validate(document, GpusFile).gpus):
        gpu_type = _type(entry)
        for name in (entry.name, *entry.aliases):
            if name in types:
                raise InputError(f"GPU {name!r} is given twice", where=document.where(("gpus", index)))
            types[name] = gpu_type
    return MappingProxyType(types)


def gpu(name: str) -> GpuType:
    """The GPU type of that name or alias, in any case; InputError with the nearest known one otherwise."""
    types = load_gpus()
    found = types.get(name) or types.get(name.lower())
    if found is None:
        raise InputError(f"unknown GPU {name!r}", hint=nearest(name.lower(), types))
    return found


def rates_of(entry: SomeRates | None) -> dict[Precision, float]:
    """The rates that an entry gives, in FLOP/s; none without one."""
    found = {precision: getattr(entry, precision.value, None) for precision in Precision}
    return {precision: rate for precision, rate in found.items() if rate is not None}


def _type(entry: GpuEntry) -> GpuType:
    return GpuType(
        name=entry.name,
        memory=entry.memory,
        memory_bandwidth=entry.memory_bandwidth,
        rates=rates_of(entry.rates),
        link_bandwidth=entry.link.bandwidth,
        link_kind=entry.link.kind,
        price=entry.price,
        label=entry.label,
        capability=entry.capability,
        source=entry.source,
        power=entry.power,
    )
