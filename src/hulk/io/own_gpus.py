"""GPU types that a cluster file brings: whole ones, and variations of a known one ("like: a100-80, memory: 96 GiB")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from hulk.cost.power import LEAST_SHARE, rate_share
from hulk.domain.gpu import GpuType, Own, Precision
from hulk.errors import InputError, nearest
from hulk.io.fields import Entry, Name, Text
from hulk.io.gpus import (
    Capability,
    Memory,
    MemoryBandwidth,
    Power,
    Rent,
    SomeLink,
    SomeRates,
    load_gpus,
    rates_of,
)
from hulk.units import format_power

MAX_OWN_GPUS = 200


class OwnGpuEntry(Entry):
    """A GPU type of the cluster's own: a whole one, or a variation of a known one (`like`), which gives what is left
    out."""

    name: Name
    """How the machines of this file name it; no name of `hulk list gpus`."""
    like: Text | None = None
    """The known type that this is a variation of, or one further up in this list."""
    label: Text | None = None
    """The name for people."""
    capability: Capability | None = None
    """CUDA compute capability, in quotes: which of its units reach which share of their peak."""
    memory: Memory | None = None
    """Memory of one GPU, as its driver reports it."""
    memory_bandwidth: MemoryBandwidth | None = None
    """Peak memory bandwidth."""
    rates: SomeRates | None = None
    """Peak matrix rates; with `like`, those that are different."""
    link: SomeLink | None = None
    """How the GPUs of one machine are connected; with `like`, what of it is different."""
    power: Power | None = None
    """What the card may draw without a limit, as its datasheet says."""
    power_limit: Power | None = None
    """What it is limited to: this lowers the matrix rates, by the rule of docs/file-formats.md."""
    price: Rent | None = None
    """Rent of one GPU; nothing if not given, with `like` that type's."""
    source: Text | None = None
    """Where the figures come from."""

    @model_validator(mode="after")
    def _whole(self) -> OwnGpuEntry:
        if self.like is not None:
            return self
        given = {
            "memory": self.memory,
            "memory_bandwidth": self.memory_bandwidth,
            "rates": self.rates,
            "rates.fp32": self.rates and self.rates.fp32,
            "link": self.link,
            "link.kind": self.link and self.link.kind,
            "link.bandwidth": self.link and self.link.bandwidth,
        }
        missing = next((key for key, value in given.items() if value is None), None)
        if missing is not None:
            hint = "give it, or say which known GPU this one is like (like: a100-80)"
            raise PydanticCustomError("not_whole", "a whole GPU type needs {key}", {"key": missing, "hint": hint})
        return self


def own_gpu(entry: OwnGpuEntry, before: Mapping[str, GpuType]) -> GpuType:
    """The type of an entry. `before`: the cluster's own types so far, by name in lower case. InputError, not yet
    placed, where it cannot be."""
    key = entry.name.lower()
    if key in load_gpus():
        hint = f"choose another name, and write like: {key} where it is a variation of that one"
        raise InputError(f"{entry.name!r} is a GPU that Hulk knows already", hint=hint)
    if key in before:
        raise InputError(f"GPU {entry.name!r} is given twice", hint="every type needs its own name")
    made = _whole(entry) if entry.like is None else _variation(entry, gpu_here(entry.like, before))
    return made if entry.power_limit is None else _limited(made, entry.power_limit)


def gpu_here(name: str, own: Mapping[str, GpuType]) -> GpuType:
    """The type of that name, in any case: one of the cluster's own (by name in lower case), or of the catalogue."""
    known = load_gpus()
    found = own.get(name.lower()) or known.get(name) or known.get(name.lower())
    if found is None:
        raise InputError(f"unknown GPU {name!r}", hint=nearest(name.lower(), (*own, *known)))
    return found


def _whole(entry: OwnGpuEntry) -> GpuType:
    link = entry.link
    assert entry.memory and entry.memory_bandwidth and link and link.kind and link.bandwidth
    return GpuType(
        name=entry.name,
        memory=entry.memory,
        memory_bandwidth=entry.memory_bandwidth,
        rates=rates_of(entry.rates),
        link_bandwidth=link.bandwidth,
        link_kind=link.kind,
        price=entry.price or 0.0,
        label=entry.label or entry.name,
        capability=entry.capability or "",
        source=entry.source or "",
        power=entry.power,
        own=Own(),
    )


def _variation(entry: OwnGpuEntry, base: GpuType) -> GpuType:
    if entry.power_limit is not None and base.own is not None and base.own.power_limit is not None:
        raise InputError(f"{base.name!r} has a power_limit already", hint="write a variation of a GPU without one")
    changes = {
        key: value
        for key in ("memory", "memory_bandwidth", "price", "label", "capability", "source", "power")
        if (value := getattr(entry, key)) is not None
    }
    link = entry.link or SomeLink()
    made = replace(
        base,
        name=entry.name,
        rates={**base.rates, **rates_of(entry.rates)},
        link_kind=link.kind or base.link_kind,
        link_bandwidth=link.bandwidth or base.link_bandwidth,
        **changes,
    )
    before = base.own or Own(same_speed=True, same_link=True)
    own = replace(
        before,
        like=base.family,
        same_speed=before.same_speed and _speed(made) == _speed(base),
        same_link=before.same_link and (made.link_kind, made.link_bandwidth) == (base.link_kind, base.link_bandwidth),
    )
    return replace(made, own=own)


def _speed(gpu: GpuType) -> tuple[dict[Precision, float], float, str]:
    """What the time of a layer on one GPU depends on."""
    return dict(gpu.rates), gpu.memory_bandwidth, gpu.capability


def _limited(gpu: GpuType, limit: float) -> GpuType:
    """The type with the matrix rates that a power limit leaves it."""
    if gpu.power is None:
        hint = "give it beside the limit, as its datasheet says: power: 400 W"
        raise InputError(f"power_limit: what a {gpu.name} draws without a limit is not known", hint=hint)
    if limit > gpu.power:
        hint = "give its own power where yours may draw more"
        raise InputError(f"power_limit: more than the {format_power(gpu.power)} that a {gpu.name} draws", hint=hint)
    if limit < LEAST_SHARE * gpu.power:
        least = f"below {format_power(LEAST_SHARE * gpu.power)}, {LEAST_SHARE:.0%} of its power"
        hint = "leave the limit out, and give the rates that were measured"
        raise InputError(f"power_limit: nothing is known of a {gpu.name} {least}", hint=hint)
    share = rate_share(limit / gpu.power)
    own = gpu.own or Own()
    return replace(
        gpu,
        rates={precision: share * rate for precision, rate in gpu.rates.items()},
        own=replace(own, power_limit=limit, same_speed=own.same_speed and share == 1.0),
    )
