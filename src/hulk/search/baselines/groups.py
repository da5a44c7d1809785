"""Machines dealt out to jobs: how much a job should get, the best it can make of a group, and repair of a bad deal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf

from hulk.domain.job import Job
from hulk.search.assignment.ways import state_bytes
from hulk.search.baselines.result import BaselineResult
from hulk.search.baselines.scene import Scene
from hulk.search.job_space import JobSpace
from hulk.search.objective import job_cost, time_cost
from hulk.search.shape.arrange import Found

Groups = tuple[frozenset[int], ...]
"""The machines of each job, in the order of the jobs; no machine twice."""

_MOST_PLACES_TO_DROP = 24
_REPAIR_STARTS = 8
_REPAIR_SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
EXPONENTS = (1.0, 0.5)
"""Of a job's work in its share: 1 lets all jobs end a step together, ½ makes the sum of their step times least."""


def shares(scene: Scene, exponent: float) -> list[float]:
    """Each job's part of the cluster: its weighted FLOPs to the power `exponent`; 0 where it cannot run at all."""
    known = scene.shares.get(exponent)
    if known is not None:
        return known
    work = [0.0 if scene.obstacle(space) else time_cost(space.job, _work(space.job)) for space in scene.spaces]
    powers = [amount**exponent if amount else 0.0 for amount in work]
    scene.shares[exponent] = [amount / (sum(powers) or 1.0) for amount in powers]
    return scene.shares[exponent]


def _work(job: Job) -> float:
    """FLOPs of a step; never 0, so that every job that can run gets something."""
    return max(1.0, job.model.flops_per_sample * job.global_batch)


def largest_first(scene: Scene) -> list[int]:
    """The jobs' numbers from large to small."""
    return sorted(range(len(scene.jobs)), key=lambda j: (-state_bytes(scene.spaces[j]), j))


def by_nearness(scene: Scene, space: JobSpace, start: int, machines: Sequence[int]) -> list[int]:
    """The machines in the order of their latency from a place, the stronger first among equals."""
    row, latency = space.places.of_machine, scene.latency[start]
    return sorted(machines, key=lambda m: (latency[row[m]], -scene.power(space.job, m), m))


def settle(scene: Scene, space: JobSpace, group: frozenset[int]) -> Found | None:
    """The best the job makes of a group: all of it, those that all reach each other, or the group grown region by
    region from its strongest one; where none of these fits, those that reach each other without the smallest GPUs. Then
    places are left out one by one while that helps. None where nothing fits."""
    usable = sorted(group & space.allowed)
    if not usable:
        return None
    best: Found | None = None
    chosen: list[int] = []
    for machines in _parts(scene, space, usable):
        found = scene.arranged(space, machines)
        if found is not None and (best is None or found[1] < best[1]):
            best, chosen = found, machines
        if scene.over and best is not None:
            return best
    if best is None:
        best = scene.most_that_fit(space, scene.reachable(space, usable))
        if best is None:
            return None
        chosen = sorted(best[0].machines)
    rows = sorted({space.places.of_machine[m] for m in chosen}, key=lambda r: scene.power(space.job, _first(space, r)))
    for row in rows if len(rows) <= _MOST_PLACES_TO_DROP else []:
        fewer = [machine for machine in chosen if space.places.of_machine[machine] != row]
        if not fewer or scene.over:
            break
        found = scene.arranged(space, fewer)
        if found is not None and found[1] < best[1]:
            best, chosen = found, fewer
    return best


def _first(space: JobSpace, row: int) -> int:
    return space.places.of_machine.index(row)


def _parts(scene: Scene, space: JobSpace, usable: list[int]) -> Iterator[list[int]]:
    yield usable
    joined = scene.reachable(space, usable)
    if len(joined) < len(usable):
        yield joined
    regions: dict[str, list[int]] = {}
    for machine in usable:
        regions.setdefault(scene.cluster.machines[machine].region, []).append(machine)
    strongest = max(regions.values(), key=lambda own: sum(scene.power(space.job, machine) for machine in own))
    start = space.places.of_machine[strongest[0]]
    order = sorted(regions.values(), key=lambda own: (own is not strongest, scene.latency[start][_row(space, own)]))
    grown: list[int] = []
    for own in order[:-1]:
        grown = grown + own
        yield grown


def _row(space: JobSpace, machines: Sequence[int]) -> int:
    return space.places.of_machine[machines[0]]


def cost(scene: Scene, groups: Groups) -> float:
    """The default objective of a deal, by a quick look at each group."""
    found = [scene.arranged(space, group, quick=True) for space, group in zip(scene.spaces, groups, strict=True)]
    return sum(job_cost(job, None if f is None else f[1].seconds) for job, f in zip(scene.jobs, found, strict=True))


def repair(scene: Scene, groups: Groups) -> Groups:
    """Every job that fits nowhere in its group takes the nearest few machines that hold it, from the idle ones and from
    jobs that still fit without them, at the place where the deal as a whole is best. Small jobs first."""
    for j in reversed(largest_first(scene)):
        space = scene.spaces[j]
        if scene.obstacle(space):
            groups = tuple(frozenset() if i == j else group for i, group in enumerate(groups))
        elif scene.arranged(space, groups[j], quick=True) is None and settle(scene, space, groups[j]) is None:
            groups = min(_taken(scene, j, groups), key=lambda deal: cost(scene, deal), default=groups)
        if scene.over:
            break
    return groups


def _taken(scene: Scene, j: int, groups: Groups) -> Iterator[Groups]:
    space = scene.spaces[j]
    allowed = sorted(space.allowed)
    rows = sorted(
        {space.places.of_machine[machine] for machine in allowed},
        key=lambda row: -sum(scene.room([m]) for m in allowed if space.places.of_machine[m] == row),
    )
    for row in rows[:_REPAIR_STARTS]:
        near = by_nearness(scene, space, row, allowed)
        for size in _REPAIR_SIZES:
            mine = groups[j] | set(near[:size])
            if size > len(near) or scene.over:
                break
            if scene.arranged(space, mine, quick=True) is None:
                continue
            deal = tuple(mine if i == j else group - mine for i, group in enumerate(groups))
            lost = [
                i for i in range(len(deal)) if i != j and deal[i] != groups[i] and not _keeps(scene, i, deal, groups)
            ]
            if not lost:
                yield deal
            break


def _keeps(scene: Scene, i: int, deal: Groups, before: Groups) -> bool:
    """Whether a donor still fits, or did not before."""
    space = scene.spaces[i]
    if scene.arranged(space, deal[i], quick=True) is not None:
        return True
    return scene.arranged(space, before[i], quick=True) is None


def side_by_side(
    name: str, scene: Scene, groups: Groups, known: Mapping[int, Found] | None = None
) -> tuple[BaselineResult, float]:
    """The result of a deal and its objective. `known`: what was found already, in place of settling each group."""
    placed, waiting = {}, {}
    total = 0.0
    for j, (space, group) in enumerate(zip(scene.spaces, groups, strict=True)):
        job = space.job
        found = settle(scene, space, group) if known is None else known.get(j)
        if found is None:
            waiting[job.name] = scene.obstacle(space) or "no machines that the other jobs leave can hold it"
            total += job_cost(job, None)
            continue
        placed[job.name] = scene.placement(space, found[0])
        total += job_cost(job, placed[job.name].seconds)
    return BaselineResult(name, concurrent=True, placed=placed, waiting=waiting), total


class Best:
    """Keeps the better of several results."""

    def __init__(self) -> None:
        self.result: BaselineResult | None = None
        self._least = inf

    def offer(self, result: BaselineResult, total: float) -> None:
        """Take it where it is better."""
        if self.result is None or total < self._least:
            self.result, self._least = result, total
