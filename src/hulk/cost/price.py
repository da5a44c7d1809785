"""The price of a plan: seconds, bytes and dollars, with the reasons. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from hulk.cost.arrays import Floats, Tables
from hulk.cost.bottleneck import describe_bottleneck
from hulk.cost.compiled import plain
from hulk.cost.compute import ComputeModel, TimeOrigin
from hulk.cost.engine import HULK, Engine
from hulk.cost.kinds import kind_of
from hulk.cost.memory import state_of
from hulk.cost.money import step_money
from hulk.cost.orders import group_of, is_ordered, is_split, run_orders
from hulk.cost.pipeline import Passes, run_pipeline
from hulk.cost.play import Played, play
from hulk.cost.prepared import Prepared, prepare
from hulk.cost.report import Breakdown, Infeasible, JobPrice, PlanPrice, StageMemory, StagePrice
from hulk.cost.sharding import shards_of
from hulk.cost.step import ALL, step_seconds
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.options import Within
from hulk.domain.plan import JobPlan, Plan, Stage

_ENOUGH = 1e18  # bytes that no stage needs
LARGE = 300
"""Stages of a plan beyond which playing it takes about a second."""


def price_job(
    job: Job, plan: JobPlan, cluster: Cluster, *, compute: ComputeModel, engine: Engine = HULK
) -> JobPrice | Infeasible:
    """The price of one job by its plan, alone on the cluster."""
    prepared = prepare(job, plan, cluster, compute=compute, engine=engine)
    if isinstance(prepared, Infeasible):
        return prepared
    return _price(prepared, play([prepared])[0])


def step_of(job: Job, plan: JobPlan, cluster: Cluster, *, compute: ComputeModel, engine: Engine = HULK) -> float | None:
    """Seconds of a step, for whoever compares many plans; None where it cannot run. As it plays or, of plans so large
    that playing takes a second, as a search takes it."""
    prepared = prepare(job, plan, cluster, compute=compute, engine=engine)
    if isinstance(prepared, Infeasible):
        return None
    if len(prepared.stages) > LARGE:
        return closed_form(prepared, prepared.book.tables)
    return play([prepared])[0].seconds


def closed_form(prepared: Prepared, tables: Tables) -> float:
    """Seconds of a step by the closed forms of `hulk.cost.step`."""
    ends = np.zeros((2, len(prepared.stages)))
    encoded, durations = prepared.encoded, prepared.durations
    return float(step_seconds(tables, encoded, durations, prepared.sets, ends[0], ends[1], ALL))


def _price(prepared: Prepared, played: Played) -> JobPrice:
    job, plan, cluster = prepared.job, prepared.plan, prepared.cluster
    tables, total = prepared.book.tables, played.seconds
    parts = _breakdown(prepared, total, played.stage_end, played.sync_end)
    pipelines = _stage_prices(prepared, total)
    money = step_money(plan, cluster, tables, prepared.shares, total)
    return JobPrice(
        job=job.name,
        breakdown=parts,
        pipelines=pipelines,
        money=money,
        tokens_per_second=job.tokens_per_step / total,
        alone=min(total, play([prepared], sharing=False)[0].seconds) if played.shared else total,
        finish=None if job.steps is None else job.steps * total,
        finish_money=None if job.steps is None else job.steps * money.total,
        bottleneck=describe_bottleneck(job, plan, cluster, parts, pipelines),
        times=_time_origins(prepared),
    )


def price_plan(
    plan: Plan, cluster: Cluster, jobs: Iterable[Job], *, compute: ComputeModel, engine: Engine = HULK
) -> PlanPrice:
    """The price of every job of a plan, all of them at work at the same time."""
    by_name = {job.name: job for job in jobs}
    found = {
        name: prepare(by_name[name], job_plan, cluster, compute=compute, engine=engine)
        for name, job_plan in plan.jobs.items()
    }
    ready = [one for one in found.values() if isinstance(one, Prepared)]
    played = {one.job.name: its for one, its in zip(ready, play(ready), strict=True)}
    prices = {name: one if isinstance(one, Infeasible) else _price(one, played[name]) for name, one in found.items()}
    return PlanPrice(jobs=prices, waiting=dict(plan.waiting), idle=plan.idle)


def price_anyway(
    plan: Plan, cluster: Cluster, jobs: Iterable[Job], *, compute: ComputeModel, engine: Engine = HULK
) -> PlanPrice:
    """The same as if every GPU had memory enough; each stage's memory still says what its GPU has."""
    roomy = replace(cluster, machines=tuple(replace(machine, memory=_ENOUGH) for machine in cluster.machines))
    found = price_plan(plan, roomy, jobs, compute=compute, engine=engine)

    def true(stage: StagePrice) -> StagePrice:
        return replace(stage, memory=replace(stage.memory, capacity=cluster.machine(stage.machine).memory))

    prices = {
        name: one
        if isinstance(one, Infeasible)
        else replace(one, pipelines=tuple(tuple(map(true, pipeline)) for pipeline in one.pipelines))
        for name, one in found.jobs.items()
    }
    return replace(found, jobs=prices)


def _breakdown(prepared: Prepared, total: float, stage_end: Floats, sync_end: Floats) -> Breakdown:
    """Cut the step into parts by what-if: the slowest replica's busiest stage; that replica with free transfers; then
    as it is; then the sync; then the update."""
    plan, durations = prepared.encoded, prepared.durations
    slowest = int(np.searchsorted(plan.starts, np.argmax(stage_end), side="right")) - 1
    rows = slice(plan.starts[slowest], plan.starts[slowest + 1])
    microbatches = int(plan.microbatches[slowest])
    busiest = float(np.max(_work(prepared)[rows])) * microbatches
    nothing = np.zeros_like(durations.latency[rows])
    freely = Passes(
        forward=durations.forward[rows],
        backward=durations.backward[rows],
        latency=nothing,
        send_forward=nothing,
        send_backward=nothing,
        blocking=np.zeros(len(nothing), bool),
        warmup=plan.warmup[rows],
    )
    if plain(is_ordered)(plan):
        ends, slots = np.zeros(len(nothing)), len(prepared.plan.pipelines[slowest].slots(prepared.plan.options.chunks))
        group, split = int(group_of(plan, slowest)), bool(plain(is_split)(plan))
        run_orders(freely, durations.weights[rows], slots, microbatches, group, split, ends)
    else:
        ends = np.empty((len(nothing), 2 * microbatches))
        run_pipeline(freely, microbatches, ends)
    free = float(ends.max())
    pipelines, synced = float(stage_end.max()), float(sync_end.max())
    # Sums in another order differ in the last digit, and steps that overlap are shorter than their parts; a part is
    # never negative, and the parts add up to the step.
    ends_of_parts = np.minimum(np.maximum.accumulate([busiest, free, pipelines, synced, total]), total)
    compute, bubble, transfer, sync, update = np.diff(ends_of_parts, prepend=0.0).tolist()
    return Breakdown(compute=compute, bubble=bubble, transfer=transfer, sync=sync, update=update)


def _work(prepared: Prepared) -> Floats:
    """[stages] seconds that a stage's GPUs are at work for a microbatch, at all stages they hold."""
    durations, leads = prepared.durations, np.array(prepared.leads)
    own = durations.forward + durations.backward + durations.weights
    whole: Floats = np.bincount(leads, weights=own, minlength=len(own))[leads]
    return whole


def _stage_prices(prepared: Prepared, total: float) -> tuple[tuple[StagePrice, ...], ...]:
    durations, work = prepared.durations, _work(prepared)
    pipelines = []
    row, shards = 0, len(prepared.plan.pipelines)
    everywhere, counts = prepared.plan.options.shard_within is Within.EVERYWHERE, prepared.plan.counts_blocks
    for p, pipeline in enumerate(prepared.plan.pipelines):
        prices = []
        for stage in pipeline.stages:
            if not everywhere:  # a call of compiled code hands over all tables, and loads it first
                shards = int(shards_of(prepared.book.tables, prepared.encoded, p, row))
            each = state_of(prepared.job, prepared.plan.options, prepared.engine, shards)
            host = prepared.cluster.machine(stage.machine)
            params = float(durations.params[row])
            memory = StageMemory(
                weights=params * each.weights,
                gradients=params * each.gradients,
                optimizer=params * each.optimizer,
                activations=float(durations.held[row]),
                workspace=float(durations.peak[row]),
                reserved=prepared.engine.reserved(host.gpu),
                capacity=host.memory,
            )
            forward, backward = float(durations.forward[row]), float(durations.backward[row] + durations.weights[row])
            prices.append(
                StagePrice(
                    machine=stage.machine,
                    region=host.region,
                    gpu=host.gpu.name,
                    ranks=stage.ranks,
                    first=stage.first,
                    last=stage.last,
                    forward=forward,
                    backward=backward,
                    busy=float(work[row]) * pipeline.microbatches / total,
                    send_latency=float(durations.latency[row]),
                    send_wire=float(durations.send_forward[row]),
                    memory=memory,
                    beside=stage.machines[1:],
                    recomputed=_recomputed(prepared.job, stage) if counts else None,
                )
            )
            row += 1
        pipelines.append(tuple(prices))
    return tuple(pipelines)


def _recomputed(job: Job, stage: Stage) -> int:
    """Blocks of a stage that are computed again, where stages say how many are."""
    return job.model.blocks(stage.first, stage.last) if stage.recomputed is None else stage.recomputed


def _time_origins(prepared: Prepared) -> dict[TimeOrigin, int]:
    """How many layers' times come from where, over the kinds of stage in use."""
    counts: dict[TimeOrigin, int] = {}
    for stage in prepared.stages:
        kind = kind_of(prepared.cluster.machine(stage.machine), stage.ranks)
        for origin, count in prepared.book.origins[kind].items():
            counts[origin] = counts.get(origin, 0) + count
    return counts
