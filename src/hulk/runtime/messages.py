"""Messages between ranks that are under way.

gloo reads and writes tensors from threads of its own, and knows only where they lie in memory. So whatever is sent or
received without waiting goes through here: one owner holds every tensor together with the handle of its message, from
before it is posted until somebody has waited for it. Nothing under way is ever forgotten, freed by the garbage
collector, or freed by another thread; and a rank that is done says so if something was left over.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
import torch.distributed as dist


class Message:
    """One message under way. `tensor` may be used again when `wait` has returned."""

    def __init__(self, tensor: torch.Tensor, owner: Messages, words: str) -> None:
        self.tensor, self.words, self._owner = tensor, words, owner
        self.handle: Any = None

    def wait(self) -> None:
        """Wait until it has left, or has come; the error of its group where it does neither."""
        if self.handle is not None:
            self.handle.wait()
            self.handle = None
        self._owner.release(self)


class Messages:
    """All messages of a rank; any of its threads may send and receive."""

    def __init__(self) -> None:
        """None yet."""
        self._lock = threading.Lock()
        self._open: dict[int, Message] = {}

    def send(self, tensor: torch.Tensor, target: int, group: dist.ProcessGroup | None, *, tag: int = 0) -> Message:
        """Send a tensor, which must not change until its message is done; `target` counts all ranks."""
        message = self._hold(tensor, f"to rank {target}, tag {tag}")
        message.handle = dist.isend(tensor, dst=target, group=group, tag=tag)
        return message

    def receive(self, into: torch.Tensor, source: int, group: dist.ProcessGroup | None, *, tag: int = 0) -> Message:
        """Post a receive; `source` counts all ranks."""
        message = self._hold(into, f"from rank {source}, tag {tag}")
        message.handle = dist.irecv(into, src=source, group=group, tag=tag)
        return message

    def _hold(self, tensor: torch.Tensor, words: str) -> Message:
        message = Message(tensor, self, words)
        with self._lock:
            self._open[id(message)] = message
        return message

    def release(self, message: Message) -> None:
        """A message is done."""
        with self._lock:
            self._open.pop(id(message), None)

    def close(self) -> None:
        """All is done: RuntimeError where a message was posted that nobody waited for, which is a mistake of ours."""
        with self._lock:
            left = [message.words for message in self._open.values()]
        if left:
            raise RuntimeError(f"{len(left)} messages were left under way: {'; '.join(left[:4])}")
