"""A stage's parameters: as its layers compute with them, their gradients, and what the optimizer updates.

With fp32 these are one tensor and its gradient. With bf16 the layers have bf16 weights; gradients are added up in fp32,
and the optimizer updates an fp32 copy, of which the layers get a rounded one: 2 + 4 + 4 bytes a parameter beside the
optimizer's own state. Where the optimizer is sharded, only a parameter's owner has that copy.

Gradients stay where they are from step to step, so that memory is the same in each.

Of what is split among holders (`hulk.runtime.sharded`), a rank has its part in fp32, and torch makes weights of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from hulk.runtime.entries import Range
from hulk.runtime.slices import local


class Store:
    """The parameters of one rank, by name.

    working   what the layers compute with
    masters   what the optimizer updates, in fp32: the working parameters themselves where those are in fp32
    """

    def __init__(
        self,
        working: Mapping[str, nn.Parameter],
        whole: Mapping[str, torch.Tensor],
        *,
        mine: Callable[[str], bool],
        parts: Mapping[str, nn.Parameter] | None = None,
        rows: Mapping[str, Range] | None = None,
    ) -> None:
        """`whole` has the values in fp32, as the working parameters are sliced; `mine` says what this rank updates.
        `parts` are those of split parameters, which have these `rows` of a slice."""
        self.working = dict(working)
        self._parts, self._rows = dict(parts or {}), dict(rows or {})
        self.masters: dict[str, nn.Parameter] = {}
        self._gradients: dict[str, torch.Tensor] = {}
        for name, parameter in self.working.items():
            plain = parameter.dtype is torch.float32
            gradient = torch.zeros_like(parameter.detach(), dtype=torch.float32)
            self._gradients[name] = gradient
            if plain:
                parameter.grad = gradient
            if mine(name):
                self.masters[name] = parameter if plain else nn.Parameter(whole[name])
                self.masters[name].grad = gradient
        for name, part in self._parts.items():
            first, last = self._rows[name]
            assert local(part).shape[0] == last - first, f"torch has other rows of {name}"
            # The optimizer sees plain tensors, which are where torch has its own.
            part.grad = self._gradients[name] = torch.zeros_like(part.detach())
            self.masters[name] = nn.Parameter(local(part.detach()))
            self.masters[name].grad = local(part.grad)

    def first_row(self, name: str) -> int:
        """Where what this rank has of a parameter begins in its slice."""
        return self._rows[name][0] if name in self._rows else 0

    def gradient(self, name: str) -> torch.Tensor:
        """A parameter's gradient so far, in fp32."""
        return self._gradients[name]

    def watch(self, passed: Callable[[str], None]) -> None:
        """Call `passed` whenever a backward pass has added to a parameter's gradient."""
        for name, parameter in self.working.items():
            hook = partial(self._added, name=name, passed=passed)
            parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
        for name, part in self._parts.items():
            part.register_post_accumulate_grad_hook(lambda _, name=name: passed(name))  # type: ignore[no-untyped-call]

    def added(self, name: str, passed: Callable[[str], None]) -> None:
        """torch has added to a parameter's gradient without telling, as it does with gradients of weights apart from
        backward."""
        self._added(self.working[name], name, passed)

    def _added(self, parameter: Any, name: str, passed: Callable[[str], None]) -> None:
        gradient, total = parameter.grad, self._gradients[name]
        if gradient is not total:
            if isinstance(parameter, DTensor) and isinstance(gradient, DTensor):
                # torch leaves the gradient of a divided embedding whole on every rank.
                gradient = gradient.redistribute(placements=parameter.placements)
            if parameter.dtype is torch.float32:  # torch has added up what was there already
                total.copy_(gradient)
                parameter.grad = total
            else:
                total.add_(gradient)
                parameter.grad = None
        passed(name)

    def settle(self) -> None:
        """The optimizer has made its step: round what it updated, and begin new gradients."""
        with torch.no_grad():
            rounded = [(self.working[name], master) for name, master in self.masters.items() if name in self.working]
            pairs = [(local(parameter), local(master)) for parameter, master in rounded if parameter is not master]
            if pairs:
                torch._foreach_copy_([parameter for parameter, _ in pairs], [master for _, master in pairs])
            torch._foreach_zero_([local(gradient) for gradient in self._gradients.values()])
