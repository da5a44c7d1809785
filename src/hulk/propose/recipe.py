"""What a network says of a job's pipelines: for each number of a layout, and for each option, a class of values.

A network's heads have names, which its card lists with their values. So a network that was trained before an option
came, or before it got another value, is asked for what it knows; the rest is drawn as a search draws it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hulk.domain.options import COLUMN, SPACE, plain_value
from hulk.search.deals import COLUMNS
from hulk.search.layouts import DEGREE, FIELDS, FOLDED, LAYOUT, LENGTHS, MIX, MOST_MIX, MOST_START, TOUR, TOURS, WAYS
from hulk.search.tables import SETTLED, SearchTables

Ints = NDArray[np.int64]
Floats = NDArray[np.floating]
UNKNOWN = -1
TEMPERATURE = 0.7
_DEGREES = (1, 2, 3, 4, 6, 8, 12, 16)
_OF_LAYOUT: dict[str, tuple[int, ...]] = {
    "degree": _DEGREES,
    "slow_degree": _DEGREES,
    "length": tuple(LENGTHS.tolist()),
    "way": tuple(range(WAYS)),
    "folded": (0, 1),
    "reversed": (0, 1),
    "start": tuple(range(MOST_START)),
}


class Head(NamedTuple):
    """A number of a layout, or an option, by name, and the values that are told apart, as files have them; others count
    as the nearest one."""

    name: str
    values: tuple[Any, ...]

    @property
    def column(self) -> int | None:
        """Where it stands in a recipe; None: in no recipe any more."""
        if self.name in FIELDS:
            return FIELDS.index(self.name)
        return LAYOUT + COLUMN[self.name] if self.name in COLUMN else None

    @property
    def codes(self) -> Ints:
        """The values' numbers, a number that none has where a value is not known any more."""
        if self.name in FIELDS:
            return np.array(self.values)
        choice = SPACE[COLUMN[self.name]]
        known = {plain_value(value): choice.code_of(value) for value in (*choice.fine, *choice.values)}
        return np.array([known.get(value, _NO_CODE) for value in self.values])


_NO_CODE = -(1 << 30)
HEADS = (
    *(Head(name, values) for name, values in _OF_LAYOUT.items()),
    *(Head(choice.name, tuple(map(plain_value, choice.values))) for choice in SPACE),
)
"""Of a network that is trained now."""
WIDTH = sum(len(head.values) for head in HEADS)
"""Logits for each job."""


def with_codes(recipes: Ints, packed: SearchTables) -> Ints:
    """Recipes [J, COLUMNS] whose options are numbers of values, not places among those tried for a job."""
    plain = recipes.copy()
    for job, recipe in enumerate(plain):
        for column in range(len(SPACE)):
            recipe[LAYOUT + column] = packed.codes[job, column, recipe[LAYOUT + column]]
    return plain


def classes_of(recipes: Ints) -> Ints:
    """Recipes [..., COLUMNS] with numbers of values (`with_codes`) as classes [..., HEADS], UNKNOWN where there is no
    recipe."""
    found = [_nearest(recipes[..., head.column], head.codes) for head in HEADS]
    return np.where(recipes[..., DEGREE, None] > 0, np.stack(found, axis=-1), UNKNOWN)


def recipes_of(
    logits: Floats, packed: SearchTables, rng: np.random.Generator, *, likeliest: bool, heads: Sequence[Head] = HEADS
) -> Ints:
    """Recipes [J, COLUMNS] from logits [J, values of all heads]: the likeliest, or drawn."""
    recipes = np.zeros((len(logits), COLUMNS), np.int64)
    recipes[:, MIX] = rng.integers(MOST_MIX, size=len(logits))
    recipes[:, TOUR] = rng.integers(TOURS, size=len(logits))
    for column in range(len(SPACE)):
        for job, recipe in enumerate(() if SETTLED[column] else recipes):
            sums = packed.chances[job, 0, column]
            recipe[LAYOUT + column] = np.searchsorted(sums, rng.random() * sums[-1], side="right")
    begin = 0
    for head in heads:
        own = logits[:, begin : begin + len(head.values)]
        begin += len(head.values)
        if head.column is None:
            continue
        codes = head.codes
        noise = 0.0 if likeliest else TEMPERATURE * rng.gumbel(size=own.shape)
        chosen = codes[np.where(codes == _NO_CODE, -np.inf, own + noise).argmax(axis=1)]
        if head.column >= LAYOUT:
            chosen = _places(packed, head.column - LAYOUT, chosen)
        recipes[:, head.column] = chosen
    recipes[:, FOLDED] &= packed.tied
    return recipes


def _places(packed: SearchTables, option: int, codes: Ints) -> Ints:
    """[J] where each job's value of an option, given by its number, stands among those tried for the job."""
    counts = packed.values[:, option]
    found = [_nearest(code, packed.codes[job, option, : counts[job]]) for job, code in enumerate(codes)]
    return np.array(found, np.int64)


def _nearest(values: Ints, known: Ints) -> Ints:
    """The place of the same number among some, or of the nearest, in the logarithm; numbers below zero are far from all
    others."""
    given, others = np.asarray(values)[..., None], np.asarray(known)
    ways = np.abs(np.log1p(np.maximum(given, 0)) - np.log1p(np.maximum(others, 0)))
    ways = np.where(given == others, -1.0, ways + 1e3 * ((given < 0) | (others < 0)))
    places: Ints = ways.argmin(axis=-1)
    return places
