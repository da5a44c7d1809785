"""Planning again when machines are lost or join: the paper's disaster recovery and scaling, with the cost of moving.

1. What lost nothing stays. A job that lost a machine is repaired, or planned anew on its own and the spare machines.
2. Spare machines are offered to every job, one change at a time.
3. Everything is planned anew.

Every way is judged by the objective with the time to move and restart spread over the horizon, so that a change that
does not pay back within the horizon is not made.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from hulk.cost.compute import ComputeModel
from hulk.cost.engine import HULK, Engine
from hulk.domain.check import check_plan
from hulk.domain.cluster import Cluster, Machine
from hulk.domain.job import Job
from hulk.domain.plan import JobPlan, Plan
from hulk.errors import InputError
from hulk.planner import plan_jobs
from hulk.propose.network import Proposing
from hulk.search.defaults import EVALUATIONS, TIME_LIMIT
from hulk.search.evaluate import JobSpace, Places
from hulk.search.existing import change_cluster, machines_of, restrict, skeleton_of
from hulk.search.objective import job_cost
from hulk.search.options import JobChange, Option, Refused, Replan, Scene, payback
from hulk.search.repair import growths, repairs
from hulk.search.waiting import why_waiting

_CLEARLY = 0.01  # share of the time of the jobs it touches that a change must save where it is a choice
_MOST_ANEW = 4  # jobs that lost nothing and are planned anew with the spare machines: those that count most


def replan(
    plan: Plan,
    cluster: Cluster,
    jobs: Sequence[Job],
    *,
    lost: Sequence[str] = (),
    joined: Sequence[Machine] = (),
    horizon: float,
    compute: ComputeModel,
    engine: Engine = HULK,
    seed: int = 0,
    time_limit: float = TIME_LIMIT,
    evaluations: int = EVALUATIONS,
    keep_from: Mapping[str, frozenset[str]] | None = None,
    network: Proposing | None = None,
) -> Replan:
    """The plan from now on. `horizon` is the seconds within which a change must pay back. The same seed gives the same
    answer, unless the time limit cuts it short. `keep_from` names machines that a job must not use; a `network`
    proposes where planning anew starts. `plan` has passed `hulk.domain.check` on `cluster`."""
    left = change_cluster(cluster, lost, joined)
    if not left.machines:
        raise InputError("no machine is left")
    scene = Scene(
        plan=plan,
        jobs=tuple(job for job in jobs if job.name in plan.jobs or job.name in plan.waiting),
        every=replace(cluster, machines=(*cluster.machines, *joined)),
        left=left,
        lost=frozenset(lost),
        horizon=horizon,
        compute=compute,
        engine=engine,
    )
    broken = [
        job for job in scene.jobs if job.name in plan.jobs and scene.lost & machines_of(plan.jobs[job.name]).keys()
    ]
    stay = scene.option({name: own for name, own in plan.jobs.items() if name not in {job.name for job in broken}}, {})
    assert stay is not None
    if not broken and not joined:
        what = "the lost machines were idle" if lost else "no machine was lost and none has joined"
        return _answer(scene, stay, (), f"{what}: nothing changes")
    planner = _Replanner(scene, keep_from or {}, seed, evaluations, time.monotonic() + time_limit, network)
    best = planner.repair(stay, broken)
    best = planner.grow(best)
    planner.everything()
    enough = best.cost - _CLEARLY * scene.running_cost(best)
    best = min((option for option in planner.tried if option.cost < enough), key=lambda made: made.cost, default=best)
    note = "" if best.how or broken else "nothing changes: no change pays back within the horizon"
    return _answer(scene, best, planner.tried, note)


class _Replanner:
    """The ways to go on, tried one after the other; `tried` keeps the whole plans that were looked at."""

    def __init__(
        self,
        scene: Scene,
        keep_from: Mapping[str, frozenset[str]],
        seed: int,
        evaluations: int,
        deadline: float,
        network: Proposing | None,
    ) -> None:
        self.scene = scene
        self.keep_from = keep_from
        self.seed = seed
        self.evaluations = evaluations
        self.deadline = deadline
        self.network = network
        self.tried: list[Option] = []
        places = Places.of(scene.every)
        self.spaces = {
            job.name: JobSpace(
                job, scene.every, places, compute=scene.compute, engine=scene.engine,
                without=scene.lost | keep_from.get(job.name, frozenset()),
            )
            for job in scene.jobs
        }  # fmt: skip
        self.number = {machine.name: i for i, machine in enumerate(scene.every.machines)}
        by_cost = sorted(scene.jobs, key=lambda job: -job_cost(job, scene.before[job.name]))
        self.weighty = {job.name for job in by_cost[:_MOST_ANEW]}

    def repair(self, option: Option, broken: Sequence[Job]) -> Option:
        """Every job that lost a machine goes on as well as it can, the weightiest first; or it waits."""
        for job in sorted(broken, key=lambda job: -job_cost(job, self.scene.before[job.name])):
            space, old = self.spaces[job.name], self.scene.plan.jobs[job.name]
            spare = self.scene.spare(option)
            lost = [self.number[name] for name in machines_of(old) if name in self.scene.lost]
            ways = repairs(space, skeleton_of(old, self.scene.every), lost, [self.number[name] for name in spare])
            options = [self.scene.with_job(option, job, space.plan(made)[0], how) for how, made in ways]
            options.append(self._anew(option, job, spare))
            found = [made for made in options if made is not None]
            self.tried += found
            option = min([option, *found], key=lambda made: made.cost)
        return option

    def grow(self, option: Option) -> Option:
        """Spare machines go where they help the objective most, moving included, as long as they do."""
        rng = np.random.default_rng(self.seed)
        order = sorted(self.scene.jobs, key=lambda job: -job_cost(job, option.seconds.get(job.name)))
        settled: set[str] = set()
        while (spare := self.scene.spare(option)) and time.monotonic() < self.deadline:
            found = [made for job in order if job.name not in settled for made in self._grown(option, job, spare, rng)]
            self.tried += [made for _, made in found]
            worth = [
                (name, made) for name, made in found if made.cost < option.cost - _CLEARLY * self._own(option, name)
            ]
            if not worth:
                break
            name, option = min(worth, key=lambda entry: entry[1].cost)
            settled.add(name)
        return option

    def _own(self, option: Option, name: str) -> float:
        """A job's part of the objective in the long run; nothing where it waits."""
        return job_cost(self.spaces[name].job, option.seconds[name]) if name in option.seconds else 0.0

    def _grown(
        self, option: Option, job: Job, spare: Sequence[str], rng: np.random.Generator
    ) -> Iterator[tuple[str, Option]]:
        """The job with more machines, in several ways."""
        own, space = option.plans.get(job.name), self.spaces[job.name]
        made: list[Option | None] = []
        if own is not None:
            free = [self.number[name] for name in spare]
            ways = growths(space, skeleton_of(own, self.scene.every), free, rng)
            made = [self.scene.with_job(option, job, space.plan(grown)[0], how) for how, grown in ways]
        if own is None or job.name in self.weighty:
            made.append(self._anew(option, job, spare))
        yield from ((job.name, found) for found in made if found is not None)

    def everything(self) -> None:
        """All jobs planned anew on all machines that are left."""
        jobs = [job for job in self.scene.jobs if self.spaces[job.name].allowed]
        if not jobs:
            return
        made = self._plan(self.scene.left, jobs, self.evaluations, 1.0)
        changed = {
            name: "planned anew with all jobs" for name, own in made.items() if own != self.scene.plan.jobs.get(name)
        }
        option = self.scene.option(made, changed)
        self.tried += [option] if option is not None else []

    def _anew(self, option: Option, job: Job, spare: Sequence[str]) -> Option | None:
        """One job planned anew on its own machines, those it shares left out, and the spare ones."""
        own = option.plans.get(job.name) or self.scene.plan.jobs.get(job.name)
        others = {m for name, plan in option.plans.items() if name != job.name for m in machines_of(plan)}
        names = {*spare, *(machines_of(own) if own else ())} - others - self.scene.lost
        near = restrict(self.scene.left, names)
        if not self.spaces[job.name].allowed.intersection(self.number[machine.name] for machine in near.machines):
            return None
        made = self._plan(near, [job], self.evaluations // 4, 0.3)
        return self.scene.with_job(option, job, made[job.name], "planned anew") if job.name in made else None

    def _plan(self, cluster: Cluster, jobs: Sequence[Job], evaluations: int, share: float) -> Mapping[str, JobPlan]:
        limit = max(share * (self.deadline - time.monotonic()), 0.5)
        scene = self.scene
        result = plan_jobs(
            cluster, jobs, compute=scene.compute, engine=scene.engine, time_limit=limit, evaluations=evaluations,
            seed=self.seed, keep_from=self.keep_from, network=self.network,
        )  # fmt: skip
        return result.plan.jobs


def _answer(scene: Scene, chosen: Option, tried: Sequence[Option], note: str) -> Replan:
    """The chosen option as a checked plan, told job by job, with the better one that does not pay back, if there is."""
    left = scene.left
    waiting = {job.name: _why(scene, job, chosen) for job in scene.jobs if job.name not in chosen.plans}
    used = {name for own in chosen.plans.values() for name in machines_of(own)}
    plan = Plan(
        {job.name: chosen.plans[job.name] for job in scene.jobs if job.name in chosen.plans},
        tuple(machine.name for machine in left.machines if machine.name not in used),
        waiting,
    )
    check_plan(plan, left, scene.jobs)
    changes = tuple(_change(scene, chosen, job, waiting.get(job.name, "")) for job in scene.jobs)
    return Replan(left, plan, changes, max(chosen.move_s.values(), default=0.0), _refused(scene, chosen, tried), note)


def _why(scene: Scene, job: Job, chosen: Option) -> str:
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
    kept = machines_of(old).keys() & machines_of(new).keys() - needing if old and new else set()
    choice = old is not None and not scene.lost & machines_of(old).keys()
    pays = None
    if choice and before is not None and after is not None and name in chosen.how:
        pays = payback([(job, before, 0.0)], [(job, after, chosen.pause_s[name])])
    return JobChange(
        job=name,
        before_s=before,
        after_s=after,
        how=chosen.how.get(name, "") or ("stopped" if before is not None and after is None else ""),
        stays=tuple(machine for machine in (machines_of(new) if new else ()) if machine in kept),
        moves=moves,
        move_s=chosen.move_s.get(name, 0.0),
        payback_s=pays,
        reason=reason,
    )


def _refused(scene: Scene, chosen: Option, tried: Sequence[Option]) -> Refused | None:
    """The plan that would be best in the long run, where it is another one than the chosen."""
    same_jobs = [option for option in tried if option.seconds.keys() == chosen.seconds.keys()]
    best = min(same_jobs, key=scene.running_cost, default=chosen)
    saves = 1 - scene.running_cost(best) / scene.running_cost(chosen) if chosen.seconds else 0.0
    pays = payback(scene.terms(chosen), scene.terms(best)) if saves >= _CLEARLY else None
    return (
        None if pays is None or pays <= scene.horizon else Refused(saves, max(best.move_s.values(), default=0.0), pays)
    )
