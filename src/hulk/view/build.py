"""From a plan with its cluster, jobs and price to the document that the page shows. Values in, values out."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from hulk import __version__
from hulk.cost.compute import ComputeModel
from hulk.cost.engine import HULK, Engine
from hulk.cost.flat import apart
from hulk.cost.prepared import Prepared, prepare
from hulk.cost.price import price_plan
from hulk.cost.report import JobPrice, PlanPrice, StagePrice
from hulk.domain.cluster import Cluster, Link, pair
from hulk.domain.job import Job
from hulk.domain.plan import JobPlan, Pipeline, Plan
from hulk.io.plan_file import dump_plan
from hulk.simulate import Simulation, simulate
from hulk.view.document import (
    ClusterView,
    ComparisonView,
    CutView,
    Document,
    JobView,
    LinkView,
    MachineView,
    PartView,
    PipelineView,
    RegionView,
    ReplanView,
    Saved,
    StageView,
)
from hulk.view.price import price_json
from hulk.view.timeline import timeline_view
from hulk.view.traffic import traffic_view
from hulk.view.words import alike, options_words, plan_words
from hulk.whatif import WhatIf

_MOST_LINKS = 2000


@dataclass(frozen=True)
class Shown:
    """A checked plan with what it refers to, and how it is priced."""

    plan: Plan
    cluster: Cluster
    jobs: tuple[Job, ...]
    compute: ComputeModel
    engine: Engine = HULK

    def price(self) -> PlanPrice:
        """What it takes."""
        return price_plan(self.plan, self.cluster, self.jobs, compute=self.compute, engine=self.engine)

    def alone(self) -> set[tuple[str, JobPlan]]:
        """The jobs that run and that no other is in the way of, with their plans."""
        ready = self.prepared()
        return {(ready[group[0]].job.name, ready[group[0]].plan) for group in apart(ready) if len(group) == 1}

    def price_after(self, old: PlanPrice, same: Collection[tuple[str, JobPlan]]) -> PlanPrice:
        """The same, where some of it is known: the price of the plan before it changed, and which jobs of it no other
        was in the way of. Those that are as they were are not priced again."""
        kept = {name for name, _ in self.alone().intersection(same)}
        others = {name: own for name, own in self.plan.jobs.items() if name not in kept}
        new = replace(self, plan=replace(self.plan, jobs=others)).price()
        return replace(new, jobs={name: (old if name in kept else new).jobs[name] for name in self.plan.jobs})

    def prepared(self) -> list[Prepared]:
        """The jobs that can run, with all durations."""
        by_name = {job.name: job for job in self.jobs}
        made = (
            prepare(by_name[name], own, self.cluster, compute=self.compute, engine=self.engine)
            for name, own in self.plan.jobs.items()
        )
        return [one for one in made if isinstance(one, Prepared)]

    def simulation(self) -> Simulation:
        """One step of the jobs that can run, event by event."""
        return simulate(self.prepared(), self.cluster)


@dataclass(frozen=True)
class Extras:
    """What takes longer than a price, each None where it was not asked for, and words to add."""

    simulation: Simulation | None = None
    whatifs: Sequence[WhatIf] | None = None
    comparison: ComparisonView | None = None
    replan: ReplanView | None = None
    saved: Saved | None = None
    notes: Sequence[str] = ()


def document_of(shown: Shown, price: PlanPrice, extras: Extras = Extras()) -> Document:  # noqa: B008  frozen
    """All that the page shows of a plan with its price."""
    names = [job.name for job in shown.jobs]
    prepared = shown.prepared()
    steps = {name: its.step for name, its in price.jobs.items() if isinstance(its, JobPrice)}
    used = {
        pair(shown.cluster.machine(a.machine).region, shown.cluster.machine(b.machine).region)
        for own in shown.plan.jobs.values()
        for pipeline in own.pipelines
        for a, b in zip(pipeline.stages, pipeline.stages[1:], strict=False)
    }
    return Document(
        hulk="view/1",
        version=__version__,
        title=f"{', '.join(names)} on {shown.cluster.name}",
        cluster=cluster_view(shown.cluster, used),
        jobs=[job_view(job) for job in shown.jobs],
        plan=json.loads(dump_plan(shown.plan, cluster=shown.cluster)),
        price=plain_json(price_json(price, shown.engine.headroom)),
        owner=owners(shown.plan, shown.cluster, names),
        cut={name: _cut(own, price.jobs.get(name), shown.cluster) for name, own in shown.plan.jobs.items()},
        traffic=traffic_view(prepared, shown.cluster, names, steps),
        words=plan_words(shown.plan, price, shown.cluster, shown.jobs, extras.whatifs, extras.notes),
        timeline=None if extras.simulation is None else timeline_view(extras.simulation, dict(shown.plan.jobs)),
        comparison=extras.comparison,
        replan=extras.replan,
        saved=extras.saved,
    )


def plain_json(value: Any) -> Any:
    """The value with null for numbers that JSON has no word for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: plain_json(item) for key, item in value.items()}
    return [plain_json(item) for item in value] if isinstance(value, list | tuple) else value


def cluster_view(cluster: Cluster, first: Iterable[tuple[str, str]] = ()) -> ClusterView:
    """A cluster; where there are too many links, those in `first` and those inside regions are listed before others."""
    wanted = [*first, *((region.name, region.name) for region in cluster.regions), *cluster.region_links]
    links = [(ends, cluster.region_links[ends]) for ends in dict.fromkeys(wanted) if ends in cluster.region_links]
    return ClusterView(
        name=cluster.name,
        about=cluster.about,
        regions=[
            RegionView(
                name=region.name,
                label=region.label or region.name,
                latitude=region.latitude,
                longitude=region.longitude,
                egress=region.egress,
            )
            for region in cluster.regions
        ],
        machines=[
            MachineView(
                name=machine.name,
                region=machine.region,
                gpu=machine.gpu.name,
                gpus=machine.gpus,
                memory=machine.memory,
                network=machine.network,
                price=machine.price,
            )
            for machine in cluster.machines
        ],
        links=[_link(ends, link) for ends, link in links[:_MOST_LINKS]],
        links_left_out=max(0, len(links) - _MOST_LINKS),
    )


def _link(ends: tuple[str, str], link: Link) -> LinkView:
    return LinkView(
        a=ends[0],
        b=ends[1],
        latency=None if link.blocked else link.latency,
        bandwidth=link.bandwidth,
        origin=link.latency_origin.value,
        bandwidth_origin=link.bandwidth_origin.value,
        trunk=link.trunk,
    )


def job_view(job: Job) -> JobView:
    """A job, its patterns and rules as text."""
    return JobView(
        name=job.name,
        model=job.model.name,
        parameters=float(job.model.params),
        layers=len(job.model.layers),
        sequence=job.model.sequence,
        global_batch=job.global_batch,
        precision=str(job.precision),
        optimizer=str(job.optimizer),
        tokens=job.tokens,
        deadline=job.deadline,
        weight=job.weight,
        allow=None if job.allow is None else list(job.allow),
        deny=list(job.deny),
        place=[str(rule) for rule in job.place],
    )


def owners(plan: Plan, cluster: Cluster, jobs: Sequence[str]) -> list[int]:
    """For every machine the number of the job that has most of its GPUs in use; -1 where it is idle."""
    used: dict[str, Counter[int]] = {}
    for name, own in plan.jobs.items():
        for stage in own.slots:
            for part in stage.parts:
                used.setdefault(part.machine, Counter())[jobs.index(name)] += len(part.gpus)
    return [used[machine.name].most_common(1)[0][0] if machine.name in used else -1 for machine in cluster.machines]


def _cut(plan: JobPlan, price: object, cluster: Cluster) -> CutView:
    priced = price if isinstance(price, JobPrice) else None
    like = {row: rows[0] for rows in alike(priced) for row in rows} if priced else {}
    return CutView(
        options=options_words(plan),
        pipelines=[
            PipelineView(
                microbatches=pipeline.microbatches,
                like=like.get(row, row),
                stages=_stages(pipeline, plan.options.chunks, priced.pipelines[row] if priced else None, cluster),
            )
            for row, pipeline in enumerate(plan.pipelines)
        ],
    )


def _stages(pipeline: Pipeline, chunks: int, priced: Sequence[StagePrice] | None, cluster: Cluster) -> list[StageView]:
    slots = len(pipeline.slots(chunks))
    made = []
    for s, stage in enumerate(pipeline.stages):
        host, its = cluster.machine(stage.machine), priced[s] if priced else None
        view = StageView(
            machine=stage.machine,
            region=host.region,
            gpu=host.gpu.name,
            gpus=list(stage.gpus),
            first=stage.first,
            last=stage.last,
            slot=s % slots,
            forward=its.forward if its else None,
            backward=its.backward if its else None,
            send=its.send_latency + its.send_wire if its else None,
            busy=its.busy if its else None,
            memory_used=its.memory.used if its else None,
            memory=host.memory,
            memory_parts=_memory_parts(its) if its else None,
        )
        if stage.beside:
            view["beside"] = [PartView(machine=part.machine, gpus=list(part.gpus)) for part in stage.beside]
        made.append(view)
    return made


def _memory_parts(stage: StagePrice) -> dict[str, float]:
    return {part: amount for part, amount in asdict(stage.memory).items() if part != "capacity"}
