"""What the network says of a job's pipelines: for each number of a recipe (`hulk.search.recipes`) a class of values."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hulk.search.packed import Packed
from hulk.search.recipes import (
    BY_REGION,
    COLUMNS,
    DEGREE,
    EXTRA,
    EXTRAS,
    FOLDED,
    LENGTH,
    LENGTHS,
    MIX,
    REVERSED,
    SHARD,
    SLOW_DEGREE,
    START,
    TOUR,
    TOURS,
    VARIANT,
    WAY,
)

Ints = NDArray[np.int64]
Floats = NDArray[np.floating]
UNKNOWN = -1
TEMPERATURE = 0.7
_DEGREES = (1, 2, 3, 4, 6, 8, 12, 16)
# VARIANT is two things in one: these stand for them here.
_SIZE, _RECOMPUTE = COLUMNS, COLUMNS + 1


class Head(NamedTuple):
    """A number of a recipe, and the values that are told apart; others count as the nearest one."""

    column: int
    values: tuple[int, ...]


HEADS = (
    Head(DEGREE, _DEGREES),
    Head(SLOW_DEGREE, _DEGREES),
    Head(LENGTH, tuple(LENGTHS.tolist())),
    Head(WAY, (0, 1, 2)),
    Head(FOLDED, (0, 1)),
    Head(EXTRA, tuple(EXTRAS.tolist())),
    Head(BY_REGION, (0, 1)),
    Head(SHARD, (0, 1)),
    Head(REVERSED, (0, 1)),
    Head(START, tuple(range(8))),
    Head(_SIZE, (1, 2, 4, 8, 16, 32)),
    Head(_RECOMPUTE, (0, 1)),
)
WIDTH = sum(len(head.values) for head in HEADS)
"""Logits for each job."""


def classes_of(recipes: Ints) -> Ints:
    """Recipes [..., COLUMNS] as classes [..., heads], UNKNOWN where there is no recipe. Microbatch sizes are taken to
    be the powers of two, as they are wherever global batches are."""
    wide = np.concatenate(
        [recipes, 1 << (recipes[..., VARIANT:][..., :1] // 2), recipes[..., VARIANT:][..., :1] % 2], -1
    )
    found = [_nearest(wide[..., head.column], head.values) for head in HEADS]
    return np.where(recipes[..., DEGREE, None] > 0, np.stack(found, axis=-1), UNKNOWN)


def recipes_of(logits: Floats, packed: Packed, rng: np.random.Generator, *, likeliest: bool) -> Ints:
    """Recipes [J, COLUMNS] from logits [J, WIDTH]: the likeliest, or drawn."""
    jobs = len(logits)
    recipes = np.zeros((jobs, COLUMNS + 2), np.int64)
    begin = 0
    for head in HEADS:
        own = logits[:, begin : begin + len(head.values)]
        noise = 0.0 if likeliest else TEMPERATURE * rng.gumbel(size=own.shape)
        recipes[:, head.column] = np.array(head.values)[(own + noise).argmax(axis=1)]
        begin += len(head.values)
    for job, recipe in enumerate(recipes):
        sizes = packed.sizes[job][packed.sizes[job] > 0]
        recipe[VARIANT] = 2 * int(_nearest(recipe[_SIZE], sizes)) + recipe[_RECOMPUTE]
        recipe[FOLDED] &= packed.tied[job]
        recipe[MIX] = rng.integers(1 << 15)
        recipe[TOUR] = rng.integers(TOURS)
    return recipes[:, :COLUMNS]


def _nearest(values: Ints, known: tuple[int, ...] | Ints) -> Ints:
    """The place of the nearest of some values, in the logarithm."""
    ways: Ints = np.abs(np.log1p(np.asarray(values)[..., None]) - np.log1p(np.asarray(known))).argmin(axis=-1)
    return ways
