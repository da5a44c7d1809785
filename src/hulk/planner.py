"""The planner: who trains what, cut how. The main path, top to bottom.

1. Every job gets a `JobSpace`: what it may use, and prices for any shape of it.
2. `GroupSearch` deals the machines out: the network's proposals and random deals race, a recipe judges each group.
   (Where money counts, `assign` gives every job a compact group instead.)
3. `Polisher` improves the best of them: machines change hands, pipelines change shape.
4. Each job's cuts and shares are refined by the true price, and the plan is checked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any

import numpy as np

from hulk.cost.compute import ComputeModel
from hulk.cost.engine import HULK, Engine
from hulk.domain.check import check_plan
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.plan import JobPlan, Plan
from hulk.errors import InputError
from hulk.propose import paper_policy, starts
from hulk.propose.network import Proposing
from hulk.search import dealing, polish
from hulk.search.assign import assign, state_bytes
from hulk.search.dealing import Deal
from hulk.search.defaults import EVALUATIONS, TIME_LIMIT
from hulk.search.evaluate import JobSpace, Places
from hulk.search.forked import side_by_side
from hulk.search.groups import GroupSearch
from hulk.search.objective import Objective
from hulk.search.polisher import Polisher
from hulk.search.seeds import arrange, neighbours
from hulk.search.skeleton import Settings, Skeleton, Slot
from hulk.search.state import State
from hulk.units import format_size

_SCALES = (1.0, 0.3, 3.0, 0.1, 10.0)
_DENSE = (*range(17), 20, 24, 28, 30, 32)
_SEED_STEP = 1_000_003
# Shares of the time limit, the first one of the moves as well: until machines are dealt out, until they are once more
# without the jobs that must wait, until each group's shape was searched more widely, until each racer has raced, until
# the winner has cooled, each time from a lower heat.
_DEALING, _WITHOUT, _ARRANGING = 0.6, 0.66, 0.68
_RACE = (0.7, 0.725, 0.75, 0.775)
_COOLING = ((0.85, 0.01), (0.92, 0.002))
_LEAST_FOR_NETWORK = 24
# Proposals, how often each is completed anew, and how much of the time for dealing that may take.
_SAMPLES, _TIMES, _PROPOSING = 6, 7, 0.3
Progress = Callable[[float, float], None]
"""Called with seconds since the start and the objective, whenever a better plan is found."""


class Policy(Enum):
    """How machines are given to jobs: by search, or by one shot of the network as in the paper."""

    SEARCH = "search"
    PAPER = "paper"


@dataclass(frozen=True)
class PlanResult:
    """A plan with each job's seconds a step (None: it waits), the objective, how much was tried, and whether the clock
    (or `stop`) ended the search before its moves did: then the same seed may give another plan."""

    plan: Plan
    seconds: Mapping[str, float | None]
    cost: float
    evaluations: int
    hurried: bool = False


def plan_in_parallel(
    cluster: Cluster,
    jobs: Sequence[Job],
    *,
    workers: int,
    seed: int = 0,
    objective: Objective | None = None,
    **options: Any,
) -> PlanResult:
    """The best of several searches side by side, each in a process of its own with a seed of its own. The answer
    depends on `seed` and `workers`, not on how many cores there are. Options are those of `plan_jobs`."""
    places = Places.of(cluster)
    load_compiled(JobSpace(jobs[0], cluster, places, compute=options["compute"], engine=options.get("engine", HULK)))
    quiet = {name: value for name, value in options.items() if name not in ("progress", "stop")}
    searches = [
        partial(plan_jobs, cluster, jobs, seed=seed + _SEED_STEP * i, objective=objective, **quiet)
        for i in range(1, workers)
    ]
    own = partial(plan_jobs, cluster, jobs, seed=seed, objective=objective, **options)
    found = side_by_side(own, searches, stop=options.get("stop", lambda: False))
    best = min(found, key=lambda result: result.cost)
    return replace(best, hurried=any(result.hurried for result in found))


def plan_jobs(
    cluster: Cluster,
    jobs: Sequence[Job],
    *,
    compute: ComputeModel,
    engine: Engine = HULK,
    objective: Objective | None = None,
    time_limit: float = TIME_LIMIT,
    evaluations: int = EVALUATIONS,
    seed: int = 0,
    progress: Progress | None = None,
    keep_from: Mapping[str, frozenset[str]] | None = None,
    network: Proposing | None = None,
    policy: Policy = Policy.SEARCH,
    stop: Callable[[], bool] = lambda: False,
) -> PlanResult:
    """The best plan found for all jobs together. The same seed gives the same plan, unless the time limit cuts it
    short. `keep_from` names, for a job, machines it must not use; a `network` proposes where to start. When `stop` says
    so, the best so far is the answer."""
    rng = np.random.default_rng(seed)
    places = Places.of(cluster)
    without = keep_from or {}
    spaces = [
        JobSpace(job, cluster, places, compute=compute, engine=engine, without=without.get(job.name, frozenset()))
        for job in jobs
    ]
    load_compiled(spaces[0])
    begin = time.monotonic()  # compiling, which happens once on a machine, does not count
    groups = GroupSearch(spaces, rng)
    polisher = Polisher(groups, objective or Objective(), report=_telling(progress, begin), stop=stop)
    if policy is Policy.PAPER:
        return _result(polisher, _as_the_paper_does(groups, network), cluster)
    states = _first_states(polisher, _Starts(int(_DEALING * evaluations), network, begin, time_limit))
    # A race of the best starts, then on with the winner, which cools twice: a large job's gains must not cost the small
    # ones their best machines.
    race = [
        polisher.run(each, moves=evaluations // 20, deadline=begin + until * time_limit, hot=0.03)
        for each, until in zip(states, _RACE, strict=False)
    ]
    state = min(race, key=polisher.cost)
    for until, hot in _COOLING:
        state = polisher.run(state, moves=evaluations // 10, deadline=begin + until * time_limit, hot=hot)
    return _result(polisher, state, cluster)


def _result(polisher: Polisher, state: State, cluster: Cluster) -> PlanResult:
    spaces = polisher.groups.spaces
    plan, seconds = _finish(spaces, state, cluster)
    finished = State(state.skeletons, [seconds[space.job.name] for space in spaces], state.owner)
    tried = polisher.groups.tried + sum(space.evaluations for space in spaces)
    return PlanResult(plan, seconds, polisher.cost(finished), tried, polisher.groups.hurried)


def load_compiled(space: JobSpace) -> None:
    """Load the compiled code, or compile it, one half of it in a process of its own: that takes a minute, not two."""
    if not (dealing.is_compiled() and polish.is_compiled()):
        side_by_side(partial(_load_dealing, space), [partial(_load_polish, space)], stop=lambda: False)
    _load_dealing(space)
    _load_polish(space)


def _load_dealing(space: JobSpace) -> None:
    """Price the smallest plan there is, and make a deal: all that a search calls, so that none compiles in its time."""
    slot = Slot(0, space.degrees[0])
    space.plan(Skeleton(((slot, slot), (slot,)), Settings(space.microbatches[0])))
    groups = GroupSearch([space], np.random.default_rng(0))
    groups.state(groups.combined(groups.drawn()))


def _load_polish(space: JobSpace) -> None:
    """Polish nothing."""
    groups = GroupSearch([space], np.random.default_rng(0))
    nothing = State.of([None], [None])
    Polisher(groups, Objective()).run(nothing, moves=1, deadline=float("inf"), hot=1.0)


@dataclass(frozen=True)
class _Starts:
    """What the search for starts may spend: moves in all, and a part of the time limit from `begin` on."""

    moves: int
    network: Proposing | None
    begin: float
    time_limit: float


def _first_states(polisher: Polisher, given: _Starts) -> list[State]:
    """The best few ways found to deal the machines out, each job's shape then searched more widely on its own ones."""
    begin, time_limit, groups = given.begin, given.time_limit, polisher.groups
    if polisher.objective.needs_money:
        found = _assigned(groups, begin, time_limit)
    else:
        groups.report = polisher.report
        deals = groups.deals(
            moves=given.moves,
            deadline=begin + _DEALING * time_limit,
            stop=polisher.stop,
            starts=_proposed(groups, given.network, begin + _PROPOSING * _DEALING * time_limit),
            length=given.moves / (_DEALING * EVALUATIONS),
        )
        deals = groups.without_waiting(
            deals, moves=given.moves // 2, deadline=begin + _WITHOUT * time_limit, stop=polisher.stop
        )
        found = [groups.state(deal) for deal in deals]
    found = sorted(found, key=polisher.cost)[: len(_RACE)]
    for state in found:
        for job, (space, skeleton) in enumerate(zip(groups.spaces, state.skeletons, strict=True)):
            if skeleton is None:
                continue
            if time.monotonic() - begin > _ARRANGING * time_limit:
                groups.hurried = True
                continue
            better = arrange(space, sorted(skeleton.machines))
            if better and 0 <= better[1] < (state.seconds[job] or 0.0):
                state.apply({job: better[0]}, {job: better[1]})
    return sorted(found, key=polisher.cost)


def _telling(progress: Progress | None, begin: float) -> Callable[[float], None] | None:
    """Progress for whoever asks, whenever the best so far is a better one."""
    if progress is None:
        return None
    tell, least = progress, float("inf")

    def report(cost: float) -> None:
        nonlocal least
        if cost < least:
            least = cost
            tell(time.monotonic() - begin, cost)

    return report


def asks_network(groups: GroupSearch) -> bool:
    """Whether a network is asked: not on few machines, where the search is done before it has answered."""
    return len(groups.packed.place) >= _LEAST_FOR_NETWORK


def _proposed(groups: GroupSearch, network: Proposing | None, deadline: float) -> list[Deal]:
    """The network's proposals, if there is one and it is asked."""
    if network is None or not asks_network(groups):
        return []
    return starts(groups, rng=groups.rng, samples=_SAMPLES, network=network, times=_TIMES, deadline=deadline)


def _as_the_paper_does(groups: GroupSearch, network: Proposing | None) -> State:
    """One shot of the network, jobs from large to small, a memory check; then the best shape on every group."""
    if network is None:
        raise InputError("the paper's policy needs the network", hint="leave --no-gnn away")
    state = groups.state(groups.judged(paper_policy(groups.packed, network)))
    for job, (space, skeleton) in enumerate(zip(groups.spaces, state.skeletons, strict=True)):
        better = arrange(space, sorted(skeleton.machines)) if skeleton else None
        if better and 0 <= better[1] < (state.seconds[job] or 0.0):
            state.apply({job: better[0]}, {job: better[1]})
    return state


def _assigned(groups: GroupSearch, begin: float, time_limit: float) -> list[State]:
    """Several assignments, with machines dearer or cheaper."""
    spaces, rng = groups.spaces, groups.rng
    found: list[State] = []
    for attempt, scale in enumerate(_SCALES):
        if attempt and time.monotonic() - begin > 0.3 * time_limit:
            groups.hurried = True
            break
        until = max(time.monotonic(), begin) + 0.25 * time_limit
        ways, hurried = assign(spaces, rng=rng, scale=scale, most_centres=_centres(spaces), deadline=until)
        groups.hurried |= hurried
        found.append(State.of([s.skeleton for s in ways], [s.seconds if s.skeleton else None for s in ways]))
    return found


def _centres(spaces: Sequence[JobSpace]) -> int:
    """Around how many places groups are tried: fewer on large clusters, where each try takes longer."""
    machines = len(spaces[0].cluster.machines)
    return 12 if machines <= 64 else 4 if machines <= 2000 else 2


def _finish(spaces: Sequence[JobSpace], state: State, cluster: Cluster) -> tuple[Plan, dict[str, float | None]]:
    """Refined plans of the jobs that run, reasons for those that wait, and the machines nobody uses."""
    plans: dict[str, JobPlan] = {}
    seconds: dict[str, float | None] = {}
    waiting: dict[str, str] = {}
    for space, skeleton in zip(spaces, state.skeletons, strict=True):
        name = space.job.name
        if skeleton is None:
            seconds[name] = None
            waiting[name] = why_waiting(space)
            continue
        plans[name], seconds[name] = _refined(space, skeleton)
    used = {stage.machine for plan in plans.values() for pipeline in plan.pipelines for stage in pipeline.stages}
    idle = tuple(machine.name for machine in cluster.machines if machine.name not in used)
    plan = Plan(plans, idle, waiting)
    check_plan(plan, cluster, [space.job for space in spaces])
    return plan, seconds


def _refined(space: JobSpace, skeleton: Skeleton) -> tuple[JobPlan, float]:
    """A skeleton's plan with cuts and shares refined; for small ones, the best over other shapes of the same machines
    and other settings, each refined."""
    best = space.plan(skeleton)
    if not space.is_small(skeleton):
        return best
    again = arrange(space, sorted(skeleton.machines), keep=12)
    candidates = [skeleton, again[0]] if again and again[1] >= 0 else [skeleton]
    for candidate in candidates:
        for settings in (candidate.settings, *neighbours(space, candidate.settings, _DENSE)):
            trial = Skeleton(candidate.chains, settings)
            if space.is_small(trial) and space.seconds(trial) >= 0:
                best = min(best, space.plan(trial, rounds=4), key=lambda entry: entry[1])
    return best


def why_waiting(space: JobSpace) -> str:
    """Why a job found no place, in words a person can act on."""
    if not space.allowed:
        return "no machine is in a region where it may run"
    machines = [space.cluster.machines[i] for i in space.allowed]
    need, have = state_bytes(space), sum(machine.memory * machine.gpus for machine in machines)
    where = "all machines" if len(machines) == len(space.cluster.machines) else "the machines it may use"
    if need > have:
        return f"its weights and optimizer state take {format_size(need)}, and {where} have {format_size(have)}"
    return (
        f"no group of machines that reach each other was found to hold its {format_size(need)} of weights and "
        f"optimizer state beside the other jobs ({where} have {format_size(have)})"
    )
