"""Agents on this computer's loopback, for as long as a test lasts."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from hulk.probe.agent import Agent, listen

TOKEN = b"a token of the tests, not of yours"


@contextlib.contextmanager
def running(count: int, token: bytes = TOKEN) -> Iterator[list[Agent]]:
    """So many agents, each on a free port."""
    agents = [Agent(listen("127.0.0.1", 0), token) for _ in range(count)]
    threads = [threading.Thread(target=agent.serve, args=(120.0,)) for agent in agents]
    for thread in threads:
        thread.start()
    try:
        yield agents
    finally:
        for agent, thread in zip(agents, threads, strict=True):
            agent.stop()
            thread.join(10)
            assert not thread.is_alive()


def token_file(folder: Path, token: bytes = TOKEN, mode: int = 0o600) -> Path:
    """A token as people keep it."""
    path = folder / "probe.token"
    path.write_bytes(token + b"\n")
    path.chmod(mode)
    return path
