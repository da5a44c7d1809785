"""Which GPUs of its machines a new plan uses: those that hold most of its layers, so that little has to move."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from hulk.domain.cluster import Cluster
from hulk.domain.plan import JobPlan, Part, Stage
from hulk.replan.matching import match


def keep_gpus(
    plan: JobPlan, old: JobPlan | None, cluster: Cluster, taken: Mapping[str, Collection[int]]
) -> JobPlan | None:
    """The plan with GPU numbers chosen anew, so that many layers are on GPUs that hold them: stages as wide as old ones
    take their GPUs, the others the free ones with most of their layers. None where a machine has too few beside those
    `taken` by other jobs."""
    pieces = _on_machines(plan)
    rows: dict[str, list[int]] = {}
    for row, piece in enumerate(pieces):
        rows.setdefault(piece.machine, []).append(row)
    before: dict[str, list[Stage]] = {}
    for piece in _on_machines(old) if old else ():
        before.setdefault(piece.machine, []).append(piece)
    chosen: dict[int, tuple[int, ...]] = {}
    for name, own in rows.items():
        free = set(range(cluster.machine(name).gpus)).difference(taken.get(name, ()))
        found = _gpus_of([pieces[row] for row in own], before.get(name, []), free)
        if found is None:
            return None
        chosen.update(zip(own, found, strict=True))
    parts = iter([Part(piece.machine, chosen[row]) for row, piece in enumerate(pieces)])
    pipelines = []
    for pipeline in plan.pipelines:
        slots = [[next(parts) for _ in stage.parts] for stage in pipeline.slots(plan.options.chunks)]
        placed = (stage.with_parts(slots[s % len(slots)]) for s, stage in enumerate(pipeline.stages))
        pipelines.append(replace(pipeline, stages=tuple(placed)))
    return replace(plan, pipelines=tuple(pipelines))


def _on_machines(plan: JobPlan) -> list[Stage]:
    """A plan's stages, those on the same GPUs once, as each of their machines has them."""
    return [
        replace(stage, machine=part.machine, gpus=part.gpus, beside=()) for stage in plan.slots for part in stage.parts
    ]


def _gpus_of(stages: Sequence[Stage], before: Sequence[Stage], free: set[int]) -> list[tuple[int, ...]] | None:
    """Each stage's GPUs on one machine, out of those that are free; None where they are too few."""
    chosen: dict[int, tuple[int, ...]] = {}
    for width in {stage.ranks for stage in stages}:
        rows = [row for row, stage in enumerate(stages) if stage.ranks == width]
        olds = [stage for stage in before if stage.ranks == width and free.issuperset(stage.gpus)]
        for row, other in _pairs([stages[row] for row in rows], olds):
            chosen[rows[row]] = olds[other].gpus
    left = free.difference(*chosen.values())
    for row, stage in enumerate(stages):
        if row not in chosen:
            held = {gpu: _common(stage, other) for other in before for gpu in other.gpus}
            best = sorted(left, key=lambda gpu: (-held.get(gpu, 0), gpu))[: stage.ranks]
            if len(best) < stage.ranks:
                return None
            chosen[row] = tuple(sorted(best))
            left.difference_update(best)
    return [chosen[row] for row in range(len(stages))]


def _pairs(stages: Sequence[Stage], before: Sequence[Stage]) -> list[tuple[int, int]]:
    """Stages with the old stages whose GPUs they take, by number: as many as can be, with most layers in common."""
    if not stages or not before:
        return []
    common = np.array([[float(_common(stage, other)) for other in before] for stage in stages])
    if len(stages) <= len(before):
        return list(enumerate(match(-common)))
    return [(row, column) for column, row in enumerate(match(-common.T))]


def _common(stage: Stage, other: Stage) -> int:
    """Layers that two stages have in common."""
    return len(range(max(stage.first, other.first), min(stage.last, other.last) + 1))
