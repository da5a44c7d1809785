"""A stage that waits as long as the plan's GPU would take, and moves tensors of the real size.

The times are the price's own; the schedule, the messages and the gradient sums are those of a real run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from hulk.cost.prepared import Prepared
from hulk.domain.model import Model
from hulk.runtime.buckets import Piece
from hulk.runtime.entries import Entry
from hulk.runtime.shards import RowPiece


@dataclass(frozen=True)
class StageTimes:
    """Seconds of one microbatch's forward pass, and of its backward pass by layer (first to last)."""

    forward: float
    backward: tuple[float, ...]


def stage_times(prepared: Prepared, row: int) -> StageTimes:
    """The price's times of a stage; `row` counts the stages of all pipelines."""
    encoded, durations = prepared.encoded, prepared.durations
    first, last = int(encoded.first[row]), int(encoded.last[row])
    tables, kind, kept = prepared.book.tables, encoded.kind[row], int(encoded.kept[row])
    each = np.diff(tables.backward[kind])[first : last + 1]
    if kept:
        each[-kept:] = np.diff(tables.kept[len(tables.update) + kind])[last + 1 - kept : last + 1]
    layers = each.tolist()
    total = float(durations.backward[row])
    scale = total / sum(layers) if sum(layers) > 0 else 0.0
    backward = tuple(seconds * scale for seconds in layers)
    return StageTimes(float(durations.forward[row]), backward)


def emulated_entries(model: Model) -> list[Entry]:
    """A model's parameters by their number alone: of each layer what tensor parallel divides and what it does not, and
    what layers share with the first one."""
    tied = [index for index, layer in enumerate(model.layers) if layer.tied]
    shared = max((model.layers[index].tied for index in tied), default=0)
    entries = [Entry("shared", (shared,), (0, *tied), 0)] if shared else []
    for index, layer in enumerate(model.layers):
        split = layer.params_split - (shared if index == 0 else layer.tied)
        if split > 0:
            entries.append(Entry(f"{index} split", (split,), (index,), 0))
        if layer.params_whole:
            entries.append(Entry(f"{index} whole", (layer.params_whole,), (index,)))
    return entries


class _Pass(torch.autograd.Function):
    """Waits forward, waits backward."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, given: torch.Tensor, stage: EmulatedStage) -> torch.Tensor:
        ctx.stage, ctx.given = stage, (given.shape, given.dtype, given.is_floating_point())
        wait_until(time.perf_counter() + stage.times.forward)
        return torch.zeros(stage.output, dtype=stage.wire)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        del gradients
        stage: EmulatedStage = ctx.stage
        shape, dtype, real = ctx.given
        end = time.perf_counter()
        for index in reversed(range(len(stage.times.backward))):
            end += stage.times.backward[index]
            wait_until(end)
            stage.passed(index)
        return torch.zeros(1), torch.zeros(shape, dtype=dtype) if real else None, None


class EmulatedStage(nn.Module):
    """A module that waits. `output` is the shape of what it sends on; `passed` is told the layer, counted from the
    stage's first, that a backward pass is done with."""

    def __init__(
        self, times: StageTimes, output: tuple[int, ...], wire: torch.dtype, passed: Callable[[int], None]
    ) -> None:
        super().__init__()
        self.times, self.output, self.wire, self.passed = times, output, wire, passed
        self.anchor = nn.Parameter(torch.zeros(1))  # what makes torch run a backward pass through the first stage

    def forward(self, given: torch.Tensor) -> Any:
        """What crosses into the stage to what leaves it."""
        return _Pass.apply(self.anchor, given, self)  # type: ignore[no-untyped-call]


class EmulatedCargo:
    """Buckets of the right size with nothing in them."""

    def __init__(self) -> None:
        self._scratch = torch.zeros(0)

    def load(self, pieces: Sequence[Piece | RowPiece], *, weights: bool) -> torch.Tensor:
        """So many zeros."""
        del weights
        elements = sum(piece.elements for piece in pieces)
        if len(self._scratch) < elements:
            self._scratch = torch.zeros(elements)
        return self._scratch[:elements]

    def unload(self, pieces: Sequence[Piece | RowPiece], buffer: torch.Tensor, *, weights: bool) -> None:
        """Nothing to keep."""


def wait_until(moment: float) -> None:
    """Sleep until `time.perf_counter()` shows that moment."""
    left = moment - time.perf_counter()
    if left > 0:
        time.sleep(left)
