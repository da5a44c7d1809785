"""What a survey's figures say of the links: one for every two regions and for inside each, and those that differ.

Latency and the bandwidth of one flow are medians over the pairs that were measured. Two regions share a line (`trunk`)
where pairs at once carried clearly less than the same pairs one after the other; where there is only one pair, where
its several flows carried clearly less than several times what one does.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement

from hulk.domain.cluster import pair
from hulk.probe.schedule import Pair
from hulk.probe.survey import Reading, Survey

Range = tuple[float, float]

SHARED = 0.85
"""Of what flows carry apart: those that carry less together share something."""
_LATENCY_SHARE, _LATENCY_SLACK, _BANDWIDTH_SHARE = 0.05, 0.3e-3, 0.10  # beyond these a pair has a link of its own


@dataclass(frozen=True, slots=True)
class FoundLink:
    """Between two regions (the same twice: inside it) or, with `machines`, two machines. Seconds one way, bytes/s; with
    the spread of each. None: not measured; `blocked` has the reason where the ends do not reach each other. `guessed`:
    the latency is that of opening a connection once. `note` is for people."""

    ends: Pair
    machines: bool = False
    latency: float | None = None
    bandwidth: float | None = None
    trunk: float | None = None
    latency_spread: Range | None = None
    bandwidth_spread: Range | None = None
    blocked: str = ""
    guessed: bool = False
    note: str = ""


def found_links(found: Survey) -> list[FoundLink]:
    """The links of a survey: those of regions first, then machines that differ from them."""
    regions = sorted(set(found.regions.values()))
    links: list[FoundLink] = []
    exceptions: list[FoundLink] = []
    for between in combinations_with_replacement(regions, 2):
        blocked = _of(found, between, found.blocked)
        open_pairs = _of(found, between, found.trips)
        if not blocked and not open_pairs:
            continue  # one machine alone
        readings = [each for each in found.readings if _between(found, (each.source, each.target)) == between]
        if not open_pairs:
            links.append(FoundLink(between, blocked=found.blocked[blocked[0]]))
            continue
        exceptions += [FoundLink(ends, machines=True, blocked=found.blocked[ends]) for ends in blocked]
        if not readings:
            trip = statistics.median(found.trips[ends] for ends in open_pairs)
            links.append(FoundLink(between, latency=trip / 2, guessed=True, note="not measured; one call's round trip"))
            continue
        whole = _link(between, readings)
        trunk, note = _trunk(found, between, readings)
        links.append(replace(whole, trunk=trunk, note=note))
        exceptions += _exceptions(whole, readings)
    return [*links, *sorted(exceptions, key=lambda each: each.ends)]


def _between(found: Survey, ends: Pair) -> Pair:
    return pair(found.regions[ends[0]], found.regions[ends[1]])


def _of(found: Survey, between: Pair, pairs: dict[Pair, str] | dict[Pair, float]) -> list[Pair]:
    """Those pairs of machines that are of these two regions."""
    return sorted(ends for ends in pairs if _between(found, ends) == between)


def _link(ends: Pair, readings: Sequence[Reading], *, machines: bool = False) -> FoundLink:
    trips = [trip / 2 for each in readings for trip in each.trips]
    bins = [rate for each in readings for rate in each.one.bins]
    return FoundLink(
        ends,
        machines=machines,
        latency=statistics.median(each.latency for each in readings),
        bandwidth=statistics.median(each.one.rate for each in readings),
        latency_spread=spread(trips),
        bandwidth_spread=spread(bins),
    )


def spread(values: Sequence[float]) -> Range:
    """The 10th and the 90th of a hundred."""
    if len(values) < 2:
        return values[0], values[0]
    tenths = statistics.quantiles(values, n=10, method="inclusive")
    return tenths[0], tenths[-1]


def _exceptions(whole: FoundLink, readings: Sequence[Reading]) -> list[FoundLink]:
    """Pairs that are further from the regions' figures than noise is."""
    assert whole.latency is not None and whole.bandwidth is not None
    by_pair: dict[Pair, list[Reading]] = {}
    for each in readings:
        by_pair.setdefault(pair(each.source, each.target), []).append(each)
    found = []
    for ends, own in by_pair.items():
        link = _link(ends, own, machines=True)
        assert link.latency is not None and link.bandwidth is not None
        late = abs(link.latency - whole.latency) > max(_LATENCY_SLACK, _LATENCY_SHARE * whole.latency)
        if late or abs(link.bandwidth - whole.bandwidth) > _BANDWIDTH_SHARE * whole.bandwidth:
            found.append(link)
    return found


def _trunk(found: Survey, between: Pair, readings: Sequence[Reading]) -> tuple[float | None, str]:
    """What two regions share, in bytes/s (None: nothing was found), and words on how far it was looked for."""
    first = next((each for each in readings if each.several is not None and each.one.rate > 0), None)
    if between[0] == between[1] or first is None or first.several is None:
        return None, ""
    more = max(1.0, first.several.rate / first.one.rate)  # what several flows gain over one
    together = found.together.get(between)
    if together is not None:
        one = {pair(each.source, each.target): each.one.rate for each in readings}
        apart = sum(one.get(pair(*ends), first.one.rate) for ends in together.pairs) * more
        if together.carried.rate < SHARED * apart:
            return max(together.carried.rate, first.one.rate), ""
        return None, f"{len(together.pairs)} pairs at once shared nothing"
    count = sum(_between(found, ends) == between for ends in found.trips)
    if count > 1:
        return None, ""
    if more < SHARED * found.flows:
        return max(first.several.rate, first.one.rate), ""
    return None, f"{found.flows} flows at once shared nothing"
