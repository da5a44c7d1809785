"""Evolutionary search of the DT-FM kind: a population of genomes, crossover, mutations and local swaps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from hulk.cost.compute import ComputeModel
from hulk.cost.engine import Engine
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.search.baselines.genome import IDLE, Genome, genome_cost, random_genome, skeleton_of, vary_grid
from hulk.search.baselines.groups import settle, side_by_side
from hulk.search.baselines.result import BaselineResult
from hulk.search.baselines.scene import Scene
from hulk.search.shape.arrange import Found, tour, tune

EVALUATIONS = 5_000
_POPULATION = 40
_TOURNAMENT = 3
_TUNE_EVERY = 500
_PATIENCE = 1_500


def evolution(
    cluster: Cluster,
    jobs: Iterable[Job],
    *,
    compute: ComputeModel,
    engine: Engine,
    seed: int,
    time_limit: float,
    evaluations: int | None = EVALUATIONS,
) -> BaselineResult:
    """`evaluations` genomes are priced, or as many as the time allows where it is None. The options of the best are
    tuned now and then, and in the end."""
    scene = Scene.of(cluster, jobs, compute=compute, engine=engine, time_limit=time_limit)
    rng = np.random.default_rng(seed)
    people = [random_genome(scene, rng) for _ in range(_POPULATION)]
    costs = [genome_cost(scene, genome) for genome in people]
    done, since = len(people), 0
    while (evaluations is None or done < evaluations) and not scene.over:
        child = _child(scene, rng, people, costs)
        cost = genome_cost(scene, child)
        done += 1
        worst = int(np.argmax(costs))
        since = 0 if cost < min(costs) else since + 1
        if cost < costs[worst] and child not in people:
            people[worst], costs[worst] = child, cost
        if since > _PATIENCE:  # all of one family by now: the best goes on with strangers
            best = int(np.argmin(costs))
            people = [people[best], *(random_genome(scene, rng) for _ in range(_POPULATION - 1))]
            costs = [genome_cost(scene, genome) for genome in people]
            done, since = done + len(people), 0
        if done % _TUNE_EVERY == 0:
            best = int(np.argmin(costs))
            people[best] = tuned_genome(scene, people[best])
            costs[best] = genome_cost(scene, people[best])
    return replace(finish("evolution", scene, people[int(np.argmin(costs))]), hurried=scene.over)


def random_best(
    cluster: Cluster,
    jobs: Iterable[Job],
    *,
    compute: ComputeModel,
    engine: Engine,
    seed: int,
    time_limit: float,
    evaluations: int | None = EVALUATIONS,
) -> BaselineResult:
    """The best of `evaluations` random genomes (None: of as many as the time allows), tuned in the end."""
    scene = Scene.of(cluster, jobs, compute=compute, engine=engine, time_limit=time_limit)
    rng = np.random.default_rng(seed)
    best = random_genome(scene, rng)
    least, done = genome_cost(scene, best), 1
    while (evaluations is None or done < evaluations) and not scene.over:
        genome = random_genome(scene, rng)
        cost = genome_cost(scene, genome)
        done += 1
        if cost < least:
            best, least = genome, cost
    return replace(finish("random", scene, best), hurried=scene.over)


def finish(name: str, scene: Scene, genome: Genome) -> BaselineResult:
    """A genome's result. A job whose grid does not fit gets the planner's own shapes before it waits."""
    known: dict[int, Found] = {}
    tuned = tuned_genome(scene, genome)
    for j in scene.runnable:
        space = scene.spaces[j]
        skeleton = skeleton_of(space, tuned.group(j), tuned.grids[j])
        found = (skeleton, space.result(skeleton)) if skeleton is not None else None
        found = found if found is not None and found[1].runs else None
        found = found or settle(scene, space, frozenset(tuned.group(j)))
        if found is not None:
            known[j] = found
    groups = tuple(frozenset(tuned.group(j)) for j in range(len(scene.jobs)))
    return side_by_side(name, scene, groups, known)[0]


def tuned_genome(scene: Scene, genome: Genome) -> Genome:
    """The same grids with their options tuned."""
    grids = list(genome.grids)
    for j in scene.runnable:
        space = scene.spaces[j]
        skeleton = skeleton_of(space, genome.group(j), grids[j])
        if skeleton is None:
            continue
        better, result = tune(space, skeleton)
        if result.runs and len(better.chains) <= space.job.global_batch // better.options.microbatch_size:
            grids[j] = replace(grids[j], options=better.options)
    return replace(genome, grids=tuple(grids))


def _child(scene: Scene, rng: np.random.Generator, people: list[Genome], costs: list[float]) -> Genome:
    first, second = (_fittest(rng, costs) for _ in range(2))
    child = _crossed(scene, rng, people[first], people[second]) if rng.random() < 0.5 else people[first]
    for _ in range(1 + int(rng.integers(3))):
        child = _mutated(scene, rng, child)
    return child


def _fittest(rng: np.random.Generator, costs: list[float]) -> int:
    drawn = rng.integers(len(costs), size=_TOURNAMENT)
    return int(min(drawn, key=lambda i: costs[i]))


def _crossed(scene: Scene, rng: np.random.Generator, a: Genome, b: Genome) -> Genome:
    """Region by region from one parent or the other; each job's grid from one of them; the order from the first."""
    from_b = {region.name for region in scene.cluster.regions if rng.random() < 0.5}
    machines = scene.cluster.machines
    owner = tuple(b.owner[m] if machines[m].region in from_b else a.owner[m] for m in range(len(machines)))
    grids = tuple(y if rng.random() < 0.5 else x for x, y in zip(a.grids, b.grids, strict=True))
    return Genome(owner, a.order, grids)


def _mutated(scene: Scene, rng: np.random.Generator, genome: Genome) -> Genome:
    """One change: of a grid, of a machine's owner, of two machines' owners or places, of a region, or of the order."""
    kind = int(rng.integers(8))
    owner, order = list(genome.owner), list(genome.order)
    takers, count = (*scene.runnable, IDLE), len(owner)
    a, b = int(rng.integers(count)), int(rng.integers(count))
    if kind <= 2:
        j = int(rng.integers(len(scene.jobs)))
        grids = list(genome.grids)
        grids[j] = vary_grid(scene.spaces[j], rng, grids[j], owner.count(j))
        return replace(genome, grids=tuple(grids))
    if kind == 3:
        owner[a] = int(rng.choice(takers))
    elif kind == 4:
        owner[a], owner[b] = owner[b], owner[a]
    elif kind == 5:
        i, k = order.index(a), order.index(b)
        order[i], order[k] = order[k], order[i]
    elif kind == 6:
        taker, region = int(rng.choice(takers)), scene.cluster.machines[a].region
        owner = [taker if m.region == region else own for m, own in zip(scene.cluster.machines, owner, strict=True)]
    else:
        space = scene.spaces[max(0, owner[a])]
        order = tour(space, range(count), space.places.of_machine[a])
    return Genome(tuple(owner), tuple(order), genome.grids)
