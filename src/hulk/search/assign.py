"""Who starts with which machines: compact groups of many sizes for each job, the best that are still free.

A machine given to one job is missing to the others. If every job's time were work / compute, the best weighted sum would
give each job compute in proportion to sqrt(weight × work), and a unit of compute would be worth the same everywhere: that
worth is the price a job pays for its group here, so that a job takes more machines only as long as they pay.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from hulk.cost.memory import optimizer_bytes, weight_bytes
from hulk.search.evaluate import JobSpace
from hulk.search.objective import job_cost
from hulk.search.seeds import arrange
from hulk.search.skeleton import Settings, Skeleton


@dataclass(frozen=True, slots=True)
class Start:
    """A job's skeleton (None: it waits) and its seconds."""

    skeleton: Skeleton | None
    seconds: float


def machine_rates(space: JobSpace) -> np.ndarray:
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
    return np.array(per_place)[np.array(space.places.of_machine)]


def state_bytes(space: JobSpace) -> float:
    """Bytes of weights, gradients and optimizer state of one replica."""
    job = space.job
    return job.model.params * (weight_bytes(job.precision) + optimizer_bytes(job.precision, job.optimizer))


def worth_of_compute(spaces: Sequence[JobSpace], rates: Sequence[np.ndarray]) -> float:
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
) -> list[Start]:
    """A group for every job, jobs with the greatest need first. `scale` makes machines dearer or cheaper."""
    rates = [machine_rates(space) for space in spaces]
    worth = worth_of_compute(spaces, rates) * scale
    free = set(range(len(spaces[0].cluster.machines)))
    starts: list[Start] = [Start(None, -1.0)] * len(spaces)
    order = sorted(range(len(spaces)), key=lambda j: -state_bytes(spaces[j]))
    for j in order:
        starts[j] = best_group(spaces[j], free, rates[j], worth, rng, most_centres, deadline)
        if starts[j].skeleton is not None:
            free -= starts[j].skeleton.machines  # type: ignore[union-attr]
    return starts


def best_group(
    space: JobSpace,
    free: set[int],
    rate: np.ndarray,
    worth: float,
    rng: np.random.Generator,
    most_centres: int,
    deadline: float,
) -> Start:
    """The job's cheapest group among the free machines, machines paid for by what their compute is worth."""
    best, least = Start(None, -1.0), float("inf")
    for group in candidate_groups(space, free, rate, rng, most_centres):
        found = arrange(space, group, quick=True)
        if found is None or found[1] < 0:
            continue
        skeleton, seconds = found
        cost = job_cost(space.job, seconds) + worth * float(rate[group].sum())
        if cost < least:
            best, least = Start(skeleton, seconds), cost
        if time.monotonic() > deadline:
            break
    return best


def candidate_groups(
    space: JobSpace, free: set[int], rate: np.ndarray, rng: np.random.Generator, most_centres: int
) -> list[list[int]]:
    """Groups of growing size around several places, nearest machines first, each large enough to hold the model."""
    usable = np.array(sorted(free & space.allowed), np.int64)
    if not usable.size:
        return []
    of_machine = np.array(space.places.of_machine)
    machines = space.cluster.machines
    latency = space.tables(Settings(space.microbatches[0])).latency
    memory = np.array([machines[i].memory * machines[i].gpus for i in usable])
    places = np.unique(of_machine[usable])
    if places.size > most_centres:
        power = np.array([rate[usable[of_machine[usable] == p]].sum() for p in places])
        chosen = rng.choice(places.size, most_centres, replace=False, p=power / power.sum())
        places = places[np.sort(chosen)]
    need = state_bytes(space)
    groups: dict[tuple[int, ...], list[int]] = {}
    for centre in places:
        ways = latency[centre, of_machine[usable]].copy()
        ways[of_machine[usable] == centre] = 0.0
        order = np.lexsort((-rate[usable], np.round(ways, 3)))
        reachable = np.isfinite(ways[order])
        ordered, held = usable[order][reachable], np.cumsum(memory[order][reachable])
        enough = int(np.searchsorted(held, need)) + 1
        size = enough
        while size <= ordered.size:
            group = sorted(int(i) for i in ordered[:size])
            groups.setdefault(tuple(group), group)
            size = max(size + 1, int(size * 1.4))
    return sorted(groups.values(), key=len)
