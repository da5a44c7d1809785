"""Starts processes as a launcher would, and ends all of them whatever happens."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_ranks(argv: Sequence[str], ranks: int, *, limit: float) -> None:
    """One process a rank; fails with their errors if any fails or they take longer than `limit` seconds."""
    shared = {
        "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
        "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "TORCH_GLOO_LAZY_INIT": "1",
        "PYTHONFAULTHANDLER": "1",
    }  # fmt: skip
    logs = [tempfile.TemporaryFile("w+") for _ in range(ranks)]  # noqa: SIM115
    started = [
        subprocess.Popen(
            argv,
            env=os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )
        for rank, log in enumerate(logs)
    ]
    end = time.monotonic() + limit
    late = False
    try:
        # One that fails is enough: the others then wait for it in vain.
        while any(process.poll() is None for process in started) and not any(process.poll() for process in started):
            time.sleep(0.1)
            if time.monotonic() > end:
                late = True
                break
        time.sleep(0.5 if any(process.poll() for process in started) else 0)
    finally:
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    problems = []
    for process, log in zip(started, logs, strict=True):
        log.seek(0)
        words = log.read()
        log.close()
        if process.returncode:
            problems.append(words)
    assert not late, f"not done in {limit} s"
    # When one fails, the others fail for want of it: its own words come first.
    problems.sort(key=lambda words: "Connection was likely closed" in words or "Connection closed by peer" in words)
    assert not problems, "\n".join(words[-3000:] for words in problems)[:9000]
