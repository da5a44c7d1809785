"""A simulation as a timeline file for Perfetto (https://ui.perfetto.dev) and chrome://tracing.

The Trace Event Format: a process is a machine; a thread is a stage's compute, its gradient sums, or one of its
connections in one direction (slices of one thread must not overlap, and connections run side by side). Microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hulk.simulate.result import Simulation, Span, SpanKind

Event = dict[str, Any]

# The order of a stage's threads, from the top.
_COMPUTE, _RECEIVE, _SEND, _SYNC = range(4)
_ROWS = {SpanKind.RECEIVE: _RECEIVE, SpanKind.SEND: _SEND, SpanKind.SYNC: _SYNC}
_Thread = tuple[str, int, int, int, int]
"""Job, pipeline, stage, row, peer: what shares a thread, and the order of threads."""


def to_trace(simulation: Simulation) -> dict[str, Any]:
    """The trace as a JSON object."""
    spans = [span for job in simulation.jobs.values() for span in job.spans]
    processes = {use.machine: i for i, use in enumerate(simulation.machines, start=1)}
    threads = _threads(spans)
    events: list[Event] = []
    for use in simulation.machines:
        title = f"{use.machine} ({use.region})"
        card = f"network out {use.out_share:.0%}, in {use.in_share:.0%}"
        events += _named("process", title, pid=processes[use.machine], tid=0, order=processes[use.machine])
        events.append(_metadata("process_labels", {"labels": card}, pid=processes[use.machine], tid=0))
    for machine, key in threads:
        tid = threads[machine, key]
        events += _named("thread", _thread_title(key), pid=processes[machine], tid=tid, order=tid)
    arrows = _arrow_ids(spans)
    for span in spans:
        place = {"pid": processes[span.machine], "tid": threads[span.machine, _thread(span)]}
        events.append(_slice(span) | place)
        events += [arrow | place for arrow in _arrow(span, arrows)]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"step seconds": simulation.steps}}


def _thread(span: Span) -> _Thread:
    row = _ROWS.get(span.kind, _COMPUTE)
    peer = span.peer if row in (_RECEIVE, _SEND) and span.peer is not None else -1
    return span.job, span.pipeline, span.stage, row, peer


def _threads(spans: list[Span]) -> dict[tuple[str, _Thread], int]:
    """The number of each machine's threads: from 1, in the order they are shown."""
    numbers: dict[tuple[str, _Thread], int] = {}
    last: dict[str, int] = {}
    for machine, key in sorted({(span.machine, _thread(span)) for span in spans}):
        last[machine] = last.get(machine, 0) + 1
        numbers[machine, key] = last[machine]
    return numbers


def _thread_title(key: _Thread) -> str:
    job, pipeline, stage, row, peer = key
    what = {_COMPUTE: "", _RECEIVE: f" ← stage {peer}", _SEND: f" → stage {peer}", _SYNC: " gradients"}[row]
    return f"{job} pipeline {pipeline} stage {stage}{what}"


def _named(what: str, name: str, *, pid: int, tid: int, order: int) -> Iterator[Event]:
    yield _metadata(f"{what}_name", {"name": name}, pid=pid, tid=tid)
    yield _metadata(f"{what}_sort_index", {"sort_index": order}, pid=pid, tid=tid)


def _metadata(name: str, args: dict[str, Any], *, pid: int, tid: int) -> Event:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args}


def _slice(span: Span) -> Event:
    """A complete event. Times are rounded to whole nanoseconds, so that neighbours meet and do not overlap."""
    start, end = round(span.start * 1e9), round(span.end * 1e9)
    args: dict[str, Any] = {"job": span.job, "gpus": ", ".join(map(str, span.gpus))}
    name = str(span.kind)
    if span.microbatch is not None:
        # The viewer gives names that differ by a number alone the same colour.
        name = f"{span.kind} {span.microbatch}"
        args["microbatch"] = span.microbatch
    if span.layers is not None:
        args["layers"] = "{}–{}".format(*span.layers)
    if span.peer is not None:
        args["peer stage"] = span.peer
    return {"ph": "X", "cat": str(span.kind), "name": name, "ts": start / 1e3, "dur": (end - start) / 1e3, "args": args}


_Arrow = tuple[str, int, int, int, int]
"""Job, pipeline, sending stage, receiving stage, microbatch."""


def _arrow_key(span: Span) -> _Arrow | None:
    if span.peer is None or span.microbatch is None:
        return None
    ends = (span.stage, span.peer) if span.kind is SpanKind.SEND else (span.peer, span.stage)
    return span.job, span.pipeline, *ends, span.microbatch


def _arrow_ids(spans: list[Span]) -> dict[_Arrow, int]:
    keys = dict.fromkeys(key for span in spans if (key := _arrow_key(span)) is not None)
    return {key: i for i, key in enumerate(keys, start=1)}


def _arrow(span: Span, ids: dict[_Arrow, int]) -> Iterator[Event]:
    """One end of the arrow from a message's sending to its receiving."""
    key = _arrow_key(span)
    if key is None:
        return
    event: Event = {"cat": "message", "name": "message", "id": ids[key]}
    if span.kind is SpanKind.SEND:
        yield event | {"ph": "s", "ts": round(span.start * 1e9) / 1e3}
    else:
        # "e": the arrow ends in the slice around this moment, not in the next one.
        yield event | {"ph": "f", "bp": "e", "ts": round(span.end * 1e9) / 1e3}
