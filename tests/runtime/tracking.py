"""Bytes of the tensors that are alive while torch computes, whatever the device: an allocator's statistics for CPUs."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Tracking(TorchDispatchMode):
    """`live` bytes now and at the `peak`, of storages that operations have made since; not of `known` tensors."""

    def __init__(self, known: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._sizes = {tensor.untyped_storage()._cdata: 0 for tensor in known}

    def _see(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._sizes or not size:
            return
        self._sizes[key] = size
        self.live += size
        weakref.finalize(storage, self._gone, key)

    def _gone(self, key: int) -> None:
        self.live -= self._sizes.pop(key, 0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._see(leaf.untyped_storage())
        self.peak = max(self.peak, self.live)
        return result
