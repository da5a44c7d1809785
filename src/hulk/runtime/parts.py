"""Context parallelism: GPUs of a stage that share a sequence, each with a part of its tokens.

Every one of them has two pieces of the sequence, an early and a late one, so that with a causal mask all have as much
to attend to. Blocks, embedding, head and loss see a rank's own tokens only; attention gathers the keys and values of
all, and backward adds up their gradients. What crosses between stages is whole on every rank.

A rank then has only its tokens' part of every gradient. The parts are added up once a step; the ranks of the first part
take part in everything that comes after, and hand their new weights to the others (`RealWork`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

TOKENS = 1
"""The dimension of what flows between layers, (samples, tokens, width), and of ids and labels that is divided."""


@dataclass(frozen=True)
class Parts:
    """The ranks that share a sequence, as one of them sees it: the group, how many there are, and its own number."""

    group: dist.ProcessGroup
    count: int
    index: int

    def pieces(self) -> tuple[int, int]:
        """Which of the sequence's 2 · count pieces this rank has."""
        return self.index, 2 * self.count - 1 - self.index

    def numbers(self, length: int, like: torch.Tensor) -> torch.Tensor:
        """Where the `length` tokens that this rank has stand in the sequence."""
        half = length // 2
        early, late = (torch.arange(piece * half, (piece + 1) * half, device=like.device) for piece in self.pieces())
        return torch.cat([early, late])

    def taken(self, whole: torch.Tensor, dim: int) -> torch.Tensor:
        """This rank's tokens of something."""
        pieces = whole.chunk(2 * self.count, dim)
        return torch.cat([pieces[piece] for piece in self.pieces()], dim)

    def joined(self, part: torch.Tensor, dim: int) -> torch.Tensor:
        """All ranks' tokens, in their order."""
        part = part.contiguous()
        found = [torch.empty_like(part) for _ in range(self.count)]
        dist.all_gather(found, part, group=self.group)
        halves = [each.chunk(2, dim) for each in found]
        return torch.cat([early for early, _ in halves] + [late for _, late in reversed(halves)], dim)

    def mine(self, tensor: torch.Tensor) -> torch.Tensor:
        """This rank's tokens of what every rank has; the gradient is whole again."""
        result: torch.Tensor = _Mine.apply(tensor, self)  # type: ignore[no-untyped-call]
        return result

    def whole(self, tensor: torch.Tensor) -> torch.Tensor:
        """The whole sequence, of which every rank then has the same gradient."""
        result: torch.Tensor = _Whole.apply(tensor, self)  # type: ignore[no-untyped-call]
        return result

    def gathered(self, tensor: torch.Tensor, dim: int) -> torch.Tensor:
        """The whole sequence, for what every rank does with tokens of its own: their gradients are added up."""
        result: torch.Tensor = _Gathered.apply(tensor, self, dim)  # type: ignore[no-untyped-call]
        return result


class _Mine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, parts: Parts) -> torch.Tensor:
        ctx.parts = parts
        return parts.taken(tensor, TOKENS)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.parts.joined(gradients[0], TOKENS), None


class _Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, parts: Parts) -> torch.Tensor:
        ctx.parts = parts
        return parts.joined(tensor, TOKENS)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.parts.taken(gradients[0], TOKENS), None


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, parts: Parts, dim: int) -> torch.Tensor:
        ctx.parts, ctx.dim = parts, dim
        return parts.joined(tensor, dim)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        total = gradients[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=ctx.parts.group)
        return ctx.parts.taken(total, ctx.dim), None, None
