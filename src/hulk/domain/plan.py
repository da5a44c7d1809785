"""The plan: which layers of which job run on which GPUs. Values only; `hulk.domain.check` holds the invariants."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from hulk.errors import PlanError


class ScheduleKind(StrEnum):
    """The order in which a stage does forward and backward passes."""

    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"


@dataclass(frozen=True, slots=True)
class Schedule:
    """GPipe, 1F1B, or 1F1B with `extra` more forwards ahead in every stage: they hide long links and cost memory.

    Written "gpipe", "1f1b" or "1f1b+4".
    """

    kind: ScheduleKind = ScheduleKind.ONE_F_ONE_B
    extra: int = 0

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """The schedule a person wrote; PlanError otherwise."""
        if text == "gpipe":
            return cls(ScheduleKind.GPIPE)
        match = re.fullmatch(r"1f1b(?:\+(\d{1,6}))?", text)
        if match is None:
            raise PlanError(f"unknown schedule {text!r}", hint='write "gpipe", "1f1b" or "1f1b+4"')
        return cls(ScheduleKind.ONE_F_ONE_B, int(match.group(1) or 0))

    def __str__(self) -> str:
        return f"{self.kind}+{self.extra}" if self.extra else str(self.kind)

    def warmup(self, stage: int, stages: int, microbatches: int) -> int:
        """Forwards a stage does before its first backward."""
        if self.kind is ScheduleKind.GPIPE:
            return microbatches
        return min(microbatches, stages - stage + self.extra)


class Recompute(StrEnum):
    """What is thrown away after forward and computed again in backward."""

    NONE = "none"
    FULL = "full"


class Sync(StrEnum):
    """How replicas add up their gradients."""

    RING = "ring"
    BY_REGION = "by-region"


@dataclass(frozen=True, slots=True)
class Stage:
    """Layers `first` to `last`, both included, on GPUs of one machine, tensor parallel over all of them."""

    machine: str
    gpus: tuple[int, ...]
    first: int
    last: int

    @property
    def tensor_parallel(self) -> int:
        """Every GPU of a stage holds a slice of every layer in it."""
        return len(self.gpus)

    @property
    def layers(self) -> range:
        """The layer indices."""
        return range(self.first, self.last + 1)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One replica: its stages in order, and its share of the global batch in microbatches."""

    stages: tuple[Stage, ...]
    microbatches: int


@dataclass(frozen=True, slots=True)
class JobPlan:
    """How one job trains. With `shard_optimizer` the replicas split the optimizer's state (ZeRO stage 1)."""

    pipelines: tuple[Pipeline, ...]
    microbatch_size: int
    schedule: Schedule = Schedule()
    recompute: Recompute = Recompute.NONE
    sync: Sync = Sync.RING
    shard_optimizer: bool = False

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages of all pipelines, one after the other."""
        return tuple(stage for pipeline in self.pipelines for stage in pipeline.stages)

    @property
    def machines(self) -> tuple[str, ...]:
        """The machines it uses, each once, in the plan's order."""
        return tuple(dict.fromkeys(stage.machine for stage in self.stages))


@dataclass(frozen=True)
class Plan:
    """Every job's plan, the jobs that must wait with the reason, and the machines left idle."""

    jobs: Mapping[str, JobPlan]
    idle: tuple[str, ...] = ()
    waiting: Mapping[str, str] = field(default_factory=dict)


def idle_machines(plans: Iterable[JobPlan], machines: Iterable[str]) -> tuple[str, ...]:
    """Those of the machines that no job's plan uses, in their order."""
    used = {name for plan in plans for name in plan.machines}
    return tuple(name for name in machines if name not in used)


def layer_holders(pipelines: Sequence[Pipeline]) -> Iterator[tuple[range, tuple[Stage, ...]]]:
    """Runs of layers that none of the pipelines cuts, with the stage that holds them in each pipeline. The pipelines
    are of one model, each complete."""
    starts = sorted({stage.first for pipeline in pipelines for stage in pipeline.stages})
    at = [0] * len(pipelines)
    for first, after in pairwise((*starts, pipelines[0].stages[-1].last + 1)):
        for index, pipeline in enumerate(pipelines):
            while pipeline.stages[at[index]].last < first:
                at[index] += 1
        yield range(first, after), tuple(pipeline.stages[i] for pipeline, i in zip(pipelines, at, strict=True))
