"""A survey as a cluster file: what was measured, when, and its spread; what the format has no word for is a comment."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hulk.probe.links import FoundLink
from hulk.probe.machines import FoundMachine
from hulk.units import Dimension, written

if TYPE_CHECKING:
    from hulk.io.cluster_file import RegionEntry

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")
_WORDS = {"null", "true", "false"}


@dataclass(frozen=True, slots=True)
class Made:
    """When a file was made (the day, as 2026-11-30), and how, in words."""

    day: str
    words: str


def cluster_text(
    name: str,
    regions: Mapping[str, RegionEntry],
    machines: Sequence[FoundMachine],
    links: Sequence[FoundLink],
    made: Made,
) -> str:
    """A whole cluster file."""
    lines = [*_head(name, made), "regions:"]
    for region in sorted({machine.region for machine in machines}):
        lines.append(f"  {quoted(region)}: {{{', '.join(_region(regions.get(region)))}}}")
    lines.append("machines:")
    for machine in machines:
        lines += [f"  # {machine.words}"] * bool(machine.words)
        lines.append(f"  - {{{', '.join(_machine(machine))}}}")
    return "\n".join([*lines, *_links(links, made), ""])


def update_text(name: str, extends: str, links: Sequence[FoundLink], made: Made) -> str:
    """A cluster file that brings new links to another one."""
    return "\n".join([*_head(name, made), f"extends: {json.dumps(extends)}", *_links(links, made), ""])


def quoted(name: str) -> str:
    """A name as YAML has it: in quotes where it would be a number or a word of YAML's."""
    return name if _PLAIN.fullmatch(name) and name.lower() not in _WORDS else json.dumps(name)


def _head(name: str, made: Made) -> list[str]:
    return ["hulk: cluster/1", f"name: {quoted(name)}", f"about: {json.dumps(made.words, ensure_ascii=False)}"]


def _region(entry: RegionEntry | None) -> list[str]:
    if entry is None:
        return []
    parts = [f"label: {json.dumps(entry.label, ensure_ascii=False)}"] * bool(entry.label)
    if entry.at is not None:
        parts.append(f"at: [{entry.at[0]:g}, {entry.at[1]:g}]")
    return parts + [f"egress: {entry.egress * 1e9:.6g} $/GB"] * bool(entry.egress)


def _machine(machine: FoundMachine) -> list[str]:
    parts = [f"name: {quoted(machine.name)}", f"region: {quoted(machine.region)}"]
    parts += [f"gpu: {quoted(machine.gpu)}", f"gpus: {machine.gpus}"]
    if machine.memory is not None:
        parts.append(f"memory: {written(machine.memory, Dimension.SIZE)}")
    if machine.network is not None:
        several = f"{machine.network.count} x " if machine.network.count > 1 else ""
        parts.append(f"network: {several}{written(machine.network.each, Dimension.BANDWIDTH)}")
    if machine.price is not None:
        parts.append(f"price: {written(machine.price, Dimension.HOURLY)}")
    return parts


def _links(links: Sequence[FoundLink], made: Made) -> list[str]:
    return ["links:", *(_link(link, made) for link in links)] if links else []


def _link(link: FoundLink, made: Made) -> str:
    a, b = link.ends
    parts = [f"inside: {quoted(a)}" if a == b else f"between: [{quoted(a)}, {quoted(b)}]"]
    if link.blocked:
        return f"  - {{{', '.join([*parts, 'blocked: true', f'measured: {made.day}'])}}}  # {link.blocked}"
    if link.latency is not None:
        parts.append(f"latency: {'~' * link.guessed}{_time(link.latency)}")
    if link.bandwidth is not None:
        parts.append(f"bandwidth: {_rate(link.bandwidth)}")
    if link.trunk is not None:
        parts.append(f"trunk: {_rate(link.trunk)}")
    if not link.guessed:
        parts.append(f"measured: {made.day}")
    spread = []
    if link.latency_spread is not None:
        spread.append(f"latency: [{', '.join(map(_time, link.latency_spread))}]")
    if link.bandwidth_spread is not None:
        spread.append(f"bandwidth: [{', '.join(map(_rate, link.bandwidth_spread))}]")
    parts += [f"spread: {{{', '.join(spread)}}}"] * bool(spread)
    return f"  - {{{', '.join(parts)}}}" + (f"  # {link.note}" if link.note else "")


def _time(seconds: float) -> str:
    return written(_four(seconds), Dimension.TIME)


def _rate(rate: float) -> str:
    return written(_four(max(rate, 1.0)), Dimension.BANDWIDTH)


def _four(value: float) -> float:
    """No measurement has more than four digits."""
    return float(f"{value:.4g}")
