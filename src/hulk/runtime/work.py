"""One rank's work in a step, whether it computes or waits: what both kinds share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from hulk.runtime.clock import StageClock
from hulk.runtime.context import Context, Wiring, wire_up
from hulk.runtime.entries import PIPELINE, SLICES, Entry
from hulk.runtime.messages import Messages
from hulk.runtime.stage import Part, PlanSchedule, PlanStage, StagePlace
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
        self._layers_of = {entry.name: entry.layers for entry in entries}
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

    def _schedule_of(self, parts: Sequence[Part], loss: Any, *, early: bool) -> PlanSchedule:
        """The plan's schedule for the stages of this rank, one for each of its parts."""
        context, groups, chunks = self.context, self.wiring.groups, len(self.context.parts)
        leads = groups.get((PIPELINE, context.leads))
        if context.seat.leads and leads is not None and context.device.type == "cpu":
            index, last = context.seat.stage, context.stages - 1
            before = context.microbatches * sum(_bytes(part.inputs) for part in parts) if index > 0 else 0
            after = context.microbatches * sum(_bytes(part.outputs) for part in parts) if index < last else 0
            warm_up(leads, index=index, before=before, after=after, messages=self.messages)
        stages = [
            PlanStage(
                part,
                StagePlace(number, context.stages, chunks, leads, groups.get((SLICES, context.everyone))),
                device=context.device,
                clock=self.clock,
                messages=self.messages,
            )
            for (number, _), part in zip(context.parts, parts, strict=True)
        ]
        table = timetable(context.plan.options.schedule, context.stages, context.microbatches, chunks)
        return PlanSchedule(stages, table, context.microbatches, loss, early=early)

    def _passes_of(self, name: str) -> int:
        """Backward passes of a step that add to a parameter's gradient here: each stage that uses it does, with every
        microbatch."""
        layers = self._layers_of[name]
        users = sum(any(part.first <= layer <= part.last for layer in layers) for _, part in self.context.parts)
        return self.context.microbatches * users

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
