"""The parameters of a model as a plan sees them: which layers use each, and which part of it a rank holds.

Every rank works this out for the whole model, so that all agree on who adds up what with whom without asking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from hulk.runtime.seats import Seating

Range = tuple[int, int]
"""From, and up to but without."""
Place = tuple[int, int]
"""Pipeline and stage."""
Ranks = tuple[int, ...]
Key = tuple[str, Ranks]
"""A group of ranks: what it is for, and who is in it. Operations of different purposes run side by side, so they never
share one."""

PIPELINE, SLICES, PARTS, SHARDS, SYNC, ALL = "pipeline", "slices", "parts", "shards", "sync", "all"


@dataclass(frozen=True, slots=True)
class Entry:
    """One parameter.

    layers   the layers that use it: several where layers share it
    dim      the dimension that tensor parallel divides; None: every rank has all of it
    groups   how many equal parts of that dimension are divided each for itself (queries, keys and values: 3)
    """

    name: str
    shape: tuple[int, ...]
    layers: tuple[int, ...]
    dim: int | None = None
    groups: int = 1

    @property
    def home(self) -> int:
        """The layer whose weights it comes with."""
        return self.layers[0]

    @property
    def elements(self) -> int:
        """Numbers in it."""
        return prod(self.shape)

    @property
    def row(self) -> int:
        """Numbers in one step along the divided dimension."""
        return self.elements if self.dim is None else self.elements // max(1, self.shape[self.dim])

    def ranges(self, ranks: int, slot: int) -> tuple[Range, ...]:
        """What one of `ranks` slices holds of the divided dimension, in the order in which it holds it. Parts are cut
        as torch.chunk cuts them."""
        if self.dim is None:
            raise ValueError(f"{self.name} is not divided")
        size = self.shape[self.dim] // self.groups
        part = -(-size // ranks)
        start, end = min(size, slot * part), min(size, (slot + 1) * part)
        return tuple((g * size + start, g * size + end) for g in range(self.groups))

    def rows(self, ranks: int, slot: int) -> int:
        """The first dimension of what one of `ranks` slices holds."""
        if ranks == 1 or self.dim != 0:
            return self.shape[0]
        return sum(b - a for a, b in self.ranges(ranks, slot))

    def slice_elements(self, ranks: int, slot: int) -> int:
        """Numbers in what one of `ranks` slices holds."""
        if ranks == 1 or self.dim is None:
            return self.elements
        return self.row * sum(b - a for a, b in self.ranges(ranks, slot))

    def holders(self, seating: Seating) -> tuple[Place, ...]:
        """The stages that hold it, in the plan's order."""
        return tuple(
            (p, s)
            for p, s in seating.places
            if any(part.first <= layer <= part.last for _, part in seating.parts(p, s) for layer in self.layers)
        )


def cut_everywhere(divisions: Sequence[tuple[Range, ...]]) -> list[Range]:
    """The ranges between all borders of some divisions."""
    borders = sorted({border for division in divisions for pair in division for border in pair})
    return [(a, b) for a, b in pairwise(borders) if b > a]


def slot_of(entry: Entry, ranks: int, piece: Range) -> int:
    """The slice that holds a range, which no border cuts."""
    for slot in range(ranks):
        if any(a <= piece[0] and piece[1] <= b for a, b in entry.ranges(ranks, slot)):
            return slot
    raise ValueError(f"no slice of {entry.name} holds {piece}")
