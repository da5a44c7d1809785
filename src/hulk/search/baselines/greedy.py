"""Greedy by region: jobs from large to small, each takes whole regions, nearest first, until it has its share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import product

from hulk.cost.compute import ComputeModel
from hulk.cost.engine import Engine
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.search.assignment.ways import state_bytes
from hulk.search.baselines.groups import (
    EXPONENTS,
    Best,
    Groups,
    largest_first,
    repair,
    shares,
    side_by_side,
)
from hulk.search.baselines.result import BaselineResult
from hulk.search.baselines.scene import Scene
from hulk.search.job_space import JobSpace

_STARTS = 3


def greedy_by_region(
    cluster: Cluster, jobs: Iterable[Job], *, compute: ComputeModel, engine: Engine, seed: int, time_limit: float
) -> BaselineResult:
    """Whole regions until memory suffices and the share of compute is reached; and again with the last region cut,
    since a cluster may have fewer regions than jobs; each with two rules for shares. The best of the four counts."""
    del seed  # nothing is drawn
    scene = Scene.of(cluster, jobs, compute=compute, engine=engine, time_limit=time_limit)
    best = Best()
    for exponent, whole in product(EXPONENTS, (True, False)):
        groups = repair(scene, _deal(scene, exponent, whole=whole))
        best.offer(*side_by_side("greedy", scene, groups))
        if scene.over:
            break
    assert best.result is not None
    return replace(best.result, hurried=scene.over)


def _deal(scene: Scene, exponent: float, *, whole: bool) -> Groups:
    free = set(range(len(scene.cluster.machines)))
    part = shares(scene, exponent)
    groups: list[frozenset[int]] = [frozenset()] * len(scene.jobs)
    for j in largest_first(scene):
        space = scene.spaces[j]
        if not part[j]:
            continue
        wanted = part[j] * sum(scene.power(space.job, machine) for machine in range(len(scene.cluster.machines)))
        regions: dict[str, list[int]] = {}
        for machine in sorted(free & space.allowed):
            regions.setdefault(scene.cluster.machines[machine].region, []).append(machine)
        strongest = sorted(regions, key=lambda r: -sum(scene.power(space.job, machine) for machine in regions[r]))
        tries = [_grow(scene, space, regions, start, wanted, whole=whole) for start in strongest[:_STARTS]]
        priced = [(scene.arranged(space, group, quick=True), group) for group in tries]
        fitting = [(found[1], group) for found, group in priced if found is not None]
        if fitting:
            groups[j] = min(fitting, key=lambda entry: entry[0])[1]
        elif tries:
            groups[j] = tries[0]
        free -= groups[j]
    return tuple(groups)


def _grow(
    scene: Scene, space: JobSpace, regions: dict[str, list[int]], start: str, wanted: float, *, whole: bool
) -> frozenset[int]:
    """From one region on to the nearest, until power and memory suffice and the job fits."""
    row = space.places.of_machine
    latency = scene.latency[row[regions[start][0]]]
    order = sorted(regions, key=lambda name: (name != start, latency[row[regions[name][0]]]))
    need = state_bytes(space)
    group: list[int] = []
    for name in order:
        own = sorted(regions[name], key=lambda machine: -scene.power(space.job, machine))
        for step in [own] if whole else [[machine] for machine in own]:
            group = group + step
            power = sum(scene.power(space.job, machine) for machine in group)
            enough = power >= wanted and scene.room(group) >= need
            if enough and scene.arranged(space, group, quick=True) is not None:
                return frozenset(group)
    return frozenset(group)
