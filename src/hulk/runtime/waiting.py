"""A rank's work with layers that wait."""

from __future__ import annotations

import time

import torch

from hulk.cost.prepared import prepare
from hulk.cost.report import Infeasible
from hulk.errors import InfeasibleError
from hulk.io.profiles import bundled_compute
from hulk.runtime.context import Context
from hulk.runtime.emulated import EmulatedCargo, EmulatedStage, emulated_entries, stage_times, wait_until
from hulk.runtime.entries import Entry
from hulk.runtime.stage import schedule
from hulk.runtime.work import Work


class EmulatedWork(Work):
    """Layers that wait."""

    def __init__(self, context: Context) -> None:
        super().__init__(context, emulated_entries(context.job.model))
        prepared = prepare(context.job, context.plan, context.cluster, compute=bundled_compute())
        if isinstance(prepared, Infeasible):
            raise InfeasibleError(f"{context.job.name} cannot run by this plan: {prepared.reason}")
        row = context.seating.places.index((context.seat.pipeline, context.seat.stage))
        self._times = stage_times(prepared, row)
        self.sync = self._sync(EmulatedCargo())
        stage = context.stage
        self._first = stage.first == 0
        self._last = stage.last == len(context.job.model.layers) - 1
        inputs, outputs = self._shape(stage.first - 1), self._shape(stage.last)
        module = EmulatedStage(self._times, tuple(outputs.shape), outputs.dtype, self._passed)
        self._names = [
            [entry.name for entry in self.entries if _lowest(entry, stage.first) == index] for index in stage.layers
        ]
        self._plan_stage = self._stage(module, (inputs,), (outputs,))
        self._schedule = schedule(self._plan_stage, self._timetable(), context.microbatches, _nothing, early=True)

    def _shape(self, layer: int) -> torch.Tensor:
        size, layers = self.context.plan.options.microbatch_size, self.context.job.model.layers
        if layer < 0:
            return torch.empty(size, 1, dtype=torch.long, device="meta")
        if layer == len(layers) - 1:
            return torch.empty(1, device="meta", requires_grad=True)
        return torch.empty(
            size, round(layers[layer].output), dtype=self.context.wire, device="meta", requires_grad=True
        )

    def _passed(self, index: int) -> None:
        for name in self._names[index]:
            self.sync.passed(name)

    def passes(self, step: int) -> float | None:
        """See `Work`."""
        context = self.context
        count = context.microbatches * context.plan.options.microbatch_size
        args = (torch.zeros(count, 1, dtype=torch.long),) if self._first else ()
        target = torch.zeros(count) if self._last else None
        losses: list[torch.Tensor] | None = [] if self._last else None
        self.sync.begin(context.microbatches)
        self._schedule.step(*args, target=target, losses=losses, return_outputs=False)
        self._plan_stage.settle()
        if step + 1 < context.settings.steps:  # a receive without a message would be in the way of what comes later
            self._plan_stage.expect(context.microbatches)
        self.sync.finish()
        return None

    def update(self) -> None:
        """Wait as long as the update takes."""
        wait_until(time.perf_counter() + self._times.update)

    def save(self, step: int) -> str | None:
        """There is nothing to save."""
        return None


def _lowest(entry: Entry, first: int) -> int:
    """The lowest layer from `first` on that uses a parameter: when a backward pass has passed it, its gradient is
    there."""
    return min((layer for layer in entry.layers if layer >= first), default=-1)


def _nothing(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The loss of what was not computed."""
    del target
    return output.sum()
