"""A machine leaves a skeleton, or enters one, or takes another's place: the compiled search's own changes, made to
skeletons one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hulk.cost.compiled import kernel
from hulk.search.job_space import JobSpace
from hulk.search.shape.machines import INSERTIONS, insert, substitute, without
from hulk.search.skeleton import Skeleton
from hulk.search.tables import SearchTables, pack
from hulk.search.workspace import Workspace, make_workspace
from hulk.search.written import read, write


@dataclass(frozen=True)
class Changes:
    """What can be done to the skeletons of one job, number `job` of those that were packed together. Options stay as
    they are, whether a search would try them or not."""

    space: JobSpace
    packed: SearchTables
    work: Workspace
    job: int

    def without(self, skeleton: Skeleton, machine: int, *, whole: bool = False) -> Skeleton | None:
        """The skeleton with a machine's slots taken out, or, `whole`, without the pipelines that it is part of; None
        where nothing is left or it is not there."""
        self._write(skeleton)
        return self._read(skeleton) if without(self.work, machine, whole) else None

    def substitute(self, skeleton: Skeleton, old: int, new: int) -> Skeleton:
        """A machine that the skeleton does not use takes one's stages, as far as its GPUs go: with the same ranks, or
        with as many as it has."""
        self._write(skeleton)
        substitute(self.packed, self.work, self.job, old, new)
        return self._read(skeleton)

    def insertions(self, skeleton: Skeleton, machine: int, rng: np.random.Generator) -> list[Skeleton]:
        """Several ways to take in a machine that the skeleton does not use, each with a tensor parallel degree, and a
        pipeline where it asks for one, that are drawn."""
        made = []
        for way in range(INSERTIONS):
            self._write(skeleton)
            if _insert(self.packed, self.work, self.job, machine, way, int(rng.integers(2**31))):
                made.append(self._read(skeleton))
        return made

    def _write(self, skeleton: Skeleton) -> None:
        work = self.work
        work.pipelines[0] = write(skeleton.chains, work.machine, work.ranks, work.starts)

    def _read(self, skeleton: Skeleton) -> Skeleton:
        work = self.work
        return Skeleton(read(work.machine, work.ranks, work.starts, int(work.pipelines[0])), skeleton.options)


def changes_of(spaces: Sequence[JobSpace]) -> list[Changes]:
    """Of each job; all have the same room to work in, so one change is made at a time."""
    packed = pack(spaces)
    work = make_workspace(packed)
    return [Changes(space, packed, work, job) for job, space in enumerate(spaces)]


@kernel
def _insert(packed: SearchTables, work: Workspace, job: int, machine: int, way: int, seed: int) -> bool:
    np.random.seed(seed)
    return insert(packed, work, job, machine, way)
