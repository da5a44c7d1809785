"""The tables of several jobs in flat arrays, so that one compiled function can price any of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hulk.cost.arrays import Rules, Tables
from hulk.cost.compiled import kernel
from hulk.domain.options import SPACE
from hulk.search.assignment.ways import machine_rates, state_bytes
from hulk.search.job_space import JobSpace
from hulk.search.objective import job_cost, time_cost
from hulk.search.path import positions

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# The tables that depend on options, and where each stands among them.
_TABLES = (
    "forward", "backward", "weights", "update", "join", "split", "elsewhere", "whole", "tied", "held_split",
    "held_whole", "peak_split", "peak_whole", "kept", "cut", "gather_fixed", "gather_rate",
    "alike_until",
)  # fmt: skip
(
    _FORWARD, _BACKWARD, _WEIGHTS, _UPDATE, _JOIN, _SPLIT, _ELSEWHERE, _WHOLE, _TIED, _HELD_SPLIT, _HELD_WHOLE,
    _PEAK_SPLIT, _PEAK_WHOLE, _KEPT, _CUT, _GATHER_FIXED, _GATHER_RATE, _ALIKE_UNTIL,
) = range(len(_TABLES))  # fmt: skip
_SCALARS = ("state_bytes", "sharded_bytes", "gradient_bytes", "wire_bytes", "weight_bytes", "shared", "context")
_IN_TABLES = [column for column, choice in enumerate(SPACE) if choice.in_tables]
OPTIONS = len(SPACE)
SETTLED = tuple(len(choice.values) == 1 for choice in SPACE)
"""Which options free searches have one value for: nothing is drawn for these."""


class SearchTables(NamedTuple):
    """J jobs, V variants (the options that tables depend on), F options with up to N values, M machines, P places."""

    floats: Floats  # all tables of all jobs, one after the other
    ints: Ints
    where: Ints  # [J, V, _TABLES] where each table begins in `floats`, the last one in `ints`
    strides: Ints  # [F] how far a value of an option is from the next among the variants; 0: tables do not depend on it
    codes: Ints  # [J, F, N] the numbers of an option's values that are tried for a job
    values: Ints  # [J, F] how many these are
    chances: Floats  # [J, 2, F, N] sums over how likely each is drawn: usually, and where memory is short
    changes: Floats  # [F] sums over how likely an option is changed
    steps: Ints  # [F] how far a change goes along the values; 0: to any
    needs: Ints  # [F] what pipelines must have for it to have an effect: `hulk.domain.options.Needs`
    held_until: Ints  # the jobs' tables of that name one after the other; of a job without rules there is nothing
    held_at: Ints  # [J + 1] where a job's begins
    layers: Ints  # [J]
    kinds: Ints  # [J]
    scalars: Floats  # [J, V, 7] bytes a parameter: kept, sharded, gradient, on the wire, weight; shared; context
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
    pipelines: Ints  # [J] how many a deal must give a job; 0: any number
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


def pack(spaces: Sequence[JobSpace]) -> SearchTables:
    """All that the compiled search asks about these jobs."""
    possible = [[choice.possible(space.scope) for choice in SPACE] for space in spaces]
    values = np.array([[len(values) for values in its] for its in possible])
    strides = np.zeros(OPTIONS, np.int64)
    variants = 1
    for column in _IN_TABLES:
        strides[column] = variants
        variants *= int(values[:, column].max())
    floats: list[Floats] = []
    ints: list[Ints] = []
    at, int_at = 0, 0
    where = np.zeros((len(spaces), variants, len(_TABLES)), np.int64)
    scalars = np.zeros((len(spaces), variants, len(_SCALARS)))
    for j, (space, its) in enumerate(zip(spaces, possible, strict=True)):
        for chosen in product(*(range(len(its[column])) for column in _IN_TABLES)):
            named = {SPACE[c].name: its[c][i] for c, i in zip(_IN_TABLES, chosen, strict=True)}
            tables = space.tables(replace(space.plainest, **named))
            variant = int(strides[_IN_TABLES] @ np.array(chosen))
            scalars[j, variant] = [getattr(tables, name) for name in _SCALARS]
            row = where[j, variant]
            for field, name in enumerate(_TABLES[:-1]):
                row[field] = at
                floats.append(getattr(tables, name).ravel())
                at += floats[-1].size
            row[-1] = int_at
            ints.append(tables.alike_until)
            int_at += tables.alike_until.size
    common = spaces[0].tables(spaces[0].plainest)
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
    firsts = [space.tables(space.plainest) for space in spaces]
    tours = _tours(common, firsts)
    held = [tables.held_until.ravel() for tables in firsts]
    return SearchTables(
        floats=np.concatenate(floats),
        ints=np.concatenate(ints),
        where=where,
        strides=strides,
        codes=_padded([[[c.code_of(v) for v in vs] for c, vs in zip(SPACE, its, strict=True)] for its in possible]),
        values=values,
        chances=np.stack([_chances(possible, short=short) for short in (False, True)], axis=1),
        changes=np.cumsum(np.where((values > 1).any(axis=0), [choice.weight for choice in SPACE], 0.0)),
        steps=np.array([choice.step for choice in SPACE]),
        needs=np.array([int(choice.needs) for choice in SPACE]),
        held_until=np.concatenate(held),
        held_at=np.cumsum([0, *(own.size for own in held)]),
        layers=np.array([len(space.job.model.layers) for space in spaces]),
        kinds=np.array([len(tables.update) for tables in firsts]),
        scalars=scalars,
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
        pipelines=np.zeros(len(spaces), np.int64),
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


def _padded(lists: Sequence[Sequence[Sequence[int]]]) -> Ints:
    """[J, F, N] numbers, 0 where there are fewer."""
    most = max(len(values) for its in lists for values in its)
    return np.array([[[*values, *[0] * (most - len(values))] for values in its] for its in lists])


def _chances(possible: Sequence[Sequence[tuple[Any, ...]]], *, short: bool) -> Floats:
    """[J, F, N] sums of chances along the values; past the last value no more is added."""
    most = max(len(values) for its in possible for values in its)
    sums = np.zeros((len(possible), OPTIONS, most))
    for j, its in enumerate(possible):
        for column, (choice, values) in enumerate(zip(SPACE, its, strict=True)):
            sums[j, column, : len(values)] = choice.chances_of(values, short=short)
    return sums.cumsum(axis=2)


def _tours(common: Tables, firsts: Sequence[Tables]) -> Floats:
    """Ways to see how far apart places are; `firsts`: each job's tables."""
    size = float(np.median([np.median(tables.cut) for tables in firsts]))
    seconds = common.latency + size / np.minimum(common.bandwidth, common.ceiling)
    return np.stack([common.latency, seconds, seconds])


@kernel
def tables_of(packed: SearchTables, job: int, row: Ints) -> Tables:
    """A job's tables by the options of a row, which has the place of each option's value."""
    variant = 0
    for column in range(OPTIONS):
        variant += packed.strides[column] * row[column]
    at = packed.where[job, variant]
    n, kinds = packed.layers[job], packed.kinds[job]
    values, held = packed.floats, packed.held_at[job]
    return Tables(
        values[at[_FORWARD] : at[_FORWARD] + kinds * (n + 1)].reshape((kinds, n + 1)),
        values[at[_BACKWARD] : at[_BACKWARD] + kinds * (n + 1)].reshape((kinds, n + 1)),
        values[at[_WEIGHTS] : at[_WEIGHTS] + kinds * (n + 1)].reshape((kinds, n + 1)),
        values[at[_UPDATE] : at[_UPDATE] + kinds],
        values[at[_JOIN] : at[_JOIN] + kinds],
        values[at[_SPLIT] : at[_SPLIT] + n + 1],
        values[at[_ELSEWHERE] : at[_ELSEWHERE] + n + 1],
        values[at[_WHOLE] : at[_WHOLE] + n + 1],
        values[at[_TIED] : at[_TIED] + n + 1],
        values[at[_HELD_SPLIT] : at[_HELD_SPLIT] + n + 1],
        values[at[_HELD_WHOLE] : at[_HELD_WHOLE] + n + 1],
        values[at[_PEAK_SPLIT] : at[_PEAK_SPLIT] + n],
        values[at[_PEAK_WHOLE] : at[_PEAK_WHOLE] + n],
        values[at[_KEPT] : at[_CUT]].reshape(((at[_CUT] - at[_KEPT]) // (n + 1), n + 1)),
        packed.ints[at[_ALIKE_UNTIL] : at[_ALIKE_UNTIL] + n],
        packed.held_until[held : packed.held_at[job + 1]].reshape(((packed.held_at[job + 1] - held) // n, n)),
        values[at[_CUT] : at[_CUT] + n],
        values[at[_GATHER_FIXED] : at[_GATHER_FIXED] + kinds],
        values[at[_GATHER_RATE] : at[_GATHER_RATE] + kinds],
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
        packed.scalars[job, variant, 0],
        packed.scalars[job, variant, 1],
        packed.scalars[job, variant, 2],
        packed.scalars[job, variant, 3],
        packed.scalars[job, variant, 4],
        packed.scalars[job, variant, 5],
        packed.scalars[job, variant, 6],
        packed.rules,
        packed.any_blocked,
    )
