"""The values that options of a plan have: schedules, what is recomputed, how gradients are added up, what is split."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

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
    def ahead(cls, extra: int) -> Schedule:
        """1F1B with so many more forwards."""
        return cls(ScheduleKind.ONE_F_ONE_B, extra)

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """The schedule a person wrote; PlanError otherwise."""
        if text == "gpipe":
            return GPIPE
        match = re.fullmatch(r"1f1b(?:\+(\d{1,6}))?", text)
        if match is None:
            raise PlanError(f"unknown schedule {text!r}", hint='write "gpipe", "1f1b" or "1f1b+4"')
        return cls.ahead(int(match.group(1) or 0))

    def __str__(self) -> str:
        return f"{self.kind}+{self.extra}" if self.extra else str(self.kind)

    def warmup(self, stage: int, stages: int, microbatches: int) -> int:
        """Forwards a stage does before its first backward."""
        if self.kind is ScheduleKind.GPIPE:
            return microbatches
        return min(microbatches, stages - stage + self.extra)

    @property
    def code(self) -> int:
        """Its number in compiled code: the forwards ahead, or `ALL_AHEAD`."""
        return ALL_AHEAD if self.kind is ScheduleKind.GPIPE else self.extra


PLAIN = Schedule()
GPIPE = Schedule(ScheduleKind.GPIPE)
ALL_AHEAD = -1
"""The number of GPipe in compiled code: all forwards come before the first backward."""


class Recompute(StrEnum):
    """What is thrown away after forward and computed again in backward.

    attention    from the scores to what the heads give (Megatron-LM's selective recomputation)
    operations   all but attention's own result and that of every second product with a weight (torchtitan's)
    full         everything: a block keeps its input alone
    """

    NONE = "none"
    ATTENTION = "attention"
    OPERATIONS = "operations"
    FULL = "full"


class Sync(StrEnum):
    """How replicas add up their gradients."""

    RING = "ring"
    BY_REGION = "by-region"


class Sharding(StrEnum):
    """What the holders of the same layers split among them; each value has the ones before it as well.

    optimizer    the optimizer's state (ZeRO stage 1)
    gradients    gradients, which every microbatch then sums up for those who keep them (ZeRO stage 2)
    parameters   weights, which every pass of a layer then gathers (ZeRO stage 3, FSDP)
    """

    NONE = "none"
    OPTIMIZER = "optimizer"
    GRADIENTS = "gradients"
    PARAMETERS = "parameters"


class Within(StrEnum):
    """Among whom what is sharded is split: all holders of the same layers, those of a region, or those of a machine;
    each such group has all of it (hybrid sharding)."""

    EVERYWHERE = "everywhere"
    REGION = "region"
    MACHINE = "machine"
