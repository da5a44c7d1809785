"""A simulated step as rows of spans that a page can draw: all of them, or, where there are too many, those of its begin
and its end, and between them one thing for each short piece of time, each as often as it took time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hulk.cost.arrays import Floats, Ints
from hulk.domain.plan import JobPlan
from hulk.simulate import JobTimeline, Simulation, Span, SpanKind
from hulk.view.document import JobTimelineView, TimelineRow

_MOST_SHOWN = 80_000  # spans of all jobs together: some 1.4 MB of a report
_MOST_ROWS = 320  # of one job
_LEAST_PIECES, _MOST_PIECES = 60, 1000  # of a step, where a row shows one thing for each
_IN_FULL = 1 / 6  # of what a job may show, at its begin as at its end: every span
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
Shown = tuple[list[int], str, list[int]]
"""What a row shows: `at`, `kind` and `micro` of a `TimelineRow`."""


@dataclass(frozen=True)
class _Grid:
    """How a step is shown: seconds from its begin to its end, in so many pieces, of which every span of the first and
    of the last ones is shown: `head` of them, and those from `tail` on. No pieces: every span of all."""

    end: float
    pieces: int = 0
    head: int = 0
    tail: int = 0

    @property
    def unit(self) -> float:
        """Seconds of what begins and lengths count."""
        return self.end / _UNITS if self.end else 1.0

    @property
    def piece(self) -> float:
        """Seconds of a piece; 0 where there are none."""
        return self.end / self.pieces if self.pieces else 0.0


def timeline_view(simulation: Simulation, plans: dict[str, JobPlan]) -> dict[str, JobTimelineView]:
    """Every job's step. Jobs with few spans leave room to those with many."""
    counts = {name: sum(span.kind in _LETTERS for span in its.spans) for name, its in simulation.jobs.items()}
    room, left, made = _MOST_SHOWN, len(counts), {}
    for name in sorted(counts, key=lambda name: counts[name]):
        most = room // left
        made[name] = _job(simulation.jobs[name], plans[name], most)
        room, left = room - min(most, counts[name]), left - 1
    return {name: made[name] for name in simulation.jobs}


def _job(timeline: JobTimeline, plan: JobPlan, most: int) -> JobTimelineView:
    chunks = plan.options.chunks
    slots = [len(pipeline.slots(chunks)) for pipeline in plan.pipelines]
    rows: dict[Key, list[Span]] = {
        (p, s, network): [] for p, count in enumerate(slots) for s in range(count) for network in (False, True)
    }
    for span in timeline.spans:
        if span.kind in _LETTERS:  # what one stage receives, another sends
            rows[span.pipeline, span.stage % slots[span.pipeline], not span.kind.computes].append(span)
    shown = {key: rows[key] for key in list(rows)[: max(2, min(_MOST_ROWS, most // _LEAST_PIECES))]}
    # Spans may end after the step does: a step among others is shorter than the first one alone.
    grid = _Grid(max([timeline.step, *(span.end for span in timeline.spans)]))
    if sum(map(len, shown.values())) > most:
        grid, drawn = _fitting(grid.end, list(shown.values()), most)
    else:
        drawn = [_exact(own, grid.unit) for own in shown.values()]
    made = []
    for (pipeline, slot, network), (at, kind, micro) in zip(shown, drawn, strict=True):
        place = plan.pipelines[pipeline].stages[slot]
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
        unit=grid.unit,
        resolution=grid.piece,
        in_full=[grid.head * grid.piece, grid.tail * grid.piece],
        spans=len(timeline.spans),
        rows=made,
        rows_left_out=len(rows) - len(shown),
    )


def _fitting(end: float, rows: Sequence[Sequence[Span]], most: int) -> tuple[_Grid, list[Shown]]:
    """Rows that show no more than `most` spans in all, unless even the coarsest do."""
    begins = np.sort([span.start for row in rows for span in row])
    ends = np.sort([span.end for row in rows for span in row])
    some = int(most * _IN_FULL)
    until, since = begins[min(some, len(begins) - 1)], ends[max(len(ends) - 1 - some, 0)]
    pieces = min(max(4 * most // len(rows), _LEAST_PIECES), _MOST_PIECES)  # neighbours of one kind are one
    while True:
        head, tail = int(until * pieces / end), int(np.ceil(since * pieces / end))
        # In pieces so coarse that there is nothing between begin and end, neither is shown in full.
        grid = _Grid(end, pieces, head, min(tail, pieces)) if head < tail else _Grid(end, pieces, 0, pieces)
        drawn = [_in_part(row, grid) for row in rows]
        count = sum(len(kinds) for _, kinds, _ in drawn)
        if count <= most or pieces == _LEAST_PIECES:
            return grid, drawn
        pieces = max(_LEAST_PIECES, min(pieces * 3 // 4, pieces * most // count))


def _in_part(spans: Sequence[Span], grid: _Grid) -> Shown:
    """Every span of the begin and the end; those that reach over are cut there, and no microbatch is told of them."""
    until, since = grid.head * grid.piece, grid.tail * grid.piece
    at, kinds, micro = _coarse(spans, grid)
    first = _exact([span for span in spans if span.start < until], grid.unit, last=until)
    last = _exact([span for span in spans if span.end > since], grid.unit, begin=since)
    return first[0] + at + last[0], first[1] + kinds + last[1], first[2] + micro + last[2]


def _exact(spans: Iterable[Span], unit: float, begin: float = 0.0, last: float = float("inf")) -> Shown:
    """Every span, by start. Ends are rounded, not lengths, so that neighbours meet."""
    at: list[int] = []
    kinds = ""
    micro: list[int] = []
    for span in spans:
        start = round(max(span.start, begin) / unit)
        at += [start, round(min(span.end, last) / unit) - start]
        kinds += _LETTERS[span.kind]
        whole = begin <= span.start and span.end <= last and span.microbatch is not None
        micro.append(span.microbatch if whole and span.microbatch is not None else -1)
    return at, kinds, micro


def _coarse(spans: Sequence[Span], grid: _Grid) -> Shown:
    """One thing for each piece between begin and end, each as often as it took time; pieces of one kind after each
    other are one span."""
    by_kind: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for span in spans:
        by_kind[_KINDS.index(_LETTERS[span.kind])].append((span.start / grid.piece, span.end / grid.piece))
    taken = np.zeros((len(_KINDS) + 1, grid.pieces))
    for kind, times in by_kind.items():
        taken[kind] = _covered(np.array(times), grid.pieces)
    taken[-1] = np.maximum(1.0 - taken[:-1].sum(axis=0), 0.0)  # idle
    most = _in_turn(taken[:, grid.head : grid.tail])
    begins = np.flatnonzero(np.diff(most, prepend=-1))
    ends = [*begins[1:].tolist(), len(most)]
    at: list[int] = []
    letters = ""
    for begin, end in zip(begins.tolist(), ends, strict=True):
        if most[begin] < len(_KINDS):
            first = round((grid.head + begin) * _UNITS / grid.pieces)
            at += [first, round((grid.head + end) * _UNITS / grid.pieces) - first]
            letters += _KINDS[most[begin]]
    return at, letters, [-1] * len(letters)


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
