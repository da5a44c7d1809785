"""One rank's work in a step, whether it computes or waits: what both kinds share."""

from __future__ import annotations

import torch
from torch import nn

from hulk.runtime.clock import StageClock
from hulk.runtime.context import Context, Wiring, wire_up
from hulk.runtime.entries import PIPELINE, SLICES, Entry
from hulk.runtime.messages import Messages
from hulk.runtime.stage import PlanStage, StagePlace
from hulk.runtime.sync import Cargo, GradientSync
from hulk.runtime.timetable import timetable
from hulk.runtime.warmup import warm_up


class CheckpointError(Exception):
    """This rank could not write its part of a checkpoint."""


class OthersFailedError(Exception):
    """Another rank could not go on; it says why."""


class Work:
    """One rank's work, real or emulated. `done` counts the steps that are behind it."""

    done = 0

    def __init__(self, context: Context, entries: list[Entry]) -> None:
        """Groups and clock."""
        self.context, self.entries = context, entries
        self.clock = StageClock(context.device)
        self.messages = Messages()
        self.wiring: Wiring = wire_up(context, entries)
        self.owners = context.shards.owners(entries, context.place)
        self.sync: GradientSync

    def _sync(self, cargo: Cargo) -> GradientSync:
        context = self.context
        return GradientSync(
            self.wiring.buckets,
            cargo,
            shards=context.shards,
            seat=context.seat,
            regions=context.regions,
            groups=self.wiring.groups,
            clock=self.clock,
            messages=self.messages,
        )

    def _stage(
        self, module: nn.Module, inputs: tuple[torch.Tensor, ...], outputs: tuple[torch.Tensor, ...]
    ) -> PlanStage:
        context, groups = self.context, self.wiring.groups
        leads = groups.get((PIPELINE, context.leads))
        if context.seat.leads and leads is not None and context.device.type == "cpu":
            index, last = context.seat.stage, context.stages - 1
            before = context.microbatches * _bytes(inputs) if index > 0 else 0
            after = context.microbatches * _bytes(outputs) if index < last else 0
            warm_up(leads, index=index, before=before, after=after, messages=self.messages)
        return PlanStage(
            module,
            StagePlace(context.seat.stage, context.stages, leads, groups.get((SLICES, context.slices))),
            device=context.device,
            inputs=inputs,
            outputs=outputs,
            clock=self.clock,
            messages=self.messages,
        )

    def _timetable(self) -> list[list[str]]:
        return timetable(self.context.plan.options.schedule, self.context.stages, self.context.microbatches)

    def passes(self, step: int) -> float | None:
        """All forward and backward passes of a step, and the sums of gradients. The last stage's lead answers with its
        pipeline's part of the loss."""
        raise NotImplementedError

    def update(self) -> None:
        """The optimizer's step."""
        raise NotImplementedError

    def share_weights(self) -> None:
        """With a sharded optimizer: updated weights to those that did not update them."""
        if self.context.plan.options.shard_optimizer:
            self.sync.share_weights(self.owners)

    def close(self) -> None:
        """The last step is done. First the thread ends, then nothing may be left under way."""
        self.sync.close()
        self.messages.close()

    def save(self, step: int) -> str | None:
        """Write a checkpoint; the rank that finishes it answers with its path."""
        raise NotImplementedError


def _bytes(tensors: tuple[torch.Tensor, ...]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
