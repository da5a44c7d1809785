"""A machine's output, dealt out to the ranks that wrote it, so that it is watched like workers of one's own."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hulk.runtime.launch import Worker
from hulk.runtime.progress import Watched

LOST = 255
"""The exit code of a machine that is gone without a word; that of ssh."""


class Lines:
    """Lines that come from elsewhere, until there are no more."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def put(self, line: bytes | None) -> None:
        """One more; None: the last has come."""
        self._queue.put(line)

    def __iter__(self) -> Iterator[bytes]:
        while (line := self._queue.get()) is not None:
            yield line


class Part:
    """Some ranks of a job, whose output comes on one line: those of a machine, or all. `log` gets what else is said."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self._lines: dict[int, Lines] = {}
        self._code: int | None = None
        self._lock = threading.Lock()

    def workers(self, watched: Watched, machine: str | None = None) -> list[Worker]:
        """The ranks, as `hulk.runtime.watch` takes them: those of a machine, or all."""
        made = []
        for seat in watched.seating.seats:
            if machine in (None, seat.machine):
                self._lines[seat.rank] = Lines()
                expected = watched.memory.get((seat.pipeline, seat.stage))
                made.append(Worker(watched.job.name, seat, self, self.log, self._lines[seat.rank], expected))
        return made

    def poll(self) -> int | None:
        """The exit code of what runs all these ranks; None while it runs."""
        return self._code

    def take(self, line: str) -> None:
        """One line of the output: a rank's event, or something else. What comes before a JSON object is left out: Ray
        writes which process said something."""
        at = line.find("{")
        event: Any = None
        if at >= 0:
            try:
                event = json.loads(line[at : line.rfind("}") + 1])
            except ValueError:
                event = None
        rank = event.get("rank") if isinstance(event, Mapping) else None
        if rank in self._lines:
            self._lines[rank].put(line[at : line.rfind("}") + 1].encode())
        else:
            self.say(line)

    def say(self, words: str) -> None:
        """Keep what is no event."""
        with self._lock, self.log.open("a", encoding="utf-8") as log:
            log.write(words + "\n")

    def end(self, code: int) -> None:
        """It has ended; nothing comes any more. Only the first word counts."""
        if self._code is None:
            self._code = code
            for lines in self._lines.values():
                lines.put(None)
