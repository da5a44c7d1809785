"""From the state that a search ends with to a plan: cuts and shares refined by the true price, the jobs that wait given
what is idle, reasons for those that still wait, and all of it checked."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from hulk.cost.price import LARGE, price_job, price_plan, step_of
from hulk.cost.report import Infeasible, JobPrice, PlanPrice
from hulk.domain.check import check_plan
from hulk.domain.job import Job
from hulk.domain.options import neighbours
from hulk.domain.plan import JobPlan, Plan, idle_machines
from hulk.search.assignment.ways import placed_on
from hulk.search.budget import Budget
from hulk.search.job_space import JobSpace
from hulk.search.objective import Objective, Outcome, Score
from hulk.search.regular import best_regular, in_other_orders
from hulk.search.shape.arrange import arrange
from hulk.search.skeleton import Skeleton
from hulk.search.state import State
from hulk.search.waiting import why_waiting

# Plans of a job that are played: those that a search takes to be nearly as quick as its best, and so many. More of them
# where messages keep each other waiting, which a search only estimates: the first plays slower by this factor.
_NEAR, _MOST = 1.03, 4
_NEAR_CROWDED, _MOST_CROWDED = 1.3, 32
_CROWDED = 1.02
# What refining brings at most, as far as it was seen: a plan that is behind by more before it stays behind.
_REFINED = 1.25
_MOST_REGULAR = 256  # GPUs for which regular plans are tried at the end
_JOINING = 1.0  # of the time limit until these are
_REFINING = 0.9  # of the time limit until other shapes and options are no longer refined and played


@dataclass(frozen=True)
class _Made:
    """A job's plan, cut and shared, with what it takes and costs."""

    plan: JobPlan
    outcome: Outcome

    @property
    def seconds(self) -> float:
        """Seconds of a step: whatever was made runs."""
        assert self.outcome.seconds is not None
        return self.outcome.seconds


@dataclass
class _Patience:
    """One job's part of the time for refining: until when, and whose time it is."""

    until: float
    budget: Budget

    @classmethod
    def of(cls, budget: Budget, share: float, jobs: int) -> _Patience:
        """Of what is left until a share of the time limit, that of one of so many jobs."""
        now = time.monotonic()
        return cls(now + (budget.until(share) - now) / jobs, budget)

    def is_over(self) -> bool:
        """Whether it is up; then the search is a hurried one."""
        over = time.monotonic() > self.until or self.budget.stop()
        self.budget.hurried |= over
        return over


@dataclass(frozen=True)
class Finished:
    """A plan, its price with all jobs at work at the same time, and what each job takes and costs, in their order."""

    plan: Plan
    price: PlanPrice
    outcomes: Sequence[Outcome]


def finish(spaces: Sequence[JobSpace], state: State, objective: Objective, budget: Budget) -> Finished:
    """Refined plans of the jobs that run, reasons for those that wait, the machines nobody uses. When time is up, plans
    are taken as they are."""
    _place_waiting(spaces, state)
    choices: list[list[_Made]] = []
    idle = set(range(len(spaces[0].cluster.machines))).difference(state.owner)
    for done, (space, skeleton) in enumerate(zip(spaces, state.skeletons, strict=True)):
        patience = _Patience.of(budget, _REFINING, len(spaces) - done)
        runs = skeleton is not None and space.result(skeleton).runs
        if skeleton is None or not runs:
            made = []
        else:
            made = _priced(space, skeleton) if objective.needs_money else _refined(space, skeleton, patience)
        if not objective.needs_money:
            machines = skeleton.machines if skeleton and runs else idle & space.allowed
            more = _regular(space, sorted(machines), _Patience.of(budget, _JOINING, len(spaces) - done))
            idle -= machines if more else set()
            made += more
        choices.append(made)
    chosen = _best_together([space.job for space in spaces], choices, objective)
    plans = {space.job.name: made.plan for space, made in zip(spaces, chosen, strict=True) if made}
    waiting = {
        space.job.name: why_waiting(space, alone=len(spaces) == 1) for space in spaces if space.job.name not in plans
    }
    cluster = spaces[0].cluster
    plan = Plan(plans, idle_machines(plans.values(), [machine.name for machine in cluster.machines]), waiting)
    jobs = [space.job for space in spaces]
    check_plan(plan, cluster, jobs)
    price = price_plan(plan, cluster, jobs, compute=spaces[0].compute, engine=spaces[0].engine)
    return Finished(plan, price, [_outcome(price.jobs.get(job.name)) for job in jobs])


def _outcome(price: JobPrice | Infeasible | None) -> Outcome:
    return Outcome(price.step, price.money.total) if isinstance(price, JobPrice) else Outcome(None)


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


def _refined(space: JobSpace, skeleton: Skeleton, patience: _Patience) -> list[_Made]:
    """A skeleton's plan with cuts and shares refined; for small ones, and those whose messages keep each other waiting,
    other shapes of the same machines and other options too, each refined."""
    found = [space.plan(skeleton, rounds=0 if patience.is_over() else 8)]
    first, seconds = found[0]
    if sum(len(chain) for chain in skeleton.chains) > LARGE or patience.is_over():
        return [_Made(first, Outcome(seconds))]  # played once, with the other jobs
    made = [_Made(first, Outcome(_played(space, first)))]
    crowded = made[0].seconds > _CROWDED * seconds
    near, most = (_NEAR_CROWDED, _MOST_CROWDED) if crowded else (_NEAR, _MOST)
    for trial in _others(space, skeleton, crowded, near * _REFINED, patience):
        found.append(space.plan(trial, rounds=4))
        if patience.is_over():
            break
    found.sort(key=lambda one: one[1])
    plans = dict.fromkeys(plan for plan, its in found if its <= near * found[0][1])
    plans.pop(first, None)
    for plan in list(plans)[: most - 1]:
        if patience.is_over():
            break
        made.append(_Made(plan, Outcome(_played(space, plan))))
    ordered = [one for plan in dict.fromkeys((first, found[0][0])) for one in in_other_orders(space, plan)]
    for plan, _ in sorted(ordered, key=lambda one: one[1])[:_MOST]:
        if patience.is_over():
            break
        made.append(_Made(plan, Outcome(_played(space, plan))))
    return made


def _regular(space: JobSpace, machines: Sequence[int], patience: _Patience) -> list[_Made]:
    """Regular plans of what free searches do not know, where that may pay."""
    gpus = sum(space.cluster.machines[machine].gpus for machine in machines)
    if gpus > _MOST_REGULAR or patience.is_over():
        return []
    pins = {space.cluster.machines[machine].name for machine in space.pins}
    plans = [plan for plan in best_regular(space, machines, patience.is_over) if pins.issubset(plan.machines)]
    return [_Made(plan, Outcome(_played(space, plan))) for plan in plans[:_MOST]]


def _others(space: JobSpace, skeleton: Skeleton, crowded: bool, within: float, patience: _Patience) -> list[Skeleton]:
    """The same machines in other shapes and with other options, as far as they take at most so many times as long as
    the best of them before they are refined; the quickest first."""
    if not (space.is_small(skeleton) or crowded) or patience.is_over():
        return []
    again = arrange(space, sorted(skeleton.machines), keep=12)
    candidates = [skeleton, again[0]] if again and again[1].runs else [skeleton]
    trials: dict[Skeleton, float] = {}
    for candidate in candidates:
        for options in (candidate.options, *neighbours(candidate.options, space.scope, fine=True)):
            trial = Skeleton(candidate.chains, options)
            if (space.is_small(trial) or crowded) and (result := space.result(trial)).runs:
                trials[trial] = result.seconds or 0.0
    best = min(trials.values(), default=0.0)
    return sorted((trial for trial, its in trials.items() if its <= within * best), key=trials.__getitem__)


def _played(space: JobSpace, plan: JobPlan) -> float:
    """Seconds of a step of a plan that fits, as it plays."""
    seconds = step_of(space.job, plan, space.cluster, compute=space.compute, engine=space.engine)
    assert seconds is not None, "the search made a plan that cannot run"
    return seconds


def _priced(space: JobSpace, skeleton: Skeleton) -> list[_Made]:
    """A skeleton's plan refined, and as it is: a quicker step sends more bytes an hour, and they cost."""
    found = []
    for rounds in (8, 0):
        plan, _ = space.plan(skeleton, rounds=rounds)
        price = price_job(space.job, plan, space.cluster, compute=space.compute, engine=space.engine)
        if isinstance(price, JobPrice):
            found.append(_Made(plan, _outcome(price)))
    return found
