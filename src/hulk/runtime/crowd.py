"""How many processes a run starts on this computer, and whether it can hold them. Works without torch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from hulk.cost.engine import HULK
from hulk.runtime.room import PROCESS, memory_free
from hulk.runtime.run import Workload, watched_of
from hulk.runtime.settings import Compute, Settings
from hulk.units import format_size

MOST_ON_A_CORE = 16
"""Processes of one core from which on they mostly wait for each other."""
_GPUS = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True)
class Crowd:
    """The processes of a run in words, and why they cannot go well here (None: they can)."""

    words: str
    trouble: str | None


def crowd_of(workload: Workload, settings: Settings) -> Crowd:
    """All processes of a run's jobs, on this computer."""
    count, needed = 0, 0.0
    machines: dict[str, None] = {}
    emulated = settings.compute is Compute.EMULATED
    for job in workload.jobs:
        watched = watched_of(job, workload, settings, network=False)
        for seat in watched.seating.seats:
            count += 1
            machines[seat.machine] = None
            reserved = HULK.reserved(workload.cluster.machine(seat.machine).gpu)
            tensors = max(0.0, watched.memory[seat.pipeline, seat.stage] - reserved)
            needed += PROCESS + (0.0 if emulated or _GPUS.exists() else tensors)
    some = "1 process" if count == 1 else f"{count} processes"
    words = f"starting {some} on this computer, one for each GPU of {_few(list(machines))}"
    free, cores = memory_free(), os.cpu_count() or 1
    if free is not None and needed > free:
        return Crowd(words, f"they need {format_size(needed)} of memory, {format_size(free)} are free")
    if count > MOST_ON_A_CORE * cores:
        return Crowd(words, f"that is {count / cores:.0f} for each of {cores} cores")
    return Crowd(words, None)


def _few(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more machines"
