"""What a stage throws away after a forward pass and computes again in the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from hulk.domain.options import Recompute

Around = Callable[..., Any]
"""Calls a function with what it is given, and keeps less of it than autograd would."""

_aten: Any = torch.ops.aten
_PRODUCTS = (_aten.mm.default, _aten.addmm.default)
_BATCHED = _aten.bmm.default
_KERNELS = (
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
)
_ATTENTION = {getattr(_aten, name).default for name in _KERNELS if hasattr(_aten, name)}
_functional: Any = torch.ops._c10d_functional
_SUMS = {_functional.all_reduce.default, _functional.reduce_scatter_tensor.default}


def around_block(recompute: Recompute) -> Around | None:
    """How a block is called so that its backward pass computes again what the plan says; None: as it is. Attention
    alone is computed again inside of the block (`hulk.runtime.models.lean`)."""
    match recompute:
        case Recompute.FULL:
            return forgetful
        case Recompute.OPERATIONS:
            return partial(forgetful, context_fn=_contexts)
        case _:
            return None


def forgetful(function: Callable[..., Any], *given: Any, draws: bool, **options: Any) -> Any:
    """Call a function and keep only what it is given. `draws`: whether it draws numbers (dropout), which then have to
    be drawn again."""
    return checkpoint(
        function, *given, use_reentrant=False, preserve_rng_state=draws, determinism_check="none", **options
    )


def _contexts() -> Any:
    return create_selective_checkpoint_contexts(_Kept())  # type: ignore[no-untyped-call]


class _Kept:
    """What is kept where operations are computed again: attention's result, that of every second product with a weight,
    and sums over ranks. Forward and recomputation count products each for themselves."""

    def __init__(self) -> None:
        self._products = {False: 0, True: 0}

    def __call__(self, context: Any, operation: Any, *given: Any, **options: Any) -> CheckpointPolicy:
        kept = operation in _ATTENTION or operation in _SUMS
        if operation in _PRODUCTS:
            self._products[context.is_recompute] += 1
            kept = self._products[context.is_recompute] % 2 == 1
        elif operation is _BATCHED:  # weights × values, where attention is no kernel of its own; scores are never kept
            kept = given[1].shape[-1] < given[1].shape[-2]
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE
