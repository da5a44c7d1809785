"""The GPU types Hulk knows, from data/gpus.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Annotated

from pydantic import Field

from hulk.domain.gpu import GpuType, Precision
from hulk.errors import InputError, nearest
from hulk.io.fields import Entry, Name, Quantity, Text, validate
from hulk.io.files import data_path
from hulk.io.yamlfile import Document, read_document
from hulk.units import Dimension

Rate = Annotated[float, Quantity(Dimension.RATE, "312 TFLOP/s", most=1e18)]


class RatesEntry(Entry):
    """Peak dense matrix rates by precision; a precision that the card has no unit for is left out."""

    fp32: Rate
    """Plain single precision."""
    tf32: Rate | None = None
    """fp32 storage, tensor core products."""
    fp16: Rate | None = None
    """Half precision, fp32 accumulation."""
    bf16: Rate | None = None
    """bfloat16, fp32 accumulation."""
    fp8: Rate | None = None
    """8 bits, fp32 accumulation."""


class GpuLinkEntry(Entry):
    """How the GPUs of one machine are connected."""

    kind: Text
    """nvlink or pcie."""
    bandwidth: Annotated[float, Quantity(Dimension.BANDWIDTH, "300 GB/s", most=1e14)]
    """Per GPU and direction."""


class GpuEntry(Entry):
    """One GPU type."""

    name: Name
    """How cluster files name it."""
    label: Text
    """The vendor's name."""
    aliases: list[Name] = Field(default_factory=list)
    """Other names that mean the same."""
    capability: Text
    """CUDA compute capability."""
    memory: Annotated[float, Quantity(Dimension.SIZE, "80 GiB", most=1e14)]
    """Memory of one GPU, as its driver reports it."""
    memory_bandwidth: Annotated[float, Quantity(Dimension.BANDWIDTH, "2 TB/s", most=1e15)]
    """Peak memory bandwidth."""
    rates: RatesEntry
    """Peak matrix rates."""
    link: GpuLinkEntry
    """How the GPUs of one machine are connected."""
    price: Annotated[float, Quantity(Dimension.HOURLY, "2.50 $/h", most=1e3, zero=True)]
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


def _type(entry: GpuEntry) -> GpuType:
    rates = {precision: getattr(entry.rates, precision.value) for precision in Precision}
    return GpuType(
        name=entry.name,
        memory=entry.memory,
        memory_bandwidth=entry.memory_bandwidth,
        rates={precision: rate for precision, rate in rates.items() if rate is not None},
        link_bandwidth=entry.link.bandwidth,
        link_kind=entry.link.kind,
        price=entry.price,
        label=entry.label,
        capability=entry.capability,
        source=entry.source,
    )
