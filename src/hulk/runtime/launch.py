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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hulk.runtime.hosts import Hosts
from hulk.runtime.seats import Seat, Seating

GRACE = 3.0
"""Seconds between asking a process to end and ending it."""


class Process(Protocol):
    """Something that runs and ends."""

    def poll(self) -> int | None:
        """The exit code, below 0 for a signal that ended it; None while it runs."""


@dataclass(frozen=True)
class Worker:
    """A started rank. Its standard error goes to `log`, lines of its events come from `output`. `predicted_memory`:
    bytes of its GPU, where they are known."""

    job: str
    seat: Seat
    process: Process
    log: Path
    output: Iterable[bytes]
    predicted_memory: float | None = None


@dataclass(frozen=True)
class OwnWorker(Worker):
    """A rank that this process has started."""

    process: subprocess.Popen[bytes]


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
) -> list[OwnWorker]:
    """Start all ranks of a job; `arguments` are the worker's. Each is in a process group of its own, so that it can be
    ended with all it starts, and holds the run's `locks`: file descriptors. `memory`: by stage, as predicted."""
    first = hosts.address(seating.machines[0])
    port = str(free_ports(first, 1)[0])
    started: list[OwnWorker] = []
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
            assert process.stdout is not None
            expected = memory.get((seat.pipeline, seat.stage))
            started.append(OwnWorker(job, seat, process, log, process.stdout, expected))
    except BaseException:
        end_workers(started)
        raise
    return started


def end_workers(workers: Sequence[OwnWorker]) -> None:
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


def _signal(worker: OwnWorker, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(worker.process.pid, number)


def free_ports(address: str, count: int) -> list[int]:
    """Ports for the first ranks' stores: free ones where the address is this computer's, else guesses."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        try:
            for probe in probes:
                probe.bind((address, 0))
            return [int(probe.getsockname()[1]) for probe in probes]
        except OSError:
            return random.SystemRandom().sample(range(20_000, 30_000), count)
