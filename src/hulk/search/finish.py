"""From the state that a search ends with to a plan: cuts and shares refined by the true price, the jobs that wait given
what is idle, reasons for those that still wait, and all of it checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hulk.cost.price import LARGE, price_job, price_plan, step_of
from hulk.cost.report import JobPrice
from hulk.domain.check import check_plan
from hulk.domain.job import Job
from hulk.domain.options import neighbours
from hulk.domain.plan import JobPlan, Plan, idle_machines
from hulk.search.assignment.ways import placed_on
from hulk.search.job_space import JobSpace
from hulk.search.objective import Objective, Outcome, Score
from hulk.search.shape.arrange import arrange
from hulk.search.skeleton import Skeleton
from hulk.search.state import State
from hulk.search.waiting import why_waiting

# Plans of a job that are played: those that a search takes to be nearly as quick as its best, and so many. More of them
# where messages keep each other waiting, which a search only estimates: the first plays slower by this factor.
_NEAR, _MOST = 1.03, 4
_NEAR_CROWDED, _MOST_CROWDED = 1.3, 32
_CROWDED = 1.02


@dataclass(frozen=True)
class _Made:
    """A job's plan, cut and shared, with what it takes and costs."""

    plan: JobPlan
    outcome: Outcome


def finish(spaces: Sequence[JobSpace], state: State, objective: Objective) -> tuple[Plan, list[Outcome]]:
    """Refined plans of the jobs that run, reasons for those that wait, the machines nobody uses; and every job's
    outcome."""
    _place_waiting(spaces, state)
    choices: list[list[_Made]] = []
    for space, skeleton in zip(spaces, state.skeletons, strict=True):
        way = _priced if objective.needs_money else _refined
        choices.append(way(space, skeleton) if skeleton else [])
    chosen = _best_together([space.job for space in spaces], choices, objective)
    outcomes = _together(spaces, chosen)
    plans = {space.job.name: made.plan for space, made in zip(spaces, chosen, strict=True) if made}
    waiting = {
        space.job.name: why_waiting(space, alone=len(spaces) == 1) for space in spaces if space.job.name not in plans
    }
    cluster = spaces[0].cluster
    plan = Plan(plans, idle_machines(plans.values(), [machine.name for machine in cluster.machines]), waiting)
    check_plan(plan, cluster, [space.job for space in spaces])
    return plan, outcomes


def _place_waiting(spaces: Sequence[JobSpace], state: State) -> None:
    """Jobs that still wait take idle machines that hold them: no search may have looked at just these."""
    for job, space in enumerate(spaces):
        if state.skeletons[job] is None:
            idle = set(range(len(space.cluster.machines))) - set(state.owner)
            found = placed_on(space, idle)
            if found is not None:
                state.apply({job: found[0]}, {job: found[1].seconds})


def _best_together(jobs: Sequence[Job], choices: Sequence[Sequence[_Made]], objective: Objective) -> list[_Made | None]:
    """One of each job's choices (None where there is none): the first ones, or others where that is better."""
    chosen = [made[0] if made else None for made in choices]
    for job, made in enumerate(choices):

        def scored(one: _Made, job: int = job) -> Score:
            trial = [one if i == job else other for i, other in enumerate(chosen)]
            return objective.score(jobs, [other.outcome if other else Outcome(None) for other in trial])

        if made:
            chosen[job] = min(made, key=scored)
    return chosen


def _together(spaces: Sequence[JobSpace], chosen: Sequence[_Made | None]) -> list[Outcome]:
    """What the jobs' plans take and cost with all of them at work at the same time."""
    plan = Plan({space.job.name: made.plan for space, made in zip(spaces, chosen, strict=True) if made})
    first, jobs = spaces[0], [space.job for space in spaces]
    price = price_plan(plan, first.cluster, jobs, compute=first.compute, engine=first.engine)
    outcomes = []
    for space, made in zip(spaces, chosen, strict=True):
        its = price.jobs[space.job.name] if made else None
        outcomes.append(Outcome(its.step, its.money.total) if isinstance(its, JobPrice) else Outcome(None))
    return outcomes


def _refined(space: JobSpace, skeleton: Skeleton) -> list[_Made]:
    """A skeleton's plan with cuts and shares refined; for small ones, and those whose messages keep each other waiting,
    other shapes of the same machines and other options too, each refined."""
    if not space.result(skeleton).runs:
        return []
    found = [space.plan(skeleton)]
    if sum(len(chain) for chain in skeleton.chains) > LARGE:
        return [_Made(found[0][0], Outcome(found[0][1]))]  # played once, with the other jobs
    crowded = _played(space, found[0][0]) > _CROWDED * found[0][1]
    if space.is_small(skeleton) or crowded:
        again = arrange(space, sorted(skeleton.machines), keep=12)
        candidates = [skeleton, again[0]] if again and again[1].runs else [skeleton]
        for candidate in candidates:
            for options in (candidate.options, *neighbours(candidate.options, space.scope, fine=True)):
                trial = Skeleton(candidate.chains, options)
                if (space.is_small(trial) or crowded) and space.result(trial).runs:
                    found.append(space.plan(trial, rounds=4))
    found.sort(key=lambda made: made[1])
    near, most = (_NEAR_CROWDED, _MOST_CROWDED) if crowded else (_NEAR, _MOST)
    plans = dict.fromkeys(plan for plan, seconds in found if seconds <= near * found[0][1])
    return [_Made(plan, Outcome(_played(space, plan))) for plan in list(plans)[:most]]


def _played(space: JobSpace, plan: JobPlan) -> float:
    """Seconds of a step of a plan that fits, as it plays."""
    seconds = step_of(space.job, plan, space.cluster, compute=space.compute, engine=space.engine)
    assert seconds is not None, "the search made a plan that cannot run"
    return seconds


def _priced(space: JobSpace, skeleton: Skeleton) -> list[_Made]:
    """A skeleton's plan refined, and as it is: a quicker step sends more bytes an hour, and they cost."""
    found = []
    for rounds in (8, 0) if space.result(skeleton).runs else ():
        plan, _ = space.plan(skeleton, rounds=rounds)
        price = price_job(space.job, plan, space.cluster, compute=space.compute, engine=space.engine)
        if isinstance(price, JobPrice):
            found.append(_Made(plan, Outcome(price.step, price.money.total)))
    return found
