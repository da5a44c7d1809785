"""System B: one GPipe pipeline over all machines, in file order or in the order of a greedy tour."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from hulk.cost.compute import ComputeModel
from hulk.cost.engine import Engine
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.plan import Recompute
from hulk.search.baselines.result import BaselineResult, Placement
from hulk.search.baselines.scene import Found, Scene, best_settings, one_after_the_other, tours
from hulk.search.evaluate import JobSpace
from hulk.search.seeds import slots_of
from hulk.search.skeleton import Chain, Settings

_LOOKAHEAD = (0, 2, 8, 32)
NO_ROOM = (
    "GPipe holds the activations of the whole batch, which does not fit at any microbatch: priced with 1F1B instead"
)


def gpipe_in_file_order(
    cluster: Cluster, jobs: Iterable[Job], *, compute: ComputeModel, engine: Engine, seed: int, time_limit: float
) -> BaselineResult:
    """The machines stand in the order in which the cluster file names them. Jobs one after the other."""
    del seed  # nothing is drawn
    scene = Scene.of(cluster, jobs, compute=compute, engine=engine, time_limit=time_limit)
    return _result("B", scene, toured=False)


def gpipe_on_a_tour(
    cluster: Cluster, jobs: Iterable[Job], *, compute: ComputeModel, engine: Engine, seed: int, time_limit: float
) -> BaselineResult:
    """The machines stand in the order of a tour to the nearest next, from the best start. Jobs one after the other."""
    del seed  # nothing is drawn
    scene = Scene.of(cluster, jobs, compute=compute, engine=engine, time_limit=time_limit)
    return _result("B-tour", scene, toured=True)


def _result(name: str, scene: Scene, *, toured: bool) -> BaselineResult:
    notes: dict[str, str] = {}

    def place(space: JobSpace) -> Placement | str:
        machines = _as_many_as_layers(scene, space)
        orders = tours(space, machines) if toured else [machines]
        chains = [chain for order in orders for chain in _chains(space, order)]
        whole = [Settings(b, gpipe=True, recompute=r) for b in space.microbatches for r in Recompute]
        found = _best(space, chains, whole)
        if found is None:
            ahead = [
                Settings(b, extra=extra, recompute=r)
                for b in space.microbatches for r in Recompute for extra in _LOOKAHEAD
            ]  # fmt: skip
            found = _best(space, chains, ahead)
            if found is None:
                return _reason(scene, orders)
            notes[space.job.name] = NO_ROOM
        return scene.placement(space, found[0])

    result = one_after_the_other(name, scene, place)
    return BaselineResult(name, concurrent=False, placed=result.placed, waiting=result.waiting, notes=notes)


def _as_many_as_layers(scene: Scene, space: JobSpace) -> list[int]:
    """All machines the job may use, in file order; where the model has fewer layers, the fastest ones."""
    layers = len(space.job.model.layers)
    fastest = sorted(space.allowed, key=lambda machine: (-scene.power(space.job, machine), machine))
    return sorted(fastest[:layers])


def _chains(space: JobSpace, order: Sequence[int]) -> Iterator[Chain]:
    """A stage a machine, tensor parallel inside; and, where there are layers enough, several stages a machine."""
    layers = len(space.job.model.layers)
    for degree in space.degrees:
        cut = [slots_of(space, machine, degree) for machine in order]
        yield tuple(slots[0] for slots in cut)
        if sum(map(len, cut)) <= layers:
            yield tuple(slot for slots in cut for slot in slots)


def _best(space: JobSpace, chains: Iterable[Chain], options: Sequence[Settings]) -> Found | None:
    best: Found | None = None
    for chain in dict.fromkeys(chains):
        found = best_settings(space, (chain,), options)
        if found is not None and (best is None or found[1] < best[1]):
            best = found
    return best


def _reason(scene: Scene, orders: Sequence[Sequence[int]]) -> str:
    """Why no order works: a hop that is blocked, or memory."""
    names = scene.cluster.machines
    of_machine = scene.spaces[0].places.of_machine
    hops = [
        next(((a, b) for a, b in pairwise(order) if np.isinf(scene.latency[of_machine[a], of_machine[b]])), None)
        for order in orders
    ]
    blocked = [hop for hop in hops if hop is not None]
    if len(blocked) == len(orders):
        a, b = blocked[0]
        return f"{names[a].name} and {names[b].name} are neighbours, but the link between them is blocked"
    return "a stage does not fit into memory on some machine (every machine must hold a layer), or a link is blocked"
