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

import numpy as np

from hulk.cost.compiled import is_cached
from hulk.cost.play import run
from hulk.cost.price import step_of
from hulk.cost.report import PlanPrice
from hulk.domain.plan import Plan
from hulk.errors import InputError
from hulk.propose import paper_policy, starts
from hulk.propose.network import Proposing
from hulk.search.assignment.anneal import improve
from hulk.search.assignment.race import GroupSearch
from hulk.search.assignment.ways import choose, ways_of
from hulk.search.budget import Budget, Effort
from hulk.search.deals import Deal
from hulk.search.defaults import EVALUATIONS
from hulk.search.finish import finish
from hulk.search.forked import side_by_side
from hulk.search.job_space import JobSpace
from hulk.search.objective import Objective, Outcome, Score
from hulk.search.request import Request
from hulk.search.shape.anneal import polish
from hulk.search.shape.arrange import Found, arrange
from hulk.search.shape.polisher import Polisher
from hulk.search.skeleton import Skeleton, Slot
from hulk.search.state import State
from hulk.search.story import Story
from hulk.search.uniform import best_uniform

# Shares of the time limit: until machines are dealt out, until they are once more without jobs that must wait, until
# each group's shape was searched more widely, until the race is over, until the winner has cooled, again and again.
_DEALING, _WITHOUT, _ARRANGING, _RACING, _COOLING = 0.38, 0.43, 0.45, 0.64, 0.86
# Shares of the moves: for dealing, for the race, for all coolings; how many these are, how many of them in a row may
# bring next to nothing, and what that is; and the loss that is taken lightly at first. Many short coolings from a low
# heat find more than few long ones from a high one, which lose what the deals brought.
_FOR_DEALING, _FOR_RACING, _FOR_COOLING = 0.25, 0.25, 0.5
_COOLINGS, _IN_VAIN, _GAIN, _HOT = 14, 3, 3e-4, 0.003
# Seconds a machine that pricing the plan in full may take, and of the time limit that is kept for it at most.
_PRICED, _MOST_PRICED = 0.0015, 0.25
_LEAST_FOR_NETWORK = 24
# Proposals, how often each is completed anew, and how much of the time for dealing that may take.
_SAMPLES, _TIMES, _PROPOSING = 6, 7, 0.3
# With money: choices among the ways to run, of the time limit until the ways are known, and of the moves for deals.
_CHOICES, _WAYS, _FOR_DEALS = 8, 0.3, 0.2
# Shares of limits and deadlines left unused where the search was a little over them in full, one after the other.
_SLACKS = (0.003, 0.02, 0.1, 0.3)
# A plan that plays by this factor slower than the search took it for is not taken unseen.
_NOT_AS_SEARCHED = 1.03
_LEAST_REGULAR, _MOST_REGULAR = 16, 256  # GPUs of one kind for which regular plans are gone through
_PLAYING = 0.86  # of the time limit until other plans of the race are played
_FEW_MACHINES = 200  # up to which several whole plans are played: a second each on more
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
    load_compiled(request.spaces()[0])
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
    spaces = request.spaces()
    load_compiled(spaces[0])
    # Compiling, which happens once on a machine, does not count; the price of the whole plan, at the end, does.
    in_the_end = min(_PRICED * len(request.cluster.machines), _MOST_PRICED * effort.time_limit)
    budget = Budget(effort.time_limit - in_the_end, stop)
    report = _telling(progress, budget.begin)
    rng, tell = np.random.default_rng(effort.seed), _of_deals(request, report)
    # Searches side by side differ in more than their seeds: what misleads one need not mislead the next.
    groups = GroupSearch(spaces, rng, budget=budget, report=tell, apart=effort.number % 2 == 0)
    polisher = Polisher(groups, request.objective, report=report)
    story = Story(budget, request.objective, polisher.score)
    if policy is Policy.PAPER:
        return _result(polisher, _as_the_paper_does(groups, network))
    states = _first_states(polisher, effort.evaluations, network, story)
    race = _raced(polisher, states, effort.evaluations)
    story.tell("shapes of the best raced", race[0])
    state = _cooled(polisher, race, effort.evaluations)
    story.tell("the winner cooled", state)
    result = _result(polisher, state)
    surprising = any(its > _NOT_AS_SEARCHED * took for its, took in _played_and_searched(result, state))
    if surprising and len(state.owner) <= _FEW_MACHINES:
        # What the search took its plan for, it is not: the others of the race may play better.
        others = (each for each in race if each.skeletons != state.skeletons and not budget.is_over(_PLAYING))
        result = min([result, *(_result(polisher, each) for each in others)], key=lambda one: one.score)
    story.tell_score("cut, shared and played", result.score)
    for slack in _SLACKS:
        if not result.score.broken or polisher.score(state).broken:
            break
        polisher.tighten(slack)
        more = time.monotonic() + 0.1 * effort.time_limit
        moves = max(1, int(_FOR_COOLING * effort.evaluations / _COOLINGS))
        state = polisher.run(state, moves=moves, deadline=more, hot=_HOT)
        result = min(result, _result(polisher, state), key=lambda one: one.score)
        story.tell_score(f"once more, with {slack:.1%} of the limits left unused", result.score)
    return result


def _raced(polisher: Polisher, states: list[State], evaluations: int) -> list[State]:
    """The states after a race, best first: all are polished a little, the better half twice as long, until one is left.
    Each round has as many moves and as much time."""
    budget, rounds = polisher.groups.budget, (len(states) - 1).bit_length()
    left_behind: list[State] = []
    for turn in range(rounds):
        moves = int(_FOR_RACING * evaluations / (rounds * len(states)))
        for i, state in enumerate(states):
            done = (turn + (i + 1) / len(states)) / rounds
            until = budget.until(_ARRANGING + (_RACING - _ARRANGING) * done)
            states[i] = polisher.run(state, moves=moves, deadline=until, hot=_HOT)
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


def _cooled(polisher: Polisher, race: Sequence[State], evaluations: int) -> State:
    """The winner of a race polished again and again; where nothing more comes of it, the next one."""
    budget, in_vain = polisher.groups.budget, 0
    left = list(race)
    state = best = left.pop(0)
    for turn in range(_COOLINGS):
        until = budget.until(_RACING + (_COOLING - _RACING) * (turn + 1) / _COOLINGS)
        before = polisher.score(state)
        state = polisher.run(state, moves=int(_FOR_COOLING * evaluations / _COOLINGS), deadline=until, hot=_HOT)
        best = min(best, state, key=polisher.score)
        in_vain = 0 if polisher.score(state).energy < (1 - _GAIN) * before.energy else in_vain + 1
        if in_vain == _IN_VAIN:
            if not left:
                break
            state, in_vain = left.pop(0), 0
    return best


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


def load_compiled(space: JobSpace) -> None:
    """Load the compiled code, or compile it, one half of it in a process of its own: that takes a minute, not two.
    Nothing is done where this process has it already."""
    if all(getattr(kernel, "signatures", True) for kernel in (improve, polish, run)):  # True: nothing is compiled
        return
    if not is_compiled():
        side_by_side(partial(_load_dealing, space), [partial(_load_polish, space)], stop=lambda: False)
    _load_dealing(space)
    _load_polish(space)


def _load_dealing(space: JobSpace) -> None:
    """Price and play the smallest plan there is, and make a deal: all that a search calls, so that none compiles in its
    time."""
    slot = Slot(0, space.degrees[0])
    smallest = Skeleton(((slot, slot), (slot,)), space.plainest)
    if space.result(smallest).runs:
        plan, _ = space.plan(smallest)
        step_of(space.job, plan, space.cluster, compute=space.compute, engine=space.engine)
    groups = GroupSearch([space], np.random.default_rng(0))
    groups.state(groups.combined(groups.drawn()))


def _load_polish(space: JobSpace) -> None:
    """Polish nothing."""
    groups = GroupSearch([space], np.random.default_rng(0))
    nothing = State.of([None], [None])
    Polisher(groups, Objective()).run(nothing, moves=1, deadline=float("inf"), hot=1.0)


def _first_states(polisher: Polisher, evaluations: int, network: Proposing | None, story: Story) -> list[State]:
    """The best few ways found to deal the machines out, each job's shape then searched more widely on its own ones."""
    groups, budget = polisher.groups, polisher.groups.budget
    found: list[State] = []
    moves = int(_FOR_DEALING * evaluations)
    if polisher.objective.needs_money:
        found = _frugal(polisher)
        story.tell("few machines for each job", min(found, key=polisher.score, default=None))
    moves = int(moves * (_FOR_DEALS if found else 1.0)) or 1
    proposed = _proposed(groups, network, budget.until(_PROPOSING * _DEALING))
    if proposed:
        story.tell("proposed by the network", groups.state(proposed[0]))
    length = moves / (_FOR_DEALING * EVALUATIONS)
    deals = groups.deals(moves=moves, deadline=budget.until(_DEALING), starts=proposed, length=length)
    deals = groups.without_waiting(deals, moves=moves // 2 or 1, deadline=budget.until(_WITHOUT))
    found += [groups.state(deal) for deal in deals]
    found = sorted(found, key=polisher.score)[: len(deals)]
    story.tell("machines dealt out", found[0])
    for state in found:
        for job, (space, skeleton) in enumerate(zip(groups.spaces, state.skeletons, strict=True)):
            if skeleton is not None and not budget.is_over(_ARRANGING):
                _rearrange(polisher, state, job, space)
    found.sort(key=polisher.score)
    story.tell("each job arranged anew", found[0])
    return found


def _rearrange(polisher: Polisher, state: State, job: int, space: JobSpace) -> None:
    """A job in the best shape on its machines, where that is better than the one it has."""
    skeleton = state.skeletons[job]
    if skeleton is None:
        return
    machines = sorted(skeleton.machines)
    for better in (arrange(space, machines), _regular(polisher.groups, space, machines)):
        if better is None or not better[1].runs:
            continue
        trial = state.copy()
        trial.apply({job: better[0]}, {job: better[1].seconds})
        if polisher.score(trial) < polisher.score(state):
            state.apply({job: better[0]}, {job: better[1].seconds})


def _regular(groups: GroupSearch, space: JobSpace, machines: Sequence[int]) -> Found | None:
    """The best regular plan of a job that has machines to itself which are all alike, and enough for it to matter: what
    others would start from. Going through all of them takes a second or two."""
    hosts = [space.cluster.machines[machine] for machine in machines]
    gpus = sum(host.gpus for host in hosts)
    if len(groups.spaces) > 1 or len({(host.gpu.name, host.gpus) for host in hosts}) > 1:
        return None
    if not _LEAST_REGULAR <= gpus <= _MOST_REGULAR:
        return None
    found = best_uniform(space, machines, is_over=partial(groups.budget.is_over, _ARRANGING), in_turn=True)
    return None if found is None else (found.skeleton, space.result(found.skeleton))


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
    """The network's proposals, if there is one and it is asked, best first. A first deal of the search's own is there
    sooner than the network's first word, so that nobody waits for that; it goes on only where it is the best."""
    if network is None or not asks_network(groups):
        return []
    own = groups.drawn()
    found = starts(groups, rng=groups.rng, samples=_SAMPLES, network=network, times=_TIMES, deadline=deadline, own=own)
    return [own, *found] if groups.cost(own) < groups.cost(found[0]) else found


def _as_the_paper_does(groups: GroupSearch, network: Proposing | None) -> State:
    """One shot of the network, jobs from large to small, a memory check; then the best shape on every group."""
    if network is None:
        raise InputError("the paper's policy needs the network", hint="leave --no-gnn away")
    state = groups.state(groups.judged(paper_policy(groups.packed, network)))
    by_time = Polisher(groups, Objective())
    for job, space in enumerate(groups.spaces):
        _rearrange(by_time, state, job, space)
    return state


def _frugal(polisher: Polisher) -> list[State]:
    """Good choices among many ways to run each job, from a part of a machine to large groups."""
    groups, ways = polisher.groups, []
    for done, space in enumerate(groups.spaces):
        now = time.monotonic()
        until = now + (groups.budget.until(_WAYS) - now) / (len(groups.spaces) - done)
        found, hurried = ways_of(
            space, rng=groups.rng, jobs=len(groups.spaces), most_centres=_centres(groups.spaces), deadline=until
        )
        groups.budget.hurried |= hurried
        ways.append(found)
    return choose(groups.spaces, ways, polisher.objective, rng=groups.rng, tries=_CHOICES)


def _centres(spaces: Sequence[JobSpace]) -> int:
    """Around how many places groups are tried: fewer on large clusters, where each try takes longer."""
    machines = len(spaces[0].cluster.machines)
    return 12 if machines <= 64 else 4 if machines <= 2000 else 2
