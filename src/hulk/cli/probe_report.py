"""What `hulk probe` prints of a survey, and of what has drifted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console

from hulk.cli.screen import table
from hulk.probe.drift import Drift, MachineDrift
from hulk.probe.links import FoundLink
from hulk.probe.machines import FoundMachine
from hulk.units import format_bandwidth, format_size, format_time

if TYPE_CHECKING:
    from hulk.probe.survey import Survey

_NUMBERS = ("latency", "bandwidth", "trunk")


def render_survey(found: Survey, links: Sequence[FoundLink], machines: Sequence[FoundMachine], screen: Console) -> None:
    """The machines and links that were found."""
    rows = table("machine", "region", "GPUs", "found there")
    for machine in machines:
        rows.add_row(machine.name, machine.region, f"{machine.gpus} × {machine.gpu}", machine.words)
    screen.print(rows)
    screen.print()
    rows = table("link", *_NUMBERS, "spread", "", right=_NUMBERS)
    for link in links:
        rows.add_row(_ends(link), *_cells(link), _spread(link), link.note)
    screen.print(rows)
    screen.print(
        f"{len(found.readings)} measurements of {len(found.trips)} pairs that reach each other, {len(found.blocked)} "
        f"blocked; {format_size(found.size)} sent in {format_time(found.seconds)}",
        style="dim",
        soft_wrap=True,
    )


def render_drift(drifts: Sequence[Drift], screen: Console) -> None:
    """Every link as the file has it and as it is."""
    numbers = ("latency", "is", "bandwidth", "is ", "trunk", "is  ")
    rows = table("link", *numbers, "drifted", right=numbers)
    for each in drifts:
        was = each.was
        before = ("blocked", "–", "–") if was.blocked else _figures(was.latency, was.bandwidth, was.trunk)
        if each.now.machines:
            before = (*before[:2], "–")  # a trunk is the regions'
        now = _cells(each.now)
        cells = [cell for both in zip(before, now, strict=True) for cell in both]
        rows.add_row(_ends(each.now), *cells, ", ".join(each.changed))
    screen.print(rows)
    changed = sum(bool(each.changed) for each in drifts)
    screen.print(f"{changed} of {len(drifts)} links have drifted by more than 10 %; latency one way", style="dim")


def render_machines(machines: Sequence[MachineDrift], screen: Console) -> None:
    """The machines that are not as the file has them."""
    rows = table("machine", "drifted", "was", "is")
    for machine in machines:
        for what, (was, now) in machine.changed.items():
            rows.add_row(machine.machine, what, was, now)
    changed = sum(bool(machine.changed) for machine in machines)
    if changed:
        screen.print(rows)
        screen.print()
    screen.print(f"{changed} of {len(machines)} machines are not as the file has them", style="dim")


def survey_json(
    found: Survey,
    links: Sequence[FoundLink],
    drifts: Sequence[Drift] | None,
    machines: Sequence[MachineDrift] = (),
) -> dict[str, Any]:
    """For programs: seconds one way, bytes/s; null where nothing was measured."""
    changed = [[]] * len(links) if drifts is None else [list(each.changed) for each in drifts]
    return {
        "hulk": "probe/1",
        "seconds": found.seconds,
        "bytes": found.size,
        "machines": found.facts,
        "links": [
            {
                "between": list(link.ends),
                "machines": link.machines,
                "blocked": bool(link.blocked),
                "why": link.blocked or None,
                "latency_s": link.latency,
                "latency_spread_s": link.latency_spread,
                "bytes_per_s": link.bandwidth,
                "bytes_per_s_spread": link.bandwidth_spread,
                "trunk_bytes_per_s": link.trunk,
                "measured": not link.guessed,
                **({} if drifts is None else {"drifted": drifted}),
            }
            for link, drifted in zip(links, changed, strict=True)
        ],
        "missed": found.missed,
        **(
            {}
            if drifts is None
            else {
                "drifted_machines": {
                    each.machine: {what: {"was": was, "is": now} for what, (was, now) in each.changed.items()}
                    for each in machines
                    if each.changed
                }
            }
        ),
    }


def _ends(link: FoundLink) -> str:
    a, b = link.ends
    return f"inside {a}" if a == b else f"{a} – {b}"


def _cells(link: FoundLink) -> tuple[str, str, str]:
    if link.blocked:
        return f"blocked ({link.blocked})", "–", "–"
    latency, bandwidth, trunk = _figures(link.latency, link.bandwidth, link.trunk)
    return "~" * link.guessed + latency, bandwidth, trunk


def _figures(latency: float | None, bandwidth: float | None, trunk: float | None) -> tuple[str, str, str]:
    return (
        "–" if latency is None else format_time(latency),
        "–" if bandwidth is None else format_bandwidth(bandwidth),
        "–" if trunk is None else format_bandwidth(trunk),
    )


def _spread(link: FoundLink) -> str:
    if link.latency_spread is None or link.bandwidth_spread is None:
        return ""
    low, high = link.latency_spread
    least, most = link.bandwidth_spread
    return f"{format_time(low)} to {format_time(high)}, {format_bandwidth(least)} to {format_bandwidth(most)}"
