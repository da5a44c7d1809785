"""METIS: the machine graph cut into one part a job, parts as unequal as the jobs, few near pairs torn apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from hulk.cost.compute import ComputeModel
from hulk.cost.engine import Engine
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.errors import HulkError
from hulk.search.baselines.groups import EXPONENTS, Best, Groups, largest_first, repair, shares, side_by_side
from hulk.search.baselines.result import BaselineResult
from hulk.search.baselines.scene import Scene
from hulk.search.skeleton import Settings

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
            groups = _partition(scene, shares(scene.jobs, exponent), seed=seed + round_number)
            if groups in seen:
                continue
            seen.add(groups)
            best.offer(*side_by_side("metis", scene, repair(scene, groups)))
            if scene.over:
                break
        if scene.over:
            break
    assert best.result is not None
    return best.result


def _partition(scene: Scene, part: Sequence[float], *, seed: int) -> Groups:
    """One METIS call. Machines weigh by compute; machines that cannot talk have no edge."""
    try:
        import pymetis
    except ImportError:
        raise HulkError("the METIS baseline needs pymetis: pip install pymetis") from None
    count = len(scene.cluster.machines)
    if len(part) == 1 or count == 1:
        owners = np.zeros(count, int)
        owners[:] = largest_first(scene.jobs)[0]
    else:
        power = np.array([scene.power(scene.jobs[0], machine) for machine in range(count)])
        starts, ends, weights = _edges(scene)
        _, found = pymetis.part_graph(
            len(part),
            xadj=starts,
            adjncy=ends,
            vweights=np.maximum(1, (power / power.max() * 1000)).astype(int).tolist(),
            eweights=weights,
            tpwgts=[float(p) for p in part],
            recursive=True,
            options=pymetis.Options(seed=seed),
        )
        owners = np.array(found)
    return tuple(frozenset(int(m) for m in np.flatnonzero(owners == j)) for j in range(len(part)))


def _edges(scene: Scene) -> tuple[list[int], list[int], list[int]]:
    """The graph as METIS wants it: neighbours of machine i are ends[starts[i]:starts[i + 1]]."""
    space = scene.spaces[0]
    rows = np.array(space.places.of_machine)
    tables = space.tables(_any_settings(scene))
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


def _any_settings(scene: Scene) -> Settings:
    """Links are the same in the tables of all settings."""
    return Settings(scene.spaces[0].microbatches[0])
