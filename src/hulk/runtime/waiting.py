"""A rank's work with layers that wait."""

from __future__ import annotations

import time
from functools import partial

import torch

from hulk.cost.prepared import prepare
from hulk.cost.report import Infeasible
from hulk.errors import InfeasibleError
from hulk.io.profiles import bundled_compute
from hulk.runtime.context import Context
from hulk.runtime.emulated import EmulatedCargo, EmulatedStage, emulated_entries, stage_times, wait_until
from hulk.runtime.entries import Entry
from hulk.runtime.stage import Part
from hulk.runtime.work import Work


class EmulatedWork(Work):
    """Layers that wait."""

    def __init__(self, context: Context) -> None:
        super().__init__(context, emulated_entries(context.job.model))
        prepared = prepare(context.job, context.plan, context.cluster, compute=bundled_compute())
        if isinstance(prepared, Infeasible):
            raise InfeasibleError(f"{context.job.name} cannot run by this plan: {prepared.reason}")
        self.sync = self._sync(EmulatedCargo())
        self._first = context.layers[0] == 0
        self._last = context.layers[-1] == len(context.job.model.layers) - 1
        begin = int(prepared.encoded.starts[context.seat.pipeline])
        self._update = float(prepared.durations.update[begin + context.seat.stage])
        parts = []
        for number, stage in context.parts:
            inputs, outputs = self._shape(stage.first - 1), self._shape(stage.last)
            names = [
                [entry.name for entry in self.entries if _lowest(entry, stage.first) == index] for index in stage.layers
            ]
            times = stage_times(prepared, begin + number)
            module = EmulatedStage(times, tuple(outputs.shape), outputs.dtype, partial(self._passed, names))
            parts.append(Part(module, (inputs,), (outputs,)))
        self._schedule = self._schedule_of(parts, _nothing, early=True)

    def _shape(self, layer: int) -> torch.Tensor:
        size, layers = self.context.plan.options.microbatch_size, self.context.job.model.layers
        if layer < 0:
            return torch.empty(size, 1, dtype=torch.long, device="meta")
        if layer == len(layers) - 1:
            return torch.empty(1, device="meta", requires_grad=True)
        return torch.empty(
            size, round(layers[layer].output), dtype=self.context.wire, device="meta", requires_grad=True
        )

    def _passed(self, names: list[list[str]], index: int) -> None:
        for name in names[index]:
            self.sync.passed(name)

    def passes(self, step: int) -> float | None:
        """See `Work`."""
        context = self.context
        count = context.microbatches * context.plan.options.microbatch_size
        args = (torch.zeros(count, 1, dtype=torch.long),) if self._first else ()
        target = torch.zeros(count) if self._last else None
        losses: list[torch.Tensor] | None = [] if self._last else None
        self.sync.begin(self._passes_of)
        self._schedule.step(*args, target=target, losses=losses)
        if step + 1 < context.settings.steps:  # a receive without a message would be in the way of what comes later
            self._schedule.expect()
        self.sync.finish()
        return None

    def update(self) -> None:
        """Wait as long as the update takes."""
        wait_until(time.perf_counter() + self._update)

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
