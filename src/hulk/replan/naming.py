"""Which of several alike machines does what in a new plan: as the least bytes move, since the price is the same."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from hulk.cost.moving import overlap, shards_held
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.plan import JobPlan, Part, Stage
from hulk.replan.matching import match
from hulk.search.job_space import Places

_KEEP = 0.5  # bytes: of two ways that move as much, the one with fewer other names


def alike(cluster: Cluster, keep_from: Mapping[str, Collection[str]]) -> dict[str, int]:
    """Machine → its kind: machines of a kind are of one place, and the same jobs must not use them."""
    known: dict[tuple[int, frozenset[str]], int] = {}
    kinds: dict[str, int] = {}
    for machine, place in zip(cluster.machines, Places.of(cluster).of_machine, strict=True):
        barred = frozenset(job for job, names in keep_from.items() if machine.name in names)
        kinds[machine.name] = known.setdefault((place, barred), len(known))
    return kinds


def names_for(
    jobs: Iterable[Job],
    old: Mapping[str, JobPlan],
    new: Mapping[str, JobPlan],
    kinds: Mapping[str, int],
    *,
    taken: Collection[str] = (),
    fixed: Collection[str] = (),
    lost: Collection[str] = (),
) -> dict[str, str] | None:
    """Machine of the new plans → the machine of its kind that takes its part, so that the least bytes move in all.
    Those `fixed` keep their names; those `taken` are for others. None where too few of a kind are left."""
    rows: dict[int, list[str]] = {}
    for name in dict.fromkeys(name for plan in new.values() for name in plan.machines if name not in fixed):
        rows.setdefault(kinds[name], []).append(name)
    columns: dict[int, list[str]] = {}
    for name, kind in kinds.items():
        if kind in rows and name not in taken and name not in fixed:
            columns.setdefault(kind, []).append(name)
    if any(len(names) > len(columns.get(kind, ())) for kind, names in rows.items()):
        return None
    costs = {kind: np.full((len(names), len(columns[kind])), _KEEP) for kind, names in rows.items()}
    row_of = {name: (kind, i) for kind, names in rows.items() for i, name in enumerate(names)}
    column_of = {name: (kind, i) for kind, names in columns.items() for i, name in enumerate(names)}
    for name in row_of.keys() & column_of.keys():
        costs[row_of[name][0]][row_of[name][1], column_of[name][1]] = 0.0
    for job in jobs:
        if job.name not in old or job.name not in new:
            continue
        shared = overlap(job, old[job.name], new[job.name], lost)
        holders = _by_kind(shared.holders, column_of)
        for kind, (own, at) in _by_kind(shared.targets, row_of).items():
            costs[kind][at] += shared.needs[own][:, None]
            if kind in holders:
                theirs, there = holders[kind]
                costs[kind][np.ix_(at, there)] -= shared.held[np.ix_(own, theirs)]
    return {
        name: columns[kind][column]
        for kind, cost in costs.items()
        for name, column in zip(rows[kind], match(cost), strict=True)
    }


def _by_kind(names: Sequence[str], known: Mapping[str, tuple[int, int]]) -> dict[int, tuple[list[int], list[int]]]:
    """Kind → where its machines stand among `names`, and in the matrix of the kind."""
    found: dict[int, tuple[list[int], list[int]]] = {}
    for i, name in enumerate(names):
        if name in known:
            kind, at = known[name]
            own, there = found.setdefault(kind, ([], []))
            own.append(i)
            there.append(at)
    return found


def renamed(plan: JobPlan, names: Mapping[str, str]) -> JobPlan:
    """The plan on other machines."""
    return replace(
        plan,
        pipelines=tuple(
            replace(pipeline, stages=tuple(_renamed(stage, names) for stage in pipeline.stages))
            for pipeline in plan.pipelines
        ),
    )


def _renamed(stage: Stage, names: Mapping[str, str]) -> Stage:
    return stage.with_parts([Part(names.get(part.machine, part.machine), part.gpus) for part in stage.parts])


def reordered(job: Job, old: JobPlan, new: JobPlan, lost: Collection[str]) -> JobPlan:
    """The pipelines in an order in which each has most of its shards already; unchanged where nothing is sharded."""
    if not (old.options.shard_optimizer and new.options.shard_optimizer) or len(new.pipelines) == 1:
        return new
    held = shards_held(job, old, new, lost)
    stay = _KEEP * np.eye(len(held))
    at = match(-(held + stay))
    if at == list(range(len(at))):
        return new
    order = sorted(range(len(at)), key=lambda pipeline: at[pipeline])
    return replace(new, pipelines=tuple(new.pipelines[i] for i in order))
