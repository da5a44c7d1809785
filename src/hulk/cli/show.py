"""`hulk show`: a cluster as people see it."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import Annotated

import typer
from rich.console import Console

from hulk.cli.catalogue import GPU_NOTE, gpu_table
from hulk.cli.screen import console, styled, table
from hulk.cli.settings import SetOption, with_settings
from hulk.domain.cluster import Cluster, Link, Machine, Origin, pair
from hulk.text import one_line
from hulk.units import format_bandwidth, format_money, format_size, format_time

_MOST_COLUMNS = 16


def show(
    cluster: Annotated[str, typer.Argument(help="a cluster file, or the name of a bundled cluster")],
    settings: SetOption = None,
) -> None:
    """Print a cluster: its regions and machines, a latency table, what is measured and what is estimated."""
    from hulk.io.cluster_file import load_cluster

    render(with_settings(load_cluster(cluster), settings, quiet=False), console())


def render(cluster: Cluster, screen: Console) -> None:
    """Draw a cluster."""
    price = sum(machine.price for machine in cluster.machines) * 3600
    memory = sum(machine.memory * machine.gpus for machine in cluster.machines)
    facts = (
        f": {_count(len(cluster.machines), 'machine')} with "
        f"{_count(cluster.gpu_count, 'GPU')} ({format_size(memory)}) in {_count(len(cluster.regions), 'region')}, "
        f"{format_money(price)} an hour"
    )
    screen.print(styled((cluster.name, "bold"), facts))
    if cluster.about:
        screen.print(one_line(cluster.about), style="dim")
    screen.print()
    _machines(cluster, screen)
    screen.print()
    _own_gpus(cluster, screen)
    _latencies(cluster, screen)
    screen.print()
    _origins(cluster, screen)
    _storage(cluster, screen)
    for source in cluster.sources:
        screen.print(f"source: {one_line(source)}", style="dim")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _machines(cluster: Cluster, screen: Console) -> None:
    rows = table("region", "machines", "GPUs", "memory", "network", "price/h", right=("memory", "network", "price/h"))

    inside: dict[str, list[Machine]] = {region.name: [] for region in cluster.regions}
    for machine in cluster.machines:
        inside[machine.region].append(machine)
    last = None
    for region in cluster.regions:
        for _, same in groupby(sorted(inside[region.name], key=_spec), key=_spec):
            members = list(same)
            first = members[0]
            rows.add_row(
                "" if region.name == last else one_line(region.label) or region.name,
                _names([machine.name for machine in members]),
                f"{first.gpus} × {first.gpu.name}",
                format_size(first.memory),
                format_bandwidth(first.card) if first.cards == 1 else f"{first.cards} × {format_bandwidth(first.card)}",
                format_money(first.price * 3600),
            )
            last = region.name
    screen.print(rows)


def _own_gpus(cluster: Cluster, screen: Console) -> None:
    """The GPU types that the cluster file brings."""
    if cluster.gpus:
        screen.print(gpu_table(cluster.gpus, own=True))
        screen.print(f"GPU types of this cluster's own; {GPU_NOTE}, lowered by a power limit", style="dim")
        screen.print()


def _storage(cluster: Cluster, screen: Console) -> None:
    """How fast regions read checkpoints, those that are alike together."""
    rates: dict[float, list[str]] = {}
    for name, rate in cluster.storage.items():
        rates.setdefault(rate, []).append(name)
    words = [f"{format_bandwidth(rate)} in {_names(names)}" for rate, names in rates.items()]
    if words:
        screen.print(f"checkpoints are read at {'; '.join(words)}", style="dim")


def _spec(machine: Machine) -> tuple[float, str, int, float, int, float]:
    """What makes machines alike, large ones first."""
    return (
        -machine.gpus * machine.memory,
        machine.gpu.name,
        machine.gpus,
        machine.network,
        machine.cards,
        machine.price,
    )


def _names(names: list[str]) -> str:
    if len(names) <= 6:
        return ", ".join(names)
    return f"{names[0]} … {names[-1]} ({len(names)})"


def _latencies(cluster: Cluster, screen: Console) -> None:
    """One way, in milliseconds; ~ marks an estimate, × a blocked pair."""
    regions = cluster.regions
    shown = regions[:_MOST_COLUMNS]
    sizes = Counter(machine.region for machine in cluster.machines)
    alone = {region.name for region in regions if sizes[region.name] < 2}
    measured = _measured_pairs(cluster)
    rows = table("latency (ms)", *(r.name for r in shown), right=[r.name for r in shown])
    for i, a in enumerate(shown):
        cells = []
        for j, b in enumerate(shown):
            inside_one = i == j and a.name in alone
            link = cluster.region_link(a.name, b.name)
            cells.append("" if j < i else "·" if inside_one else _cell(link, pair(a.name, b.name) in measured))
        rows.add_row(a.name, *cells)
    screen.print(rows)
    screen.print("one way, typical of the pair; ~ no two machines of it measured, × blocked", style="dim")
    if len(regions) > len(shown):
        screen.print(f"and {_count(len(regions) - len(shown), 'more region')}", style="dim")


def _measured_pairs(cluster: Cluster) -> set[tuple[str, str]]:
    """The pairs of regions with a measured link, be it between two of their machines only."""
    found = {key for key, link in cluster.region_links.items() if link.origin is Origin.MEASURED}
    for (a, b), link in cluster.machine_links.items():
        if link.origin is Origin.MEASURED:
            found.add(pair(cluster.machine(a).region, cluster.machine(b).region))
    return found


def _cell(link: Link, measured: bool) -> str:
    if link.blocked:
        return "×"
    return f"{'' if measured else '~'}{link.latency * 1e3:.3g}"


def _origins(cluster: Cluster, screen: Console) -> None:
    """Pairs of machines by where their latency and bandwidth come from."""
    if len(cluster.machines) < 2:
        return
    latency = Counter(dict.fromkeys(Origin, 0))
    bandwidth = Counter(dict.fromkeys(Origin, 0))

    def add(link: Link, count: int) -> None:
        latency[link.latency_origin] += count
        bandwidth[link.bandwidth_origin] += count

    sizes = Counter(machine.region for machine in cluster.machines)
    for (a, b), link in cluster.region_links.items():
        add(link, sizes[a] * sizes[b] if a != b else sizes[a] * (sizes[a] - 1) // 2)
    for (a, b), link in cluster.machine_links.items():  # these have a link of their own
        add(cluster.region_link(cluster.machine(a).region, cluster.machine(b).region), -1)
        add(link, 1)
    rows = table("pairs of machines", *(str(o) for o in Origin), right=[str(o) for o in Origin])
    rows.add_row("latency", *(f"{latency[o]:,}" for o in Origin))
    rows.add_row("bandwidth", *(f"{bandwidth[o]:,}" for o in Origin))
    screen.print(rows)
    links = [link for link in cluster.region_links.values() if not link.blocked]
    if links:
        slowest = max(links, key=lambda link: link.latency)
        screen.print(
            f"the longest way takes {format_time(slowest.latency)}, at {format_bandwidth(slowest.bandwidth)} a flow",
            style="dim",
        )
