"""One drawn case of `hulk plan`: a cluster, jobs and options together, as values and as the files and arguments they
are written to. The checker judges by these values alone, never by what Hulk read from the files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from promises_models import Shape

OUT = "plan.json"
Pairs = tuple[tuple[str, str], ...]
"""Jobs with machines: what --pin and --avoid take."""


@dataclass(frozen=True)
class Machine:
    """A machine: bytes of one GPU, dollars an hour of all its GPUs together."""

    name: str
    region: str
    gpus: int
    memory: float
    dollars: float


@dataclass(frozen=True)
class Network:
    """Who cannot talk: what links say of machines (the most specific counts) and of regions, and what is assumed."""

    machines: Mapping[frozenset[str], bool] = field(default_factory=dict)
    regions: Mapping[frozenset[str], bool] = field(default_factory=dict)
    inside: bool = False
    between: bool = False
    unmeasured: bool = False

    def blocked(self, a: Machine, b: Machine) -> bool:
        """Whether two machines cannot talk."""
        if a.name == b.name:
            return False
        own = self.machines.get(frozenset((a.name, b.name)))
        if own is not None:
            return own
        of_regions = self.regions.get(frozenset((a.region, b.region)))
        return self._unsaid(a, b) if of_regions is None else of_regions

    def _unsaid(self, a: Machine, b: Machine) -> bool:
        if frozenset((a.region, b.region)) in self.measured:
            return self.unmeasured
        return self.inside if a.region == b.region else self.between

    measured: frozenset[frozenset[str]] = frozenset()
    """Pairs of regions of which some machines have a link of their own that is not blocked."""


@dataclass(frozen=True)
class Rule:
    """Some layers only in regions, or, `forbidden`, never there."""

    layers: frozenset[int]
    patterns: tuple[str, ...]
    forbidden: bool

    def permits(self, layer: int, region: str) -> bool:
        """Whether a layer may be in a region."""
        return layer not in self.layers or self.forbidden != any(fnmatchcase(region, each) for each in self.patterns)


@dataclass(frozen=True)
class Job:
    """A job: tokens in all, seconds until its deadline; `allow` None means anywhere, an empty one nowhere."""

    name: str
    shape: Shape
    sequence: int
    global_batch: int
    precision: str
    optimizer: str
    weight: float
    tokens: float | None = None
    deadline: float | None = None
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    place: tuple[Rule, ...] = ()

    @property
    def tokens_per_step(self) -> int:
        """Tokens one step consumes."""
        return self.global_batch * self.sequence

    def may_run_in(self, region: str) -> bool:
        """Whether the job may be there."""
        if any(fnmatchcase(region, pattern) for pattern in self.deny):
            return False
        return self.allow is None or any(fnmatchcase(region, pattern) for pattern in self.allow)

    def may_hold(self, layer: int, region: str) -> bool:
        """Whether a layer of it may be there."""
        return self.may_run_in(region) and all(rule.permits(layer, region) for rule in self.place)

    def may_use(self, region: str) -> bool:
        """Whether any layer of it may be there."""
        return any(self.may_hold(layer, region) for layer in range(len(self.shape.pieces)))


@dataclass(frozen=True)
class Options:
    """What stands behind `hulk plan CLUSTER JOBS`. Limits are in dollars an hour and tokens a second, the headroom is a
    share of a GPU's memory."""

    pins: Pairs = ()
    avoids: Pairs = ()
    max_cost: float | None = None
    min_throughput: float | None = None
    cheapest: bool = False
    exact: bool = False
    no_gnn: bool = False
    paper: bool = False
    uniform: bool = False
    engine: str | None = None
    headroom: float | None = None
    seed: int = 0
    workers: int = 1
    time_limit: float = 1.0
    evaluations: int = 100
    json: bool = True
    out: str | None = None
    extra: tuple[str, ...] = ()

    @property
    def runner(self) -> list[str]:
        """Who runs the plan, which `hulk price` is told as well."""
        return [] if self.engine is None else ["--engine", self.engine]

    def arguments(self) -> list[str]:
        """As a person writes them."""
        words = [f"--seed={self.seed}", f"--workers={self.workers}"]
        words += [f"--time-limit={self.time_limit:g}", f"--evaluations={self.evaluations}"]
        for name, pairs in (("--pin", self.pins), ("--avoid", self.avoids)):
            for job, machine in pairs:
                words += [name, f"{job}={machine}"]
        if self.max_cost is not None:
            words += ["--max-cost", f"{self.max_cost!r} $/h"]
        if self.min_throughput is not None:
            words += ["--min-throughput", repr(self.min_throughput)]
        words += self.runner
        if self.headroom is not None:
            words += ["--headroom", f"{100 * self.headroom:g}%"]
        for flag in ("cheapest", "exact", "no_gnn", "json", "uniform"):
            if getattr(self, flag):
                words.append("--" + flag.replace("_", "-"))
        if self.paper:
            words += ["--policy", "paper"]
        if self.out is not None:
            words += ["-o", self.out]
        return [*words, *self.extra]


@dataclass(frozen=True)
class Case:
    """A draw. `refuse` says why it must be refused (empty: it must not), `may_refuse` why it may be."""

    machines: tuple[Machine, ...]
    network: Network
    jobs: tuple[Job, ...]
    options: Options
    files: Mapping[str, str]
    mode: str
    refuse: str = ""
    may_refuse: tuple[str, ...] = ()

    @property
    def limited(self) -> bool:
        """Whether money, throughput or a deadline limits it."""
        limits = (self.options.max_cost, self.options.min_throughput, *(job.deadline for job in self.jobs))
        return any(limit is not None for limit in limits)

    def arguments(self) -> list[str]:
        """The words after `hulk`."""
        return ["plan", "cluster.yaml", "jobs.yaml", *self.options.arguments()]

    def write(self, folder: Path) -> None:
        """Its files."""
        for name, text in self.files.items():
            (folder / name).write_text(text, encoding="utf-8")

    def without_limits(self) -> Case:
        """The same machines, jobs, places and effort, but neither money, throughput nor deadlines to keep."""
        jobs = yaml.safe_load(self.files["jobs.yaml"])
        for job in jobs["jobs"]:
            job.pop("deadline", None)
        options = replace(
            self.options, max_cost=None, min_throughput=None, cheapest=False, exact=False, paper=False, json=True,
            out=None,
        )  # fmt: skip
        files = {name: text for name, text in self.files.items() if name != OUT} | {"jobs.yaml": as_yaml(jobs)}
        return replace(self, options=options, files=files, jobs=tuple(replace(job, deadline=None) for job in self.jobs))


def as_yaml(document: dict[str, Any]) -> str:
    """A document as a person may write it, without the aliases that Hulk refuses."""
    return str(yaml.safe_dump(json.loads(json.dumps(document)), sort_keys=False, default_flow_style=None, width=120))
