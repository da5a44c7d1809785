"""The planner: who trains what, cut how. The main path, top to bottom.

1. Every job gets a `JobSpace`: what it may use, and prices for any shape of it.
2. `GroupSearch` deals the machines out: the network's proposals and random deals race, a recipe judges each group.
   (Where money counts, `assign` adds starts with few machines.)
3. `Polisher` improves the best of them: machines change hands, pipelines change shape.
4. Each job's cuts and shares are refined by the true price, and the plan is checked. Where a limit or a deadline is
   then broken by a little, the search goes on with some slack.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from hulk.cost.compiled import is_cached
from hulk.cost.compute import ComputeModel
from hulk.cost.loading import load_price, smallest_case
from hulk.cost.report import PlanPrice
from hulk.domain.plan import Plan
from hulk.forked import side_by_side
from hulk.propose.network import Proposing
from hulk.search.assignment.anneal import improve
from hulk.search.assignment.race import GroupSearch
from hulk.search.budget import Budget, Effort
from hulk.search.deals import Deal
from hulk.search.finish import finish
from hulk.search.heat import Heat
from hulk.search.objective import Objective, Outcome, Score
from hulk.search.request import Request
from hulk.search.shape.anneal import polish
from hulk.search.shape.polisher import Polisher
from hulk.search.skeleton import Skeleton, Slot
from hulk.search.state import State
from hulk.search.story import Story
from hulk.starting import ARRANGING, as_the_paper_does, first_states, is_ordered

# Shares of the time limit: until slots are in order, until the race is over, until the winner has cooled, again and
# again.
_ORDERING, _RACING, _COOLING = 0.51, 0.64, 0.86
# How many coolings there are, how many of them in a row may bring next to nothing, and what that is; and their heat.
# Many short coolings from a low heat find more than few long ones from a high one, which lose what the deals brought.
_COOLINGS, _IN_VAIN, _GAIN, _MILD = 14, 3, 3e-4, Heat(0.003, 1e-5)
# The order of a long pipeline's slots is another matter: where both of its ends are near each other, what they share is
# quickly added up, but no small step leads there. The heat from which it is found, how often that is tried anew with
# the winner of the race, and the share of these moves for it.
_FIERCE, _ROUNDS, _FOR_ORDER = Heat(0.1, 1e-3), 3, 0.6
# Seconds a machine that pricing the plan in full may take, and of the time limit that is kept for it at most.
_PRICED, _MOST_PRICED = 0.0015, 0.25
_FOR_LOADING = 100  # moves that need all compiled code
# Shares of limits and deadlines left unused where the search was a little over them in full, one after the other.
_SLACKS = (0.003, 0.02, 0.1, 0.3)
# A plan that plays by this factor slower than the search took it for is not taken unseen.
_NOT_AS_SEARCHED = 1.03
_PLAYING = 0.86  # of the time limit until other plans of the race are played
_FEW_MACHINES = 200  # up to which several whole plans are played: a second each on more
_NEAR, _MOST_PLAYED = 1.03, 3  # times the best score: plans with long pipelines that are played, and how many


class _Shares(NamedTuple):
    """Of the moves: for the order of slots, for the race, for all that the winner gets. With those for dealing
    (`hulk.starting`) they are all moves; where pipelines are long an eighth more, since one that changes only where
    slots stand takes less than half of the time of one for dealing."""

    ordering: float
    racing: float
    cooling: float


_USUAL, _WITH_LONG = _Shares(0.0, 0.25, 0.5), _Shares(0.2, 0.08, 0.7)
Progress = Callable[[float, Score], None]
"""Called with seconds since the start and the score, whenever a better plan is found."""


def _never() -> bool:
    return False


class Policy(Enum):
    """How machines are given to jobs: by search, or by one shot of the network as in the paper."""

    SEARCH = "search"
    PAPER = "paper"


@dataclass(frozen=True)
class PlanResult:
    """A plan with its price, each job's seconds a step (None: it waits), how good it is, how much was tried, and
    whether the clock (or `stop`) ended the search before its moves did: then the same seed may give another plan."""

    plan: Plan
    price: PlanPrice
    seconds: Mapping[str, float | None]
    score: Score
    evaluations: int
    hurried: bool = False

    @property
    def cost(self) -> float:
        """What was made small: by default the weighted sum of times to finish, jobs that wait or are late included."""
        return self.score.goal


def plan_in_parallel(
    request: Request,
    effort: Effort = Effort(),  # noqa: B008  frozen
    *,
    network: Proposing | None = None,
    policy: Policy = Policy.SEARCH,
    progress: Progress | None = None,
    stop: Callable[[], bool] = _never,
) -> PlanResult:
    """The best of several searches side by side, each in a process of its own with a seed of its own. The answer
    depends on the seed and on how many there are, not on how many cores there are. Otherwise as `plan_jobs`."""
    load_compiled(with_money=request.objective.needs_money)
    searches = [
        partial(plan_jobs, request, effort.beside(i), network=network, policy=policy) for i in range(1, effort.workers)
    ]
    own = partial(plan_jobs, request, effort, network=network, policy=policy, progress=progress, stop=stop)
    found = side_by_side(own, searches, stop=stop)
    best = min(found, key=lambda result: result.score)
    return replace(best, hurried=any(result.hurried for result in found))


def plan_jobs(
    request: Request,
    effort: Effort = Effort(),  # noqa: B008  frozen
    *,
    network: Proposing | None = None,
    policy: Policy = Policy.SEARCH,
    progress: Progress | None = None,
    stop: Callable[[], bool] = _never,
) -> PlanResult:
    """The best plan that one search finds for all jobs together. The same seed gives the same plan, unless the time
    limit cuts it short. A `network` proposes where to start. When `stop` says so, the best so far is the answer."""
    load_compiled(
        with_money=request.objective.needs_money
    )  # which does not count, wherever it has to be compiled first
    return _searched(request, effort, network=network, policy=policy, progress=progress, stop=stop)


def _searched(
    request: Request,
    effort: Effort,
    *,
    network: Proposing | None = None,
    policy: Policy = Policy.SEARCH,
    progress: Progress | None = None,
    stop: Callable[[], bool] = _never,
) -> PlanResult:
    spaces = request.spaces()
    # The price of the whole plan, at the end, counts.
    in_the_end = min(_PRICED * len(request.cluster.machines), _MOST_PRICED * effort.time_limit)
    budget = Budget(effort.time_limit - in_the_end, stop)
    report = _telling(progress, budget.begin)
    rng, tell = np.random.default_rng(effort.seed), _of_deals(request, report)
    # Searches side by side differ in more than their seeds: what misleads one need not mislead the next.
    groups = GroupSearch(spaces, rng, budget=budget, report=tell, apart=effort.number % 2 == 0)
    polisher = Polisher(groups, request.objective, report=report)
    story = Story(budget, request.objective, polisher.score)
    if policy is Policy.PAPER:
        return _result(polisher, as_the_paper_does(groups, network))
    states = first_states(polisher, effort.evaluations, network, story)
    is_long = any(is_ordered(request.objective, own) for state in states for own in state.skeletons if own)
    shares = _WITH_LONG if is_long else _USUAL
    if is_long:
        states = _ordered(polisher, states, int(shares.ordering * effort.evaluations))
        story.tell("slots in order", min(states, key=polisher.score))
    since = _ORDERING if is_long else ARRANGING
    race = _raced(polisher, states, int(shares.racing * effort.evaluations), since)
    story.tell("shapes of the best raced", race[0])
    improved = _reordered if is_long else _cooled
    ranked = improved(polisher, race, int(shares.cooling * effort.evaluations))
    state = ranked[0]
    story.tell("the winner cooled", state)
    result = _result(polisher, state)
    surprising = any(its > _NOT_AS_SEARCHED * took for its, took in _played_and_searched(result, state))
    if len(state.owner) <= _FEW_MACHINES:
        # What the search took its plan for, it is not: the others may play better.
        others = ranked[1:] if surprising else _nearly_as_good(polisher, ranked) if is_long else []
        left = (each for each in others if each.skeletons != state.skeletons and not budget.is_over(_PLAYING))
        result = min([result, *(_result(polisher, each) for each in left)], key=lambda one: one.score)
    story.tell_score("cut, shared and played", result.score)
    for slack in _SLACKS:
        if not result.score.broken or polisher.score(state).broken:
            break
        polisher.tighten(slack)
        more = time.monotonic() + 0.1 * effort.time_limit
        moves = max(1, int(shares.cooling * effort.evaluations / _COOLINGS))
        state = polisher.run(state, moves=moves, deadline=more, heat=_MILD)
        result = min(result, _result(polisher, state), key=lambda one: one.score)
        story.tell_score(f"once more, with {slack:.1%} of the limits left unused", result.score)
    return result


def _ordered(polisher: Polisher, states: Sequence[State], moves: int) -> list[State]:
    """The states with every job's slots in a better order, all with as many of the moves."""
    budget, ordered = polisher.groups.budget, []
    for i, state in enumerate(states):
        until = budget.until(ARRANGING + (_ORDERING - ARRANGING) * (i + 1) / len(states))
        each = moves // len(states)
        ordered.append(polisher.run(state, moves=each, deadline=until, heat=_FIERCE, in_order=True))
    return ordered


def _raced(polisher: Polisher, states: list[State], moves: int, since: float) -> list[State]:
    """The states after a race, best first: all are polished a little, the better half twice as long, until one is left.
    Each round has as many of the moves and as much time, from a share of the time limit on."""
    budget, rounds = polisher.groups.budget, (len(states) - 1).bit_length()
    left_behind: list[State] = []
    for turn in range(rounds):
        each = moves // (rounds * len(states))
        for i, state in enumerate(states):
            done = (turn + (i + 1) / len(states)) / rounds
            until = budget.until(since + (_RACING - since) * done)
            states[i] = polisher.run(state, moves=each, deadline=until, heat=_MILD)
        states = _varied_first(sorted(states, key=polisher.score), polisher.groups.wide_job())
        half = (len(states) + 1) // 2
        left_behind += states[half:]
        states = states[:half]
    return sorted([*states, *left_behind], key=polisher.score)


def _varied_first(states: list[State], job: int | None) -> list[State]:
    """The first state for each number of a job's pipelines, then the others: those with a number that others do not
    have begin behind, and go on longer."""
    if job is None:
        return states
    first: dict[int, State] = {}
    for state in states:
        skeleton = state.skeletons[job]
        first.setdefault(len(skeleton.chains) if skeleton else 0, state)
    return [*first.values(), *(state for state in states if all(state is not other for other in first.values()))]


def _cooled(polisher: Polisher, race: Sequence[State], moves: int) -> list[State]:
    """The winner of a race polished again and again; where nothing more comes of it, the next one. All states, the best
    first."""
    budget, in_vain = polisher.groups.budget, 0
    left = list(race)
    state = best = left.pop(0)
    for turn in range(_COOLINGS):
        until = budget.until(_RACING + (_COOLING - _RACING) * (turn + 1) / _COOLINGS)
        before = polisher.score(state)
        state = polisher.run(state, moves=moves // _COOLINGS, deadline=until, heat=_MILD)
        best = min(best, state, key=polisher.score)
        in_vain = 0 if polisher.score(state).energy < (1 - _GAIN) * before.energy else in_vain + 1
        if in_vain == _IN_VAIN:
            if not left:
                break
            state, in_vain = left.pop(0), 0
    return [best, *race]


def _reordered(polisher: Polisher, race: Sequence[State], moves: int) -> list[State]:
    """The winner of a race with its slots in a better order, polished, and so again. All states, the best first."""
    budget, found = polisher.groups.budget, list(race)
    each = moves // _ROUNDS
    for turn in range(_ROUNDS):
        done = [_RACING + (_COOLING - _RACING) * (turn + part) / _ROUNDS for part in (_FOR_ORDER, 1.0)]
        state = min(found, key=polisher.score)
        ordering = int(_FOR_ORDER * each)
        state = polisher.run(state, moves=ordering, deadline=budget.until(done[0]), heat=_FIERCE, in_order=True)
        found.append(polisher.run(state, moves=each - ordering, deadline=budget.until(done[1]), heat=_MILD))
    return sorted(found, key=polisher.score)


def _nearly_as_good(polisher: Polisher, ranked: Sequence[State]) -> list[State]:
    """Of some states, best first, the next few that are others: they may play better than the first one."""
    few = [ranked[0]]
    for state in ranked:
        is_near = polisher.score(state).energy <= _NEAR * polisher.score(ranked[0]).energy
        if is_near and len(few) < _MOST_PLAYED and all(state.skeletons != other.skeletons for other in few):
            few.append(state)
    return few[1:]


def _of_deals(request: Request, report: Callable[[Score], None] | None) -> Callable[[Deal], None] | None:
    """Whoever hears of scores also hears of deals, where times are all that counts."""
    if report is None or request.objective.needs_money:
        return None
    told = report
    return lambda deal: told(request.objective.score(request.jobs, [Outcome(each) for each in deal.seconds]))


def _played_and_searched(result: PlanResult, state: State) -> Iterator[tuple[float, float]]:
    """Seconds of each job's step: as its plan plays, and as the search took it."""
    for played, searched in zip(result.seconds.values(), state.seconds, strict=True):
        if played is not None and searched is not None:
            yield played, searched


def _result(polisher: Polisher, state: State) -> PlanResult:
    """The state as a plan, scored by its price in full, without slack."""
    spaces = polisher.groups.spaces
    objective = replace(polisher.objective, slack=0.0)
    budget = polisher.groups.budget
    done = finish(spaces, state, objective, budget)
    seconds = {space.job.name: outcome.seconds for space, outcome in zip(spaces, done.outcomes, strict=True)}
    score = objective.score([space.job for space in spaces], done.outcomes)
    tried = budget.tried + sum(space.evaluations for space in spaces)
    return PlanResult(done.plan, done.price, seconds, score, tried, budget.hurried)


def is_compiled() -> bool:
    """Whether the compiled code of this very version is kept on this machine."""
    return is_cached(improve) and is_cached(polish)


def load_compiled(*, with_money: bool = False) -> None:
    """Load the compiled code that a search calls, so that none compiles in its time; or compile it, one half of it in a
    process of its own: that takes a minute, not two. Nothing is done where this process has it already."""
    if hasattr(improve, "signatures"):  # otherwise nothing is compiled
        _load(with_money)


@cache
def _load(with_money: bool) -> None:
    cluster, job = smallest_case()
    request = Request(cluster, (job,), ComputeModel(), objective=Objective(cheapest=with_money))
    if not is_compiled():
        load_price()
        (space,) = request.spaces()
        space.plan(Skeleton(((Slot(0, 1),),), space.plainest), rounds=1)  # both halves need what this does
        side_by_side(partial(_load_dealing, request), [partial(_load_polish, request)])
    _searched(request, Effort(time_limit=math.inf, evaluations=_FOR_LOADING))


def _load_dealing(request: Request) -> None:
    """Make a deal."""
    groups = GroupSearch(request.spaces(), np.random.default_rng(0))
    groups.state(groups.combined(groups.drawn()))


def _load_polish(request: Request) -> None:
    """Polish nothing."""
    groups = GroupSearch(request.spaces(), np.random.default_rng(0))
    nothing = State.of([None], [None])
    Polisher(groups, request.objective).run(nothing, moves=1, deadline=math.inf, heat=_MILD)


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
