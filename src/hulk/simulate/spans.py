"""Writes down what the stages of one job do."""

from __future__ import annotations

from hulk.cost.prepared import Prepared
from hulk.simulate.result import Span, SpanKind


class SpanLog:
    """Collects spans. Stages are named by rows of the job's arrays, and by pipeline and stage in the spans."""

    def __init__(self, prepared: Prepared) -> None:
        """An empty log."""
        self.spans: list[Span] = []
        self._job = prepared.job.name
        self._places = [
            (p, s, stage.machine, stage.gpus)
            for p, pipeline in enumerate(prepared.plan.pipelines)
            for s, stage in enumerate(pipeline.stages)
        ]

    def add(
        self,
        row: int,
        kind: SpanKind,
        start: float,
        end: float,
        *,
        microbatch: int | None = None,
        peer: int | None = None,
        layers: tuple[int, int] | None = None,
    ) -> None:
        """Write down that a stage did something from `start` to `end`, in seconds."""
        pipeline, stage, machine, gpus = self._places[row]
        self.spans.append(Span(self._job, pipeline, stage, machine, gpus, kind, start, end, microbatch, peer, layers))
