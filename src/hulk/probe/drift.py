"""What has changed since a cluster file was written: its links beside those that were measured now, and its machines
beside what their agents found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hulk.domain.cluster import Cluster, Link, Machine
from hulk.io.agents_file import Given
from hulk.io.gpus import gpu, load_gpus
from hulk.probe.links import FoundLink
from hulk.probe.machines import MEMORY_SAME, Seen, known_gpu, seen
from hulk.units import format_bandwidth, format_size

_SHARE = 0.10
_SLACK = 0.3e-3  # seconds


@dataclass(frozen=True, slots=True)
class Drift:
    """A link as the file has it, and as it is; `changed` names what has drifted: latency, bandwidth, trunk, blocked,
    open."""

    was: Link
    now: FoundLink
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MachineDrift:
    """A machine of the file; `changed` says what has drifted: by what (GPUs, type, memory, network), how the file has
    it and how it is."""

    machine: str
    changed: Mapping[str, tuple[str, str]]


def drifted_machines(
    cluster: Cluster, given: Sequence[Given], facts: Mapping[str, Mapping[str, Any]]
) -> list[MachineDrift]:
    """All machines that were looked at, in their order. What a person says of one wins over what its agent found; what
    nobody knows has not drifted."""
    return [
        MachineDrift(each.name, {what: (was, now) for what, was, now in _of_machine(cluster, each, facts[each.name])})
        for each in given
    ]


def _of_machine(cluster: Cluster, given: Given, facts: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    was, now = cluster.machine(given.name), seen(facts)
    had, has = f"{was.gpus} × {was.gpu.name}", f"{len(now.gpus)} × {', '.join(sorted(set(now.gpus)))}"
    if not now.gpus and given.gpus is None:
        yield "GPUs", had, f"none found ({now.why})" if now.why else "none found"
    elif (given.gpus or len(now.gpus)) != was.gpus:
        yield "GPUs", had, has if given.gpus is None else f"{given.gpus} × {given.gpu or was.gpu.name}"
    kinds = _kinds(was, given, now)
    if kinds - {was.gpu.name}:
        yield "type", was.gpu.name, ", ".join(sorted(kinds))
    else:  # another type has another memory
        memory = given.memory or now.memory
        if memory is not None and abs(memory / was.memory - 1) > MEMORY_SAME:
            yield "memory", format_size(was.memory), format_size(memory)
    card = now.card if given.network is None else given.network.each
    if card is not None and abs(card / was.card - 1) > _SHARE:
        yield "network", f"{format_bandwidth(was.card)} a card", f"{format_bandwidth(card)} a card"


def _kinds(was: Machine, given: Given, now: Seen) -> set[str]:
    """The types of the GPUs that are there. A type of the cluster's own has no name that a driver would know."""
    if given.gpu is not None:
        return {given.gpu if given.gpu == was.gpu.name else gpu(given.gpu).name}
    if was.gpu.name not in load_gpus():
        return set()
    return {name if (kind := known_gpu(name)) is None else kind.name for name in now.gpus}


def drift(cluster: Cluster, links: Sequence[FoundLink]) -> list[Drift]:
    """All links that were measured, in their order."""
    found = []
    for now in links:
        was = cluster.link(*now.ends) if now.machines else cluster.region_link(*now.ends)
        found.append(Drift(was, now, tuple(_changed(was, now))))
    return found


def _changed(was: Link, now: FoundLink) -> list[str]:
    if was.blocked or now.blocked:
        return [] if was.blocked and now.blocked else ["blocked" if now.blocked else "open"]
    changed = []
    if now.latency is not None and abs(now.latency - was.latency) > max(_SLACK, _SHARE * was.latency):
        changed.append("latency")
    if now.bandwidth is not None and abs(now.bandwidth - was.bandwidth) > _SHARE * was.bandwidth:
        changed.append("bandwidth")
    if not now.machines and now.bandwidth is not None and _other_trunk(was, now):
        changed.append("trunk")
    return changed


def _other_trunk(was: Link, now: FoundLink) -> bool:
    """A trunk that carries as much as the flow itself is no news."""
    before = was.trunk if was.trunk is not None else was.bandwidth
    after = now.trunk if now.trunk is not None else now.bandwidth
    if before is None or after is None or (was.trunk is None and now.trunk is None):
        return False
    return abs(after - before) > _SHARE * before
