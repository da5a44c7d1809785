"""A simulated step as rows of spans that a page can draw: all of them, or, where there are too many, one thing for each
short piece of time, each as often as it took time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from hulk.cost.arrays import Floats, Ints
from hulk.domain.plan import JobPlan
from hulk.simulate import JobTimeline, Simulation, Span, SpanKind
from hulk.view.document import JobTimelineView, TimelineRow

_MOST_SPANS, _MOST_SHOWN = 24_000, 240_000  # of one job: each by itself, or pieces of rows
_MOST_ROWS = 320  # of one job
_LEAST_PIECES, _MOST_PIECES = 120, 1000  # of a step, where a row shows one thing for each
_UNITS = 1_000_000  # in a step
_LETTERS = {
    SpanKind.FORWARD: "f",
    SpanKind.BACKWARD: "b",
    SpanKind.WEIGHTS: "w",
    SpanKind.UPDATE: "u",
    SpanKind.SEND: "t",
    SpanKind.SYNC: "s",
}
_KINDS = "fbwuts"

Key = tuple[int, int, bool]
"""Pipeline, group of GPUs in it, and whether it is the network's row."""


def timeline_view(simulation: Simulation, plans: dict[str, JobPlan]) -> dict[str, JobTimelineView]:
    """Every job's step."""
    return {name: _job(timeline, plans[name]) for name, timeline in simulation.jobs.items()}


def _job(timeline: JobTimeline, plan: JobPlan) -> JobTimelineView:
    chunks = plan.options.chunks
    slots = [len(pipeline.slots(chunks)) for pipeline in plan.pipelines]
    rows: dict[Key, list[Span]] = {
        (p, s, network): [] for p, count in enumerate(slots) for s in range(count) for network in (False, True)
    }
    for span in timeline.spans:
        if span.kind in _LETTERS:  # what one stage receives, another sends
            rows[span.pipeline, span.stage % slots[span.pipeline], not span.kind.computes].append(span)
    shown = {key: rows[key] for key in list(rows)[:_MOST_ROWS]}
    spans = sum(map(len, shown.values()))
    # Spans may end after the step does: a step among others is shorter than the first one alone.
    end = max([timeline.step, *(span.end for span in timeline.spans)])
    unit = end / _UNITS if end else 1.0
    pieces = 0
    if spans > _MOST_SPANS:
        pieces = min(max(_MOST_SHOWN // max(len(shown), 1), _LEAST_PIECES), _MOST_PIECES)
    made = []
    for (pipeline, slot, network), own in shown.items():
        place = plan.pipelines[pipeline].stages[slot]
        at, kind, micro = _coarse(own, unit, pieces) if pieces else _exact(own, unit)
        made.append(
            TimelineRow(
                pipeline=pipeline,
                slot=slot,
                machine=place.machine,
                gpus=list(place.gpus),
                lane="network" if network else "compute",
                at=at,
                kind=kind,
                micro=micro,
            )
        )
    return JobTimelineView(
        step=timeline.step,
        unit=unit,
        resolution=end / pieces if pieces else 0.0,
        spans=len(timeline.spans),
        rows=made,
        rows_left_out=len(rows) - len(shown),
    )


def _exact(spans: Sequence[Span], unit: float) -> tuple[list[int], str, list[int]]:
    """Every span, by start. Ends are rounded, not lengths, so that neighbours meet."""
    at: list[int] = []
    for span in spans:
        begin = round(span.start / unit)
        at += [begin, round(span.end / unit) - begin]
    kinds = "".join(_LETTERS[span.kind] for span in spans)
    return at, kinds, [-1 if span.microbatch is None else span.microbatch for span in spans]


def _coarse(spans: Sequence[Span], unit: float, pieces: int) -> tuple[list[int], str, list[int]]:
    """One thing for each piece of the step, each as often as it took time; pieces of one kind after each other are one
    span."""
    size = _UNITS * unit / pieces
    by_kind: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for span in spans:
        by_kind[_KINDS.index(_LETTERS[span.kind])].append((span.start / size, span.end / size))
    taken = np.zeros((len(_KINDS) + 1, pieces))
    for kind, times in by_kind.items():
        taken[kind] = _covered(np.array(times), pieces)
    taken[-1] = np.maximum(1.0 - taken[:-1].sum(axis=0), 0.0)  # idle
    most = _in_turn(taken)
    begins = np.flatnonzero(np.diff(most, prepend=-1))
    ends = [*begins[1:].tolist(), pieces]
    at: list[int] = []
    letters = ""
    for begin, end in zip(begins.tolist(), ends, strict=True):
        if most[begin] < len(_KINDS):
            first = round(begin * _UNITS / pieces)
            at += [first, round(end * _UNITS / pieces) - first]
            letters += _KINDS[most[begin]]
    return at, letters, []


def _in_turn(taken: Floats) -> Ints:
    """[pieces] the kind that each piece shows, of [kinds, pieces] what it is made of: what was shown too little so far.
    What took most of each would hide whatever takes less than half everywhere."""
    due, shown = np.zeros(len(taken)), np.empty(taken.shape[1], np.int64)
    for piece, parts in enumerate(taken.T):
        due += parts
        shown[piece] = kind = int(np.argmax(due))
        due[kind] -= 1.0
    return shown


def _covered(times: Floats, pieces: int) -> Floats:
    """How much of each piece is covered by intervals [n, 2], in pieces; those that overlap count once each, at most
    the whole piece in all."""
    # The integral of how many intervals there are, up to the edges of all pieces; its differences are what is there.
    edges = np.arange(pieces + 1, dtype=float)
    begins, ends = np.sort(times[:, 0]), np.sort(times[:, 1])
    sums_b, sums_e = np.concatenate(([0.0], np.cumsum(begins))), np.concatenate(([0.0], np.cumsum(ends)))
    at_b, at_e = np.searchsorted(begins, edges), np.searchsorted(ends, edges)
    up_to = (edges * at_b - sums_b[at_b]) - (edges * at_e - sums_e[at_e])
    covered: Floats = np.clip(np.diff(up_to), 0.0, 1.0)
    return covered
