"""Starts for objectives with money: for each job many ways to run, from a part of one machine to large groups, each
with its seconds and dollars; and of these one for every job, so that the objective is least."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hulk.cost.kinds import kind_of
from hulk.cost.memory import state_of
from hulk.search.job_space import JobSpace
from hulk.search.objective import Objective, Outcome, Score
from hulk.search.shape.arrange import Found, arrange, base_options, slots_of, tune
from hulk.search.skeleton import Skeleton, Slot
from hulk.search.state import State

Rates = NDArray[np.float64]
_FAIR_SHARES = 4
_SWEEPS = 6
_FEW_CENTRES = 4
_CHEAPEST, _FASTEST = 8, 2  # places of which a part of one machine is tried
_MOST_WAYS = 300
_WAITS = Outcome(None)


@dataclass(frozen=True, slots=True)
class Way:
    """One way to run a job."""

    skeleton: Skeleton
    machines: frozenset[int]
    outcome: Outcome


def machine_rates(space: JobSpace) -> Rates:
    """FLOP/s of each machine for a job, as far as the tables tell: the work of a sample over the time it takes."""
    book = space.book(space.plainest)
    tables, kinds = book.tables, book.kinds
    work = space.job.model.flops_per_sample * space.plainest.microbatch_size
    per_place = []
    for machine in space.places.representatives:
        ranks = max(t for t in space.degrees if t <= min(8, machine.gpus))
        kind = kinds[kind_of(machine, ranks)]
        seconds = tables.forward[kind, -1] + tables.backward[kind, -1]
        per_place.append(machine.gpus // ranks * work / seconds)
    rates: Rates = np.array(per_place, float)[np.array(space.places.of_machine)]
    return rates


def state_bytes(space: JobSpace) -> float:
    """Bytes of weights, gradients and, unless hosts hold it, optimizer state of one replica."""
    each = state_of(space.job, space.plainest, space.engine, 1)
    return space.job.model.params * (each.weights + each.gradients + each.optimizer)


def ways_of(
    space: JobSpace, *, rng: np.random.Generator, jobs: int, most_centres: int, deadline: float
) -> tuple[list[Way], bool]:
    """Ways to run a job, beside so many jobs in all, and whether the clock on the monotonic clock cut that short: parts
    of one machine of every kind, and groups of growing size around several places, all with the machines it must
    use."""
    if not space.allowed:
        return [], False
    rate = machine_rates(space)
    most = max(1, _FAIR_SHARES * len(space.allowed) // jobs)
    ways: dict[Skeleton, Way] = {}
    made = _skeletons(space, rate, candidate_groups(space, rate, rng, most_centres, most))
    hurried = False
    for skeleton in made:
        way = _way(space, skeleton)
        if way is not None:
            ways[skeleton] = way
        if len(ways) >= _MOST_WAYS or (ways and time.monotonic() > deadline):
            hurried = len(ways) < _MOST_WAYS
            break
    return list(ways.values()), hurried


def _skeletons(space: JobSpace, rate: Rates, groups: Sequence[Sequence[list[int]]]) -> Iterator[Skeleton]:
    if len(space.pins) <= 1:
        for machine in sorted(space.pins) or _worth_trying(space, rate):
            yield from _parts(space, machine)
    longest = max((len(growing) for growing in groups), default=0)
    for size in range(longest):  # small groups of all places first: the clock may end this
        for growing in groups:
            if size < len(growing):
                found = arrange(space, sorted(space.pins.union(growing[size])), quick=True)
                if found is not None and found[1].runs:
                    yield found[0]


def _worth_trying(space: JobSpace, rate: Rates) -> list[int]:
    """One machine each of the places whose compute is cheapest, and of the fastest ones."""
    first: dict[int, int] = {}
    for machine in sorted(space.allowed):
        first.setdefault(space.places.of_machine[machine], machine)
    hosts = space.cluster.machines
    cheapest = sorted(first.values(), key=lambda machine: hosts[machine].price / rate[machine])
    fastest = sorted(first.values(), key=lambda machine: -rate[machine])
    return list(dict.fromkeys([*cheapest[:_CHEAPEST], *fastest[:_FASTEST]]))


def _parts(space: JobSpace, machine: int) -> Iterator[Skeleton]:
    """Some of a machine's GPUs, as replicas or as one pipeline; of those that fit, with the options that suit them."""
    for degree in space.degrees:
        slots = slots_of(space, machine, degree)
        if slots[0].ranks != degree:
            continue
        for count in sorted({1, 2, 3, 4, 6, 8, len(slots) // 2 or 1, len(slots)}):
            if count > len(slots):
                continue
            replicas, pipeline = tuple((slot,) for slot in slots[:count]), (tuple(slots[:count]),)
            for chains in (replicas, pipeline) if count > 1 else (pipeline,):
                if len(chains[0]) > len(space.job.model.layers):
                    continue
                options = [Skeleton(chains, s) for s in base_options(space, len(chains), len(chains[0]))]
                best = min(options, key=space.result)
                if space.result(best).runs:
                    yield tune(space, best, rounds=1)[0]


def _way(space: JobSpace, skeleton: Skeleton) -> Way | None:
    dollars = space.dollars(skeleton)
    if dollars is None:
        return None
    return Way(skeleton, frozenset(skeleton.machines), Outcome(space.result(skeleton).seconds, dollars))


def choose(
    spaces: Sequence[JobSpace],
    ways: Sequence[Sequence[Way]],
    objective: Objective,
    *,
    rng: np.random.Generator,
    tries: int,
) -> list[State]:
    """A way for every job, no machine twice: several good choices, the best first. Each begins with jobs in another
    order; then one job after the other changes to what is best beside the others, as long as that helps. Alike machines
    stand in for each other."""
    jobs = [space.job for space in spaces]
    members: dict[int, list[int]] = {}
    for machine, place in enumerate(spaces[0].places.of_machine):
        members.setdefault(place, []).append(machine)
    found: dict[tuple[Skeleton | None, ...], tuple[Score, State]] = {}
    for attempt in range(tries):
        order = rng.permutation(len(jobs)) if attempt else np.argsort([-state_bytes(space) for space in spaces])
        chosen: list[Way | None] = [None] * len(jobs)
        score = objective.score(jobs, [_WAITS] * len(jobs))
        for _ in range(_SWEEPS):
            before = score
            for j in order:
                taken = {m for i, way in enumerate(chosen) if way and i != j for m in way.machines}
                outcomes = [way.outcome if way else _WAITS for way in chosen]
                for way in ways[j]:
                    outcomes[j] = way.outcome
                    trial = objective.score(jobs, outcomes)
                    own = _beside(spaces[j], way, taken, members) if trial < score else None
                    if own is not None:
                        chosen[j], score = own, trial
            if score == before:
                break
        skeletons = tuple(way.skeleton if way else None for way in chosen)
        state = State.of(skeletons, [way.outcome.seconds if way else None for way in chosen])
        found.setdefault(skeletons, (score, state))
    return [state for _, state in sorted(found.values(), key=lambda entry: entry[0])]


def _beside(space: JobSpace, way: Way, taken: set[int], members: Mapping[int, Sequence[int]]) -> Way | None:
    """The way on machines that are not taken: its own, or others of the same places, which are alike; None where there
    are too few."""
    if taken.isdisjoint(way.machines):
        return way
    new: dict[int, int] = {}
    for machine in sorted(way.machines):
        others = members[space.places.of_machine[machine]]
        free = (m for m in (machine, *others) if m not in taken and m in space.allowed and m not in new.values())
        found = next((m for m in free if m == machine or m not in way.machines), None)
        if found is None:
            return None
        new[machine] = found
    chains = tuple(tuple(Slot(new[slot.machine], slot.ranks) for slot in chain) for chain in way.skeleton.chains)
    return Way(Skeleton(chains, way.skeleton.options), frozenset(new.values()), way.outcome)


def placed_on(space: JobSpace, free: Collection[int]) -> Found | None:
    """The job on some of these machines, with what is known of it; None where no group of them was found to hold it.
    All of them around each place are tried first."""
    usable = space.allowed.intersection(free)
    if not usable or not space.pins <= usable:
        return None
    rng = np.random.default_rng(0)
    for growing in candidate_groups(space, machine_rates(space), rng, _FEW_CENTRES, len(usable), usable):
        for group in reversed(growing):
            found = arrange(space, sorted(space.pins.union(group)), quick=True)
            if found is not None and found[1].runs:
                return found
    return None


def candidate_groups(
    space: JobSpace,
    rate: Rates,
    rng: np.random.Generator,
    most_centres: int,
    most: int,
    free: Collection[int] | None = None,
) -> list[list[list[int]]]:
    """For several places, groups of growing size around it, nearest machines first, each large enough to hold the
    model; at most `most` machines unless the model needs more, and of those that are `free` where that is given."""
    usable = np.array(sorted(space.allowed if free is None else space.allowed.intersection(free)), np.int64)
    if not usable.size:
        return []
    of_machine = np.array(space.places.of_machine)
    machines = space.cluster.machines
    latency = space.latency
    memory = np.array([machines[i].memory * machines[i].gpus for i in usable])
    places = np.unique(of_machine[usable])
    power = np.array([rate[usable[of_machine[usable] == p]].sum() for p in places])
    places = places[np.argsort(-power, kind="stable")]
    if places.size > most_centres:
        power = np.sort(power)[::-1]
        chosen = rng.choice(places.size, most_centres, replace=False, p=power / power.sum())
        places = places[np.sort(chosen)]
    need = state_bytes(space)
    seen: set[tuple[int, ...]] = set()
    groups = []
    for centre in places:
        ways = latency[centre, of_machine[usable]].copy()
        ways[of_machine[usable] == centre] = 0.0
        order = np.lexsort((-rate[usable], np.round(ways, 3)))
        reachable = np.isfinite(ways[order])
        ordered, held = usable[order][reachable], np.cumsum(memory[order][reachable])
        size = int(np.searchsorted(held, need)) + 1
        largest = min(ordered.size, max(most, 2 * size))
        growing = []
        while size <= largest:
            group = sorted(int(i) for i in ordered[:size])
            if tuple(group) not in seen:
                seen.add(tuple(group))
                growing.append(group)
            size = max(size + 1, int(size * 1.4))
        groups.append(growing)
    return groups
