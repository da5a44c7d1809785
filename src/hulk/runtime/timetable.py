"""The plan's schedule as the actions of each slot, in the words of torch.distributed.pipelining: "2F0", "1B3" and, with
backward split, "1I3" for the gradients of inputs and "1W3" for those of weights. Works without what prices are made of.
"""

from __future__ import annotations

from itertools import pairwise

from hulk.domain.options import Schedule


def passes(warmup: int, microbatches: int, behind: int | None = None) -> list[tuple[str, int]]:
    """A slot's passes as (kind, number): `warmup` forwards, then a backward and a forward in turn, then the backwards
    that are left. Gradients of weights, where they come apart, follow so many backwards `behind`. The order that
    `hulk.cost.pipeline` and `hulk.cost.orders` price; all chunks of a slot count as one row of microbatches."""
    order = [("F", m) for m in range(warmup)]
    for m in range(microbatches):
        order.append(("B" if behind is None else "I", m))
        if behind is not None and m >= behind:
            order.append(("W", m - behind))
        if warmup + m < microbatches:
            order.append(("F", warmup + m))
    if behind is not None:
        order += [("W", m) for m in range(max(microbatches - behind, 0), microbatches)]
    return order


def timetable(schedule: Schedule, slots: int, microbatches: int, chunks: int = 1) -> list[list[str]]:
    """For each slot of a pipeline its actions: stage, kind, microbatch."""
    table: list[list[str]] = []
    for s in range(slots):
        table.append([])
        warmup = schedule.warmup(s, slots, microbatches, chunks)
        order = passes(warmup, microbatches * chunks, s if schedule.splits_backward else None)
        turns = _turns(schedule.group(slots, microbatches), microbatches, chunks)
        for kind, number in order:
            chunk, microbatch = turns[number]
            stage = (chunk if kind == "F" else chunks - 1 - chunk) * slots + s
            table[-1].append(f"{stage}{kind}{microbatch}")
    return table


def _turns(group: int, microbatches: int, chunks: int) -> list[tuple[int, int]]:
    """(Chunk, microbatch) of a slot's forwards: a group goes through a chunk, then through the next one. The last group
    has what is left over as well. Backwards go from the last chunk to the first."""
    groups = max(microbatches // group, 1)
    bounds = [*(number * group for number in range(groups)), microbatches]
    return [(chunk, m) for a, b in pairwise(bounds) for chunk in range(chunks) for m in range(a, b)]
