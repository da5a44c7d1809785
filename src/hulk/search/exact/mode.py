"""The options that are fixed before pipelines are listed: the exact solver goes through all their values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from hulk.cost.arrays import Tables
from hulk.cost.tables import without_sharing
from hulk.domain.options import COLUMN, SPACE, Options, Sharding, Within
from hulk.search.exact.bounds import bounds_of
from hulk.search.exact.case import Case, Offer
from hulk.search.job_space import JobSpace

_ENOUGH = 1e30  # bytes: more than any stage needs, and less than infinitely many
_SOLVED = ("schedule", "sync")  # options that are decided with the pipelines


@dataclass(frozen=True)
class Mode:
    """A job with a value for every option that is fixed before pipelines are listed."""

    space: JobSpace
    options: Options
    tables: Tables
    open_tables: Tables  # with memory enough for anything but what cannot be
    wide_tables: Tables  # with network cards and trunks without end: nobody waits for others on the way
    total: int  # microbatches of a step

    @classmethod
    def of(cls, space: JobSpace, options: Options) -> Mode:
        """A job at these options."""
        tables = space.tables(options)
        open_tables = tables._replace(capacity=np.full_like(tables.capacity, _ENOUGH))
        total = space.job.global_batch // options.microbatch_size
        return cls(space, options, tables, open_tables, without_sharing(tables), total)

    @property
    def layers(self) -> int:
        """Of the model."""
        return len(self.space.job.model.layers)

    def case(self, offer: Offer) -> Case:
        """The same on a set of machines."""
        return Case(self.tables, offer, bounds_of(self.tables, offer), self.total)

    def shards(self, replicas: int) -> int:
        """How many replicas share the optimizer's state, of so many."""
        return replicas if self.options.shard_optimizer else 1


def modes_of(space: JobSpace) -> list[Mode]:
    """All of a job's modes, first those that save memory. Gradients, parameters and experts are left whole: those who
    split them must be alike, which pipelines that are listed one by one do not know of each other (`alike` has
    them)."""
    possible = {choice.name: choice.possible(space.scope, fine=True) for choice in SPACE if choice.name not in _SOLVED}
    possible["expert"] = (1,)
    possible["shard_within"] = (Within.EVERYWHERE,)
    possible["sharding"] = whole_weights(space)
    named = [dict(zip(possible, each, strict=True)) for each in product(*possible.values())]
    return [Mode.of(space, replace(space.plainest, **values)) for values in named]


def whole_weights(space: JobSpace) -> tuple[Sharding, ...]:
    """Sharding that leaves gradients and parameters whole. Where sharing the optimizer's state never costs, it is
    always shared, among as many as there are."""
    split = (Sharding.OPTIMIZER, Sharding.NONE) if space.engine.sends_weights else (Sharding.OPTIMIZER,)
    return tuple(sharding for sharding in split if sharding in SPACE[COLUMN["sharding"]].possible(space.scope))
