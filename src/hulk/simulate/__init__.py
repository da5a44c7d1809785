"""A plan played as discrete events, with contention and jitter: what people look at, as a timeline.

`hulk.cost.price` and this package read the same durations; they agree where nothing contends and nothing jitters.
Reading order: engine (the whole), job (one job), pipeline (passes and messages), sync (gradients and update),
traffic (what moves between which machines), network (who gets which share), trace (the timeline file).
"""

from hulk.simulate.engine import simulate
from hulk.simulate.result import JobTimeline, MachineUse, Simulation, Span, SpanKind, StageTimeline
from hulk.simulate.trace import to_trace

__all__ = [
    "JobTimeline",
    "MachineUse",
    "Simulation",
    "Span",
    "SpanKind",
    "StageTimeline",
    "simulate",
    "to_trace",
]
