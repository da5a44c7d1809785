"""System B: one GPipe pipeline over all machines, in file order or in the order of a greedy tour."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, product

import numpy as np

from hulk.cost.compute import ComputeModel
from hulk.cost.engine import Engine
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.options import GPIPE, Options, Schedule
from hulk.search.baselines.result import BaselineResult, Placement
from hulk.search.baselines.scene import Scene, best_options, one_after_the_other, recomputes, tours
from hulk.search.job_space import JobSpace
from hulk.search.shape.arrange import Found, in_order, slots_of
from hulk.search.skeleton import Chain

_LOOKAHEAD = (0, 2, 8, 32)
NO_ROOM = "GPipe holds the activations of the whole batch, which does not fit at any microbatch: 1F1B instead"


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
    def place(space: JobSpace, notes: dict[str, str]) -> Placement | str:
        for machines in scene.by_memory(space.allowed):
            fastest = _as_many_as_layers(scene, space, machines)
            orders = tours(space, fastest) if toured else [fastest]
            if all(_blocked_hop(scene, order) for order in orders):
                break
            chains = [chain for order in orders for own in _chains(space, order) for chain in in_order(space, (own,))]
            found, note = _best(space, chains)
            if found is None:
                continue
            dropped = len(space.allowed) - len(machines)
            smallest = f"{dropped} machines whose GPUs are too small for a layer are dropped" if dropped else ""
            if note or smallest:
                notes[space.job.name] = "; ".join(filter(None, (note, smallest)))
            return scene.placement(space, found[0])
        hop = _blocked_hop(scene, orders[0])
        if hop:
            return f"the link between the neighbours {hop} is blocked"
        rules = " in an order that the rules of its `place` allow" if space.job.place else ""
        return f"a stage does not fit on any choice{rules}"

    return one_after_the_other(name, scene, place)


def _as_many_as_layers(scene: Scene, space: JobSpace, machines: Sequence[int]) -> list[int]:
    """The machines, in file order; where the model has fewer layers, the fastest ones."""
    layers = len(space.job.model.layers)
    fastest = sorted(machines, key=lambda machine: (-scene.power(space.job, machine), machine))
    return sorted(fastest[:layers])


def _chains(space: JobSpace, order: Sequence[int]) -> Iterator[Chain]:
    """A stage a machine, tensor parallel inside; and, where there are layers enough, several stages a machine."""
    layers = len(space.job.model.layers)
    for degree in space.degrees:
        cut = [slots_of(space, machine, degree) for machine in order]
        yield tuple(slots[0] for slots in cut)
        if sum(map(len, cut)) <= layers:
            yield tuple(slot for slots in cut for slot in slots)


def _best(space: JobSpace, chains: Iterable[Chain]) -> tuple[Found | None, str]:
    """The best chain with the best options, and a note: GPipe where it fits at all, else 1F1B."""
    chains = list(dict.fromkeys(chains))
    sizes = list(product(space.microbatches, recomputes(space)))
    gpipe = [Options(b, GPIPE, r) for b, r in sizes]
    ahead = [Options(b, Schedule.ahead(e), r) for b, r in sizes for e in _LOOKAHEAD]
    for options, note in ((gpipe, ""), (ahead, NO_ROOM)):
        found = [best_options(space, (chain,), options) for chain in chains]
        fitting = [entry for entry in found if entry is not None]
        if fitting:
            return min(fitting, key=lambda entry: entry[1]), note
    return None, ""


def _blocked_hop(scene: Scene, order: Sequence[int]) -> str:
    """The first hop of an order that is blocked, in words; empty where none is."""
    row, machines = scene.spaces[0].places.of_machine, scene.cluster.machines
    for a, b in pairwise(order):
        if np.isinf(scene.latency[row[a], row[b]]):
            return f"{machines[a].name} and {machines[b].name}"
    return ""
