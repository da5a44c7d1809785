"""What a worker tells whoever started it: one JSON object a line on its standard output. Works without torch, so that a
worker can speak before its libraries are there."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

BEAT = 1.0
"""Seconds between two signs of life."""

STARTED, WAITING, BUILDING, READY = range(4)
"""How far a worker is before its first step; it says so when it gets there."""
PHASES = ("loads its libraries and files", "waits for the other ranks", "builds its stage", "is ready")


LONGEST = 1000
"""Bytes of a line: where several ranks write to one output, lines of up to 4,096 bytes stay whole on a pipe (PIPE_BUF
on Linux), and of up to 1,024 by Slurm's srun, which passes on no more at a time. JSON that is longer goes in parts."""
_PART = (LONGEST - 64) // 2  # every character is one byte of JSON, or two inside a part, which says whose it is besides


class Reporter:
    """Writes events. Everything else that prints to standard output goes to standard error instead, so that the lines
    stay whole."""

    def __init__(self, rank: int) -> None:
        """Take over the standard output, and give signs of life from now on."""
        sys.stdout.flush()
        self._file = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self._rank = rank
        self._lock = threading.Lock()
        self.step = 0
        self.phase(STARTED)
        threading.Thread(target=self._beat, name="signs of life", daemon=True).start()

    def say(self, event: str, **fields: Any) -> None:
        """Write one event. Where nobody listens any more, the worker ends: its run is over."""
        line = json.dumps({"event": event, "rank": self._rank, "step": self.step, **fields})
        try:
            with self._lock:
                for each in in_parts(line, self._rank):
                    self._file.write(each + "\n")
                    self._file.flush()
        except OSError:
            os._exit(1)

    def phase(self, phase: int) -> None:
        """Say how far this worker is."""
        self.say("phase", phase=phase)

    def _beat(self) -> None:
        while True:
            time.sleep(BEAT)
            self.say("alive")


def in_parts(line: str, rank: int) -> list[str]:
    """The lines that a line of JSON goes in: itself, or parts of it, the last of which says so."""
    if len(line) <= LONGEST:
        return [line]
    starts = range(0, len(line), _PART)
    return [json.dumps({"rank": rank, "part": line[at : at + _PART], "last": at == starts[-1]}) for at in starts]
