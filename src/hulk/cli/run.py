"""`hulk run`: train by a plan."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hulk.cli.live import PageOption, PagePortOption, on_page
from hulk.cli.price import ClusterOption, JobsOption, PlanArgument
from hulk.runtime.options import takes_settings
from hulk.runtime.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from rich.console import Console
    from rich.progress import TaskID

    from hulk.domain.cluster import Cluster
    from hulk.domain.plan import JobPlan
    from hulk.runtime.hosts import Hosts
    from hulk.runtime.progress import Progress, StepReport
    from hulk.runtime.run import Workload

JobOption = Annotated[str | None, typer.Option(help="run this job only; all jobs of the plan without it")]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="remove the checkpoints of an earlier run first")]
ResumeOption = Annotated[bool, typer.Option(help="go on from the newest whole checkpoint in --checkpoint-dir")]
MetricsOption = Annotated[Path | None, typer.Option(help="write a JSON object a step to this file")]
TraceOption = Annotated[Path | None, typer.Option(help="write a Chrome/Perfetto trace of real steps to this file")]
TraceStepsOption = Annotated[int, typer.Option(help="how many of the last steps the trace shows", min=1)]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="do not ask where it is more than this computer can do")]
TestbedOption = Annotated[bool, typer.Option("--testbed", help="each machine in a network of its own on this computer")]


@takes_settings(without=("resume", "patience", "trace_steps"))
def run(
    plan: PlanArgument,
    cluster: ClusterOption,
    jobs: JobsOption,
    settings: Settings,
    job: JobOption = None,
    resume: ResumeOption = False,
    overwrite: OverwriteOption = False,
    metrics: MetricsOption = None,
    trace: TraceOption = None,
    trace_steps: TraceStepsOption = 2,
    testbed: TestbedOption = False,
    page: PageOption = False,
    page_port: PagePortOption = 0,
    yes: YesOption = False,
) -> None:
    """Start every worker of a plan's jobs and train: loss, speed and what each stage does, step by step."""
    from hulk.cli.inputs import announce_compilation, load_inputs
    from hulk.cli.screen import console
    from hulk.runtime.choice import choose_jobs
    from hulk.runtime.run import Workload
    from hulk.runtime.run import run as start
    from hulk.runtime.runnable import check_options
    from hulk.runtime.settings import RunFiles

    inputs = load_inputs(plan, cluster, jobs)
    settings = checked(settings, metrics, trace, trace_steps)
    check_options(settings, resume=resume, overwrite=overwrite)
    announce_compilation()
    screen = console()
    chosen = choose_jobs(inputs.plan, inputs.jobs, job)
    workload = Workload(inputs.plan, inputs.cluster, chosen, inputs.compute, RunFiles(plan, cluster, jobs))
    with (
        _hosts(testbed, inputs.cluster, [inputs.plan.jobs[one.name] for one in chosen]) as hosts,
        news(screen, settings.steps) as say,
        on_page(say, workload, settings.steps, page_port, wanted=page) as show,
    ):
        announce(workload, settings, screen, yes=yes)
        progress = start(
            workload, settings, hosts=hosts, resume=resume, overwrite=overwrite, metrics=metrics, show=show
        )
    if trace is not None:
        write_trace(trace, progress, screen)
    render(progress, screen)


def checked(settings: Settings, metrics: Path | None, trace: Path | None, trace_steps: int) -> Settings:
    """The settings with what a trace needs; InputError where an output would replace an input."""
    from hulk.io.files import check_output

    for output, option in ((metrics, "--metrics"), (trace, "--trace")):
        check_output(output, option, besides=(settings.data, settings.tokenizer, settings.weights))
    return settings if trace is None else settings.model_copy(update={"trace_steps": trace_steps})


def announce(workload: Workload, settings: Settings, screen: Console, *, yes: bool) -> None:
    """Say how many processes start on this computer; where that cannot go well, ask, or InputError where nobody can be
    asked. `yes`: go on without asking."""
    from hulk.errors import InputError
    from hulk.runtime.crowd import crowd_of

    crowd = crowd_of(workload, settings)
    screen.print(crowd.words, style="dim", soft_wrap=True)
    if crowd.trouble is None or yes:
        return
    if not sys.stdin.isatty():
        raise InputError(f"this cannot go well: {crowd.trouble}", hint="--yes starts them all the same")
    if not typer.confirm(f"{crowd.trouble}; start them all the same?", default=False):
        raise InputError("nothing was started")


def write_trace(path: Path, progress: Progress, screen: Console) -> None:
    """Write the traced steps, and say how to look at them."""
    from hulk.io.files import write_atomic

    write_atomic(path, json.dumps(progress.trace()))
    screen.print(f"trace: {path} (open it in ui.perfetto.dev or chrome://tracing)", style="dim")


@contextmanager
def news(screen: Console, steps: int, *, late: bool = False) -> Iterator[Callable[[StepReport | str], None]]:
    """How a run tells people how it goes: a line for everything; on a terminal a bar a job stays below them. `late`:
    say which stage the others wait for."""
    from hulk.cli.progress import bar

    with bar("steps", screen, visible=sys.stdout.isatty(), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def show(news: StepReport | str) -> None:
            screen.print(_words(news, steps, late=late), soft_wrap=True)
            if isinstance(news, str):
                return
            if news.job not in tasks:  # a resumed job begins where it was, so that what is left is guessed right
                tasks[news.job] = bars.add_task(news.job, total=steps, completed=news.step)
            bars.update(tasks[news.job], completed=news.step)

        yield show


def _words(news: StepReport | str, steps: int, *, late: bool) -> str:
    if isinstance(news, str):
        return news
    slow = news.late if late else None
    return news.line(steps) + (f"  late: {slow}" if slow else "")


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

    from hulk.domain.plan import machines_used
    from hulk.errors import InputError
    from hulk.runtime.hosts import LocalHosts

    if not testbed:
        return nullcontext(LocalHosts())
    try:
        from hulk.testbed import Testbed
    except ImportError:
        raise InputError("there is no testbed in this installation", hint="leave out --testbed") from None
    used = machines_used(plans)
    part = replace(cluster, machines=tuple(machine for machine in cluster.machines if machine.name in used))
    return Testbed.up(part, name=f"run-{os.getpid()}")
