"""Planning again when machines are lost or join: the paper's disaster recovery and scaling, with the cost of moving.

1. What lost nothing stays. A job that lost a machine is repaired, or planned anew on its own and the spare machines.
2. Spare machines are offered to every job, one change at a time.
3. The jobs that lost a machine are planned anew together; so is everything, from several seeds.
4. In each of these, jobs that lost nothing go back to their old plan where nobody gains enough by their change.
5. The jobs' plans out of all these ways are put together anew, as far as the machines go round.

Every way is judged by `Option.rank`: the objective with the time to move and restart spread over the horizon, so that a
change that does not pay back within the horizon is not made. Alike machines are named as the least bytes move.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from hulk.domain.cluster import Cluster, Machine, change_cluster, restrict
from hulk.domain.job import Job
from hulk.domain.plan import JobPlan, Plan, machines_used
from hulk.forked import side_by_side
from hulk.planner import PlanResult, plan_jobs
from hulk.propose.network import Proposing
from hulk.replan.answer import Replan, answer
from hulk.replan.changes import Changes, changes_of
from hulk.replan.combining import Choice, best_ways
from hulk.replan.repair import growths, repairs
from hulk.replan.scene import Option, Scene
from hulk.replan.together import plan_repairs
from hulk.search.budget import Effort
from hulk.search.job_space import JobSpace, Places
from hulk.search.objective import job_cost
from hulk.search.request import Request
from hulk.search.skeleton import skeleton_of

# From so many seeds is everything planned anew, on more than a few machines from fewer; so many searches at a time.
_SEARCHES, _FEW, _SEARCHES_OF_MANY, _SIDE_BY_SIDE = 4, 40, 2, 2
_LEAST_SEARCH = 0.5  # seconds
_MOST_JOINED = 4
_MOST_ANEW = 4  # jobs that lost nothing and are planned anew with the spare machines: those that count most


@dataclass(frozen=True)
class Change:
    """What happened to a cluster: machines that are gone, by name, and machines that join. `was`: the same machines as
    they were before, where more is different now, such as a link: jobs that lost nothing may gain by another plan then,
    or need one."""

    lost: tuple[str, ...] = ()
    joined: tuple[Machine, ...] = ()
    was: Cluster | None = None


def replan(
    plan: Plan,
    request: Request,
    change: Change,
    *,
    horizon: float,
    effort: Effort = Effort(),  # noqa: B008  frozen
    network: Proposing | None = None,
    widely: bool = True,
    known: Mapping[tuple[str, JobPlan], float] | None = None,
) -> Replan:
    """The plan from now on. `request` has the cluster before machines were lost or joined; `plan` has passed
    `hulk.domain.check` on it, or on `change.was`. `horizon` is the seconds within which a change must pay back. The
    same seed gives the same answer, unless the time limit cuts it short. A `network` proposes where planning anew
    starts. Not `widely`: jobs are repaired and grow, and those that lost a machine are planned anew, but not everything
    together, which takes longest. `known`: seconds a step of jobs by plans that were played before."""
    lost, joined, cluster = change.lost, change.joined, request.cluster
    left = change_cluster(cluster, lost, joined)
    scene = Scene(
        plan=plan,
        jobs=tuple(job for job in request.jobs if job.name in plan.jobs or job.name in plan.waiting),
        every=replace(cluster, machines=(*cluster.machines, *joined)),
        left=left,
        lost=frozenset(lost),
        horizon=horizon,
        compute=request.compute,
        engine=request.engine,
        keep_from=request.keep_from,
        was=change.was,
        _prices=dict(known or {}),
    )
    stay = scene.option(scene.whole, {})
    assert stay is not None
    if not left.machines:
        return answer(scene, stay, (), "")
    if not scene.broken and not joined and change.was is None:
        what = "the lost machines were idle" if lost else "no machine was lost and none has joined"
        return answer(scene, stay, (), f"{what}: nothing changes")
    planner = _Replanner(scene, effort, network, widely=widely)
    best = planner.best(stay)
    note = "" if best.how or scene.broken else "nothing changes: no change pays back within the horizon"
    return answer(scene, best, planner.tried, note)


class _Replanner:
    """The ways to go on, tried one after the other; `tried` keeps the whole plans that were looked at."""

    def __init__(self, scene: Scene, effort: Effort, network: Proposing | None, *, widely: bool) -> None:
        self.scene = scene
        self.widely = widely
        self.effort = effort
        self.deadline = time.monotonic() + effort.time_limit
        self.network = network
        self.tried: list[Option] = []
        self._changes: dict[str, Changes] = {}
        places = Places.of(scene.every)
        self.spaces = {
            job.name: JobSpace(
                job, scene.every, places, compute=scene.compute, engine=scene.engine,
                without=scene.lost | scene.keep_from.get(job.name, frozenset()),
            )
            for job in scene.jobs
        }  # fmt: skip
        by_cost = sorted(scene.jobs, key=lambda job: -job_cost(job, scene.before[job.name]))
        self.weighty = {job.name for job in by_cost[:_MOST_ANEW]}

    @property
    def _left(self) -> float:
        """Seconds until the time is up."""
        return self.deadline - time.monotonic()

    def changes(self, job: str) -> Changes:
        """What can be done to a job's pipelines; made when it is asked for, since tables take a while."""
        if job not in self._changes:
            self._changes[job] = changes_of([self.spaces[job]])[0]
        return self._changes[job]

    def best(self, stay: Option) -> Option:
        """The best of all ways; not `widely`, of those that leave most as it is."""
        first = self.grow(self.repair(stay))
        self.keep([first, *(self.together() if self.widely else ())])
        self.keep(self.joined())
        return min((first, *self.tried), key=_rank)

    def keep(self, options: Sequence[Option]) -> None:
        """Note these, as they are and settled: what is settled ranks no worse, and of the others one may be the plan
        that would pay back, though not within the horizon."""
        self.tried += [*options, *(self.settled(option) for option in options)]

    def repair(self, option: Option) -> Option:
        """Every job that lost a machine goes on as well as it can, the weightiest first; or it waits."""
        for job in self.scene.broken:
            spare = self.scene.spare(option)
            options = [self.scene.with_job(option, job, made, how) for how, made in self._repairs(job, spare)]
            options.append(self._anew(option, job, spare))
            found = [made for made in options if made is not None]
            self.tried += found
            option = min([option, *found], key=_rank)
        return option

    def _repairs(self, job: Job, spare: Sequence[str]) -> list[tuple[str, JobPlan]]:
        """Small changes with which a job goes on without the machines that it lost."""
        scene, old = self.scene, self.scene.plan.jobs[job.name]
        if old.spans:
            return plan_repairs(job, old, scene.every, scene.lost, spare)
        lost = [scene.number[name] for name in old.machines if name in scene.lost]
        free = [scene.number[name] for name in spare]
        ways = repairs(self.changes(job.name), skeleton_of(old, scene.every), lost, free)
        return [(how, self.spaces[job.name].plan(made)[0]) for how, made in ways]

    def grow(self, option: Option) -> Option:
        """Spare machines go where they help the objective most, moving included, as long as they do."""
        rng = np.random.default_rng(self.effort.seed)
        order = sorted(self.scene.jobs, key=lambda job: -job_cost(job, option.seconds.get(job.name)))
        settled: set[str] = set()
        while (spare := self.scene.spare(option)) and self._left > 0:
            found = [
                made
                for job in order
                if job.name not in settled and self._left > 0
                for made in self._grown(option, job, spare, rng)
            ]
            self.tried += [made for _, made in found]
            name, best = min(found, key=lambda entry: entry[1].rank, default=("", option))
            if best.rank >= option.rank:
                break
            option = best
            settled.add(name)
        return option

    def settled(self, option: Option) -> Option:
        """The option with the jobs that lost nothing back on their old plans wherever nobody gains enough by leaving
        them: all of them, or one after the other."""
        while True:
            left = [name for name, old in self.scene.whole.items() if option.plans.get(name) != old]
            ways = [left, *([name] for name in left)] if len(left) > 1 else [left] if left else []
            found = [
                made
                for names in ways
                if (made := self.scene.option({**option.plans, **{n: self.scene.whole[n] for n in names}}, option.how))
            ]
            best = min((option, *found), key=_rank)
            if best is option:
                return option
            option = best

    def _grown(
        self, option: Option, job: Job, spare: Sequence[str], rng: np.random.Generator
    ) -> Iterator[tuple[str, Option]]:
        """The job with more machines, in several ways."""
        own, space = option.plans.get(job.name), self.spaces[job.name]
        made: list[Option | None] = []
        if own is not None and not own.spans:
            free = [self.scene.number[name] for name in spare]
            ways = growths(self.changes(job.name), skeleton_of(own, self.scene.every), free, rng)
            made = [self.scene.with_job(option, job, space.plan(grown)[0], how) for how, grown in ways]
        if (own is None or job.name in self.weighty) and self._left > _LEAST_SEARCH:
            made.append(self._anew(option, job, spare))
        yield from ((job.name, found) for found in made if found is not None)

    def together(self) -> list[Option]:
        """The jobs that lost a machine planned anew together on what the others leave, and all jobs on all machines
        from several seeds."""
        scene = self.scene
        jobs = [job for job in scene.jobs if self.spaces[job.name].allowed]
        broken = [job for job in scene.broken if job in jobs]
        taken = machines_used(scene.whole.values())
        made: list[Option | None] = []
        if len(broken) > 1 and (near := restrict(scene.left, scene.number.keys() - taken - scene.lost)).machines:
            plans = self._plan(near, broken)
            made.append(self._planned({**scene.whole, **plans}, "planned anew"))
        if jobs:
            count = _SEARCHES if len(scene.left.machines) <= _FEW else _SEARCHES_OF_MANY
            for plans in self._plans(jobs, count):
                made.append(self._planned(plans, "planned anew with all jobs"))
        return [option for option in made if option is not None]

    def joined(self) -> list[Option]:
        """Plans of different ways put together, the few that seem best: groups share nothing, so a job's plan out of
        one way can stand beside those of others wherever there are machines enough of each kind."""
        scene = self.scene
        choices: list[list[Choice]] = []
        for job in scene.jobs:
            seen: dict[tuple[float, frozenset[tuple[int, int]]], Choice] = {}
            for option in (option for option in self.tried if job.name in option.seconds):
                own = option.plans[job.name]
                cost = scene.job_rank(job, option.seconds[job.name], option.pause_s.get(job.name, 0.0))
                uses = scene.kinds_of(own)
                seen.setdefault(
                    (cost, frozenset(uses.items())), Choice(job.name, own, option.how.get(job.name, ""), cost, uses)
                )
            choices.append(list(seen.values()))
        room = Counter(scene.kind_of[machine.name] for machine in scene.left.machines)
        made = (
            scene.option({c.job: c.plan for c in way}, {c.job: c.how for c in way})
            for way in best_ways(choices, room, most=_MOST_JOINED)
        )
        return [option for option in made if option is not None]

    def _planned(self, plans: Mapping[str, JobPlan], how: str) -> Option | None:
        return self.scene.option(plans, dict.fromkeys(plans, how))

    def _anew(self, option: Option, job: Job, spare: Sequence[str]) -> Option | None:
        """One job planned anew on its own machines, those it shares left out, and the spare ones."""
        own = option.plans.get(job.name) or self.scene.plan.jobs.get(job.name)
        others = machines_used(plan for name, plan in option.plans.items() if name != job.name)
        names = {*spare, *(own.machines if own else ())} - others - self.scene.lost
        near = restrict(self.scene.left, names)
        if not self.spaces[job.name].allowed.intersection(self.scene.number[machine.name] for machine in near.machines):
            return None
        made = self._plan(near, [job])
        return self.scene.with_job(option, job, made[job.name], "planned anew") if job.name in made else None

    def _plan(self, cluster: Cluster, jobs: Sequence[Job]) -> Mapping[str, JobPlan]:
        """Some jobs on some machines, with a part of the effort."""
        effort = replace(self.effort, evaluations=self.effort.evaluations // 4)
        return self._search(cluster, jobs, effort, 0.3 if self.widely else 0.8)().plan.jobs

    def _plans(self, jobs: Sequence[Job], count: int) -> list[Mapping[str, JobPlan]]:
        """All jobs on all machines from several seeds, two side by side at a time; no more when time is short."""
        found: list[PlanResult] = []
        for first in range(0, count, _SIDE_BY_SIDE):
            begin = time.monotonic()
            own, *others = (
                self._search(self.scene.left, jobs, self.effort.beside(i), 1.0)
                for i in range(first, min(first + _SIDE_BY_SIDE, count))
            )
            found += side_by_side(own, others)
            now = time.monotonic()
            if any(result.hurried for result in found) or 2 * now - begin > self.deadline:
                break
        return [result.plan.jobs for result in found]

    def _search(self, cluster: Cluster, jobs: Sequence[Job], effort: Effort, share: float) -> Callable[[], PlanResult]:
        """A search that has a share of the time that is left."""
        scene = self.scene
        request = Request(cluster, tuple(jobs), scene.compute, scene.engine, keep_from=scene.keep_from)
        limit = max(share * self._left, _LEAST_SEARCH)
        return partial(plan_jobs, request, replace(effort, time_limit=limit), network=self.network)


def _rank(option: Option) -> tuple[float, float, float, int]:
    return option.rank
