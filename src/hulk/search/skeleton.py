"""What search changes: which GPUs stand where in which pipeline, and a few switches. Cuts and shares follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from hulk.domain.plan import JobPlan, Pipeline, Recompute, Schedule, ScheduleKind, Stage, Sync


class Slot(NamedTuple):
    """`ranks` GPUs of a machine (by its number in the cluster) that hold a stage together."""

    machine: int
    ranks: int


Chain = tuple[Slot, ...]
"""A pipeline's slots, in the order of its stages."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The switches of a job's plan."""

    microbatch: int
    extra: int = 0
    gpipe: bool = False
    recompute: Recompute = Recompute.NONE
    sync: Sync = Sync.RING
    shard_optimizer: bool = False

    @property
    def schedule(self) -> Schedule:
        """The schedule they mean."""
        return Schedule(ScheduleKind.GPIPE) if self.gpipe else Schedule(ScheduleKind.ONE_F_ONE_B, self.extra)


@dataclass(frozen=True, slots=True)
class Skeleton:
    """A job's plan before it is cut."""

    chains: tuple[Chain, ...]
    settings: Settings

    @property
    def machines(self) -> set[int]:
        """The machines it uses."""
        return {slot.machine for chain in self.chains for slot in chain}


def to_job_plan(
    skeleton: Skeleton, names: tuple[str, ...], firsts: list[int], lasts: list[int], microbatches: list[int]
) -> JobPlan:
    """The plan: GPUs of a machine are handed out in the order of the stages that ask for them."""
    taken: dict[int, int] = {}
    pipelines = []
    row = 0
    for chain, share in zip(skeleton.chains, microbatches, strict=True):
        stages = []
        for slot in chain:
            start = taken.get(slot.machine, 0)
            taken[slot.machine] = start + slot.ranks
            gpus = tuple(range(start, start + slot.ranks))
            stages.append(Stage(names[slot.machine], gpus, firsts[row], lasts[row]))
            row += 1
        pipelines.append(Pipeline(tuple(stages), share))
    settings = skeleton.settings
    return JobPlan(
        tuple(pipelines),
        settings.microbatch,
        settings.schedule,
        settings.recompute,
        settings.sync,
        settings.shard_optimizer,
    )
