"""Whole plans to go on by after the cluster has changed, with what they take, and how they are ranked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from hulk.cost.compute import ComputeModel
from hulk.cost.engine import Engine
from hulk.cost.moving import Move, move_seconds, plan_moves
from hulk.cost.play import play
from hulk.cost.prepared import Prepared, prepare
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.plan import JobPlan, Plan, idle_machines, machines_used
from hulk.replan.gpus import keep_gpus
from hulk.replan.naming import alike, names_for, renamed, reordered
from hulk.replan.payback import Term, effective_seconds
from hulk.replan.repair import with_others
from hulk.search.objective import job_cost

RESTART = 60.0
"""Seconds a job that ran stands still whenever its plan changes, besides what moves: to stop, start and connect."""

CLEARLY = 0.01
"""Share of its time that a job which lost nothing, or others by it, must gain before its plan changes."""

_MOST_ORDERS = 3  # names, then the order of pipelines, then names again: each makes the moves fewer


@dataclass(frozen=True)
class Option:
    """The jobs that run with their plans, and for each: what was done (in words, only where something was, machines as
    {number in `Scene.every`}), seconds a step, what moves, the seconds of that, and the seconds it stands still.

    rank  the less, the better: weight that waits, the objective over the horizon (changes of jobs that lost nothing
          count as `CLEARLY` of their time), bytes that move, jobs that change
    """

    plans: Mapping[str, JobPlan]
    how: Mapping[str, str]
    seconds: Mapping[str, float]
    moves: Mapping[str, tuple[Move, ...]]
    move_s: Mapping[str, float]
    pause_s: Mapping[str, float]
    rank: tuple[float, float, float, int]


@dataclass(frozen=True)
class Scene:
    """The plan so far, and the machines: `every` has the lost and the joined ones, `left` no lost ones. `keep_from`
    names machines that a job must not use. `was`: the plan's machines as they were, where more is different than who is
    there."""

    plan: Plan
    jobs: tuple[Job, ...]
    every: Cluster
    left: Cluster
    lost: frozenset[str]
    horizon: float
    compute: ComputeModel
    engine: Engine
    keep_from: Mapping[str, frozenset[str]] = field(default_factory=dict)
    was: Cluster | None = None
    _prices: dict[tuple[str, JobPlan], float | None] = field(default_factory=dict, repr=False)

    @cached_property
    def before(self) -> dict[str, float | None]:
        """Seconds a step of each job by the old plan, with the machines that were there, as they were."""
        if self.was is None:
            return self.as_it_is
        return replace(self, every=self.was, was=None, _prices={}).as_it_is

    @cached_property
    def as_it_is(self) -> dict[str, float | None]:
        """The same as everything is now."""
        return {
            job.name: self._seconds(job, self.plan.jobs[job.name]) if job.name in self.plan.jobs else None
            for job in self.jobs
        }

    @cached_property
    def broken(self) -> tuple[Job, ...]:
        """The jobs that lost a machine, or cannot run as they did on what is different, the weightiest first."""
        hit = [
            job
            for job in self.jobs
            if job.name in self.plan.jobs
            and (
                self.lost.intersection(self.plan.jobs[job.name].machines)
                or (self.was is not None and self.as_it_is[job.name] is None)
            )
        ]
        return tuple(sorted(hit, key=lambda job: -job_cost(job, self.before[job.name])))

    @cached_property
    def whole(self) -> dict[str, JobPlan]:
        """The old plans of the jobs that lost nothing."""
        broken = {job.name for job in self.broken}
        return {name: own for name, own in self.plan.jobs.items() if name not in broken}

    @cached_property
    def number(self) -> dict[str, int]:
        """Machine → its number in `every`."""
        return {machine.name: i for i, machine in enumerate(self.every.machines)}

    @cached_property
    def kind_of(self) -> dict[str, int]:
        """Machine that is left → its kind; those of a kind are alike."""
        return alike(self.left, self.keep_from)

    def spare(self, option: Option) -> tuple[str, ...]:
        """Machines that are left and that nothing runs on."""
        return idle_machines(option.plans.values(), (machine.name for machine in self.left.machines))

    def terms(self, option: Option) -> list[Term]:
        """The jobs as the objective sees them."""
        return [(job, option.seconds.get(job.name), option.pause_s.get(job.name, 0.0)) for job in self.jobs]

    def running_cost(self, option: Option) -> float:
        """The objective's part of the jobs that run, in the long run."""
        return sum(job_cost(job, option.seconds[job.name]) for job in self.jobs if job.name in option.seconds)

    def with_job(self, option: Option, job: Job, plan: JobPlan, how: str) -> Option | None:
        """The option with one job's plan changed; None where that does not fit."""
        words = ", ".join(filter(None, (option.how.get(job.name), how)))
        return self.option({**option.plans, job.name: plan}, {**option.how, job.name: words})

    def option(self, plans: Mapping[str, JobPlan], how: Mapping[str, str]) -> Option | None:
        """These plans as an option: alike machines named as the least bytes move, GPUs handed out, priced, with what
        moves; None where one does not fit."""
        found = self._settled(plans)
        if found is None:
            return None
        placed, names = found
        seconds: dict[str, float] = {}
        moves: dict[str, tuple[Move, ...]] = {}
        for job in self.jobs:
            own, old = placed.get(job.name), self.plan.jobs.get(job.name)
            if own is None:
                continue
            step = self._seconds(job, own)
            if step is None and own != old:
                return None
            if step is not None:
                seconds[job.name] = step
            moves[job.name] = () if own == old else plan_moves(job, old, own, self.every, self.lost)
        move_s = {
            name: move_seconds(own, self.every, beside=[m for n, others in moves.items() if n != name for m in others])
            for name, own in moves.items()
        }
        changed = [name for name, own in placed.items() if own != self.plan.jobs.get(name)]
        pause_s = {name: move_s[name] + RESTART for name in changed if name in self.plan.jobs}
        others = {self.number[a]: self.number[b] for a, b in names.items()}
        words = {name: with_others(how[name], others) for name in changed}
        rank = self._rank(seconds, pause_s, sum(move.bytes for own in moves.values() for move in own), len(changed))
        return Option(placed, words, seconds, moves, move_s, pause_s, rank)

    def kinds_of(self, plan: JobPlan) -> Counter[int]:
        """How many machines of each kind a plan uses."""
        return Counter(self.kind_of[name] for name in plan.machines)

    def job_rank(self, job: Job, step: float, pause: float) -> float:
        """The part of `Option.rank`'s objective of a job that runs, with the seconds that it stands still first."""
        old = self.as_it_is[job.name]
        nuisance = CLEARLY * job_cost(job, old) if pause and old is not None and job.name in self.whole else 0.0
        return job_cost(job, effective_seconds(step, pause, self.horizon)) + nuisance

    def _rank(
        self, seconds: Mapping[str, float], pause_s: Mapping[str, float], moved: float, changed: int
    ) -> tuple[float, float, float, int]:
        waits = sum(job.weight for job in self.jobs if job.name not in seconds)
        parts = (
            self.job_rank(job, seconds[job.name], pause_s.get(job.name, 0.0))
            for job in self.jobs
            if job.name in seconds
        )
        return waits, sum(parts), moved, changed

    def _seconds(self, job: Job, plan: JobPlan) -> float | None:
        key = (job.name, plan)
        if key not in self._prices:
            # The price's own seconds; all else that a price says would be played for as well.
            ready = prepare(job, plan, self.every, compute=self.compute, engine=self.engine)
            self._prices[key] = play([ready])[0].seconds if isinstance(ready, Prepared) else None
        return self._prices[key]

    def _settled(self, plans: Mapping[str, JobPlan]) -> tuple[dict[str, JobPlan], dict[str, str]] | None:
        """The plans on the machines and GPUs they get, and who takes whose part. A machine that a job shared with one
        that stays is shared again, if it has room for both, or else left to the other."""
        kept = {name: own for name, own in plans.items() if own == self.plan.jobs.get(name)}
        changed = {name: own for name, own in plans.items() if name not in kept}
        if not changed:
            return kept, {}
        taken = machines_used(kept.values())
        before = machines_used(self.plan.jobs[name] for name in changed if name in self.plan.jobs)
        shared = taken & before & machines_used(changed.values())
        for fixed in (shared, set()) if shared else (set(),):
            found = self._named(changed, taken, fixed)
            placed = None if found is None else self._placed(kept, found[0])
            if found is not None and placed is not None:
                return placed, found[1]
        return None

    def _named(
        self, plans: Mapping[str, JobPlan], taken: Collection[str], fixed: Collection[str]
    ) -> tuple[Mapping[str, JobPlan], dict[str, str]] | None:
        """The plans on those of their alike machines, and with their pipelines in that order, that move the least."""
        names = {machine: machine for own in plans.values() for machine in own.machines}
        for _ in range(_MOST_ORDERS):
            others = names_for(self.jobs, self.plan.jobs, plans, self.kind_of, taken=taken, fixed=fixed, lost=self.lost)
            if others is None:
                return None
            names = {machine: others.get(name, name) for machine, name in names.items()}
            plans = {name: renamed(own, others) for name, own in plans.items()}
            ordered = {job.name: self._in_order(job, plans[job.name]) for job in self.jobs if job.name in plans}
            if ordered == plans:
                break
            plans = ordered
        return plans, names

    def _in_order(self, job: Job, plan: JobPlan) -> JobPlan:
        """The plan with its pipelines in the order in which the least bytes move, if that takes no longer a step."""
        old = self.plan.jobs.get(job.name)
        better = plan if old is None else reordered(job, old, plan, self.lost)
        if better == plan:
            return plan
        as_it_is, other = self._seconds(job, plan), self._seconds(job, better)
        return better if as_it_is is not None and other is not None and other <= as_it_is else plan

    def _placed(self, kept: Mapping[str, JobPlan], changed: Mapping[str, JobPlan]) -> dict[str, JobPlan] | None:
        """The plans with every GPU used once: those that do not change first, the others round them."""
        taken: dict[str, set[int]] = {}
        placed: dict[str, JobPlan] = {}
        for name, own in (*kept.items(), *changed.items()):
            made = own if name in kept else keep_gpus(own, self.plan.jobs.get(name), self.every, taken)
            if made is None:
                return None
            for part in (part for stage in made.stages for part in stage.parts):
                taken.setdefault(part.machine, set()).update(part.gpus)
            placed[name] = made
        return placed
