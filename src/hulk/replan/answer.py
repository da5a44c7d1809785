"""The answer of replanning: what becomes of each job by the plan that was chosen, told in words and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hulk.cost.moving import Move
from hulk.domain.check import check_plan
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.plan import Plan, idle_machines
from hulk.replan.payback import payback
from hulk.replan.repair import told
from hulk.replan.scene import CLEARLY, Option, Scene
from hulk.search.job_space import JobSpace, Places
from hulk.search.waiting import why_waiting


@dataclass(frozen=True)
class JobChange:
    """What becomes of one job. Seconds a step; None where it does not run.

    how        in words; empty where nothing changes
    stays      machines that keep what they have and need nothing more
    payback_s  seconds after which a quicker step has made up for the move; None where it was no choice
    """

    job: str
    before_s: float | None
    after_s: float | None
    how: str
    stays: tuple[str, ...]
    moves: tuple[Move, ...]
    move_s: float
    payback_s: float | None
    reason: str = ""

    @property
    def changed(self) -> bool:
        """Whether the job goes on by another plan."""
        return bool(self.how)

    @property
    def from_checkpoint(self) -> bool:
        """Whether some of its state survives on no machine, so that it goes back to its last checkpoint."""
        return any(move.source is None for move in self.moves)


@dataclass(frozen=True)
class Refused:
    """A better plan that is not made: what it would save of the objective, and when it would have paid back."""

    saves: float
    move_s: float
    payback_s: float


@dataclass(frozen=True)
class Replan:
    """The cluster and the plan from now on, what that means for each job, and the seconds until all have moved."""

    cluster: Cluster
    plan: Plan
    jobs: tuple[JobChange, ...]
    move_s: float
    refused: Refused | None
    note: str

    @property
    def changed(self) -> bool:
        """Whether any job's plan changes."""
        return any(job.changed for job in self.jobs)

    @property
    def stopped(self) -> tuple[str, ...]:
        """Jobs that ran and cannot run any more."""
        return tuple(job.job for job in self.jobs if job.before_s is not None and job.after_s is None)


def answer(scene: Scene, chosen: Option, tried: Sequence[Option], note: str) -> Replan:
    """The chosen option as a checked plan, told job by job, with the better one that does not pay back, if there is."""
    left = scene.left
    waiting = {job.name: _why(scene, job, chosen) for job in scene.jobs if job.name not in chosen.plans}
    plan = Plan(
        {job.name: chosen.plans[job.name] for job in scene.jobs if job.name in chosen.plans},
        idle_machines(chosen.plans.values(), (machine.name for machine in left.machines)),
        waiting,
    )
    check_plan(plan, left, scene.jobs)
    changes = tuple(_change(scene, chosen, job, waiting.get(job.name, "")) for job in scene.jobs)
    return Replan(left, plan, changes, max(chosen.move_s.values(), default=0.0), _refused(scene, chosen, tried), note)


def _why(scene: Scene, job: Job, chosen: Option) -> str:
    if not scene.left.machines:
        return "no machine is left"
    if job.name in scene.plan.waiting and not chosen.how:
        return scene.plan.waiting[job.name]
    space = JobSpace(job, scene.left, Places.of(scene.left), compute=scene.compute, engine=scene.engine)
    return why_waiting(space, alone=len(scene.jobs) == 1)


def _change(scene: Scene, chosen: Option, job: Job, reason: str) -> JobChange:
    name = job.name
    old, new = scene.plan.jobs.get(name), chosen.plans.get(name)
    moves = chosen.moves.get(name, ())
    before, after = scene.before.get(name), chosen.seconds.get(name)
    needing = {move.target for move in moves}
    kept = set(old.machines).intersection(new.machines) - needing if old and new else set()
    pays = None
    now = scene.as_it_is.get(name)
    if name in scene.whole and now is not None and after is not None and name in chosen.how:
        pays = payback([(job, now, 0.0)], [(job, after, chosen.pause_s[name])])
    return JobChange(
        job=name,
        before_s=before,
        after_s=after,
        how=_how(scene, chosen, name),
        stays=tuple(machine for machine in (new.machines if new else ()) if machine in kept),
        moves=moves,
        move_s=chosen.move_s.get(name, 0.0),
        payback_s=pays,
        reason=reason,
    )


def _how(scene: Scene, chosen: Option, name: str) -> str:
    """What was done with a job, in words; for one that lost nothing and is no quicker, also for whom."""
    before, now, after = scene.before[name], scene.as_it_is[name], chosen.seconds.get(name)
    words = told(chosen.how.get(name, ""), [machine.name for machine in scene.every.machines])
    if before is not None and after is None:
        words = "stopped"
    if not words or name not in scene.whole or now is None or (after is not None and after < now):
        return words
    had = set(scene.whole[name].machines)
    takers = [
        other
        for other, own in chosen.plans.items()
        if other != name and other in chosen.how and had.intersection(own.machines)
    ]
    return f"{words}, makes room for {', '.join(takers)}" if takers else words


def _refused(scene: Scene, chosen: Option, tried: Sequence[Option]) -> Refused | None:
    """The plan that would be best in the long run, where it is another one than the chosen."""
    same_jobs = [option for option in tried if option.seconds.keys() == chosen.seconds.keys()]
    best = min(same_jobs, key=scene.running_cost, default=chosen)
    saves = 1 - scene.running_cost(best) / scene.running_cost(chosen) if chosen.seconds else 0.0
    pays = payback(scene.terms(chosen), scene.terms(best)) if saves >= CLEARLY else None
    return (
        None if pays is None or pays <= scene.horizon else Refused(saves, max(best.move_s.values(), default=0.0), pays)
    )
