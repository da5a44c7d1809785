"""Skeletons in the arrays that compiled code has, and back."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hulk.domain.job import Job
from hulk.domain.options import options_of, places_of
from hulk.search.layouts import LAYOUT
from hulk.search.polish import Shapes
from hulk.search.skeleton import Skeleton, Slot
from hulk.search.workspace import Workspace

Ints = NDArray[np.int64]


def read_skeleton(work: Workspace, job: Job, recipe: Ints) -> Skeleton:
    """The pipelines at hand, with a recipe's options."""
    starts = work.starts[: int(work.pipelines[0]) + 1]
    return _skeleton(work.machine, work.ranks, starts, job, recipe)


def read_shape(shapes: Shapes, number: int, job: Job) -> Skeleton | None:
    """A job's pipelines, by its number; None where it has none."""
    pipelines = int(shapes.pipelines[number])
    if pipelines == 0:
        return None
    starts = shapes.starts[number, : pipelines + 1]
    return _skeleton(shapes.machine[number], shapes.ranks[number], starts, job, shapes.deal.recipes[number])


def _skeleton(machine: Ints, ranks: Ints, starts: Ints, job: Job, recipe: Ints) -> Skeleton:
    firsts = starts.tolist()
    slots = [Slot(*pair) for pair in zip(machine[: firsts[-1]].tolist(), ranks[: firsts[-1]].tolist(), strict=True)]
    options = options_of(job, recipe[LAYOUT:].tolist())
    return Skeleton(tuple(tuple(slots[a:b]) for a, b in pairwise(firsts)), options)


def write_shape(skeleton: Skeleton, shapes: Shapes, number: int, job: Job) -> Skeleton:
    """Write a job's pipelines down, by its number, with who owns what; its options as near as the search has them.
    Returns what was written."""
    slots = [slot for chain in skeleton.chains for slot in chain]
    shapes.machine[number, : len(slots)] = [slot.machine for slot in slots]
    shapes.ranks[number, : len(slots)] = [slot.ranks for slot in slots]
    lengths = [len(chain) for chain in skeleton.chains]
    shapes.starts[number, 1 : len(lengths) + 1] = np.cumsum(lengths)
    shapes.pipelines[number] = len(lengths)
    places = places_of(skeleton.options, job)
    shapes.deal.recipes[number, LAYOUT:] = places
    shapes.deal.owner[[slot.machine for slot in slots]] = number
    return Skeleton(skeleton.chains, options_of(job, places))
