"""Skeletons priced: one `JobSpace` per job holds the tables, keeps what it has priced, and knows what the job may
use."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from math import gcd

import numpy as np
from numpy.typing import NDArray

from hulk.cost.arrays import Durations, Encoded, Tables, empty_durations
from hulk.cost.compute import ComputeModel
from hulk.cost.engine import Engine
from hulk.cost.kinds import kind_of
from hulk.cost.memory import state_of
from hulk.cost.money import step_money
from hulk.cost.step import durations, seconds_of
from hulk.cost.sums import shares
from hulk.cost.tables import Book, Hosts, Links, between, make_book, make_links
from hulk.domain.cluster import Cluster, Machine, Origin
from hulk.domain.job import Job
from hulk.domain.options import COLUMN, SPACE, Options, Scope, codes_of
from hulk.domain.plan import JobPlan
from hulk.search.fit import fit
from hulk.search.least import ONE, counting
from hulk.search.refine import Desk, refine
from hulk.search.results import Result
from hulk.search.skeleton import Chain, Skeleton, held_by, to_job_plan
from hulk.search.written import arrays_of

_LARGE = 256
_REFINE = 20_000_000
_ROOMY = 0.3  # of all memory: what takes less leaves room for everything


@dataclass(frozen=True)
class Places:
    """Machines that no link tells apart share a place: tables stay small on large clusters."""

    machines: tuple[Machine, ...]
    of_machine: tuple[int, ...]
    representatives: tuple[Machine, ...]
    links: Links

    @classmethod
    def of(cls, cluster: Cluster, apart: Collection[str] = ()) -> Places:
        """Group machines that are alike and have no link of their own. Those named `apart` have a place each: which of
        several alike ones is meant counts."""
        special = {name for key in cluster.machine_links for name in key}.union(apart)
        known: dict[tuple[object, ...], int] = {}
        rows: list[int] = []
        first: list[Machine] = []
        for machine in cluster.machines:
            key: tuple[object, ...] = (
                (machine.name,)
                if machine.name in special
                else (
                    machine.region,
                    machine.gpu.name,
                    machine.gpus,
                    machine.memory,
                    machine.network,
                    machine.cards,
                    machine.price,
                    machine.span,
                )
            )
            if key not in known:
                known[key] = len(first)
                first.append(machine)
            rows.append(known[key])
        links = make_links(cluster, [machine.name for machine in first])
        return cls(cluster.machines, tuple(rows), tuple(first), links)

    def measured(self, cluster: Cluster) -> NDArray[np.bool_]:
        """[P, P] whether the latency between two places was measured; on the diagonal, between machines of one."""
        return between(cluster, self.representatives, lambda link, *_: link.origin is Origin.MEASURED) > 0


def _usable(job: Job, cluster: Cluster, without: Collection[str]) -> frozenset[int]:
    """The machines that may hold some layer of a job; none where there is a layer that no machine may hold."""
    usable = [i for i, m in enumerate(cluster.machines) if job.may_run_in(m.region) and m.name not in without]
    if not job.place:
        return frozenset(usable)
    regions = {cluster.machines[i].region for i in usable}
    layers = range(len(job.model.layers))
    held = {region: {layer for layer in layers if job.may_hold(layer, region)} for region in regions}
    if len(set().union(*held.values())) < len(layers):
        return frozenset()
    return frozenset(i for i in usable if held[cluster.machines[i].region])


class JobSpace:
    """All that search asks about one job on one cluster."""

    def __init__(
        self,
        job: Job,
        cluster: Cluster,
        places: Places,
        *,
        compute: ComputeModel,
        engine: Engine,
        without: Collection[str] = frozenset(),
        pins: Collection[str] = frozenset(),
        keep: int = 200_000,
    ) -> None:
        self.job = job
        self.cluster = cluster
        self.places = places
        self.without = frozenset(without)
        self.allowed = _usable(job, cluster, without)
        self.pins = frozenset(i for i, m in enumerate(cluster.machines) if m.name in pins)
        self.compute = compute
        self.engine = engine
        self.scope = Scope(job, {**engine.tried, "host_state": self._who_holds_state()})
        self._books: dict[tuple[object, ...], Book] = {}
        self._known: dict[Skeleton, Result] = {}
        self._keep = keep
        self._rooms: dict[int, tuple[Durations, NDArray[np.float64]]] = {}
        self._last: tuple[tuple[Chain, ...], tuple[NDArray[np.int64], ...]] = ((), ())
        self._names = tuple(machine.name for machine in cluster.machines)
        self._row = np.array(places.of_machine)
        self.evaluations = 0
        self.favourites: dict[tuple[bool, bool], Options] = {}
        self.regular: list[Skeleton] = []  # the best of each shape, where a search went through all such pipelines

    @cached_property
    def degrees(self) -> tuple[int, ...]:
        """Tensor parallel degrees that divide every layer's heads, ascending. Machines that hold stages together do so
        with all their GPUs."""
        if all(machine.span for machine in self.cluster.machines):
            return tuple(sorted({machine.gpus for machine in self.cluster.machines}))
        heads = [layer.head_width for layer in self.job.model.layers if layer.head_width]
        common = 0
        for count in heads:
            common = gcd(common, count)
        most = max(machine.gpus for machine in self.cluster.machines)
        return tuple(t for t in range(1, most + 1) if common % t == 0) if common else tuple(range(1, most + 1))

    @cached_property
    def microbatches(self) -> tuple[int, ...]:
        """Microbatch sizes that divide the global batch, ascending."""
        return SPACE[COLUMN["microbatch_size"]].possible(self.scope, fine=True)

    @property
    def splits_sequences(self) -> bool:
        """Whether the engine can split along the sequence what tensor parallelism leaves whole."""
        return True in SPACE[COLUMN["sequence_parallel"]].possible(self.scope)

    @cached_property
    def plainest(self) -> Options:
        """The smallest microbatch, and otherwise nothing special: for what is the same by all options."""
        return Options(self.microbatches[0], host_state=min(SPACE[COLUMN["host_state"]].possible(self.scope)))

    def _who_holds_state(self) -> tuple[bool, ...]:
        """Whether hosts hold the optimizer's state: not where GPUs have room, whose updates are far quicker; always
        where they have none, if the engine can do it."""
        offered = self.engine.tried.get("host_state", (False, True))
        room = sum(
            self.engine.capacity(host.gpu, host.memory) * host.gpus
            for host in (self.cluster.machines[i] for i in self.allowed)
        )
        each = state_of(self.job, Options(1), self.engine, 1)
        needed = self.job.model.params * (each.weights + each.gradients + each.optimizer)
        if True not in offered or needed < _ROOMY * room:
            return (False,)
        return (True,) if needed > room else (False, True)

    def book(self, options: Options) -> Book:
        """The tables for these options; made once for all that have the same."""
        key = tuple(getattr(options, choice.name) for choice in SPACE if choice.in_tables)
        if key not in self._books:
            self._books[key] = make_book(
                self.job,
                Hosts(self.places.representatives, self.places.links),
                ranks=self.degrees,
                options=options,
                compute=self.compute,
                engine=self.engine,
            )
        return self._books[key]

    def tables(self, options: Options) -> Tables:
        """The numbers alone, as searches take them: one number for all stages is found when a plan is finished."""
        tables = self.book(options).tables
        return tables._replace(kept=tables.kept[:0]) if self.engine.one_count else tables

    @property
    def latency(self) -> NDArray[np.float64]:
        """[P, P] seconds one way between two places; infinite: blocked."""
        return self.places.links.latency

    @cached_property
    def kind_table(self) -> NDArray[np.int64]:
        """[machine's place, ranks] → kind of stage."""
        kinds = self.book(self.plainest).kinds
        table = np.full((len(self.places.representatives), max(self.degrees) + 1), -1, np.int64)
        for row, machine in enumerate(self.places.representatives):
            for ranks in self.degrees:
                table[row, ranks] = kinds[kind_of(machine, ranks)]
        return table

    def encode(self, skeleton: Skeleton) -> Encoded:
        """The arrays that `fit` fills in."""
        if skeleton.chains is not self._last[0]:  # many in a row differ in nothing but options
            machine, ranks, starts = arrays_of(skeleton.chains)
            place = self._row[machine]
            self._last = skeleton.chains, (starts, machine, place, self.kind_table[place, ranks], ranks)
        starts, machine, place, kind, ranks = self._last[1]
        count, replicas = len(machine), len(skeleton.chains)
        return Encoded(
            starts=starts,
            machine=machine,
            place=place,
            kind=kind,
            ranks=ranks,
            first=np.zeros(count, np.int64),
            last=np.zeros(count, np.int64),
            microbatches=np.ones(replicas, np.int64),
            warmup=np.ones(count, np.int64),
            options=np.array(codes_of(skeleton.normal_options)),
            kept=np.zeros(count, np.int64),
        )

    def result(self, skeleton: Skeleton) -> Result:
        """What is known of a skeleton once it is cut and shared: seconds of a step, or how far it is from running."""
        known = self._known.get(skeleton)
        if known is not None:
            return known
        self.evaluations += 1
        found, _, _ = self._fit(skeleton)
        if len(self._known) >= self._keep:
            self._known.clear()
        self._known[skeleton] = found
        return found

    def _fit(self, skeleton: Skeleton) -> tuple[Result, Encoded, Durations]:
        encoded = self.encode(skeleton)
        stages = len(encoded.machine)
        out, scratch = self.room(stages)
        total = self.job.global_batch // skeleton.options.microbatch_size
        found = Result(*fit(self.tables(skeleton.normal_options), encoded, out, scratch, total, np.inf))
        return found, encoded, out

    def room(self, stages: int) -> tuple[Durations, NDArray[np.float64]]:
        """Arrays to work in, kept for the sizes that come again and again."""
        if stages > _LARGE:
            return empty_durations(stages), np.zeros((2, stages))
        if stages not in self._rooms:
            self._rooms[stages] = (empty_durations(stages), np.zeros((2, stages)))
        return self._rooms[stages]

    def plan(self, skeleton: Skeleton, *, rounds: int = 8) -> tuple[JobPlan, float]:
        """The plan of a skeleton that fits, its cuts and shares refined in so many rounds, and the seconds of a step.
        ValueError where it does not fit: then it has no cut that could be priced."""
        found, encoded, out = self._fit(skeleton)
        if not found.runs:
            raise ValueError(f"a plan was asked of a skeleton that does not fit: {skeleton}")
        book = self.book(skeleton.normal_options)
        way = counting(skeleton.normal_options, self.engine)
        desk = Desk(out, np.zeros((2, len(encoded.machine))), book.blocks, way)
        seconds = float(seconds_of(book.tables, encoded))
        rounds = min(rounds, _REFINE // (self._passes(encoded) * len(encoded.machine) ** 2 + 1))
        if rounds or way == ONE:  # one number for all is not known to searches
            seconds = float(refine(book.tables, encoded, desk, seconds, rounds))
        return self._job_plan(skeleton, encoded), seconds

    def dollars(self, skeleton: Skeleton) -> float | None:
        """Dollars of a step, before its cuts are refined; None where the skeleton does not fit: then it has no cut that
        could be priced."""
        found, encoded, out = self._fit(skeleton)
        if found.seconds is None:
            return None
        tables = self.tables(skeleton.normal_options)
        _, sets, _ = durations(tables, encoded, out)
        wanted = shares(tables, encoded, out, sets)
        return step_money(self._job_plan(skeleton, encoded), self.cluster, tables, wanted, found.seconds).total

    def _job_plan(self, skeleton: Skeleton, encoded: Encoded) -> JobPlan:
        return to_job_plan(skeleton, self._names, held_by(encoded, self.job), encoded.microbatches.tolist())

    def is_small(self, skeleton: Skeleton) -> bool:
        """Whether refining it takes milliseconds, so that many of its neighbours can be."""
        stages = sum(len(chain) for chain in skeleton.chains)
        passes = (
            self.job.global_batch // skeleton.options.microbatch_size * max(len(chain) for chain in skeleton.chains)
        )
        return passes * stages**2 < _REFINE // 400

    @staticmethod
    def _passes(encoded: Encoded) -> int:
        return int((encoded.microbatches * np.diff(encoded.starts)).sum())
