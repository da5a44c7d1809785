"""Who starts with which machines: compact groups of many sizes for each job, the best that are still free.

A machine given to one job is missing to the others. If every job's time were work / compute, the best weighted sum
would give each job compute in proportion to sqrt(weight × work), and a unit of compute would be worth the same
everywhere: that worth is the price a job pays for its group here, so that a job takes more machines only as long as
they pay.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from hulk.cost.memory import optimizer_bytes, weight_bytes
from hulk.search.evaluate import JobSpace
from hulk.search.objective import job_cost
from hulk.search.seeds import arrange
from hulk.search.skeleton import Settings, Skeleton

Rates = NDArray[np.float64]
_FAIR_SHARES = 4
_PATIENCE = 3


@dataclass(frozen=True, slots=True)
class Start:
    """A job's skeleton (None: it waits) and its seconds."""

    skeleton: Skeleton | None
    seconds: float


def machine_rates(space: JobSpace) -> Rates:
    """FLOP/s of each machine for a job, as far as the tables tell: the work of a sample over the time it takes."""
    settings = Settings(space.microbatches[0])
    tables = space.tables(settings)
    kinds = space.book(settings).kinds
    work = space.job.model.flops_per_sample * settings.microbatch
    per_place = []
    for machine in space.places.representatives:
        ranks = max(t for t in space.degrees if t <= min(8, machine.gpus))
        kind = kinds[machine.gpu.name, ranks]
        seconds = tables.forward[kind, -1] + tables.backward[kind, -1]
        per_place.append(machine.gpus // ranks * work / seconds)
    rates: Rates = np.array(per_place, float)[np.array(space.places.of_machine)]
    return rates


def state_bytes(space: JobSpace) -> float:
    """Bytes of weights, gradients and optimizer state of one replica."""
    job = space.job
    return job.model.params * (weight_bytes(job.precision) + optimizer_bytes(job.precision, job.optimizer))


def worth_of_compute(spaces: Sequence[JobSpace], rates: Sequence[Rates]) -> float:
    """What the objective gains by one more FLOP/s, if time were work / compute."""
    works = [
        space.job.weight * (space.job.steps or 1.0) * space.job.model.flops_per_sample * space.job.global_batch
        for space in spaces
    ]
    total = float(np.mean([rate.sum() for rate in rates]))
    return (sum(sqrt(work) for work in works) / total) ** 2


def assign(
    spaces: Sequence[JobSpace],
    *,
    rng: np.random.Generator,
    scale: float = 1.0,
    most_centres: int = 12,
    deadline: float = float("inf"),
) -> tuple[list[Start], bool]:
    """A group for every job, jobs with the greatest need first, and whether the clock cut that short. `scale` makes
    machines dearer or cheaper. Every job has its share of the time until the deadline."""
    rates = [machine_rates(space) for space in spaces]
    worth = worth_of_compute(spaces, rates) * scale
    free = set(range(len(spaces[0].cluster.machines)))
    most = max(1, _FAIR_SHARES * len(free) // len(spaces))
    starts: list[Start] = [Start(None, -1.0)] * len(spaces)
    order = sorted(range(len(spaces)), key=lambda j: -state_bytes(spaces[j]))
    hurried = False
    for done, j in enumerate(order):
        now = time.monotonic()
        until = now + (deadline - now) / (len(order) - done)
        groups = candidate_groups(spaces[j], free, rates[j], rng, most_centres, most)
        starts[j] = best_group(spaces[j], groups, rates[j], worth, until)
        hurried |= time.monotonic() > until
        skeleton = starts[j].skeleton
        if skeleton is not None:
            free -= skeleton.machines
    return starts, hurried


def best_group(
    space: JobSpace, groups: Sequence[Sequence[list[int]]], rate: Rates, worth: float, deadline: float
) -> Start:
    """The job's cheapest group, machines paid for by what their compute is worth. `groups` holds, for each centre,
    groups of growing size; a centre is left when larger groups have stopped to pay."""
    best, least = Start(None, -1.0), float("inf")
    for growing in groups:
        lowest, worse = float("inf"), 0
        for group in growing:
            found = arrange(space, group, quick=True)
            if found is None or found[1] < 0:
                continue
            skeleton, seconds = found
            cost = job_cost(space.job, seconds) + worth * float(rate[group].sum())
            if cost < least:
                best, least = Start(skeleton, seconds), cost
            worse = 0 if cost < lowest else worse + 1
            lowest = min(lowest, cost)
            if worse == _PATIENCE or (best.skeleton is not None and time.monotonic() > deadline):
                break
        if best.skeleton is not None and time.monotonic() > deadline:
            break
    return best


def candidate_groups(
    space: JobSpace, free: set[int], rate: Rates, rng: np.random.Generator, most_centres: int, most: int
) -> list[list[list[int]]]:
    """For several places, groups of growing size around it, nearest machines first, each large enough to hold the
    model; at most `most` machines unless the model needs more."""
    usable = np.array(sorted(free & space.allowed), np.int64)
    if not usable.size:
        return []
    of_machine = np.array(space.places.of_machine)
    machines = space.cluster.machines
    latency = space.tables(Settings(space.microbatches[0])).latency
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
