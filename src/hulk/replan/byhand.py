"""A plan changed by hand: machines go from one job to another, or are lost, or links change, and all else stays.

The answer is quick, since nothing is searched: what is left of a job is repaired, and a machine goes in where it helps
most. `hulk.replan.replan` looks for the best plan instead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hulk.cost.flat import apart
from hulk.cost.play import play
from hulk.cost.prepared import Prepared, prepare
from hulk.cost.report import Infeasible
from hulk.domain.cluster import Cluster, restrict
from hulk.domain.job import Job
from hulk.domain.plan import JobPlan, Plan, idle_machines
from hulk.errors import InputError, nearest
from hulk.replan.changes import Changes, changes_of
from hulk.replan.gpus import keep_gpus
from hulk.replan.repair import Way, repairs, told
from hulk.replan.together import plan_repairs
from hulk.search.job_space import JobSpace, Places
from hulk.search.request import Request
from hulk.search.skeleton import skeleton_of

_DRAWS = 6
_MOVED = "a machine was taken from it, and it cannot go on with the others by a small change: plan again"


@dataclass(frozen=True)
class ByHand:
    """What comes of it: the machines that are left, the plan, for each job its seconds a step before and after (None:
    it does not run), what was done with it and, where it does not run, why."""

    cluster: Cluster
    plan: Plan
    before: Mapping[str, float | None]
    after: Mapping[str, float | None]
    how: Mapping[str, str]
    reasons: Mapping[str, str]


@dataclass(frozen=True)
class Orders:
    """What is to be done: machines that are gone, and machines that go to a job (None: to nobody)."""

    lost: tuple[str, ...] = ()
    moves: Mapping[str, str | None] = field(default_factory=dict)


def change_by_hand(
    plan: Plan, bench: Bench, orders: Orders, before: Cluster | None = None, known: Steps | None = None
) -> ByHand:
    """The plan after these orders, priced as it plays. `bench` has the cluster with its links as they are from now
    on, lost machines included; `before` is the cluster as it was, where links have changed; `known`: what the plan took
    there, where somebody has asked before."""
    request = bench.request
    cluster, names = request.cluster, [job.name for job in request.jobs]
    for machine, taker in orders.moves.items():
        cluster.machine(machine)
        if taker is not None and taker not in names:
            raise InputError(f"no job {taker!r}", hint=nearest(taker, names))
    for machine in orders.lost:
        cluster.machine(machine)
    left = restrict(cluster, {machine.name for machine in cluster.machines}.difference(orders.lost))
    hand = _Hand(plan, bench, orders)
    for job in request.jobs:
        hand.take(job)
    for job in request.jobs:
        hand.give(job)
    hand.place()
    changed = Plan(
        {job.name: hand.plans[job.name] for job in request.jobs if job.name in hand.plans},
        idle_machines(hand.plans.values(), (machine.name for machine in left.machines)),
        {**{name: why for name, why in plan.waiting.items() if name not in hand.plans}, **hand.reasons},
    )
    old = known or steps_of(plan, request, before or cluster)
    new = steps_of(changed, request, left, old if before is None else None)
    reasons = dict(hand.reasons) | {name: why for name, why in new.reasons.items() if name not in hand.reasons}
    return ByHand(left, changed, old.steps, new.steps, hand.how, reasons)


class Bench:
    """What changes by hand need of a cluster and its jobs: made once for any number of them, as far as it is asked
    for."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.number = {machine.name: index for index, machine in enumerate(request.cluster.machines)}
        self._places = Places.of(request.cluster)
        self._changes: dict[str, Changes] = {}

    def changes(self, job: Job) -> Changes:
        """What can be done to a job's pipelines."""
        if job.name not in self._changes:
            request = self.request
            space = JobSpace(job, request.cluster, self._places, compute=request.compute, engine=request.engine)
            self._changes[job.name] = changes_of([space])[0]
        return self._changes[job.name]


class _Hand:
    """The jobs' plans while they are changed. `how` and `reasons`: what was done, and why a job does not run."""

    def __init__(self, plan: Plan, bench: Bench, orders: Orders) -> None:
        self.old, self.bench, self.request, self.orders = plan, bench, bench.request, orders
        self.number = bench.number
        self.plans = dict(plan.jobs)
        self.how: dict[str, str] = {}
        self.reasons: dict[str, str] = {}

    def take(self, job: Job) -> None:
        """A job goes on without the machines that it loses or gives up."""
        own = self.plans.get(job.name)
        away = {m for m, to in self.orders.moves.items() if to != job.name}.union(self.orders.lost)
        lost = [self.number[name] for name in (own.machines if own else ()) if name in away]
        if own is None or not lost:
            return
        if own.spans:
            found = self._go_on(job, own, away)
        else:
            changes = self.bench.changes(job)
            ways = repairs(changes, skeleton_of(own, self.request.cluster), lost, ())
            found = self._best(job.name, changes, ways)
        if not found:
            del self.plans[job.name]
            self.reasons[job.name] = _MOVED

    def _go_on(self, job: Job, own: JobPlan, away: Collection[str]) -> bool:
        """A job with stages on several machines drops replicas; whether any are left that can go on."""
        ways = plan_repairs(job, own, self.request.cluster, away, ())
        if ways:
            self.how[job.name], self.plans[job.name] = ways[0]
        return bool(ways)

    def give(self, job: Job) -> None:
        """A job takes in the machines that go to it, one after the other, each where it is quickest with it."""
        for machine, to in self.orders.moves.items():
            own = self.plans.get(job.name)
            if to != job.name or (own is not None and machine in own.machines):
                continue
            if own is None:
                self.reasons.setdefault(job.name, f"it waits; plan again to let it begin on {machine}")
                continue
            if own.spans:
                self.how[job.name] = f"{machine} is of no use to it as it is cut: plan again"
                continue
            number, changes = self.number[machine], self.bench.changes(job)
            if number not in changes.space.allowed:
                raise InputError(f"{job.name!r} may not run on {machine!r}", hint="see its allow, deny and place")
            rng, skeleton = np.random.default_rng(0), skeleton_of(own, self.request.cluster)
            made = [each for _ in range(_DRAWS) for each in changes.insertions(skeleton, number, rng)]
            ways = [(f"{{{number}}} joins", each) for each in made if number in each.machines]
            if not self._best(job.name, changes, ways):
                self.how[job.name] = f"{machine} is of no use to it as it is cut: plan again"

    def _best(self, job: str, changes: Changes, ways: Sequence[Way]) -> bool:
        """Take the quickest of some ways; whether there is one."""
        fits = [way for way in ways if changes.space.result(way[1]).runs]
        if not fits:
            return False
        words, skeleton = min(fits, key=lambda way: changes.space.result(way[1]))
        self.plans[job] = changes.space.plan(skeleton)[0]
        said = told(words, [machine.name for machine in self.request.cluster.machines])
        self.how[job] = ", ".join(filter(None, (self.how.get(job), said)))
        return True

    def place(self) -> None:
        """Hand out GPUs: jobs that did not change keep theirs."""
        kept = {name: own for name, own in self.plans.items() if own == self.old.jobs.get(name)}
        taken: dict[str, set[int]] = {}
        for name, own in (*kept.items(), *((n, o) for n, o in self.plans.items() if n not in kept)):
            made = own if name in kept else keep_gpus(own, self.old.jobs.get(name), self.request.cluster, taken)
            if made is None:
                raise InputError(f"{name!r} shares machines with other jobs, and there are not GPUs enough for all")
            self.plans[name] = made
            for part in (part for stage in made.stages for part in stage.parts):
                taken.setdefault(part.machine, set()).update(part.gpus)


@dataclass(frozen=True)
class Steps:
    """Seconds a step of each job (None: it does not run), why not, and what was played together to find them."""

    steps: Mapping[str, float | None]
    reasons: Mapping[str, str]
    groups: Mapping[frozenset[tuple[str, JobPlan]], Mapping[str, float]]


def steps_of(plan: Plan, request: Request, cluster: Cluster, known: Steps | None = None) -> Steps:
    """Seconds of a step as a price has them. Jobs that no other is in the way of are played apart, and not again where
    they are `known`."""
    steps: dict[str, float | None] = {job.name: None for job in request.jobs}
    reasons: dict[str, str] = {}
    ready: list[Prepared] = []
    for job in request.jobs:
        own = plan.jobs.get(job.name)
        if own is None:
            continue
        one = prepare(job, own, cluster, compute=request.compute, engine=request.engine)
        if isinstance(one, Infeasible):
            reasons[job.name] = one.reason
        else:
            ready.append(one)
    groups: dict[frozenset[tuple[str, JobPlan]], Mapping[str, float]] = {}
    for group in apart(ready):
        members = [ready[index] for index in group]
        key = frozenset((one.job.name, one.plan) for one in members)
        found = known.groups.get(key) if known else None
        if found is None:
            found = {one.job.name: its.seconds for one, its in zip(members, play(members), strict=True)}
        groups[key] = found
        steps.update(found)
    return Steps(steps, reasons, groups)
