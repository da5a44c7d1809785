"""Groups of ranks that exchange tensors."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from hulk.runtime.entries import Key

_made: dict[Key, Any] = {}  # a process may run several plans one after the other


def backend(device: torch.device) -> str:
    """NCCL where there are GPUs, gloo elsewhere."""
    return "nccl" if device.type == "cuda" else "gloo"


def make_groups(wanted: Iterable[Key], *, patience: float) -> dict[Key, dist.ProcessGroup]:
    """The groups among these that this rank is in.

    Every rank of the process group takes part in making every group, in the same order: torch names a group by how many
    a rank has made, so it would not find its members if each made only its own.
    """
    me = dist.get_rank()
    for key in sorted(set(wanted)):
        ranks = key[1]
        if len(ranks) > 1 and key not in _made:
            _made[key] = dist.new_group(list(ranks), timeout=timedelta(seconds=patience), sort_ranks=False)
    return {key: group for key, group in _made.items() if me in key[1] and isinstance(group, dist.ProcessGroup)}
