"""Who splits with whom what is sharded, and which part of it each has. Works without torch.

Holders of the same layers that are near each other (all, those of a region, those of a machine) are a group, and each
group has all of it. Where gradients or parameters are sharded, pipelines are alike, so a group is the same stage of
some pipelines; each of its ranks has some rows of its slice of every parameter, cut as torch.chunk cuts them. What
stages share that are sliced differently (tied embedding and head) stays whole in each of them; of that, as where the
optimizer's state alone is sharded, every parameter has an owner in each group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from hulk.domain.options import Sharding, Within
from hulk.domain.plan import JobPlan
from hulk.errors import InputError
from hulk.runtime.entries import Entry, Place, Range, Ranks, cut_everywhere
from hulk.runtime.seats import Seating

Group = tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class RowPiece:
    """Some rows of a rank's slice of a parameter that is split, and the numbers in them."""

    entry: Entry
    rows: Range
    elements: int


def chunk(rows: int, parts: int, index: int) -> Range:
    """What one of some parts gets of so many rows."""
    most = -(-rows // parts)
    return min(rows, index * most), min(rows, (index + 1) * most)


@dataclass(frozen=True)
class Shards:
    """How a job's ranks split what is sharded. `labels`: what stages that are near each other have in common."""

    seating: Seating
    labels: Mapping[Place, str]

    @property
    def splits(self) -> bool:
        """Whether ranks split parameters row by row, for gradients at least; pipelines are alike then."""
        return self.seating.plan.options.sharding in (Sharding.GRADIENTS, Sharding.PARAMETERS)

    def is_split(self, entry: Entry) -> bool:
        """Whether each rank of a group has some rows of it only."""
        if not self.splits:
            return False
        sliced = {len(self.seating.ranks(*place)) for place in entry.holders(self.seating)}
        return len(self.seating.plan.pipelines) > 1 and len(sliced) == 1

    def groups(self, holders: Sequence[Place]) -> list[Group]:
        """Holders by what is near, in their order."""
        found: dict[str, list[Place]] = {}
        for place in holders:
            found.setdefault(self.labels[place], []).append(place)
        return [tuple(members) for members in found.values()]

    @cached_property
    def _near(self) -> dict[Place, Group]:
        found: dict[tuple[int, str], list[Place]] = {}
        for place in self.seating.places:
            found.setdefault((place[1], self.labels[place]), []).append(place)
        return {place: tuple(group) for group in found.values() for place in group}

    def near(self, place: Place) -> Group:
        """The stages that split with one: the same of pipelines near it."""
        return self._near[place] if self.splits else (place,)

    def members(self, place: Place, slot: int) -> Ranks:
        """The ranks that split with the one in a slot of a stage."""
        return tuple(self.seating.ranks(*other)[slot] for other in self.near(place))

    def rows(self, entry: Entry, place: Place, slot: int) -> Range:
        """The rows that a rank has of its slice of a parameter that is split."""
        group = self.near(place)
        return chunk(entry.rows(len(self.seating.ranks(*place)), slot), len(group), group.index(place))

    def pieces(self, entry: Entry) -> Iterator[tuple[RowPiece, Group, Ranks]]:
        """What groups add up among them of a parameter that is split, those of several stages too: pieces that no group
        cuts, and who has each."""
        holders = entry.holders(self.seating)
        groups = list(dict.fromkeys(self.near(place) for place in holders))
        if len(groups) < 2:
            return
        ranks = len(self.seating.ranks(*holders[0]))
        for slot in range(ranks):
            rows = entry.rows(ranks, slot)
            cuts = [(chunk(rows, len(group), i),) for group in groups for i in range(len(group))]
            for span in cut_everywhere(cuts):
                found = tuple(next(at for at in group if _has(self.rows(entry, at, slot), span)) for group in groups)
                piece = RowPiece(entry, span, (span[1] - span[0]) * entry.slice_elements(ranks, slot) // rows)
                yield piece, found, tuple(self.seating.ranks(*place)[slot] for place in found)

    def owners(self, entries: Sequence[Entry], place: Place) -> dict[str, Place]:
        """For each parameter that is not split, the stage of a place's group that updates it for the group.

        With a sharded optimizer, a group's holders of a parameter share the work: the one with the least so far takes
        the next. Otherwise it is the first holder.
        """
        load: dict[Place, int] = {}
        result: dict[str, Place] = {}
        for entry in entries:
            holders = [other for other in entry.holders(self.seating) if self.labels[other] == self.labels[place]]
            if not holders:
                continue
            chosen = holders[0]
            if self.seating.plan.options.shard_optimizer and not self.is_split(entry):
                chosen = min(holders, key=lambda other: (load.get(other, 0), other))
                load[chosen] = load.get(chosen, 0) + entry.elements
            result[entry.name] = chosen
        return result

    def writers(self, entries: Sequence[Entry]) -> dict[str, Place]:
        """For each parameter the stage that writes it to checkpoints: its owner in the group of its first holder."""
        firsts = {entry.name: entry.holders(self.seating)[0] for entry in entries}
        owners = {self.labels[place]: self.owners(entries, place) for place in set(firsts.values())}
        return {name: owners[self.labels[place]][name] for name, place in firsts.items()}


def check_alike(plan: JobPlan) -> None:
    """InputError where holders could not go through passes together: the price says so before workers start, but they
    may have been started by others."""
    split = plan.options.sharding in (Sharding.GRADIENTS, Sharding.PARAMETERS)
    if not split and not (plan.options.shard_optimizer and plan.options.shard_within is not Within.EVERYWHERE):
        return
    shapes = [
        ([(stage.first, stage.last, stage.ranks) for stage in pipeline.stages], pipeline.microbatches)
        for pipeline in plan.pipelines
    ]
    for p, shape in enumerate(shapes[1:], start=2):
        if shape != shapes[0]:
            raise InputError(
                f"pipelines that split what they hold must be alike, but pipeline {p} is not like pipeline 1"
            )


def _has(rows: Range, span: Range) -> bool:
    return rows[0] <= span[0] and span[1] <= rows[1]
