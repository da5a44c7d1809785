"""What Ray runs on a node: it starts an agent, and passes lines on. Ray sends this file there as it is, so that it
needs nothing of Hulk, whose version may be another."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from collections import deque
from contextlib import suppress


class Keeper:
    """Keeps an agent for whoever launches. When Ray ends this process the agent's input ends, and so does the agent."""

    def __init__(self) -> None:
        self._said: deque[str] = deque(maxlen=20)
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "hulk.launch.agent"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._ear = threading.Thread(target=self._overhear, daemon=True)
        for thread in (self._ear, threading.Thread(target=self._listen, daemon=True)):
            thread.start()

    def tell(self, line: bytes) -> None:
        """Pass a line to the agent."""
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):  # the agent is gone, which `hear` tells
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def hear(self, seconds: float) -> list[bytes | None]:
        """The lines that have come since, or the next one within some seconds; None is the end."""
        found: list[bytes | None] = []
        with suppress(queue.Empty):
            found.append(self._lines.get(timeout=seconds))
            while not self._lines.empty():
                found.append(self._lines.get())
        return found

    def why(self) -> tuple[list[str], int | None]:
        """What the agent said last of its failure, and its exit code."""
        self._ear.join(2.0)
        return [line for line in self._said if line], self._process.poll()

    def close(self, seconds: float) -> None:
        """End the agent: its input ends."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _overhear(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said.append(line.decode("utf-8", "replace").strip()[:300])
