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
    ZERO_BUBBLE = "zb"


@dataclass(frozen=True, slots=True)
class Schedule:
    """GPipe, 1F1B, or a zero-bubble schedule, which does the gradients of weights apart from those of inputs, and later
    (ZB-H1; Qi et al., Zero Bubble Pipeline Parallelism, 2023). The last two with `extra` more forwards ahead in every
    stage: they hide long links and cost memory.

    Written "gpipe", "1f1b", "1f1b+4", "zb" or "zb+4".
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
        match = re.fullmatch(r"(1f1b|zb)(?:\+(\d{1,6}))?", text)
        if match is None:
            raise PlanError(f"unknown schedule {text!r}", hint='write "gpipe", "1f1b", "1f1b+4", "zb" or "zb+4"')
        return cls(ScheduleKind(match.group(1)), int(match.group(2) or 0))

    def __str__(self) -> str:
        return f"{self.kind}+{self.extra}" if self.extra else str(self.kind)

    @property
    def splits_backward(self) -> bool:
        """Whether gradients of weights are passes of their own."""
        return self.kind is ScheduleKind.ZERO_BUBBLE

    def warmup(self, stage: int, stages: int, microbatches: int, chunks: int = 1) -> int:
        """Forwards a stage does before its first backward; of stages with several chunks, each chunk's count. Those of
        all chunks but the last come first, then as many as it takes until the last stage is there; interleaved 1F1B has
        twice as many, for the way back (Megatron-LM's and torch.distributed.pipelining's numbers)."""
        if self.kind is ScheduleKind.GPIPE:
            return microbatches * chunks
        group = self.group(stages, microbatches)
        largest = microbatches - (max(microbatches // group, 1) - 1) * group  # the last group has what is left over too
        ahead = (chunks - 1) * largest + stages - stage
        if chunks > 1 and not self.splits_backward:
            ahead += stages - stage - 1
        return min(microbatches * chunks, ahead + self.extra)

    def group(self, stages: int, microbatches: int) -> int:
        """Microbatches that go through a chunk before the next chunk's turn: as many as there are stages and, over long
        links, more, so that the first is back at the first stage by then."""
        return microbatches if self.kind is ScheduleKind.GPIPE else min(microbatches, stages + self.extra)

    @property
    def code(self) -> int:
        """Its number in compiled code: the forwards ahead, `ALL_AHEAD`, or `SPLIT` and the forwards ahead."""
        if self.kind is ScheduleKind.GPIPE:
            return ALL_AHEAD
        return self.extra + (SPLIT if self.splits_backward else 0)


PLAIN = Schedule()
GPIPE = Schedule(ScheduleKind.GPIPE)
ALL_AHEAD = -1
"""The number of GPipe in compiled code: all forwards come before the first backward."""
SPLIT = 10_000_000
"""What the numbers of zero-bubble schedules begin with in compiled code: more than anyone writes behind a plus."""


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
