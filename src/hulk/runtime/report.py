"""What a worker tells whoever started it: one JSON object a line on its standard output."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import TCPStore

BEAT = 2.0
"""Seconds between two signs of life."""


class Reporter:
    """Writes events. Everything else that prints to standard output goes to standard error instead, so that the lines
    stay whole."""

    def __init__(self, rank: int) -> None:
        """Take over the standard output."""
        sys.stdout.flush()
        self._file = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self._rank = rank
        self._lock = threading.Lock()
        self.step = 0

    def say(self, event: str, **fields: Any) -> None:
        """Write one event. Where nobody listens any more, the worker ends: its run is over."""
        line = json.dumps({"event": event, "rank": self._rank, "step": self.step, **fields})
        try:
            with self._lock:
                self._file.write(line + "\n")
                self._file.flush()
        except OSError:
            os._exit(1)


def keep_alive(reporter: Reporter, *, address: str, port: int, timeout: float) -> TCPStore:
    """A connection to the store all ranks meet in, and a thread that gives a sign of life now and then.

    The thread ends the worker where the first machine, which holds the store, cannot be reached for `timeout` seconds:
    this machine is cut off, or that one is.
    """
    limit = timedelta(seconds=timeout)
    store = TCPStore(address, port, is_master=False, wait_for_workers=False, timeout=limit)
    last = [time.monotonic()]

    def touch() -> None:
        while True:
            try:
                store.add("sign of life", 0)  # unlike a write, it waits for an answer
            except (RuntimeError, OSError):
                return
            last[0] = time.monotonic()
            time.sleep(BEAT)

    def watch() -> None:
        while True:
            reporter.say("alive")
            time.sleep(BEAT / 2)
            if time.monotonic() - last[0] > timeout:
                reporter.say("cut off", message=f"no answer from {address} for {timeout:.0f} s")
                os._exit(1)

    threading.Thread(target=touch, name="touch", daemon=True).start()
    threading.Thread(target=watch, name="watch", daemon=True).start()
    return TCPStore(address, port, is_master=False, wait_for_workers=False, timeout=limit)


def leave_together(store: TCPStore, *, rank: int, size: int, patience: float) -> None:
    """Rank 0 may hold the store, so it leaves last."""
    count = store.add("ranks that are done", 1)
    end = time.monotonic() + patience
    while rank == 0 and count < size and time.monotonic() < end:
        time.sleep(0.05)
        count = store.add("ranks that are done", 0)
