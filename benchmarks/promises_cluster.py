"""Draws clusters: regions, machines of mixed GPU types, links of which some are blocked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations
from math import exp, log
from random import Random
from typing import Any

from promises_case import Job, Machine, Network
from promises_models import gpus

PLACES = {
    "rome": (41.9, 12.5), "paris": (48.9, 2.4), "eu-oslo": (59.9, 10.8), "eu-dublin": (53.3, -6.3),
    "tokyo": (35.7, 139.7), "us-oregon": (45.6, -121.2), "us-ohio": (40.0, -83.0),
}  # fmt: skip
EFFICIENCY = 0.1  # of the GPUs' peak, over all: a rough guess to draw limits around


def log_uniform(rng: Random, low: float, high: float) -> float:
    """Three digits, so that what is written is what is meant."""
    return float(f"{exp(rng.uniform(log(low), log(high))):.3g}")


@dataclass
class ClusterDraw:
    """A cluster: its file, and what the checker must know of it."""

    rng: Random
    tiny: bool
    machines: list[Machine] = field(default_factory=list)
    groups: dict[str, list[Machine]] = field(default_factory=dict)
    rates: dict[str, tuple[float, float]] = field(default_factory=dict)  # half precision and fp32, of a whole machine
    document: dict[str, Any] = field(default_factory=dict)
    network: Network = field(default_factory=Network)

    def __post_init__(self) -> None:
        rng = self.rng
        names = rng.sample(sorted(PLACES), rng.choices((1, 2, 3, 4), (30, 35, 20, 15))[0])
        regions: dict[str, dict[str, Any]] = {name: {"at": list(PLACES[name])} for name in names}
        for entry in regions.values():
            if rng.random() < 0.3:
                entry["egress"] = f"{log_uniform(rng, 0.005, 0.2)} $/GB"
        self.document = {"regions": regions, "machines": self._entries(names), "links": []}
        self._links(names)

    def _entries(self, regions: list[str]) -> list[dict[str, Any]]:
        rng = self.rng
        types = rng.sample(gpus(), rng.choices((1, 2, 3, 4), (25, 35, 25, 15))[0])
        wanted = (
            rng.randint(1, 3) if self.tiny else rng.choices((1, rng.randint(2, 5), rng.randint(5, 10)), (8, 52, 40))[0]
        )
        entries: list[dict[str, Any]] = []
        while len(self.machines) < wanted:
            kind, name = rng.choice(types), f"{rng.choice('abcdefgh')}{len(entries)}"
            count = min(wanted - len(self.machines), rng.choices((1, 2, 3), (70, 20, 10))[0])
            many = (
                rng.choice((1, 1, 2))
                if self.tiny
                else rng.choices((1, 2, 3, 4, 5, 6, 7, 8), (25, 25, 5, 20, 3, 5, 2, 15))[0]
            )
            entry: dict[str, Any] = {"name": name, "count": count, "region": rng.choice(regions), "gpu": kind.name}
            entry["gpus"] = many
            memory, dollars = kind.memory, kind.dollars * many
            if rng.random() < 0.15:
                gib = round(kind.memory / 2**30 * rng.uniform(0.3, 1.05), 2)
                entry["memory"], memory = f"{gib} GiB", gib * 2**30
            if rng.random() < 0.6:
                entry["network"] = f"{rng.choice((1, 10, 25, 100))} Gbit/s"
            if rng.random() < 0.4:
                dollars = 0.0 if rng.random() < 0.05 else log_uniform(rng, 0.1, 30)
                entry["price"] = f"{dollars} $/h"
            entries.append({key: value for key, value in entry.items() if (key, value) != ("count", 1)})
            members = [name] if count == 1 else [f"{name}-{n}" for n in range(1, count + 1)]
            made = [Machine(each, entry["region"], many, memory, dollars) for each in members]
            self.machines += made
            for machine in made:
                self.rates[machine.name] = (kind.rate("fp16") * many, kind.rate("fp32") * many)
            if count > 1:
                self.groups[name] = made
        return entries

    def _links(self, names: list[str]) -> None:
        rng, links = self.rng, self.document["links"]
        assume: dict[str, Any] = {}
        if rng.random() < 0.06:
            assume["between"] = "blocked"
        if rng.random() < 0.06:
            assume["unmeasured_pairs"] = "blocked"
        if rng.random() < 0.1:
            assume["inside"] = rng.choices(
                ({"latency": "0.2 ms", "bandwidth": "5 Gbit/s"}, {"blocked": True}), (85, 15)
            )[0]
        if assume:
            self.document["assume"] = assume
        of_regions: dict[frozenset[str], bool] = {}
        for a, b in combinations(names, 2):
            chance = rng.random()
            if chance < 0.5:
                of_regions[frozenset((a, b))] = self._add({"between": [a, b]}, blocked=chance < 0.15, wide=True)
        for name in names:
            if rng.random() < 0.2:
                of_regions[frozenset((name,))] = self._add({"inside": name}, blocked=rng.random() < 0.1)
        of_machines: dict[frozenset[str], bool] = {}
        if self.groups and rng.random() < 0.3:
            group = rng.choice(sorted(self.groups))
            blocked = self._add({"inside": group}, blocked=rng.random() < 0.3)
            of_machines |= {frozenset((a.name, b.name)): blocked for a, b in combinations(self.groups[group], 2)}
        pairs = list(combinations(self.machines, 2))
        if pairs and rng.random() < 0.3:
            for ends in rng.sample(pairs, min(len(pairs), rng.randint(1, 3))):
                two = [machine.name for machine in ends]
                of_machines[frozenset(two)] = self._add({"between": two}, blocked=rng.random() < 0.4)
        region = {machine.name: machine.region for machine in self.machines}
        measured = {frozenset(region[name] for name in key) for key, blocked in of_machines.items() if not blocked}
        self.network = Network(
            machines=of_machines,
            regions=of_regions,
            inside=bool(assume.get("inside", {}).get("blocked")),
            between=assume.get("between") == "blocked",
            unmeasured="unmeasured_pairs" in assume,
            measured=frozenset(measured),
        )
        if not links:
            del self.document["links"]

    def _add(self, ends: dict[str, Any], *, blocked: bool, wide: bool = False) -> bool:
        """One more link in the file, and whether it is blocked."""
        rng = self.rng
        link = dict(ends)
        if blocked:
            link["blocked"] = True
        else:
            link["latency"] = f"{rng.choice(('', '~'))}{log_uniform(rng, *((5, 150) if wide else (0.01, 2)))} ms"
            if rng.random() < 0.8:
                link["bandwidth"] = f"{log_uniform(rng, *((0.05, 10) if wide else (1, 100)))} Gbit/s"
            if wide and rng.random() < 0.3:
                link["trunk"] = f"{log_uniform(rng, 1, 20)} Gbit/s"
            if wide and rng.random() < 0.3:
                link["egress"] = f"{log_uniform(rng, 0.005, 0.2)} $/GB"
        self.document["links"].append(link)
        return blocked

    def guess(self, jobs: Iterable[Job], *, share: float) -> float:
        """Tokens a second that these jobs may reach together, roughly, on this share of the machines they may use."""
        asked = list(jobs)
        total = 0.0
        for job in asked:
            row = 0 if job.precision in ("bf16", "fp16") else 1
            rate = sum(self.rates[machine.name][row] for machine in self.machines if job.may_run_in(machine.region))
            total += rate * EFFICIENCY / (6 * job.shape.params)
        return total * share / len(asked)
