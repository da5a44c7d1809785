"""What has changed since a cluster file was written: its links beside those that were measured now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hulk.domain.cluster import Cluster, Link
from hulk.probe.links import FoundLink

_SHARE = 0.10
_SLACK = 0.3e-3  # seconds


@dataclass(frozen=True, slots=True)
class Drift:
    """A link as the file has it, and as it is; `changed` names what has drifted: latency, bandwidth, trunk, blocked,
    open."""

    was: Link
    now: FoundLink
    changed: tuple[str, ...]


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
