"""METIS: the machine graph cut into one part a job, parts as unequal as the jobs, few near pairs torn apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from hulk.cost.compute import ComputeModel
from hulk.cost.engine import Engine
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.errors import HulkError
from hulk.search.baselines.groups import EXPONENTS, Best, Groups, largest_first, repair, shares, side_by_side
from hulk.search.baselines.result import BaselineResult
from hulk.search.baselines.scene import Scene

_REFERENCE_BYTES = 1e6
"""Edges weigh by the time of a message of this size: latency and bandwidth both count."""
_HEAVIEST = 10_000
_MOST_ROUNDS = 16


def metis(
    cluster: Cluster, jobs: Iterable[Job], *, compute: ComputeModel, engine: Engine, seed: int, time_limit: float
) -> BaselineResult:
    """Partitions with METIS under several seeds and two rules for shares, each repaired so that no job that fits
    somewhere is left without machines; the best by price. Raises HulkError where pymetis is not installed."""
    scene = Scene.of(cluster, jobs, compute=compute, engine=engine, time_limit=time_limit)
    best = Best()
    seen: set[Groups] = set()
    for round_number in range(_MOST_ROUNDS):
        for exponent in EXPONENTS:
            groups = _partition(scene, shares(scene, exponent), seed=seed + round_number)
            if groups not in seen:
                seen.add(groups)
                best.offer(*side_by_side("metis", scene, repair(scene, groups)))
            if scene.over:
                break
        if scene.over:
            break
    assert best.result is not None
    return replace(best.result, hurried=scene.over)


def _partition(scene: Scene, part: Sequence[float], *, seed: int) -> Groups:
    """Recursive bisection as METIS itself does it, one call a cut: its own recursion prints to stdout where a part is
    lighter than any machine."""
    groups: list[frozenset[int]] = [frozenset()] * len(part)
    everyone = [j for j in largest_first(scene) if part[j] > 0]
    todo = [(everyone, list(range(len(scene.cluster.machines))))] if everyone else []
    while todo:
        jobs, machines = todo.pop()
        if len(jobs) == 1 or len(machines) <= 1:
            groups[jobs[0]] = frozenset(machines)
            continue
        sides = _halves(jobs, part)
        first = sum(part[j] for j in sides[0]) / sum(part[j] for j in jobs)
        owners = _bisected(scene, machines, first, seed)
        for side in (0, 1):
            todo.append((sides[side], [m for m, owner in zip(machines, owners, strict=True) if owner == side]))
    return tuple(groups)


def _halves(jobs: Sequence[int], part: Sequence[float]) -> tuple[list[int], list[int]]:
    """Two sets of jobs with about as much to get, filled from large to small."""
    sides: tuple[list[int], list[int]] = ([], [])
    for j in sorted(jobs, key=lambda j: -part[j]):
        min(sides, key=lambda side: sum(part[i] for i in side)).append(j)
    return sides


def _bisected(scene: Scene, machines: Sequence[int], first: float, seed: int) -> list[int]:
    """One METIS call: 0 or 1 for each machine. Machines weigh by compute; machines that cannot talk have no edge."""
    try:
        import pymetis
    except ImportError:
        raise HulkError("the METIS baseline needs pymetis: pip install pymetis") from None
    power = np.array([scene.power(scene.jobs[0], machine) for machine in machines])
    starts, ends, weights = _edges(scene, machines)
    if not ends:
        return [0 if i < first * len(machines) else 1 for i in range(len(machines))]
    _, owners = pymetis.part_graph(
        2,
        pymetis.CSRAdjacency(starts, ends),
        vweights=np.maximum(1, power / power.max() * 1000).astype(int).tolist(),
        eweights=weights,
        tpwgts=[first, 1 - first],
        options=pymetis.Options(seed=seed),
    )
    return list(owners)


def _edges(scene: Scene, machines: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """The graph as METIS wants it: neighbours of machine i are ends[starts[i]:starts[i + 1]]."""
    space = scene.spaces[0]
    rows = np.array(space.places.of_machine)[list(machines)]
    tables = space.tables(space.plainest)
    seconds = tables.latency + _REFERENCE_BYTES / np.minimum(tables.bandwidth, tables.ceiling)
    nearness = 1.0 / seconds
    scale = _HEAVIEST / nearness.max()
    starts, ends, weights = [0], [], []
    for i in range(len(rows)):
        near = np.maximum(1, nearness[rows[i], rows] * scale).astype(int)
        usable = np.isfinite(seconds[rows[i], rows])
        usable[i] = False
        ends.extend(np.flatnonzero(usable).tolist())
        weights.extend(near[usable].tolist())
        starts.append(len(ends))
    return starts, ends, weights
