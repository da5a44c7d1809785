"""A job's plan with all its durations: what a price reports on and the simulator plays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hulk.cost import step
from hulk.cost.again import one_count
from hulk.cost.arrays import BLOCKED, SCATTERED, TOO_BIG, UNLIKE, Durations, Encoded, empty_durations
from hulk.cost.compute import ComputeModel
from hulk.cost.engine import HULK, Engine
from hulk.cost.report import Infeasible, Obstacle
from hulk.cost.sums import Share, shares
from hulk.cost.tables import Book, Hosts, encode, make_book
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.joined import joined
from hulk.domain.options import COLUMN, SPACE, Options, plain_value
from hulk.domain.plan import JobPlan, Stage
from hulk.units import format_size


@dataclass(frozen=True)
class Prepared:
    """A job's plan with all its durations: what `price` reports on and `simulate` plays. In `cluster`, machines that
    hold stages together are one (`hulk.domain.joined`)."""

    job: Job
    plan: JobPlan
    cluster: Cluster
    engine: Engine
    book: Book
    encoded: Encoded
    durations: Durations
    sets: int

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages of all pipelines, one after the other, as the arrays have them."""
        return self.plan.stages

    @property
    def leads(self) -> list[int]:
        """For each stage the first one on the same GPUs."""
        return self.plan.leads

    @property
    def shares(self) -> list[Share]:
        """What is added up in a step, in order."""
        return shares(self.book.tables, self.encoded, self.durations, self.sets)


def prepare(
    job: Job, plan: JobPlan, cluster: Cluster, *, compute: ComputeModel, engine: Engine = HULK
) -> Prepared | Infeasible:
    """All durations of a job's plan, or why it cannot run. The plan has passed `hulk.domain.check`."""
    stages, cluster = plan.stages, joined(cluster, [plan])
    foreign = not_offered(plan.options, engine) or _not_counted(job, plan, engine)
    if foreign is not None:
        return Infeasible(job.name, Obstacle.ENGINE, f"{engine.name} cannot do {foreign}")
    book = make_book(
        job,
        Hosts.of(cluster, plan.leaders),
        ranks=[stage.ranks for stage in stages],
        options=plan.options,
        compute=compute,
        engine=engine,
    )
    encoded = encode(plan, cluster, book)
    durations = empty_durations(len(stages))
    status, where, other = step.durations(book.tables, encoded, durations)
    if status == TOO_BIG:
        return _too_big(job, stages[where], where, durations, cluster, engine)
    if status == BLOCKED:
        return _blocked(job, stages, where, other)
    if status == UNLIKE:
        return _unlike(job, plan, where)
    if status == SCATTERED:
        return _scattered(job, plan, stages[where])
    return Prepared(job, plan, cluster, engine, book, encoded, durations, sets=where)


def _blocked(job: Job, stages: Sequence[Stage], a: int, b: int) -> Infeasible:
    reason = f"{stages[a].machine} and {stages[b].machine} must exchange data, but the link between them is blocked"
    return Infeasible(job.name, Obstacle.BLOCKED, reason)


def _unlike(job: Job, plan: JobPlan, other: int) -> Infeasible:
    name = "expert" if plan.options.expert > 1 else "sharding"
    words = SPACE[COLUMN[name]].words(getattr(plan.options, name))
    reason = (
        f"with {words}, all pipelines must have the same cuts, GPUs a stage and microbatches, but pipeline {other + 1} "
        "is not like pipeline 1"
    )
    return Infeasible(job.name, Obstacle.UNLIKE, reason)


def _scattered(job: Job, plan: JobPlan, stage: Stage) -> Infeasible:
    near = sum(1 for other in plan.stages if (other.machine, other.first) == (stage.machine, stage.first))
    gpus = near * plan.options.context
    reason = (
        f"experts of layers {stage.first}–{stage.last} cannot be split over {plan.options.expert} GPUs of "
        f"{stage.machine}: {gpus} of its GPUs hold each slice of them"
    )
    return Infeasible(job.name, Obstacle.UNLIKE, reason)


def not_offered(options: Options, engine: Engine) -> str | None:
    """The first option, in words, that an engine cannot do; None: it can do all."""
    for choice in SPACE:
        value = getattr(options, choice.name)
        if value not in engine.offers.get(choice.name, (value,)):
            return f'"{choice.words(value) or plain_value(value)}"'
    return None


def _not_counted(job: Job, plan: JobPlan, engine: Engine) -> str | None:
    """What an engine cannot do of the numbers of blocks that stages compute again, in words; None: it can do all."""
    if not plan.counts_blocks:
        return None
    if plan.options.recompute not in engine.counts:
        words = SPACE[COLUMN["recompute"]].words(plan.options.recompute)
        return f'"{words}" in some blocks of a stage and not in others'
    if engine.one_count and one_count(plan, job.model) is None:
        return "another number of recomputed blocks on each stage"
    return None


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
