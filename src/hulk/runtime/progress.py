"""What people and programs see of a run: a line a step, metrics as JSON lines, a trace. Works without torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.errors import InputError
from hulk.runtime.launch import Worker
from hulk.runtime.seats import Seating
from hulk.runtime.settings import Compute
from hulk.runtime.watch import RunError
from hulk.simulate.result import JobTimeline, MachineUse, Simulation, Span, SpanKind
from hulk.simulate.trace import to_trace
from hulk.units import format_count, format_time

Event = dict[str, Any]

LATE = 0.1
"""The share of a step by which a stage is at work for too long before it is called late."""


@dataclass(frozen=True)
class Watched:
    """A job under way; `predicted` is the price's seconds a step, `memory` its bytes of each stage's GPUs, `busy` the
    seconds of a step that each stage is at work. `network`: whether it runs on the network that the price is for;
    `compiled`: whether its blocks are compiled, which the price knows nothing of."""

    job: Job
    seating: Seating
    predicted: float
    memory: Mapping[tuple[int, int], float]
    busy: Mapping[tuple[int, int], float]
    network: bool
    compiled: bool = False


@dataclass(frozen=True, slots=True)
class StageStep:
    """One stage's step, seconds: in passes (also as predicted; None where the prediction is of something else), waiting
    between them, adding up gradients that passes did not hide. Bytes of its lead's GPU up to this step, as the process
    takes them and as tensors do (None: not on a GPU), and as predicted."""

    pipeline: int
    stage: int
    machine: str
    busy: float
    waiting: float
    sync: float
    update: float
    memory: float | None
    allocated: float | None
    predicted_memory: float
    predicted_busy: float | None = None

    @property
    def place(self) -> str:
        """The stage in words."""
        return f"{self.pipeline + 1}.{self.stage + 1} on {self.machine}"


@dataclass(frozen=True)
class StepReport:
    """One step of one job. `loss` is None where nothing is computed, `predicted` where a prediction is of something
    else."""

    job: str
    step: int
    loss: float | None
    seconds: float
    predicted: float | None
    tokens_per_second: float
    stages: tuple[StageStep, ...]

    def line(self, steps: int) -> str:
        """The step in one line."""
        loss = "" if self.loss is None else f"loss {self.loss:.4f}  "
        predicted = "" if self.predicted is None else f" (predicted {format_time(self.predicted)})"
        shares = " ".join(
            f"{stage.busy / self.seconds:.0%}/{stage.waiting / self.seconds:.0%}" for stage in self.stages
        )
        return (
            f"{self.job} step {self.step}/{steps}  {loss}{format_count(self.tokens_per_second)} tokens/s  "
            f"{format_time(self.seconds)}{predicted}  busy/waiting {shares}"
        )

    @property
    def late(self) -> str | None:
        """The stage that the others wait for more than they should, in words; None where there is none. It is at work
        for longer than predicted; without a prediction, far longer than the others are."""
        most = max(self.stages, key=lambda stage: stage.busy - (stage.predicted_busy or 0.0))
        if most.predicted_busy is not None:
            over = most.busy - most.predicted_busy
            words = f"busy {format_time(most.busy)}, predicted {format_time(most.predicted_busy)}"
            return f"{most.place} ({words})" if over > LATE * self.seconds else None
        others = sorted(stage.busy for stage in self.stages if stage is not most)
        if not others or most.busy < 2 * others[len(others) // 2] or most.busy < LATE * self.seconds:
            return None
        return f"{most.place} (busy {format_time(most.busy)}, most others {format_time(others[len(others) // 2])})"

    def metrics(self) -> dict[str, Any]:
        """The step for programs: seconds, bytes."""
        return {
            "job": self.job,
            "step": self.step,
            "loss": self.loss,
            "step_s": self.seconds,
            "predicted_s": self.predicted,
            "tokens_per_s": self.tokens_per_second,
            "stages": [
                {
                    "pipeline": stage.pipeline,
                    "stage": stage.stage,
                    "machine": stage.machine,
                    "busy_s": stage.busy,
                    "predicted_busy_s": stage.predicted_busy,
                    "waiting_s": stage.waiting,
                    "sync_s": stage.sync,
                    "update_s": stage.update,
                    "memory_bytes": stage.memory,
                    "allocated_bytes": stage.allocated,
                    "predicted_memory_bytes": stage.predicted_memory,
                }
                for stage in self.stages
            ],
        }


@dataclass
class Progress:
    """Puts the ranks' events together. A step is reported when all stages have said how it went for them.

    show     called with each step's report and with other news in words
    saved    the newest checkpoint of each job, as far as it is known
    other    by job, why its prediction is not for what it runs on; where it is, there is nothing to say
    metrics  file that gets a JSON object a step
    """

    jobs: Mapping[str, Watched]
    cluster: Cluster
    show: Callable[[StepReport | str], None]
    metrics: Path | None = None
    reports: list[StepReport] = field(default_factory=list)
    spans: dict[str, list[Span]] = field(default_factory=dict)
    traced: dict[str, list[float]] = field(default_factory=dict)
    saved: dict[str, str] = field(default_factory=dict)
    other: dict[str, str] = field(default_factory=dict)
    _devices: dict[str, dict[int, str]] = field(default_factory=dict)
    _ended: dict[str, float] = field(default_factory=dict)
    _open: dict[tuple[str, int], dict[tuple[int, int], Event]] = field(default_factory=dict)
    _begun: bool = False

    def begin(self) -> None:
        """Workers are about to start: the file of metrics is emptied, once. Before, all that may still be wrong leaves
        what an earlier run wrote alone."""
        if self.metrics is not None and not self._begun:
            try:
                self.metrics.write_text("", encoding="utf-8")
            except OSError as error:
                raise InputError(
                    f"cannot write this file: {error.strerror or error}", where=str(self.metrics)
                ) from None
        self._begun = True

    def __call__(self, worker: Worker, event: Event) -> None:
        """Take an event of a worker."""
        if event["event"] == "checkpoint":
            self.saved[worker.job] = event["path"]
            self.show(f"{worker.job} checkpoint {event['path']}")
        if event["event"] == "phase" and "device" in event:
            self._meet(worker, str(event["device"]))
        if event["event"] != "step" or not worker.seat.leads:
            return
        seat, watched = worker.seat, self.jobs[worker.job]
        key = (worker.job, int(event["step"]))
        parts = self._open.setdefault(key, {})
        parts[seat.pipeline, seat.stage] = event
        if len(parts) == len(watched.seating.places):
            self._close(watched, int(event["step"]), self._open.pop(key))

    def step(self, job: str) -> int:
        """The last step that a job has finished in this run; 0: none."""
        return max((report.step for report in self.reports if report.job == job), default=0)

    def _meet(self, worker: Worker, device: str) -> None:
        """A rank is ready to compute on a device; when all of a job are, it is known what its prediction is worth."""
        watched = self.jobs[worker.job]
        devices = self._devices.setdefault(worker.job, {})
        devices[worker.seat.rank] = device
        if len(devices) < watched.seating.size:
            return
        why = self._not_predicted(watched, devices)
        if why is not None:
            self.other[worker.job] = why
            self.show(f"{worker.job} is not compared with its prediction of {format_time(watched.predicted)}: {why}")

    def _not_predicted(self, watched: Watched, devices: Mapping[int, str]) -> str | None:
        for seat in watched.seating.seats:
            kind = self.cluster.machine(seat.machine).gpu.name
            if devices[seat.rank] != Compute.EMULATED and not same_gpu(kind, devices[seat.rank]):
                return f"that is for {kind} on {seat.machine}, this runs on {devices[seat.rank]}"
        if not watched.network and len(watched.seating.machines) > 1:
            return "that is for the cluster's network, this runs inside one computer"
        if watched.compiled:
            return "that is for kernels as PyTorch runs them, these blocks are compiled"
        return None

    def _close(self, watched: Watched, step: int, parts: Mapping[tuple[int, int], Event]) -> None:
        losses = [event["loss"] for event in parts.values() if event["loss"] is not None]
        seconds = self._seconds(watched.job.name, parts)
        stages = tuple(
            StageStep(
                p,
                s,
                watched.seating.stage(p, s).machine,
                busy=float(parts[p, s]["busy"]),
                waiting=float(parts[p, s]["waiting"]),
                sync=float(parts[p, s]["sync"]),
                update=float(parts[p, s]["update"]),
                memory=(parts[p, s].get("memory") or {}).get("used"),
                allocated=(parts[p, s].get("memory") or {}).get("allocated"),
                predicted_memory=watched.memory[p, s],
                predicted_busy=None if watched.job.name in self.other else watched.busy[p, s],
            )
            for p, s in watched.seating.places
        )
        report = StepReport(
            watched.job.name,
            step,
            sum(losses) if losses else None,
            seconds,
            None if watched.job.name in self.other else watched.predicted,
            watched.job.tokens_per_step / seconds,
            stages,
        )
        self.reports.append(report)
        if self.metrics is not None:  # before anybody sees the step: who then presses Ctrl-C has it in the file
            try:
                with self.metrics.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(report.metrics()) + "\n")
            except OSError as error:
                raise RunError(f"cannot write to {self.metrics}: {error.strerror or error}") from None
        self.show(report)
        self._keep_spans(watched, parts, seconds)

    def _seconds(self, job: str, parts: Mapping[tuple[int, int], Event]) -> float:
        """From the end of the step before to the end of this one, each where it comes last. Steps overlap: a rank that
        is early in one step waits in the next, so ranks' own times do not add up to the run's."""
        end = max(float(event["started"]) + float(event["seconds"]) for event in parts.values())
        before = self._ended.get(job, min(float(event["started"]) for event in parts.values()))
        self._ended[job] = end
        return max(end - before, 1e-9)

    def _keep_spans(self, watched: Watched, parts: Mapping[tuple[int, int], Event], seconds: float) -> None:
        name = watched.job.name
        for (p, s), event in parts.items():
            stage = watched.seating.stage(p, s)
            for kind, start, end, microbatch, peer, layers in event["spans"]:
                span = Span(
                    name,
                    p,
                    s,
                    stage.machine,
                    stage.gpus,
                    SpanKind(kind),
                    start,
                    end,
                    microbatch,
                    peer,
                    None if layers is None else (int(layers[0]), int(layers[1])),
                )
                self.spans.setdefault(name, []).append(span)
        if any(event["spans"] for event in parts.values()):
            self.traced.setdefault(name, []).append(seconds)

    def trace(self) -> dict[str, Any]:
        """The traced steps in the simulator's form, from the first moment on."""
        begin = min((span.start for spans in self.spans.values() for span in spans), default=0.0)
        jobs = {}
        for name, spans in self.spans.items():
            moved = [_moved(span, -begin) for span in sorted(spans, key=lambda span: span.start)]
            mean = sum(self.traced[name]) / len(self.traced[name])
            jobs[name] = JobTimeline(name, mean, (), tuple(moved))
        used = {span.machine for spans in self.spans.values() for span in spans}
        machines = tuple(
            MachineUse(machine.name, machine.region, 0.0, 0.0, 0.0, 0.0)
            for machine in self.cluster.machines
            if machine.name in used
        )
        trace = to_trace(Simulation(jobs, machines))
        # How busy the network cards were is not measured.
        trace["traceEvents"] = [event for event in trace["traceEvents"] if event["name"] != "process_labels"]
        return trace


def same_gpu(kind: str, device: str) -> bool:
    """Whether a GPU that calls itself `device` ("NVIDIA A100-SXM4-80GB") is of a catalogue's kind ("a100-80")."""
    name = device.lower()
    return device != "cpu" and all(part in name for part in kind.lower().split("-"))


def _moved(span: Span, by: float) -> Span:
    return Span(
        span.job,
        span.pipeline,
        span.stage,
        span.machine,
        span.gpus,
        span.kind,
        span.start + by,
        span.end + by,
        span.microbatch,
        span.peer,
        span.layers,
    )
