"""When a stage computes and when it waits, measured. Seconds; spans carry the time of day, so that machines compare."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

FORWARD, BACKWARD, WEIGHTS = "forward", "backward", "weights"
SEND, RECEIVE, SYNC, UPDATE = "send", "receive", "sync", "update"
"""The kinds of spans: the values of `hulk.simulate.result.SpanKind`, whose package a worker need not import."""

Span = tuple[str, float, float, int | None, int | None, tuple[int, int] | None]
"""Kind, start, end, microbatch, peer stage, layers: as in `hulk.simulate.result.Span`."""


@dataclass
class StageClock:
    """Adds up one rank's step. `busy` is time in passes, `waiting` time between them until the last pass is done."""

    device: torch.device
    tracing: bool = False
    busy: float = 0.0
    waiting: float = 0.0
    sync: float = 0.0
    update: float = 0.0
    spans: list[Span] = field(default_factory=list)
    _free: float = 0.0

    def start(self, *, tracing: bool) -> None:
        """A step begins."""
        self.tracing = tracing
        self.busy = self.waiting = self.sync = self.update = 0.0
        self.spans = []
        self._free = time.time()

    @contextmanager
    def computes(self, kind: str, microbatch: int, source: int | None) -> Iterator[None]:
        """A pass, whose input comes from stage `source`."""
        start = time.time()
        self.waiting += start - self._free
        if source is not None:
            self.add(RECEIVE, self._free, start, microbatch=microbatch, peer=source)
        yield
        self._finish()
        self._free = time.time()
        self.busy += self._free - start
        self.add(kind, start, self._free, microbatch=microbatch)

    def sends(self, microbatch: int, target: int) -> None:
        """A message leaves for stage `target`; how long it is under way, its receiver sees."""
        now = time.time()
        self.add(SEND, now, now + 1e-6, microbatch=microbatch, peer=target)

    @contextmanager
    def updates(self) -> Iterator[None]:
        """The optimizer's step."""
        start = time.time()
        yield
        self._finish()
        end = time.time()
        self.update += end - start
        self.add(UPDATE, start, end)

    def add(
        self,
        kind: str,
        start: float,
        end: float,
        *,
        microbatch: int | None = None,
        peer: int | None = None,
        layers: tuple[int, int] | None = None,
    ) -> None:
        """Write something down, if this step is traced."""
        if self.tracing:
            self.spans.append((kind, start, end, microbatch, peer, layers))

    def _finish(self) -> None:
        """GPUs work behind the program's back; a pass is over when they are done with it."""
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()
