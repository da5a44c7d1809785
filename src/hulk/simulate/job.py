"""One job's step: its pipelines, then what follows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hulk.cost.prepared import Prepared
from hulk.cost.traffic import Traffic
from hulk.simulate.jitter import Jitter
from hulk.simulate.network import Network
from hulk.simulate.pipeline import PipelineRun
from hulk.simulate.result import JobTimeline, Span, SpanKind, StageTimeline
from hulk.simulate.spans import SpanLog
from hulk.simulate.sync import SyncRun


class JobRun:
    """Plays one job on a network, and its clock, that all jobs share."""

    def __init__(
        self,
        prepared: Prepared,
        *,
        network: Network,
        jitter: Jitter,
        ready: Sequence[float],
        done: Callable[[JobRun], None],
    ) -> None:
        """Lay everything out and draw the jitter; nothing runs yet. `ready`: after how many seconds each stage can
        begin. `done` is called when the step is over."""
        self._prepared = prepared
        self._log = log = SpanLog(prepared)
        traffic = Traffic(prepared, network.fabric)
        sync = SyncRun(
            prepared,
            network=network,
            traffic=traffic,
            jitter=jitter,
            log=log,
            done=lambda: done(self),
        )
        self._pipelines = [
            PipelineRun(
                prepared,
                index,
                network=network,
                traffic=traffic,
                jitter=jitter,
                log=log,
                last_pass=sync.last_pass,
                ready=ready,
            )
            for index in range(len(prepared.plan.pipelines))
        ]

    def start(self) -> None:
        """Set out."""
        for pipeline in self._pipelines:
            pipeline.start()

    def timeline(self) -> JobTimeline:
        """What happened, once the clock has run out."""
        spans = sorted(self._log.spans, key=lambda span: (span.start, span.pipeline, span.stage))
        places = [(p, s) for p, each in enumerate(self._prepared.plan.pipelines) for s in range(len(each.stages))]
        by_stage: dict[tuple[int, int], list[Span]] = {place: [] for place in places}
        for span in spans:
            by_stage[span.pipeline, span.stage].append(span)
        together: dict[int, list[Span]] = {lead: [] for lead in self._prepared.leads}
        for place, lead in zip(places, self._prepared.leads, strict=True):
            together[lead] += by_stage[place]
        stages = tuple(
            _stage_timeline(*place, by_stage[place], together[lead])
            for place, lead in zip(places, self._prepared.leads, strict=True)
        )
        return JobTimeline(self._prepared.job.name, max(stage.end for stage in stages), stages, tuple(spans))


def _stage_timeline(pipeline: int, stage: int, spans: Sequence[Span], together: Sequence[Span]) -> StageTimeline:
    """A stage by its spans, and by those of all stages on its GPUs, which begin and end as one."""
    passes = [span for span in spans if span.kind.is_pass]
    return StageTimeline(
        pipeline=pipeline,
        stage=stage,
        machine=passes[0].machine,
        at_work=sum(span.seconds for span in passes),
        passes_end=passes[-1].end,
        begin=min(span.start for span in together if span.kind.computes),
        end=_end(together),
    )


def _end(spans: Sequence[Span]) -> float:
    """When a stage is done: it has updated, and all that comes to it has come."""
    return max(span.end for span in spans if span.kind in (SpanKind.UPDATE, SpanKind.SYNC))
