"""The best plan of several pipelines side by side."""

from __future__ import annotations

import numpy as np

from hulk.cost.arrays import Ints
from hulk.search.exact.bounds import all_work
from hulk.search.exact.capacity import Capacity, Terms, capacities, digits_of, most_microbatches, with_others
from hulk.search.exact.case import Case, room_for
from hulk.search.exact.chains import FOUND, GAVE_UP, Chains, rows_of
from hulk.search.exact.listing import Lister
from hulk.search.exact.mode import Mode
from hulk.search.exact.plans import Known, Replicas, plan_of, to_beat
from hulk.search.exact.size import too_many_plans
from hulk.search.exact.teams import best_team
from hulk.search.exact.timing import ChainTimes, no_times, time_chains


def solve_together(mode: Mode, case: Case, lister: Lister, seconds: float) -> Known | None:
    """The best plan of several pipelines that is faster than `seconds`."""
    most_replicas = _most_replicas(case)
    if most_replicas < 2 or all_work(case) >= to_beat(seconds):
        return None
    chains = lister.chains(mode, case, to_beat(seconds), alone=False, shards=mode.shards(most_replicas))
    digits = digits_of(case.offer)
    chains = _useful(mode, case, chains, digits, to_beat(seconds))
    # With all the warm-up first: its times serve the others.
    longest = _timed(mode, case, chains, case.total, to_beat(seconds), no_times())
    best: Known | None = None
    for extra in range(case.total - 1):
        times = _timed(mode, case, chains, extra, to_beat(seconds), longest)
        for replicas in range(2, min(most_replicas, case.total - extra) + 1):
            terms = Terms(replicas, mode.shards(replicas), extra)
            most = most_microbatches(case, chains, times, terms, to_beat(seconds))
            if extra and not np.any(most[chains.stages > 1, 0] > extra):
                continue  # less warm-up comes to the same
            capacity = Capacity(digits, most, capacities(digits, chains.usage, most, replicas))
            found = _best_of(mode, case, chains, times, terms, capacity, to_beat(seconds))
            if found is not None:
                best, seconds = found, found.seconds
    return best


def _most_replicas(case: Case) -> int:
    """Each has a GPU and a microbatch."""
    return min(case.total, int(case.offer.gpus.sum()))


def _useful(mode: Mode, case: Case, chains: Chains, digits: Ints, seconds: float) -> Chains:
    """The chains with which others could do the batch, going by bounds."""
    kept = np.zeros(len(chains.stages), bool)
    for replicas in range(2, _most_replicas(case) + 1):
        terms = Terms(replicas, mode.shards(replicas), 0)
        most = most_microbatches(case, chains, no_times(), terms, seconds)
        capacity = Capacity(digits, most, capacities(digits, chains.usage, most, replicas))
        kept |= with_others(capacity, chains.usage, case.total)
    return rows_of(chains, kept)


def _timed(mode: Mode, case: Case, chains: Chains, extra: int, seconds: float, known: ChainTimes) -> ChainTimes:
    """Every chain's times with so many extra forwards, memory not looked at."""
    open_case = case._replace(tables=mode.open_tables)
    return time_chains(open_case, chains, room_for(mode.options, 1, mode.layers), extra, seconds, known)


def _best_of(
    mode: Mode, case: Case, chains: Chains, times: ChainTimes, terms: Terms, capacity: Capacity, seconds: float
) -> Known | None:
    """The best plan of these chains that is faster than `seconds`. InputError where there are too many to look at."""
    order = np.lexsort((-capacity.most[:, 0], chains.usage))
    order = order[with_others(capacity, chains.usage, case.total)[order]]
    if len(order) == 0:
        return None
    chains, capacity = rows_of(chains, order), capacity._replace(most=capacity.most[order])
    room = room_for(mode.options, terms.replicas, terms.replicas * mode.layers)
    times = rows_of(times, order)
    status, team = best_team(case, mode.wide_tables, chains, times, terms, capacity, room, seconds)
    if status == GAVE_UP:
        raise too_many_plans(mode.space.job)
    if status != FOUND:
        return None
    by_region = bool(team.by_region[0])
    replicas = Replicas(tuple(team.chains.tolist()), tuple(team.shares.tolist()), terms.extra, by_region)
    return Known(float(team.seconds[0]), plan_of(mode, case.offer, chains, replicas), exact=True)
