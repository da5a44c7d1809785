"""`hulk run`: train by a plan."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hulk.cli.price import ClusterOption, JobsOption, PlanArgument

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from rich.console import Console

    from hulk.domain.cluster import Cluster
    from hulk.domain.plan import JobPlan
    from hulk.runtime.hosts import Hosts
    from hulk.runtime.progress import Progress, StepReport

DataOption = Annotated[Path | None, typer.Option(help="text file, or folder of them, to train on")]
TokenizerOption = Annotated[Path | None, typer.Option(help="tokenizer.json; without it, bytes are the tokens")]
JobOption = Annotated[str | None, typer.Option(help="run this job only; all jobs of the plan without it")]
StepsOption = Annotated[int, typer.Option(help="optimizer steps of the whole training", min=1)]
SeedOption = Annotated[int, typer.Option(help="seed of weights, data order and masks", min=0, max=2**31)]
RateOption = Annotated[float, typer.Option("--lr", help="learning rate", min=0)]
DecayOption = Annotated[float, typer.Option("--weight-decay", help="weight decay", min=0)]
DropoutOption = Annotated[bool, typer.Option(help="use the model's dropout; off, a run repeats exactly")]
PrecisionOption = Annotated[str | None, typer.Option(help="fp32 or bf16, instead of the job's")]
ComputeOption = Annotated[str, typer.Option(help="real, or emulated: wait as long as the plan's GPUs would take")]
WeightsOption = Annotated[Path | None, typer.Option(help="safetensors file or folder to start from")]
CheckpointsOption = Annotated[Path | None, typer.Option("--checkpoint-dir", help="write checkpoints to this folder")]
EveryOption = Annotated[int, typer.Option(help="steps between checkpoints; 0: only at the end", min=0)]
KeepOption = Annotated[
    int | None, typer.Option(help="how many checkpoints stay, the newest; 0: all (default: 3)", min=0)
]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="remove the checkpoints of an earlier run first")]
ResumeOption = Annotated[bool, typer.Option(help="go on from the newest whole checkpoint in --checkpoint-dir")]
MetricsOption = Annotated[Path | None, typer.Option(help="write a JSON object a step to this file")]
TraceOption = Annotated[Path | None, typer.Option(help="write a Chrome/Perfetto trace of real steps to this file")]
TraceStepsOption = Annotated[int, typer.Option(help="how many of the last steps the trace shows", min=1)]
TimeoutOption = Annotated[
    float, typer.Option(help="seconds without a sign of life before a machine is given up", min=5)
]
TestbedOption = Annotated[bool, typer.Option("--testbed", help="each machine in a network of its own on this computer")]


def run(
    plan: PlanArgument,
    cluster: ClusterOption,
    jobs: JobsOption,
    data: DataOption = None,
    tokenizer: TokenizerOption = None,
    job: JobOption = None,
    steps: StepsOption = 10,
    seed: SeedOption = 0,
    rate: RateOption = 1e-3,
    decay: DecayOption = 0.01,
    dropout: DropoutOption = False,
    precision: PrecisionOption = None,
    compute: ComputeOption = "real",
    weights: WeightsOption = None,
    checkpoint_dir: CheckpointsOption = None,
    every: EveryOption = 0,
    keep: KeepOption = None,
    resume: ResumeOption = False,
    overwrite: OverwriteOption = False,
    metrics: MetricsOption = None,
    trace: TraceOption = None,
    trace_steps: TraceStepsOption = 2,
    timeout: TimeoutOption = 20.0,
    testbed: TestbedOption = False,
) -> None:
    """Start every worker of a plan's jobs and train: loss, speed and what each stage does, step by step."""
    from hulk.cli.inputs import announce_compilation, load_inputs
    from hulk.cli.screen import console
    from hulk.errors import InputError, nearest
    from hulk.io.files import check_output, write_atomic
    from hulk.runtime.run import RunFiles, choose_jobs
    from hulk.runtime.run import run as start
    from hulk.runtime.runnable import check_options
    from hulk.runtime.settings import KEEP, Compute, Settings

    inputs = load_inputs(plan, cluster, jobs)
    for output, option in ((metrics, "--metrics"), (trace, "--trace")):
        check_output(output, option, besides=(data, tokenizer, weights))
    if compute not in list(Compute):
        raise InputError(f"unknown --compute {compute!r}", hint=nearest(compute, list(Compute)))
    if precision not in (None, "fp32", "bf16"):
        raise InputError(f"unknown --precision {precision!r}", hint="fp32 or bf16")
    settings = Settings(
        data=data,
        tokenizer=tokenizer,
        steps=steps,
        seed=seed,
        rate=rate,
        decay=decay,
        dropout=dropout,
        precision=precision,
        compute=Compute(compute),
        weights=weights,
        checkpoints=checkpoint_dir,
        every=every,
        keep=KEEP if keep is None else keep,
        timeout=timeout,
        trace_steps=trace_steps if trace is not None else 0,
    )
    check_options(settings, resume=resume, overwrite=overwrite, keep=keep is not None)
    announce_compilation()
    screen = console()

    def show(news: StepReport | str) -> None:
        screen.print(news if isinstance(news, str) else news.line(steps), soft_wrap=True)

    chosen = choose_jobs(inputs.plan, inputs.jobs, job)
    with _hosts(testbed, inputs.cluster, [inputs.plan.jobs[one.name] for one in chosen]) as hosts:
        progress = start(
            inputs.plan,
            inputs.cluster,
            chosen,
            settings,
            files=RunFiles(plan, cluster, jobs),
            hosts=hosts,
            compute=inputs.compute,
            resume=resume,
            overwrite=overwrite,
            metrics=metrics,
            show=show,
        )
    if trace is not None:
        write_atomic(trace, json.dumps(progress.trace()))
        screen.print(f"trace: {trace} (open it in ui.perfetto.dev or chrome://tracing)", style="dim")
    render(progress, screen)


def render(progress: Progress, screen: Console) -> None:
    """Draw where the time went, stage by stage, as the mean of all steps but the first; and the most memory that a GPU
    of the stage has needed, where it runs on GPUs."""
    from hulk.cli.screen import styled, table
    from hulk.units import format_size, format_time

    for name, watched in progress.jobs.items():
        reports = [report for report in progress.reports if report.job == name]
        if not reports:
            continue
        reports = reports[1:] or reports
        mean = sum(report.seconds for report in reports) / len(reports)
        predicted = f", predicted {format_time(watched.predicted)} ({mean / watched.predicted - 1:+.0%})"
        if name in progress.other:
            predicted = f"; the prediction is for something else: {progress.other[name]}"
        screen.print(styled((name, "bold"), f": {format_time(mean)} a step{predicted}"), soft_wrap=True)
        times = ("busy", "waiting", "sync", "update")
        sizes = ("memory", "predicted") if any(stage.memory for stage in reports[-1].stages) else ()
        rows = table("stage", "on", *times, *sizes, right=(*times, *sizes))
        for index, stage in enumerate(reports[-1].stages):
            columns = [sum(getattr(report.stages[index], part) for report in reports) / len(reports) for part in times]
            taken = [format_size(stage.memory or 0.0), format_size(stage.predicted_memory)] if sizes else []
            place = f"{stage.pipeline + 1}.{stage.stage + 1}"
            rows.add_row(place, stage.machine, *(format_time(column) for column in columns), *taken)
        screen.print(rows)


def _hosts(testbed: bool, cluster: Cluster, plans: Sequence[JobPlan]) -> AbstractContextManager[Hosts]:
    """Where workers run: here, or on a testbed of the machines that the plans use."""
    from dataclasses import replace

    from hulk.errors import InputError
    from hulk.runtime.hosts import LocalHosts

    if not testbed:
        return nullcontext(LocalHosts())
    try:
        from hulk.testbed import Testbed
    except ImportError:
        raise InputError("there is no testbed in this installation", hint="leave out --testbed") from None
    used = {stage.machine for plan in plans for pipeline in plan.pipelines for stage in pipeline.stages}
    part = replace(cluster, machines=tuple(machine for machine in cluster.machines if machine.name in used))
    return Testbed.up(part, name=f"run-{os.getpid()}")
