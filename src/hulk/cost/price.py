"""The price of a plan: seconds, bytes and dollars, with the reasons. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hulk.cost import step
from hulk.cost.bottleneck import describe_bottleneck
from hulk.cost.compute import ComputeModel, TimeOrigin
from hulk.cost.engine import HULK, Engine
from hulk.cost.money import step_money
from hulk.cost.pipeline import run_pipeline
from hulk.cost.report import Breakdown, Infeasible, JobPrice, Obstacle, PlanPrice, StageMemory, StagePrice
from hulk.cost.step import Durations, Encoded, Tables
from hulk.cost.sums import blocked_pair, shares, steady_step
from hulk.cost.tables import Book, empty_durations, encode, make_book
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.plan import JobPlan, Plan, Stage
from hulk.units import format_size


@dataclass(frozen=True)
class Prepared:
    """A job's plan with all its durations: what `price` reports on and `simulate` plays."""

    job: Job
    plan: JobPlan
    cluster: Cluster
    engine: Engine
    book: Book
    encoded: Encoded
    durations: Durations
    sets: int

    @property
    def stages(self) -> list[Stage]:
        """The stages of all pipelines, one after the other, as the arrays have them."""
        return [stage for pipeline in self.plan.pipelines for stage in pipeline.stages]

    def holders(self, gradient_set: int) -> list[int]:
        """The stages, one a replica, that hold a gradient set."""
        first = self.durations.set_first[gradient_set]
        rows = np.flatnonzero((self.encoded.first <= first) & (first <= self.encoded.last))
        return [int(n) for n in rows]


def prepare(
    job: Job, plan: JobPlan, cluster: Cluster, *, compute: ComputeModel, engine: Engine = HULK
) -> Prepared | Infeasible:
    """All durations of a job's plan, or why it cannot run. The plan has passed `hulk.domain.check`."""
    stages = [stage for pipeline in plan.pipelines for stage in pipeline.stages]
    book = make_book(
        job,
        cluster,
        list(dict.fromkeys(stage.machine for stage in stages)),
        ranks=[stage.tensor_parallel for stage in stages],
        microbatch=plan.microbatch_size,
        recompute=plan.recompute,
        compute=compute,
        engine=engine,
    )
    encoded = encode(plan, cluster, book)
    durations = empty_durations(len(stages))
    status, where, other = step.durations(book.tables, encoded, durations)
    if status == step.TOO_BIG:
        return _too_big(job, stages[where], where, durations, cluster, engine)
    if status == step.BLOCKED:
        return _blocked(job, stages, where, other)
    durations.forward[:] += engine.pass_overhead
    durations.backward[:] += engine.pass_overhead
    if engine.bucket is not None:
        apart = blocked_pair(book.tables, encoded, shares(book.tables, encoded, durations, where))
        if apart is not None:
            return _blocked(job, stages, *apart)
    return Prepared(job, plan, cluster, engine, book, encoded, durations, sets=where)


def _blocked(job: Job, stages: Sequence[Stage], a: int, b: int) -> Infeasible:
    reason = f"{stages[a].machine} and {stages[b].machine} must exchange data, but the link between them is blocked"
    return Infeasible(job.name, Obstacle.BLOCKED, reason)


def _too_big(job: Job, stage: Stage, row: int, durations: Durations, cluster: Cluster, engine: Engine) -> Infeasible:
    host = cluster.machine(stage.machine)
    needs = durations.memory[row] + engine.reserved(host.gpu)
    reason = (
        f"layers {stage.first}–{stage.last} on {stage.machine} need {format_size(needs)} on each {host.gpu.name}, "
        f"which has {format_size(host.memory)}"
    )
    if engine.headroom > 0.0:
        reason += f", {100 * engine.headroom:.3g}% of it to stay free"
    return Infeasible(job.name, Obstacle.MEMORY, reason)


def price_job(
    job: Job, plan: JobPlan, cluster: Cluster, *, compute: ComputeModel, engine: Engine = HULK
) -> JobPrice | Infeasible:
    """The price of one job by its plan."""
    prepared = prepare(job, plan, cluster, compute=compute, engine=engine)
    if isinstance(prepared, Infeasible):
        return prepared
    count = len(prepared.stages)
    stage_end, sync_end = np.zeros(count), np.zeros(count)
    encoded, durations, tables = prepared.encoded, prepared.durations, prepared.book.tables
    total = step.step_seconds(tables, encoded, durations, prepared.sets, stage_end, sync_end, step.ALL)
    if engine.bucket is not None:
        wanted = shares(tables, encoded, durations, prepared.sets)
        total, sync_end = steady_step(tables, encoded, durations, wanted, stage_end, engine.bucket)
    parts = _breakdown(tables, encoded, durations, total, stage_end, sync_end)
    pipelines = _stage_prices(prepared, total)
    money = step_money(plan, cluster, tables, durations, prepared.sets, total)
    return JobPrice(
        job=job.name,
        breakdown=parts,
        pipelines=pipelines,
        money=money,
        tokens_per_second=job.tokens_per_step / total,
        finish=None if job.steps is None else job.steps * total,
        finish_money=None if job.steps is None else job.steps * money.total,
        bottleneck=describe_bottleneck(job, plan, cluster, parts, pipelines),
        times=_time_origins(prepared),
    )


def price_plan(
    plan: Plan, cluster: Cluster, jobs: Iterable[Job], *, compute: ComputeModel, engine: Engine = HULK
) -> PlanPrice:
    """The price of every job of a plan."""
    by_name = {job.name: job for job in jobs}
    prices = {
        name: price_job(by_name[name], job_plan, cluster, compute=compute, engine=engine)
        for name, job_plan in plan.jobs.items()
    }
    return PlanPrice(jobs=prices, waiting=dict(plan.waiting), idle=plan.idle)


def _breakdown(
    tables: Tables,
    plan: Encoded,
    durations: Durations,
    total: float,
    stage_end: step.Floats,
    sync_end: step.Floats,
) -> Breakdown:
    """Cut the step into parts by what-if: the slowest replica's busiest stage; that replica with free transfers; then
    as it is; then the sync; then the update."""
    slowest = int(np.searchsorted(plan.starts, np.argmax(stage_end), side="right")) - 1
    rows = slice(plan.starts[slowest], plan.starts[slowest + 1])
    microbatches = int(plan.microbatches[slowest])
    busiest = float(np.max(durations.forward[rows] + durations.backward[rows])) * microbatches
    nothing = np.zeros_like(durations.latency[rows])
    ends = np.empty((rows.stop - rows.start, 2 * microbatches))
    run_pipeline(
        durations.forward[rows],
        durations.backward[rows],
        nothing,
        nothing,
        nothing,
        np.zeros(len(nothing), bool),
        plan.warmup[rows],
        microbatches,
        ends,
    )
    free = float(ends.max())
    pipelines, synced = float(stage_end.max()), float(sync_end.max())
    # Sums in another order differ in the last digit, and steps that overlap are shorter than their parts; a part is
    # never negative, and the parts add up to the step.
    ends_of_parts = np.minimum(np.maximum.accumulate([busiest, free, pipelines, synced, total]), total)
    compute, bubble, transfer, sync, update = np.diff(ends_of_parts, prepend=0.0).tolist()
    return Breakdown(compute=compute, bubble=bubble, transfer=transfer, sync=sync, update=update)


def _stage_prices(prepared: Prepared, total: float) -> tuple[tuple[StagePrice, ...], ...]:
    tables, durations = prepared.book.tables, prepared.durations
    shards = len(prepared.plan.pipelines) if prepared.plan.shard_optimizer else 1
    gradient = tables.gradient_bytes
    pipelines = []
    row = 0
    for pipeline in prepared.plan.pipelines:
        prices = []
        for stage in pipeline.stages:
            host = prepared.cluster.machine(stage.machine)
            params = float(durations.params[row])
            memory = StageMemory(
                weights=params * (tables.state_bytes - gradient),
                gradients=params * gradient,
                optimizer=params * tables.optimizer_bytes / shards,
                activations=float(durations.held[row]),
                workspace=float(durations.peak[row]),
                reserved=prepared.engine.reserved(host.gpu),
                capacity=host.memory,
            )
            forward, backward = float(durations.forward[row]), float(durations.backward[row])
            prices.append(
                StagePrice(
                    machine=stage.machine,
                    region=host.region,
                    gpu=host.gpu.name,
                    ranks=stage.tensor_parallel,
                    first=stage.first,
                    last=stage.last,
                    forward=forward,
                    backward=backward,
                    busy=(forward + backward) * pipeline.microbatches / total,
                    send_latency=float(durations.latency[row]),
                    send_wire=float(durations.send_forward[row]),
                    memory=memory,
                )
            )
            row += 1
        pipelines.append(tuple(prices))
    return tuple(pipelines)


def _time_origins(prepared: Prepared) -> dict[TimeOrigin, int]:
    """How many layers' times come from where, over the kinds of stage in use."""
    counts: dict[TimeOrigin, int] = {}
    for stage in prepared.stages:
        gpu = prepared.cluster.machine(stage.machine).gpu.name
        for origin, count in prepared.book.origins[gpu, stage.tensor_parallel].items():
            counts[origin] = counts.get(origin, 0) + count
    return counts
