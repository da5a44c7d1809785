"""The loss of next or hidden tokens, with the logits in memory once: their gradient takes their place.

Logits are the largest tensor of a step. cross_entropy would hold them in their own format, in fp32, and as logarithms
of probabilities, and make their gradient beside all of these. Here fp32 is made of some rows at a time.
"""

from __future__ import annotations

from typing import Any

import torch

from hulk.cost.memory import LOSS_CHUNK
from hulk.runtime.data import IGNORED


class _Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        total = torch.zeros((), dtype=torch.float32, device=logits.device)
        for part, wanted in _chunks(logits, labels):
            known = torch.log_softmax(part.float(), dim=-1).gather(1, wanted.clamp(min=0)[:, None])[:, 0]
            total -= known.masked_fill(wanted == IGNORED, 0.0).sum()
        ctx.save_for_backward(logits, labels)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        logits, labels = ctx.saved_tensors
        for part, wanted in _chunks(logits, labels):
            likely = torch.softmax(part, dim=-1)
            counted = (wanted != IGNORED)[:, None]
            likely.scatter_add_(1, wanted.clamp(min=0)[:, None], -counted.to(likely.dtype))
            torch.mul(likely, (counted * gradients[0]).to(likely.dtype), out=part)
        return logits, None


def _chunks(logits: torch.Tensor, labels: torch.Tensor) -> zip[tuple[torch.Tensor, torch.Tensor]]:
    rows = max(1, LOSS_CHUNK // logits.shape[-1])
    return zip(torch.split(logits, rows), torch.split(labels, rows), strict=True)


def summed_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The sum of -log p(label) over all positions that have one: logits (…, vocabulary), labels (…). The logits are
    gone after the backward pass."""
    result: torch.Tensor = _Summed.apply(logits.flatten(0, -2), labels.flatten())  # type: ignore[no-untyped-call]
    return result
