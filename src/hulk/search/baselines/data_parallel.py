"""System A: data parallel over all machines that can hold the model; the others are dropped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from hulk.cost.compute import ComputeModel
from hulk.cost.engine import Engine
from hulk.cost.step import stage_memory
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.options import COLUMN, SPACE, Options, Recompute, Sync
from hulk.search.baselines.result import BaselineResult, Placement
from hulk.search.baselines.scene import Scene, best_options, one_after_the_other, recomputes
from hulk.search.job_space import JobSpace
from hulk.search.shape.arrange import Found, slots_of, tour, tune
from hulk.search.skeleton import Slot


def data_parallel(
    cluster: Cluster, jobs: Iterable[Job], *, compute: ComputeModel, engine: Engine, seed: int, time_limit: float
) -> BaselineResult:
    """A replica is a GPU, or several of one machine with tensor parallel, up to the whole machine. The best degree
    wins, with the best microbatch, recomputation, sync and sharding of the optimizer. Jobs one after the other."""
    del seed  # nothing is drawn
    scene = Scene.of(cluster, jobs, compute=compute, engine=engine, time_limit=time_limit)
    return one_after_the_other("A", scene, lambda space, notes: _place(scene, space, notes))


def _place(scene: Scene, space: JobSpace, notes: dict[str, str]) -> Placement | str:
    best: Found | None = None
    for replicas in _candidates(scene, space):
        found = _tuned(space, replicas)
        if found is not None and (best is None or found[1] < best[1]):
            best = found
    if best is None:
        rules = " where the rules of its `place` let all layers be" if space.job.place else ""
        return f"no machine can hold the whole model{rules}"
    dropped = len(space.allowed) - len(best[0].machines)
    if dropped:
        notes[space.job.name] = f"{dropped} of {len(space.allowed)} machines are dropped"
    return scene.placement(space, best[0])


def _candidates(scene: Scene, space: JobSpace) -> Iterator[list[Slot]]:
    """Sets of replicas: at each degree those that hold the model, and on each machine the least degree that does; with
    the optimizer's state on every replica and divided over all of them."""
    seen: set[tuple[Slot, ...]] = set()
    machines = scene.holding_all(space)
    for sharded in (False, True):
        by_degree = [
            _holding(space, [s for m in machines for s in slots_of(space, m, t)], sharded) for t in space.degrees
        ]
        least: dict[int, list[Slot]] = {}
        for replicas in by_degree:
            for machine in {slot.machine for slot in replicas} - least.keys():
                least[machine] = [slot for slot in replicas if slot.machine == machine]
        for replicas in (*by_degree, [slot for own in least.values() for slot in own]):
            usable = set(scene.reachable(space, sorted({slot.machine for slot in replicas})))
            kept = _most(scene, space, [slot for slot in replicas if slot.machine in usable])
            if kept and tuple(kept) not in seen:
                seen.add(tuple(kept))
                yield kept


def _holding(space: JobSpace, slots: Sequence[Slot], sharded: bool) -> list[Slot]:
    """The slots that hold the model at the smallest microbatch with recomputation. Where the optimizer's state is
    divided over the replicas, fewer replicas hold larger parts, so ask until all that are left hold theirs."""
    tables = space.tables(replace(space.plainest, recompute=Recompute.FULL))
    last = len(space.job.model.layers) - 1
    left = list(slots)
    while True:
        shards = max(1, len(left)) if sharded else 1
        need = {t: stage_memory(tables, 0, last, t, 1, False, shards)[0] for t in {slot.ranks for slot in left}}
        capacity = tables.capacity
        kept = [s for s in left if need[s.ranks] <= capacity[space.places.of_machine[s.machine]]]
        if len(kept) == len(left) or not sharded:
            return kept
        left = kept


def _most(scene: Scene, space: JobSpace, replicas: Sequence[Slot]) -> list[Slot]:
    """In tour order; where the batch has fewer sequences than there are replicas, the fastest ones."""
    if not replicas:
        return []

    def speed(slot: Slot) -> float:
        return scene.power(space.job, slot.machine) / scene.cluster.machines[slot.machine].gpus * slot.ranks

    order = {machine: i for i, machine in enumerate(tour(space, sorted({slot.machine for slot in replicas})))}
    fastest = sorted(replicas, key=lambda slot: (-speed(slot), order[slot.machine]))[: space.job.global_batch]
    return sorted(fastest, key=lambda slot: order[slot.machine])


def _tuned(space: JobSpace, replicas: Sequence[Slot]) -> Found | None:
    """The best options for these replicas; None where they do not fit at any."""
    chains = tuple((slot,) for slot in replicas)
    options = [
        Options(microbatch, recompute=recompute, sync=sync, sharding=sharding, sequence_parallel=space.splits_sequences)
        for microbatch in space.microbatches
        for recompute in recomputes(space)
        for sync in Sync
        for sharding in SPACE[COLUMN["sharding"]].possible(space.scope)
        if microbatch * len(chains) <= space.job.global_batch
    ]
    found = best_options(space, chains, options)
    return None if found is None else tune(space, found[0])
