"""The planner: who trains what, cut how. The main path, top to bottom.

1. Every job gets a `JobSpace`: what it may use, and prices for any shape of it.
2. `GroupSearch` deals the machines out: the network's proposals and random deals race, a recipe judges each group.
   (Where money counts, `assign` adds starts with few machines.)
3. `Polisher` improves the best of them: machines change hands, pipelines change shape.
4. Each job's cuts and shares are refined by the true price, and the plan is checked. Where a limit or a deadline is
   then broken by a little, the search goes on with some slack.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any

import numpy as np

from hulk.cost.compute import ComputeModel
from hulk.cost.engine import HULK, Engine
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.plan import Plan
from hulk.errors import InputError
from hulk.propose import paper_policy, starts
from hulk.propose.network import Proposing
from hulk.search import dealing, polish
from hulk.search.assign import choose, ways_of
from hulk.search.dealing import Deal
from hulk.search.defaults import EVALUATIONS, TIME_LIMIT
from hulk.search.evaluate import JobSpace, Places
from hulk.search.finish import finish
from hulk.search.forked import side_by_side
from hulk.search.groups import GroupSearch
from hulk.search.objective import Objective, Score
from hulk.search.polisher import Polisher
from hulk.search.seeds import arrange
from hulk.search.skeleton import Skeleton, Slot
from hulk.search.state import State

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
# With money: choices among the ways to run, of the time limit until the ways are known, and of the moves for deals.
_CHOICES, _WAYS, _FOR_DEALS = 8, 0.3, 0.2
# Shares of limits and deadlines left unused where the search was a little over them in full, one after the other.
_SLACKS = (0.003, 0.02, 0.1, 0.3)
# A plan that plays by this factor slower than the search took it for is not taken unseen.
_NOT_AS_SEARCHED = 1.03
_FEW_MACHINES = 200  # up to which several whole plans are played: a second each on more
Progress = Callable[[float, Score], None]
"""Called with seconds since the start and the score, whenever a better plan is found."""


class Policy(Enum):
    """How machines are given to jobs: by search, or by one shot of the network as in the paper."""

    SEARCH = "search"
    PAPER = "paper"


@dataclass(frozen=True)
class PlanResult:
    """A plan with each job's seconds a step (None: it waits), how good it is, how much was tried, and whether the clock
    (or `stop`) ended the search before its moves did: then the same seed may give another plan."""

    plan: Plan
    seconds: Mapping[str, float | None]
    score: Score
    evaluations: int
    hurried: bool = False

    @property
    def cost(self) -> float:
        """What was made small: by default the weighted sum of times to finish, jobs that wait or are late included."""
        return self.score.goal


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
    best = min(found, key=lambda result: result.score)
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
    pins: Mapping[str, frozenset[str]] | None = None,
    network: Proposing | None = None,
    policy: Policy = Policy.SEARCH,
    stop: Callable[[], bool] = lambda: False,
) -> PlanResult:
    """The best plan found for all jobs together. The same seed gives the same plan, unless the time limit cuts it
    short. `keep_from` names, for a job, machines it must not use, `pins` those it must use, and no other job may; a
    `network` proposes where to start. When `stop` says so, the best so far is the answer."""
    rng = np.random.default_rng(seed)
    pinned = pins or {}
    places = Places.of(cluster, apart=frozenset().union(*pinned.values()))
    spaces = [
        JobSpace(
            job, cluster, places, compute=compute, engine=engine,
            without=_without(job.name, keep_from or {}, pinned), pins=pinned.get(job.name, frozenset()),
        )
        for job in jobs
    ]  # fmt: skip
    load_compiled(spaces[0])
    begin = time.monotonic()  # compiling, which happens once on a machine, does not count
    groups = GroupSearch(spaces, rng)
    polisher = Polisher(groups, objective or Objective(), report=_telling(progress, begin), stop=stop)
    if policy is Policy.PAPER:
        return _result(polisher, _as_the_paper_does(groups, network))
    states = _first_states(polisher, _Starts(int(_DEALING * evaluations), network, begin, time_limit))
    # A race of the best starts, then on with the winner, which cools twice: a large job's gains must not cost the small
    # ones their best machines.
    race = [
        polisher.run(each, moves=evaluations // 20, deadline=begin + until * time_limit, hot=0.03)
        for each, until in zip(states, _RACE, strict=False)
    ]
    state = min(race, key=polisher.score)
    for until, hot in _COOLING:
        state = polisher.run(state, moves=evaluations // 10, deadline=begin + until * time_limit, hot=hot)
    result = _result(polisher, state)
    surprising = any(its > _NOT_AS_SEARCHED * took for its, took in _played_and_searched(result, state))
    if surprising and len(state.owner) <= _FEW_MACHINES:
        # What the search took its plan for, it is not: the others of the race may play better.
        others = [each for each in race if each.skeletons != state.skeletons]
        result = min([result, *(_result(polisher, each) for each in others)], key=lambda one: one.score)
    for slack in _SLACKS:
        if not result.score.broken or polisher.score(state).broken:
            break
        polisher.tighten(slack)
        more = time.monotonic() + 0.1 * time_limit
        state = polisher.run(state, moves=max(1, evaluations // 20), deadline=more, hot=_COOLING[-1][1])
        result = min(result, _result(polisher, state), key=lambda one: one.score)
    return result


def _without(job: str, keep_from: Mapping[str, frozenset[str]], pins: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """The machines a job must not use: those it is kept from, and those other jobs must use."""
    others = (names for other, names in pins.items() if other != job)
    return keep_from.get(job, frozenset()).union(*others)


def _played_and_searched(result: PlanResult, state: State) -> Iterator[tuple[float, float]]:
    """Seconds of each job's step: as its plan plays, and as the search took it."""
    for played, searched in zip(result.seconds.values(), state.seconds, strict=True):
        if played is not None and searched is not None:
            yield played, searched


def _result(polisher: Polisher, state: State) -> PlanResult:
    """The state as a plan, scored by its price in full, without slack."""
    spaces = polisher.groups.spaces
    objective = replace(polisher.objective, slack=0.0)
    plan, outcomes = finish(spaces, state, objective)
    seconds = {space.job.name: outcome.seconds for space, outcome in zip(spaces, outcomes, strict=True)}
    score = objective.score([space.job for space in spaces], outcomes)
    tried = polisher.groups.tried + sum(space.evaluations for space in spaces)
    return PlanResult(plan, seconds, score, tried, polisher.groups.hurried)


def load_compiled(space: JobSpace) -> None:
    """Load the compiled code, or compile it, one half of it in a process of its own: that takes a minute, not two."""
    if not (dealing.is_compiled() and polish.is_compiled()):
        side_by_side(partial(_load_dealing, space), [partial(_load_polish, space)], stop=lambda: False)
    _load_dealing(space)
    _load_polish(space)


def _load_dealing(space: JobSpace) -> None:
    """Price the smallest plan there is, and make a deal: all that a search calls, so that none compiles in its time."""
    slot = Slot(0, space.degrees[0])
    smallest = Skeleton(((slot, slot), (slot,)), space.plainest)
    if space.seconds(smallest) >= 0:
        space.plan(smallest)
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
    found: list[State] = []
    if polisher.objective.needs_money:
        found = _frugal(polisher, begin, time_limit)
    else:
        groups.report = lambda deal: polisher.report(polisher.deal_score(deal)) if polisher.report else None
    moves = int(given.moves * (_FOR_DEALS if found else 1.0)) or 1
    deals = groups.deals(
        moves=moves,
        deadline=begin + _DEALING * time_limit,
        stop=polisher.stop,
        starts=_proposed(groups, given.network, begin + _PROPOSING * _DEALING * time_limit),
        length=moves / (_DEALING * EVALUATIONS),
    )
    deals = groups.without_waiting(
        deals, moves=moves // 2 or 1, deadline=begin + _WITHOUT * time_limit, stop=polisher.stop
    )
    found += [groups.state(deal) for deal in deals]
    found = sorted(found, key=polisher.score)[: len(_RACE)]
    for state in found:
        for job, (space, skeleton) in enumerate(zip(groups.spaces, state.skeletons, strict=True)):
            if skeleton is None:
                continue
            if time.monotonic() - begin > _ARRANGING * time_limit:
                groups.hurried = True
                continue
            _rearrange(polisher, state, job, space)
    return sorted(found, key=polisher.score)


def _rearrange(polisher: Polisher, state: State, job: int, space: JobSpace) -> None:
    """A job in the best shape on its machines, where that is better than the one it has."""
    skeleton = state.skeletons[job]
    better = arrange(space, sorted(skeleton.machines)) if skeleton else None
    if better is None or better[1] < 0:
        return
    trial = state.copy()
    trial.apply({job: better[0]}, {job: better[1]})
    if polisher.score(trial) < polisher.score(state):
        state.apply({job: better[0]}, {job: better[1]})


def _telling(progress: Progress | None, begin: float) -> Callable[[Score], None] | None:
    """Progress for whoever asks, whenever the best so far is a better one."""
    if progress is None:
        return None
    tell, least = progress, Score(float("inf"), 0.0, 0.0)

    def report(score: Score) -> None:
        nonlocal least
        if score < least:
            least = score
            tell(time.monotonic() - begin, score)

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
    by_time = Polisher(groups, Objective())
    for job, space in enumerate(groups.spaces):
        _rearrange(by_time, state, job, space)
    return state


def _frugal(polisher: Polisher, begin: float, time_limit: float) -> list[State]:
    """Good choices among many ways to run each job, from a part of a machine to large groups."""
    groups, ways = polisher.groups, []
    for done, space in enumerate(groups.spaces):
        now = time.monotonic()
        until = now + (begin + _WAYS * time_limit - now) / (len(groups.spaces) - done)
        found, hurried = ways_of(
            space, rng=groups.rng, jobs=len(groups.spaces), most_centres=_centres(groups.spaces), deadline=until
        )
        groups.hurried |= hurried
        ways.append(found)
    return choose(groups.spaces, ways, polisher.objective, rng=groups.rng, tries=_CHOICES)


def _centres(spaces: Sequence[JobSpace]) -> int:
    """Around how many places groups are tried: fewer on large clusters, where each try takes longer."""
    machines = len(spaces[0].cluster.machines)
    return 12 if machines <= 64 else 4 if machines <= 2000 else 2
