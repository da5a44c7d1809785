"""A genome: which job has which machine, in which order they stand, and each job's grid of stages × replicas.

DT-FM (Yuan et al., NeurIPS 2022) searches the groups of such a grid for one job; here the deal of machines to several
jobs belongs to the genome too. Every change is one function of a genome and a random generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log1p

import numpy as np

from hulk.domain.options import COLUMN, Options, drawn_evenly
from hulk.search.baselines.groups import shares
from hulk.search.baselines.scene import Scene
from hulk.search.job_space import JobSpace
from hulk.search.objective import job_cost
from hulk.search.results import LACKS, NO_MACHINES, Result
from hulk.search.shape.arrange import in_order, slots_of, tour
from hulk.search.skeleton import Skeleton, Slot

IDLE = -1


@dataclass(frozen=True, slots=True)
class Grid:
    """`replicas` pipelines of slots of `degree` GPUs. Striped: neighbours in the order hold the same stage of different
    pipelines; otherwise they are consecutive stages of one."""

    degree: int
    replicas: int
    striped: bool
    options: Options


@dataclass(frozen=True, slots=True)
class Genome:
    """`owner` of each machine (a job's number or IDLE), `order` of all machines, `grids` of the jobs."""

    owner: tuple[int, ...]
    order: tuple[int, ...]
    grids: tuple[Grid, ...]

    def group(self, job: int) -> list[int]:
        """A job's machines, in order."""
        return [machine for machine in self.order if self.owner[machine] == job]


def skeleton_of(space: JobSpace, machines: Sequence[int], grid: Grid) -> Skeleton | None:
    """The grid laid over the machines; slots beyond what the model's layers can use stay idle. None: no machine."""
    slots: list[Slot] = []
    for machine in machines:
        if machine in space.allowed:
            slots.extend(slots_of(space, machine, grid.degree))
    if not slots:
        return None
    replicas = min(grid.replicas, len(slots), space.job.global_batch // grid.options.microbatch_size)
    slots = slots[: replicas * len(space.job.model.layers)]
    if grid.striped:
        chains = tuple(tuple(slots[i::replicas]) for i in range(replicas))
    else:
        bounds = [round(i * len(slots) / replicas) for i in range(replicas + 1)]
        chains = tuple(tuple(slots[bounds[i] : bounds[i + 1]]) for i in range(replicas))
    return Skeleton(in_order(space, chains), grid.options)


def genome_cost(scene: Scene, genome: Genome) -> float:
    """The default objective of the jobs that can run; one that does not fit waits, and costs more the less it fits."""
    total = 0.0
    for j in scene.runnable:
        space = scene.spaces[j]
        skeleton = skeleton_of(space, genome.group(j), genome.grids[j])
        result = Result(LACKS, NO_MACHINES) if skeleton is None else space.result(skeleton)
        total += job_cost(space.job, result.seconds) * (1.0 if result.runs else 1 + log1p(result.value))
    return total


def random_genome(scene: Scene, rng: np.random.Generator) -> Genome:
    """Half of them: machines in a tour, cut among the jobs at about their shares; the others: at random."""
    count, jobs = len(scene.cluster.machines), len(scene.jobs)
    takers = (*scene.runnable, IDLE)
    part = np.array([share for share in shares(scene, float(rng.choice([0.0, 0.5, 1.0]))) if share])
    if rng.random() < 0.5:
        space = scene.spaces[int(rng.integers(jobs))]
        start = space.places.of_machine[int(rng.integers(count))]
        order = tour(space, range(count), start)
        weights = rng.dirichlet(np.append(part * jobs, 0.3) * 2 + 0.05)
        sequence = [*rng.permutation(len(part)).tolist(), len(part)]
        ends = np.cumsum(weights[sequence])
        owner = [IDLE] * count
        for position, machine in enumerate(order):
            at = min(len(part), int(np.searchsorted(ends, (position + 0.5) / count)))
            owner[machine] = takers[sequence[at]]
    else:
        order = rng.permutation(count).tolist()
        chances = np.append(part, 0.1) / (part.sum() + 0.1)
        owner = [takers[j] for j in rng.choice(len(takers), size=count, p=chances)]
    grids = tuple(random_grid(space, rng, owner.count(j)) for j, space in enumerate(scene.spaces))
    return Genome(tuple(owner), tuple(order), grids)


def random_grid(space: JobSpace, rng: np.random.Generator, machines: int) -> Grid:
    """Any degree; a number of replicas that is a power of two times 1 or 3; any options."""
    most = max(1, machines * 8)
    choices = [r for r in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128) if r <= most]
    options = drawn_evenly(space.scope, rng)
    return Grid(int(rng.choice(space.degrees)), int(rng.choice(choices)), bool(rng.random() < 0.5), options)


def vary_grid(space: JobSpace, rng: np.random.Generator, grid: Grid, machines: int) -> Grid:
    """One part of a grid changed."""
    fresh = random_grid(space, rng, machines)
    parts = (
        replace(grid, degree=fresh.degree),
        replace(grid, replicas=fresh.replicas),
        replace(grid, replicas=max(1, grid.replicas + int(rng.choice([-1, 1])))),
        replace(grid, striped=not grid.striped),
        *(replace(grid, options=replace(grid.options, **{name: getattr(fresh.options, name)})) for name in COLUMN),
        fresh,
    )
    return parts[int(rng.integers(len(parts)))]
