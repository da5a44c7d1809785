"""Starting the workers of a job, one process a GPU. Works without torch."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from hulk.runtime.hosts import Hosts
from hulk.runtime.seats import Seat, Seating

GRACE = 3.0
"""Seconds between asking a process to end and ending it."""


@dataclass(frozen=True)
class Worker:
    """A started rank. Its standard error goes to `log`. `predicted_memory`: bytes of its GPU, where they are known."""

    job: str
    seat: Seat
    process: subprocess.Popen[bytes]
    log: Path
    predicted_memory: float | None = None

    @property
    def output(self) -> IO[bytes]:
        """Where its events come from."""
        assert self.process.stdout is not None
        return self.process.stdout


def start_workers(
    job: str,
    seating: Seating,
    hosts: Hosts,
    arguments: Sequence[str],
    *,
    logs: Path,
    threads: int,
    locks: Sequence[int],
    memory: Mapping[tuple[int, int], float],
) -> list[Worker]:
    """Start all ranks of a job; `arguments` are the worker's. Each is in a process group of its own, so that it can be
    ended with all it starts, and holds the run's `locks`: file descriptors. `memory`: by stage, as predicted."""
    first = hosts.address(seating.machines[0])
    port = str(_free_port(first))
    started: list[Worker] = []
    try:
        for seat in seating.seats:
            argv = [sys.executable, "-m", "hulk.runtime.worker", *arguments]
            variables = {
                "RANK": str(seat.rank),
                "LOCAL_RANK": str(seat.local_rank),
                "WORLD_SIZE": str(seating.size),
                "LOCAL_WORLD_SIZE": str(len(seating.on(seat.machine))),
                "MASTER_ADDR": first,
                "MASTER_PORT": port,
            }
            interface = hosts.interface(seat.machine)
            if interface is not None:
                variables |= {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}
            log = logs / f"{job}-rank{seat.rank}-{seat.machine}.log"
            with log.open("wb") as errors:
                process = subprocess.Popen(  # noqa: S603 (our own program, no shell)
                    hosts.command(seat.machine, argv),
                    env={"OMP_NUM_THREADS": str(threads), **os.environ, **variables},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    start_new_session=True,
                    pass_fds=locks,
                )
            started.append(Worker(job, seat, process, log, memory.get((seat.pipeline, seat.stage))))
    except BaseException:
        end_workers(started)
        raise
    return started


def end_workers(workers: Sequence[Worker]) -> None:
    """End all that still run, with everything they started; nothing is left behind."""
    running = [worker for worker in workers if worker.process.poll() is None]
    for worker in running:
        _signal(worker, signal.SIGTERM)
    end = time.monotonic() + GRACE
    while time.monotonic() < end and any(worker.process.poll() is None for worker in running):
        time.sleep(0.05)
    for worker in workers:  # what a worker started may outlive it
        _signal(worker, signal.SIGKILL)
        worker.process.wait()


def _signal(worker: Worker, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(worker.process.pid, number)


def _free_port(address: str) -> int:
    """A port for the first rank's store: a free one where the address is this computer's, else a guess."""
    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
            return int(probe.getsockname()[1])
        except OSError:
            return random.SystemRandom().randrange(20_000, 30_000)
