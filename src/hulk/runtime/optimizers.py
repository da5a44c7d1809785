"""The job's optimizer, of torch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from hulk.domain.job import Optimizer
from hulk.errors import InputError

MOMENTUM = 0.9


def make_optimizer(
    kind: Optimizer, parameters: Sequence[nn.Parameter], *, rate: float, decay: float
) -> torch.optim.Optimizer:
    """An optimizer of these parameters."""
    # torch updates many tensors in one go, but not slices and plain ones together.
    sliced = [p for p in parameters if isinstance(p, DTensor)]
    plain = [p for p in parameters if not isinstance(p, DTensor)]
    groups = [{"params": some} for some in (plain, sliced) if some] or [{"params": [nn.Parameter(torch.zeros(1))]}]
    # On a GPU one kernel updates many tensors and makes no copies of them.
    fused = True if all(p.is_cuda for p in parameters) and parameters else None
    if kind is Optimizer.ADAMW:
        return torch.optim.AdamW(groups, lr=rate, weight_decay=decay, fused=fused)
    if kind is Optimizer.ADAM:
        return torch.optim.Adam(groups, lr=rate, weight_decay=decay, fused=fused)
    if kind in (Optimizer.SGD, Optimizer.MOMENTUM):
        momentum = MOMENTUM if kind is Optimizer.MOMENTUM else 0.0
        return torch.optim.SGD(groups, lr=rate, weight_decay=decay, momentum=momentum, fused=fused)
    raise InputError(f"no optimizer {kind} to run")
