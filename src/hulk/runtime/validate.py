"""Plans of several systems, run one after the other on the same machines: measured beside predicted.

Works without torch, but what it starts does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hulk.cost.engine import HULK
from hulk.cost.price import price_job
from hulk.cost.report import JobPrice
from hulk.domain.job import Job
from hulk.domain.options import Sharding, Sync
from hulk.domain.plan import JobPlan, Plan
from hulk.runtime.measure import Measured, Trial, measure
from hulk.search.baselines import BaselineResult, Placement, Score, score

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
    planned: Iterable[tuple[str, BaselineResult]], trial: Trial, *, say: Callable[[str], None]
) -> list[SystemResult]:
    """Run what systems have planned, as far as it can be run; each comes with its title."""
    results = []
    for title, result in planned:
        say(f"running {result.name}")
        results.append(_run(title, _settled(result, trial), trial))
    return results


def _settled(result: BaselineResult, trial: Trial) -> BaselineResult:
    """The same plans with the way of adding up gradients that suits a run best. Planners use closed forms, to which a
    sharded optimizer costs nothing; `hulk run` sends its weights. All systems get the same treatment."""
    by_name = {job.name: job for job in trial.jobs}
    placed = {}
    for name, placement in result.placed.items():
        best = placement
        if placement.plan is not None:
            options = [
                replace(placement.plan, options=replace(placement.plan.options, sync=sync, sharding=sharding))
                for sync in Sync
                for sharding in (Sharding.NONE, Sharding.OPTIMIZER)
            ]
            priced = [
                Placement(option, price.step, price.breakdown)
                for option in options
                if isinstance(
                    price := price_job(by_name[name], option, trial.cluster, compute=trial.compute, engine=HULK),
                    JobPrice,
                )
            ]
            best = min(priced, key=lambda option: option.seconds, default=placement)
        placed[name] = best
    return replace(result, placed=placed)


def _run(title: str, result: BaselineResult, trial: Trial) -> SystemResult:
    notes = dict(result.notes)
    measured: dict[str, Measured] = {}
    for name, placement in result.placed.items():
        if placement.plan is None:
            notes[name] = NO_PLAN
    for plan in result.plans(trial.cluster):
        workers = sum(_workers(job_plan) for job_plan in plan.jobs.values())
        if workers > MOST_WORKERS:
            notes |= dict.fromkeys(
                plan.jobs, f"{workers} GPUs are more than {MOST_WORKERS} processes here: predicted only"
            )
        elif plan.jobs:
            measured |= measure(Plan(plan.jobs, plan.idle), trial)
    predicted = {name: placement.seconds for name, placement in result.placed.items()}
    return SystemResult(result.name, title, result.concurrent, predicted, measured, dict(result.waiting), notes)


def _workers(plan: JobPlan) -> int:
    return sum(stage.ranks for stage in plan.slots)
