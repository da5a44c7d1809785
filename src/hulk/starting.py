"""Where a search begins: machines dealt out in several ways, drawn, proposed by the network or, where money counts,
few; each job then in the best shape on its own ones."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from hulk.errors import InputError
from hulk.propose import paper_policy, starts
from hulk.propose.network import Proposing
from hulk.search.assignment.race import GroupSearch
from hulk.search.assignment.ways import choose, ways_of
from hulk.search.deals import Deal
from hulk.search.defaults import EVALUATIONS
from hulk.search.job_space import JobSpace
from hulk.search.objective import Objective
from hulk.search.shape.arrange import Found, arrange
from hulk.search.shape.polisher import Polisher
from hulk.search.skeleton import Skeleton
from hulk.search.state import State
from hulk.search.story import Story
from hulk.search.uniform import best_uniform

# Shares of the time limit: until machines are dealt out, until they are once more without jobs that must wait.
_DEALING, _WITHOUT = 0.38, 0.43
ARRANGING = 0.45
"""Of the time limit until each group's shape was searched more widely."""
# Of the moves. Where a job needs several regions, its groups show how good they are only once its slots are in order,
# and more moves for dealing find none that end better.
_FOR_DEALING, _FOR_DEALING_WIDE = 0.25, 0.15
_LEAST_FOR_NETWORK = 24
# Proposals, how often each is completed anew, and how much of the time for dealing that may take; moves that are made
# with the first of them before the others are asked for.
SAMPLES, _TIMES, _PROPOSING = 6, 2, 0.3
_FIRST = 500
# With money: choices among the ways to run, of the time limit until the ways are known, and of the moves for deals.
_CHOICES, _WAYS, _FOR_DEALS = 8, 0.3, 0.2
_LONG = 8  # stages
_LEAST_REGULAR, _MOST_REGULAR = 16, 256  # GPUs of one kind for which regular plans are gone through


def first_states(polisher: Polisher, evaluations: int, network: Proposing | None, story: Story) -> list[State]:
    """The best few ways found to deal the machines out, each job's shape then searched more widely on its own ones."""
    groups, budget = polisher.groups, polisher.groups.budget
    found: list[State] = []
    share = _FOR_DEALING if groups.wide_job() is None else _FOR_DEALING_WIDE
    moves = int(share * evaluations)
    if polisher.objective.needs_money:
        found = _frugal(polisher)
        story.tell("few machines for each job", min(found, key=polisher.score, default=None))
    moves = int(moves * (_FOR_DEALS if found else 1.0)) or 1
    proposed = _proposed(groups, network, budget.until(_PROPOSING * _DEALING))
    if proposed:
        story.tell("proposed by the network", groups.state(proposed[0]))
    length = moves / (share * EVALUATIONS)
    deals = groups.deals(moves=moves, deadline=budget.until(_DEALING), starts=proposed, length=length)
    deals = groups.without_waiting(deals, moves=moves // 2 or 1, deadline=budget.until(_WITHOUT))
    found += [groups.state(deal) for deal in deals]
    found = sorted(found, key=polisher.score)[: len(deals)]
    story.tell("machines dealt out", found[0])
    wide = groups.wide_job()
    for state in found:
        for job, (space, skeleton) in enumerate(zip(groups.spaces, state.skeletons, strict=True)):
            if skeleton is not None and not budget.is_over(ARRANGING):
                # Over many regions the order of machines counts most, and that has a search of its own.
                is_searched = job == wide and is_ordered(polisher.objective, skeleton)
                _rearrange(polisher, state, job, space, in_shapes=not is_searched)
    found.sort(key=polisher.score)
    story.tell("each job arranged anew", found[0])
    return found


def is_ordered(objective: Objective, skeleton: Skeleton) -> bool:
    """Whether the order of a job's slots is searched on its own: where a pipeline is long. In a short one small changes
    see all orders. With money every move costs a price in full."""
    return not objective.needs_money and any(len(chain) >= _LONG for chain in skeleton.chains)


def _asks_network(groups: GroupSearch) -> bool:
    """Whether a network is asked: not on few machines, where the search is done before it has answered."""
    return len(groups.packed.place) >= _LEAST_FOR_NETWORK


def _proposed(groups: GroupSearch, network: Proposing | None, deadline: float) -> list[Deal]:
    """The network's proposals, if there is one and it is asked, best first. A first deal of the search's own is there
    sooner than the network's first word, so that nobody waits for that; it goes on only where it is the best."""
    if network is None or not _asks_network(groups):
        return []
    own, rng = groups.drawn(), groups.rng
    return starts(
        groups, rng=rng, samples=SAMPLES, network=network, times=_TIMES, deadline=deadline, own=own, moves=_FIRST
    )


def _rearrange(polisher: Polisher, state: State, job: int, space: JobSpace, *, in_shapes: bool = True) -> None:
    """A job in the best shape on its machines, where that is better than the one it has; without `in_shapes` only the
    best regular one is looked at."""
    skeleton = state.skeletons[job]
    if skeleton is None:
        return
    machines = sorted(skeleton.machines)
    arranged = arrange(space, machines) if in_shapes else None
    for better in (arranged, _regular(polisher.groups, space, machines)):
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
    found = best_uniform(space, machines, is_over=partial(groups.budget.is_over, ARRANGING), in_turn=True)
    return None if found is None else (found.skeleton, space.result(found.skeleton))


def as_the_paper_does(groups: GroupSearch, network: Proposing | None) -> State:
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
