"""From what agents find and people say to the machines of a cluster file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hulk.domain.gpu import GpuType
from hulk.errors import InputError
from hulk.io.agents_file import Given
from hulk.io.fields import Several
from hulk.io.gpus import gpu, load_gpus
from hulk.text import one_line
from hulk.units import format_bandwidth, format_size

MEMORY_SAME = 0.02
"""Share by which a driver's figure may differ from the catalogue's."""
_MOST_WORDS = 300


@dataclass(frozen=True, slots=True)
class FoundMachine:
    """A machine as the cluster file has it. `memory` of one GPU in bytes and `price` in dollars a second where they are
    not the type's; `network` None where nobody knows; `words` are what its agent found, for people."""

    name: str
    region: str
    gpu: str
    gpus: int
    memory: float | None = None
    network: Several | None = None
    price: float | None = None
    words: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """What an agent found: the names of the GPUs, the memory of the smallest and the rate of the fastest card in SI
    units (None: not known), and why there are no GPUs, where there are none."""

    gpus: tuple[str, ...]
    memory: float | None
    card: float | None
    why: str


def seen(facts: Mapping[str, Any]) -> Seen:
    """An agent's facts, which may lack anything."""
    here = [each for each in facts.get("gpus") or () if isinstance(each, dict)]
    sizes = [float(each["memory"]) for each in here if isinstance(each.get("memory"), int | float)]
    fastest = _network(facts)
    return Seen(
        tuple(_plain(str(each.get("name"))) for each in here),
        min(sizes, default=None),
        None if fastest is None else fastest.each,
        "" if here else _plain("; ".join(_absent(facts, "GPU"))),
    )


def known_gpu(name: str) -> GpuType | None:
    """The GPU type that a driver's name means ("NVIDIA H100 80GB HBM3"); None where Hulk does not know it."""
    types = load_gpus()
    slug = _slug(name)
    for each in (slug, slug.removeprefix("nvidia-"), slug.removeprefix("nvidia-geforce-")):
        if each in types:
            return types[each]
    return next((each for each in types.values() if _slug(each.label) == slug), None)


def found_machines(given: Sequence[Given], facts: dict[str, dict[str, Any]]) -> list[FoundMachine]:
    """The machines; InputError that names all whose GPUs nobody knows."""
    found, unknown = [], []
    for each in given:
        try:
            found.append(_machine(each, facts[each.name]))
        except InputError as error:
            unknown.append(f"{each.name}: {error}")
    if unknown:
        hint = "say it where the machine is listed: gpu: a100-80, gpus: 8"
        raise InputError(f"it is not known which GPUs these machines have: {'; '.join(unknown)}", hint=hint)
    return found


def _machine(given: Given, facts: dict[str, Any]) -> FoundMachine:
    here = [each for each in facts.get("gpus") or () if isinstance(each, dict)]
    if given.gpu is not None:
        kind: GpuType | None = gpu(given.gpu)
    else:
        names = sorted({str(each.get("name")) for each in here})
        if not names:
            raise InputError("; ".join(_absent(facts, "GPU")) or "no GPU found")
        if len(names) > 1:
            raise InputError(f"GPUs of several types: {_plain(', '.join(names))}")
        kind = known_gpu(names[0])
        if kind is None:
            raise InputError(f"a GPU that `hulk list gpus` does not have: {_plain(names[0])}")
    assert kind is not None
    count = given.gpus or len(here)
    if not count:
        raise InputError("it is not known how many")
    return FoundMachine(
        name=given.name,
        region=given.region,
        gpu=kind.name,
        gpus=count,
        memory=given.memory or _memory(kind, here),
        network=given.network or _network(facts),
        price=given.price,
        words=describe(facts),
    )


def _memory(kind: GpuType, here: list[dict[str, Any]]) -> float | None:
    """Bytes of the smallest GPU, where that is not the type's usual."""
    sizes = [float(each["memory"]) for each in here if isinstance(each.get("memory"), int | float)]
    if not sizes or abs(min(sizes) / kind.memory - 1) <= MEMORY_SAME:
        return None
    if min(sizes) > 1.1 * kind.memory:
        raise InputError(f"a {kind.name} has {format_size(kind.memory)}, these have {format_size(min(sizes))}")
    return min(sizes)


def _network(facts: Mapping[str, Any]) -> Several | None:
    """The fastest card: which of several carry the flows is not known."""
    rates = [float(card["bytes_per_s"]) for card in _cards(facts) if isinstance(card.get("bytes_per_s"), int | float)]
    return Several(1, max(rates)) if rates else None


def describe(facts: dict[str, Any]) -> str:
    """A machine's facts on one line."""
    parts = [f"host {facts.get('hostname')}", f"{facts.get('cores')} cores"]
    if isinstance(facts.get("memory"), int | float):
        parts.append(format_size(float(facts["memory"])))
    names = [str(each.get("name")) for each in facts.get("gpus") or () if isinstance(each, dict)]
    for name in sorted(set(names)):
        parts.append(f"{names.count(name)} × {name}")
    if facts.get("gpu_link"):
        parts.append(f"GPUs linked by {facts['gpu_link']}")
    for card in _cards(facts):
        rate = card.get("bytes_per_s")
        parts.append(
            f"{card.get('name')} {format_bandwidth(float(rate)) if isinstance(rate, int | float) else ''}".strip()
        )
    absent = _absent(facts, "")
    return _plain(", ".join(parts) + (f"; absent: {', '.join(absent)}" if absent else ""))


def _cards(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [card for card in facts.get("cards") or () if isinstance(card, dict)]


def _absent(facts: Mapping[str, Any], word: str) -> list[str]:
    return [str(each) for each in facts.get("absent") or () if word in str(each)]


def _plain(text: str) -> str:
    """What an agent sent, on one line that cannot be more than a comment."""
    line = one_line("".join(c if c.isprintable() else " " for c in text))
    return line if len(line) <= _MOST_WORDS else line[: _MOST_WORDS - 1] + "…"


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
