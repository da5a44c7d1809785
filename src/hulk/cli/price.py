"""`hulk price`: what a plan costs in time, memory and money, and why."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from hulk.cli.headroom import HeadroomOption
from hulk.cli.profile import ProfileOption
from hulk.cli.settings import SetOption, set_json
from hulk.text import one_line

if TYPE_CHECKING:
    from rich.console import Console

    from hulk.cost.report import JobPrice, PlanPrice

PlanArgument = Annotated[str, typer.Argument(help="a plan file (JSON)")]
OptionalPlan = Annotated[str | None, typer.Argument(help="a plan file (JSON); or --layout")]
LayoutOption = Annotated[
    str | None,
    typer.Option("--layout", help="a regular plan without a file, such as 'tp8 pp4 dp4 mb1 sp fsdp'"),
]
JobOption = Annotated[str | None, typer.Option("--job", help="the job that --layout is for, where there are several")]
AnywayOption = Annotated[
    bool, typer.Option("--anyway", help="the price also where memory is too small; what does not fit is listed")
]
ClusterOption = Annotated[str, typer.Option("--cluster", "-c", help="a cluster file, or the name of a bundled one")]
JobsOption = Annotated[str, typer.Option("--jobs", "-j", help="a jobs file, or the name of a bundled one")]
JsonOption = Annotated[bool, typer.Option("--json", help="print one JSON object for programs")]
EngineOption = Annotated[
    str, typer.Option("--engine", help="who runs the plan: hulk, megatron, megatron-deepspeed or torchtitan")
]


_LONG = 48  # stages up to which each has a line of its own
_MOST_FULL = 8  # stages that do not fit which are listed


def price(
    cluster: ClusterOption,
    jobs: JobsOption,
    plan: OptionalPlan = None,
    layout: LayoutOption = None,
    job: JobOption = None,
    engine: EngineOption = "hulk",
    headroom: HeadroomOption = None,
    anyway: AnywayOption = False,
    profile: ProfileOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a plan's step time with its breakdown, the memory of every stage, the cost, and the bottleneck in words."""
    from hulk.cli.headroom import with_headroom
    from hulk.cli.inputs import announce_compilation, load_inputs, load_regular
    from hulk.cost.engine import engine_named
    from hulk.cost.price import price_anyway, price_plan
    from hulk.errors import InputError
    from hulk.view.price import over_full, price_json

    runner = with_headroom(engine_named(engine), headroom)
    if (plan is None) == (layout is None):
        raise InputError("a plan file or --layout is needed, one of the two", hint="hulk price --help")
    if plan is not None and job is not None:
        raise InputError("--job is for --layout", hint="leave it out: a plan file says which jobs it has")
    if layout is not None:
        inputs = load_regular(layout, job, cluster, jobs, settings, quiet=as_json, profiles=profile)
    else:
        inputs = load_inputs(plan or "", cluster, jobs, settings, quiet=as_json, profiles=profile)
    announce_compilation()
    priced = price_anyway if anyway else price_plan
    result = priced(inputs.plan, inputs.cluster, inputs.jobs, compute=inputs.compute, engine=runner)
    if as_json:
        from hulk.cli.screen import print_json

        print_json(price_json(result, runner.headroom) | set_json(settings))
    else:
        from hulk.cli.screen import console

        render(result, console(), runner.headroom)
    if not result.feasible or any(over_full(result, runner.headroom)):
        raise typer.Exit(code=3)


def render(result: PlanPrice, screen: Console, headroom: float = 0.0) -> None:
    """Draw the price of a plan."""
    from hulk.cli.screen import styled
    from hulk.cost.report import JobPrice
    from hulk.view.price import over_full

    for name, job in result.jobs.items():
        if isinstance(job, JobPrice):
            _job(job, screen)
        else:
            why = f" ({job.obstacle}): {one_line(job.reason)}"
            screen.print(styled((name, "bold"), ": ", ("cannot run", "red"), why))
        screen.print()
    full = list(over_full(result, headroom))
    for words in full[:_MOST_FULL]:
        screen.print(f"does not fit: {words}", style="red")
    if len(full) > _MOST_FULL:
        screen.print(f"and {len(full) - _MOST_FULL} more stages do not fit", style="red")
    for name, reason in result.waiting.items():
        screen.print(styled((name, "bold"), f" waits: {one_line(reason)}"))
    if result.idle:
        screen.print(f"idle: {', '.join(result.idle)}", style="dim")


def _job(job: JobPrice, screen: Console) -> None:
    from hulk.cli.screen import bar, styled, table
    from hulk.units import format_count, format_money, format_size, format_time
    from hulk.view.words import alike

    money = job.money
    rest = (
        f" a step, {format_count(job.tokens_per_second)} tokens/s, {format_money(money.total)} a step "
        f"({format_money(money.gpus)} GPUs, {format_money(money.egress)} egress)"
    )
    screen.print(styled((job.job, "bold"), ": ", (format_time(job.step), "bold"), rest))
    if job.finish is not None and job.finish_money is not None:
        screen.print(f"to the end of its token budget: {format_time(job.finish)}, {format_money(job.finish_money)}")
    for part, seconds in asdict(job.breakdown).items():
        share = seconds / job.step
        amount = format_time(seconds) if share > 1e-9 else "–"
        screen.print(f"  {part:<9}{amount:>9}  {share:4.0%}  {bar(share)}")
    rows = table(
        "stage", "layers", "on", "region", "fwd", "bwd", "busy", "to next", "memory", "of",
        right=("fwd", "bwd", "busy", "to next", "memory", "of"),
    )  # fmt: skip
    shapes = [[row] for row in range(len(job.pipelines))]
    if sum(map(len, job.pipelines)) > _LONG:
        shapes = alike(job)
    for rows_alike in shapes:
        p, pipeline = rows_alike[0] + 1, job.pipelines[rows_alike[0]]
        for s, stage in enumerate(pipeline, start=1):
            send = stage.send_latency + stage.send_wire
            full = stage.memory.used / stage.memory.capacity
            rows.add_row(
                f"{p}.{s}" if len(job.pipelines) > 1 else str(s),
                f"{stage.first}–{stage.last}" + ("" if stage.recomputed is None else f" ({stage.recomputed} again)"),
                f"{stage.where} ({stage.ranks}×{stage.gpu})",
                stage.region,
                format_time(stage.forward),
                format_time(stage.backward),
                f"{stage.busy:.0%}",
                format_time(send) if s < len(pipeline) else "",
                f"{format_size(stage.memory.used)} ({full:.0%})",
                format_size(stage.memory.capacity),
            )
        if len(rows_alike) > 1:
            rows.add_row(f"and {len(rows_alike) - 1} more pipelines like {p}", *[""] * 9)
    screen.print(rows)
    screen.print(f"bottleneck: {job.bottleneck}")
    origins = ", ".join(f"{count} {origin}" for origin, count in sorted(job.times.items()))
    screen.print(f"layer times: {origins}", style="dim")
