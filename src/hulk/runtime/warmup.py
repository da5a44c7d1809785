"""Bringing the connections of a pipeline up to speed before the first step.

TCP finds a link's rate by sending, and a step sends in short bursts: over a long link the first five or ten steps of a
run would be slower than all others.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from hulk.runtime.messages import Messages

MOST = 8 * 2**20
"""Bytes each way at most: enough to fill a long link, and not long on a slow one."""
STEPS = 2
"""How many steps' worth of messages are sent, where that is less."""


def warm_up(group: dist.ProcessGroup, *, index: int, before: int, after: int, messages: Messages) -> None:
    """Exchange bytes with the stages before and after this one, which is number `index`; `before` and `after` are the
    bytes that a step sends to and fro there (0: there is no such stage). Every second link at a time, so that no stage
    waits for one that waits for it."""
    for parity in (0, 1):
        peer, size = (index + 1, after) if index % 2 == parity else (index - 1, before)
        count = min(MOST, STEPS * size) // 4
        if count == 0:
            continue
        rank = dist.get_global_rank(group, peer)
        receiving = messages.receive(torch.empty(count), rank, group)
        sending = messages.send(torch.zeros(count), rank, group)
        receiving.wait()
        sending.wait()
