"""The plan's schedule as the actions of each stage, in the words of torch.distributed.pipelining ("2F0", "1B3")."""

from __future__ import annotations

from hulk.domain.options import Schedule


def passes(warmup: int, microbatches: int) -> list[tuple[bool, int]]:
    """A stage's passes as (forward?, microbatch): `warmup` forwards, then a backward and a forward in turn, then the
    backwards that are left. The order that `hulk.cost.pipeline` prices."""
    order = [(True, m) for m in range(warmup)]
    for m in range(microbatches):
        order.append((False, m))
        if warmup + m < microbatches:
            order.append((True, warmup + m))
    return order


def timetable(schedule: Schedule, stages: int, microbatches: int) -> list[list[str]]:
    """For each stage of a pipeline its actions: stage, F or B, microbatch."""
    return [
        [
            f"{s}{'F' if forward else 'B'}{m}"
            for forward, m in passes(schedule.warmup(s, stages, microbatches), microbatches)
        ]
        for s in range(stages)
    ]
