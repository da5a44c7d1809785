"""What the network is trained for: to say how the hidden part of a plan goes on."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from hulk.gnn.batches import Batch
from hulk.gnn.model import Proposer
from hulk.propose.recipe import HEADS, UNKNOWN

_EARLIER = 0.3
_JOBS = 0.5
_AMOUNTS = 0.2
_RECIPES = 0.4
_BESIDE = 0.2


def completion_loss(model: Proposer, batch: Batch, known: Tensor) -> tuple[Tensor, Tensor]:
    """The loss, and the last round's cross-entropy alone in nats for what is hidden.

    Five terms: cross-entropy of every class's hidden shares, by its weight; the same by job, so that every job counts
    alike however few machines it has; how much of a class an owner takes; the recipes; and which classes follow each
    other in a pipeline. Earlier rounds count a little too.
    """
    logits, amounts, recipes, beside = model.all_rounds(*(*batch.graph, known))
    hidden = (batch.target - known).clamp(min=0.0)
    total = batch.target.new_zeros(())
    entropy = total
    for number, each in enumerate(logits):
        logs = torch.log_softmax(each, dim=-1)
        entropy = _by_class(logs, hidden, batch.power)
        by_job = _by_job(logs, hidden, batch.graph[-1][..., 0])
        total = total + (1.0 if number == len(logits) - 1 else _EARLIER) * (entropy + _JOBS * by_job)
    total = total + _AMOUNTS * _of_amounts(amounts, hidden, batch.power)
    total = total + _RECIPES * _of_recipes(recipes, batch.recipes)
    total = total + _BESIDE * _of_beside(beside, batch)
    return total, entropy.detach()


def _by_class(logs: Tensor, hidden: Tensor, power: Tensor) -> Tensor:
    weight = hidden * power.unsqueeze(-1)
    return -(weight * logs).sum() / weight.sum().clamp(min=1e-6)


def _by_job(logs: Tensor, hidden: Tensor, worth: Tensor) -> Tensor:
    """Mean over jobs of the cross-entropy over the job's own hidden machines, by what they are worth to it."""
    weight = hidden[..., :-1] * worth
    total = weight.sum(dim=1)
    each = -(weight * logs[..., :-1]).sum(dim=1) / total.clamp(min=1e-6)
    some = (total > 1e-6).to(each.dtype)
    return (each * some).sum() / some.sum().clamp(min=1.0)


def _of_recipes(logits: Tensor, classes: Tensor) -> Tensor:
    """Mean cross-entropy over the numbers of a recipe and over the jobs whose recipe is known, in nats."""
    begin, total = 0, logits.new_zeros(())
    known = classes[..., 0] != UNKNOWN
    for number, head in enumerate(HEADS):
        own = logits[..., begin : begin + len(head.values)]
        begin += len(head.values)
        each = functional.cross_entropy(
            own.flatten(0, 1), classes[..., number].flatten(), ignore_index=UNKNOWN, reduction="sum"
        )
        total = total + each / len(HEADS)
    return total / known.sum().clamp(min=1)


def _of_beside(logits: Tensor, batch: Batch) -> Tensor:
    """Mean cross-entropy over pairs of classes that one job has machines of, in nats."""
    has = (batch.target[..., :-1] > 0).to(logits.dtype)
    other = 1 - torch.eye(logits.shape[-1], device=logits.device)
    together = (has @ has.transpose(1, 2) > 0).to(logits.dtype) * other
    each = functional.binary_cross_entropy_with_logits(logits, batch.beside, reduction="none")
    return (each * together).sum() / together.sum().clamp(min=1.0)


def _of_amounts(amounts: Tensor, hidden: Tensor, power: Tensor) -> Tensor:
    left = hidden.sum(dim=-1, keepdim=True)
    part = (hidden / left.clamp(min=1e-6)).clamp(0.0, 1.0)
    weight = (hidden > 0).to(part.dtype) * power.unsqueeze(-1)
    each = functional.binary_cross_entropy_with_logits(amounts, part, reduction="none")
    return (each * weight).sum() / weight.sum().clamp(min=1e-6)
