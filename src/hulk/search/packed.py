"""The tables of several jobs in flat arrays, so that one compiled function can price any of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hulk.cost.arrays import Rules, Tables
from hulk.cost.compiled import kernel
from hulk.domain.plan import Recompute
from hulk.search.assign import machine_rates, state_bytes
from hulk.search.evaluate import JobSpace
from hulk.search.objective import job_cost, time_cost
from hulk.search.path import positions
from hulk.search.skeleton import Settings

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Microbatch sizes that are tried while machines change hands; the others are tried when shapes are polished.
_SIZES = (1, 2, 4, 8, 16, 32)
_PER_KIND = ("forward", "backward")
_FLAT = ("split", "whole", "tied", "held_split", "held_whole", "peak_split", "peak_whole", "cut")
_OF_KIND = ("update", "gather_fixed", "gather_rate")


class Packed(NamedTuple):
    """J jobs, V variants (microbatch size × recomputation), M machines, P places."""

    floats: Floats  # all tables of all jobs, one after the other
    ints: Ints
    where: Ints  # [J, V, 14] where each table begins in `floats`, then in `ints`
    layers: Ints  # [J]
    kinds: Ints  # [J]
    scalars: Floats  # [J, 5] bytes a parameter: state, optimizer, gradient, gradient on the wire; parameters shared
    sizes: Ints  # [J, S] microbatch sizes, ascending; 0 where a job has fewer
    batch: Ints  # [J] samples of a step
    kind: Ints  # [J, P, most ranks + 1] kind of stage
    degree: Ints  # [J, most ranks + 1] the largest tensor parallel degree up to a number of GPUs
    allowed: NDArray[np.bool_]  # [J, M]
    rate: Floats  # [J, M] FLOP/s
    need: Floats  # [J] bytes of a replica's state
    work: Floats  # [J] what the objective makes of the job's FLOPs
    weight: Floats  # [J] objective a second of a step
    waiting: Floats  # [J] objective of a job that waits
    longest: Floats  # [J] seconds a step may take by the job's deadline; infinite where it has none
    pins: Ints  # [K, 2] machine, and the job that must use it; −1: nobody must
    tied: NDArray[np.bool_]  # [J]
    place: Ints  # [M]
    gpus: Ints  # [M]
    room: Floats  # [M] bytes of all its GPUs
    near: Ints  # [P, P] places by latency
    tours: Floats  # [3, P, P] what tours may go by: latency, seconds for a cut, and a network's word (or seconds again)
    path: Ints  # [P] a place's position on one way through all of them, its hops short
    measured: NDArray[np.bool_]  # [P, P] whether the latency between two places was measured
    members: Ints  # machines by place
    first_member: Ints  # [P + 1]
    region_of_machine: Ints  # [M]
    latency: Floats
    bandwidth: Floats
    ceiling: Floats
    card: Floats
    trunk: Ints
    trunk_rate: Floats
    local: Floats
    ring_share: Floats
    region: Ints
    capacity: Floats
    rules: Rules
    any_blocked: bool


def pack(spaces: Sequence[JobSpace]) -> Packed:
    """All that the compiled search asks about these jobs."""
    floats: list[Floats] = []
    ints: list[Ints] = []
    at, int_at = 0, 0
    sizes_of = [[b for b in space.microbatches if b in _SIZES] or [space.microbatches[0]] for space in spaces]
    most_sizes = max(len(sizes) for sizes in sizes_of)
    where = np.zeros((len(spaces), 2 * most_sizes, len(_PER_KIND) + len(_FLAT) + len(_OF_KIND) + 1), np.int64)
    for j, (space, sizes) in enumerate(zip(spaces, sizes_of, strict=True)):
        for i, size in enumerate(sizes):
            for r, recompute in enumerate((Recompute.NONE, Recompute.FULL)):
                tables = space.tables(Settings(size, recompute=recompute))
                for field, name in enumerate((*_PER_KIND, *_FLAT, *_OF_KIND)):
                    values = getattr(tables, name).ravel()
                    where[j, 2 * i + r, field] = at
                    floats.append(values)
                    at += values.size
                where[j, 2 * i + r, -1] = int_at
                ints.append(tables.alike_until)
                int_at += tables.alike_until.size
    common = spaces[0].tables(Settings(spaces[0].microbatches[0]))
    cluster, places = spaces[0].cluster, spaces[0].places
    machines = cluster.machines
    near = common.latency.copy()
    np.fill_diagonal(near, 0.0)
    of_place = np.array(places.of_machine, np.int64)
    most = max(max(space.degrees) for space in spaces)
    regions = {name: i for i, name in enumerate(dict.fromkeys(machine.region for machine in machines))}
    degree = np.zeros((len(spaces), max(machine.gpus for machine in machines) + 1), np.int64)
    kind = np.full((len(spaces), len(places.representatives), most + 1), -1, np.int64)
    allowed = np.zeros((len(spaces), len(machines)), np.bool_)
    for j, space in enumerate(spaces):
        for gpus in range(1, degree.shape[1]):
            degree[j, gpus] = max(t for t in space.degrees if t <= gpus)
        known = space.kind_table
        kind[j, :, : known.shape[1]] = known
        allowed[j, list(space.allowed)] = True
    padded = np.zeros((len(spaces), most_sizes), np.int64)
    for j, sizes in enumerate(sizes_of):
        padded[j, : len(sizes)] = sizes
    firsts = [space.tables(Settings(space.microbatches[0])) for space in spaces]
    tours = _tours(common, firsts)
    return Packed(
        floats=np.concatenate(floats),
        ints=np.concatenate(ints),
        where=where,
        layers=np.array([len(space.job.model.layers) for space in spaces]),
        kinds=np.array([len(tables.update) for tables in firsts]),
        scalars=np.array(
            [(t.state_bytes, t.optimizer_bytes, t.gradient_bytes, t.wire_bytes, t.shared) for t in firsts]
        ),
        sizes=padded,
        batch=np.array([space.job.global_batch for space in spaces]),
        kind=kind,
        degree=degree,
        allowed=allowed,
        rate=np.array([machine_rates(space) for space in spaces]),
        need=np.array([state_bytes(space) for space in spaces]),
        work=np.array([time_cost(s.job, s.job.model.flops_per_sample * s.job.global_batch) for s in spaces]),
        weight=np.array([time_cost(space.job, 1.0) for space in spaces]),
        waiting=np.array([job_cost(space.job, None) for space in spaces]),
        longest=np.array([space.job.longest_step for space in spaces]),
        pins=np.array([(m, j) for j, s in enumerate(spaces) for m in sorted(s.pins)], np.int64).reshape(-1, 2),
        tied=np.array([any(layer.tied for layer in space.job.model.layers) for space in spaces]),
        place=of_place,
        gpus=np.array([machine.gpus for machine in machines]),
        room=np.array([machine.memory * machine.gpus for machine in machines], float),
        near=np.argsort(near, axis=1, kind="stable"),
        tours=tours,
        path=positions(tours[1]),
        measured=places.measured(cluster),
        members=np.argsort(of_place, kind="stable"),
        first_member=np.searchsorted(np.sort(of_place), np.arange(len(places.representatives) + 1)),
        region_of_machine=np.array([regions[machine.region] for machine in machines]),
        latency=common.latency,
        bandwidth=common.bandwidth,
        ceiling=common.ceiling,
        card=common.card,
        trunk=common.trunk,
        trunk_rate=common.trunk_rate,
        local=common.local,
        ring_share=common.ring_share,
        region=common.region,
        capacity=common.capacity,
        rules=common.rules,
        any_blocked=common.any_blocked,
    )


def _tours(common: Tables, firsts: Sequence[Tables]) -> Floats:
    """Ways to see how far apart places are; `firsts`: each job's tables."""
    size = float(np.median([np.median(tables.cut) for tables in firsts]))
    seconds = common.latency + size / np.minimum(common.bandwidth, common.ceiling)
    return np.stack([common.latency, seconds, seconds])


@kernel
def tables_of(packed: Packed, job: int, variant: int) -> Tables:
    """A job's tables at a microbatch size and with or without recomputation: variant = 2 × size + recompute."""
    at = packed.where[job, variant]
    n, kinds = packed.layers[job], packed.kinds[job]
    values = packed.floats
    return Tables(
        values[at[0] : at[0] + kinds * (n + 1)].reshape((kinds, n + 1)),
        values[at[1] : at[1] + kinds * (n + 1)].reshape((kinds, n + 1)),
        values[at[10] : at[10] + kinds],
        values[at[2] : at[2] + n + 1],
        values[at[3] : at[3] + n + 1],
        values[at[4] : at[4] + n + 1],
        values[at[5] : at[5] + n + 1],
        values[at[6] : at[6] + n + 1],
        values[at[7] : at[7] + n],
        values[at[8] : at[8] + n],
        packed.ints[at[13] : at[13] + n],
        values[at[9] : at[9] + n],
        values[at[11] : at[11] + kinds],
        values[at[12] : at[12] + kinds],
        packed.latency,
        packed.bandwidth,
        packed.ceiling,
        packed.card,
        packed.trunk,
        packed.trunk_rate,
        packed.local,
        packed.ring_share,
        packed.region,
        packed.capacity,
        packed.scalars[job, 0],
        packed.scalars[job, 1],
        packed.scalars[job, 2],
        packed.scalars[job, 3],
        packed.scalars[job, 4],
        packed.rules,
        packed.any_blocked,
    )
