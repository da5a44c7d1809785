"""Steps that follow one another: how long one takes once several have gone by.

A stage goes on with the next step as soon as it is done itself (`Engine.rolls`), so one that begins late may be at its
sums while the first is in the next step. Where no stage takes longer than a first one, from its first pass to its new
weights, that is a step. Where one does, messages of the next step are there when it comes to them, which makes it
quicker the next time: then steps are played one after the other, each stage beginning where it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hulk.cost.arrays import Floats, Ints
from hulk.cost.prepared import Prepared

STEPS, COUNTED = 6, 3
"""How many steps are played, and over how many of the last ones the time of one is taken."""
_SAME = 1 + 1e-9
_REPEATED = 1e-12


@dataclass(frozen=True)
class Stretch:
    """One step of all jobs: when each stage began with it and was done, seconds; all jobs' stages one after the
    other."""

    began: Floats
    done: Floats


@dataclass(frozen=True)
class _Rows:
    """A job's stages, and the first one of each of its pipelines among them."""

    own: slice
    firsts: Ints
    rolls: bool
    goes_on: bool  # whether more steps can be played: a blocking message would have to wait for its receiver's step

    @classmethod
    def of(cls, prepared: Sequence[Prepared]) -> list[_Rows]:
        found, at = [], 0
        for one in prepared:
            end = at + len(one.stages)
            rolls = one.engine.rolls
            goes_on = rolls and not one.durations.blocking.any()
            found.append(cls(slice(at, end), at + one.encoded.starts[:-1], rolls, bool(goes_on)))
            at = end
        return found


def steady_seconds(prepared: Sequence[Prepared], first: Stretch, step: Callable[[Floats], Stretch]) -> list[float]:
    """Seconds of each job's step. `first` is a step in which everybody could begin at 0; `step` plays another, with
    stages that can begin at given times."""
    rows = _Rows.of(prepared)
    seconds = [float((first.done - (first.began if job.rolls else 0.0))[job.own].max()) for job in rows]
    waits = [
        job.goes_on and longest > first.done[job.firsts].max() * _SAME
        for job, longest in zip(rows, seconds, strict=True)
    ]
    if not any(waits):
        return seconds
    passed = np.zeros(len(rows))  # when the present step's own 0 is
    ends = np.zeros((STEPS, len(rows)))
    now, before = first, np.zeros_like(first.done)
    for k in range(STEPS):
        if k > 0:
            begin = np.zeros_like(first.done)
            for j, job in enumerate(rows):
                if job.goes_on:
                    base = now.done[job.firsts].min()
                    begin[job.own] = np.maximum(now.done[job.own] - base, 0.0)
                    passed[j] += base
            # Stages that begin as they did the step before do all as they did then: that step need not be played.
            if np.abs(begin - before).max() > _REPEATED * max(seconds):
                now = step(begin)
            before = begin
        ends[k] = [passed[j] + now.done[job.own].max() for j, job in enumerate(rows)]
    steady = (ends[-1] - ends[-1 - COUNTED]) / COUNTED
    return [float(steady[j]) if waits[j] else seconds[j] for j in range(len(rows))]
