"""Hulk's plan and the paper's systems, run one after the other on the same machines: measured beside predicted.

Works without torch, but what it starts does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hulk.contestant import TITLE, Effort, hulk_result
from hulk.cost.compute import ComputeModel
from hulk.cost.engine import HULK
from hulk.cost.price import price_job
from hulk.cost.report import JobPrice
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.plan import JobPlan, Plan, Sync
from hulk.propose.network import Proposing
from hulk.runtime.hosts import Hosts
from hulk.runtime.measure import Measured, measure
from hulk.search.baselines import BASELINES, BaselineResult, Placement, Score, score

SYSTEMS = ("A", "B", "B-tour", "C")
"""The paper's: data parallel, GPipe in file order and on a tour, tensor parallel over everything."""
MOST_WORKERS = 32
"""Processes of one run: a worker takes some 300 MB, and all share this computer's processors."""
NO_PLAN = "tensor parallel over machines is no plan that can be run: predicted only"


@dataclass(frozen=True)
class SystemResult:
    """One system. `predicted` seconds a step by job; `measured` where it was run; `notes` say why not, and what else a
    reader should know, by job."""

    name: str
    title: str
    concurrent: bool
    predicted: Mapping[str, float]
    measured: Mapping[str, Measured] = field(default_factory=dict)
    waiting: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def predicted_total(self) -> float | None:
        """Seconds until every job has done one step: the slowest job's where they run side by side, else the sum; None
        where a job waits."""
        return self._total(self.predicted)

    @property
    def measured_total(self) -> float | None:
        """The same, measured; None where a job waits or was not run."""
        return self._total({name: one.seconds for name, one in self.measured.items()})

    def _total(self, seconds: Mapping[str, float]) -> float | None:
        if not self._complete(seconds):
            return None
        return max(seconds.values()) if self.concurrent else sum(seconds.values())

    def predicted_score(self, jobs: Sequence[Job]) -> Score | None:
        """What the predicted steps are worth by the planner's objective; None where a job waits."""
        return self._score(jobs, self.predicted)

    def measured_score(self, jobs: Sequence[Job]) -> Score | None:
        """The same by the measured steps; None where a job waits or was not run."""
        return self._score(jobs, {name: one.seconds for name, one in self.measured.items()})

    def _score(self, jobs: Sequence[Job], seconds: Mapping[str, float]) -> Score | None:
        return score(jobs, seconds, concurrent=self.concurrent) if self._complete(seconds) else None

    def _complete(self, seconds: Mapping[str, float]) -> bool:
        return bool(seconds) and not self.waiting and len(seconds) == len(self.predicted)


def validate(
    cluster: Cluster,
    jobs: Sequence[Job],
    *,
    files: tuple[str, str],
    hosts: Hosts,
    compute: ComputeModel,
    network: Proposing | None,
    effort: Effort,
    steps: int,
    say: Callable[[str], None],
) -> list[SystemResult]:
    """Plan with Hulk and with every system of the paper, and run what can be run; Hulk comes first."""
    say(f"planning {cluster.name}")
    ours = hulk_result(cluster, jobs, compute=compute, network=network, effort=effort, engine=HULK)
    planned = [(TITLE, ours)]
    for name in SYSTEMS:
        entry = BASELINES.get(name)
        found = entry.run(cluster, jobs, compute=compute, engine=HULK, seed=effort.seed, time_limit=effort.time_limit)
        planned.append((entry.title, found))
    results = []
    for title, result in planned:
        say(f"running {result.name}")
        settled = _settled(result, cluster, jobs, compute)
        results.append(_run(title, settled, cluster, jobs, files, hosts, compute, steps))
    return results


def _settled(result: BaselineResult, cluster: Cluster, jobs: Sequence[Job], compute: ComputeModel) -> BaselineResult:
    """The same plans with the way of adding up gradients that suits a run best. Planners use closed forms, to which a
    sharded optimizer costs nothing; `hulk run` sends its weights. All systems get the same treatment."""
    by_name = {job.name: job for job in jobs}
    placed = {}
    for name, placement in result.placed.items():
        best = placement
        if placement.plan is not None:
            options = [
                replace(placement.plan, sync=sync, shard_optimizer=shard) for sync in Sync for shard in (False, True)
            ]
            priced = [
                Placement(option, price.step, price.breakdown)
                for option in options
                if isinstance(
                    price := price_job(by_name[name], option, cluster, compute=compute, engine=HULK), JobPrice
                )
            ]
            best = min(priced, key=lambda option: option.seconds, default=placement)
        placed[name] = best
    return replace(result, placed=placed)


def _run(
    title: str,
    result: BaselineResult,
    cluster: Cluster,
    jobs: Sequence[Job],
    files: tuple[str, str],
    hosts: Hosts,
    compute: ComputeModel,
    steps: int,
) -> SystemResult:
    notes = dict(result.notes)
    measured: dict[str, Measured] = {}
    for name, placement in result.placed.items():
        if placement.plan is None:
            notes[name] = NO_PLAN
    for plan in result.plans(cluster):
        workers = sum(_workers(job_plan) for job_plan in plan.jobs.values())
        if workers > MOST_WORKERS:
            notes |= dict.fromkeys(
                plan.jobs, f"{workers} GPUs are more than {MOST_WORKERS} processes here: predicted only"
            )
        elif plan.jobs:
            measured |= measure(
                Plan(plan.jobs, plan.idle),
                cluster,
                jobs,
                files=files,
                hosts=hosts,
                compute=compute,
                steps=steps,
            )
    predicted = {name: placement.seconds for name, placement in result.placed.items()}
    return SystemResult(result.name, title, result.concurrent, predicted, measured, dict(result.waiting), notes)


def _workers(plan: JobPlan) -> int:
    return sum(len(stage.gpus) for pipeline in plan.pipelines for stage in pipeline.stages)
