"""`hulk replan`: what stays and what moves when machines are lost or join."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from hulk.cli.headroom import DEFAULT, PlanHeadroomOption
from hulk.cli.plan import NoGnnOption
from hulk.cli.price import ClusterOption, EngineOption, JobsOption, JsonOption, PlanArgument
from hulk.cli.profile import ProfileOption
from hulk.cli.settings import SetOption, set_json, with_settings
from hulk.cli.verbose import VerboseOption
from hulk.search.defaults import EVALUATIONS, TIME_LIMIT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from hulk.cli.inputs import Inputs
    from hulk.domain.cluster import Cluster, Machine
    from hulk.domain.job import Job
    from hulk.replan import Replan

LostOption = Annotated[list[str] | None, typer.Option(help="a machine that is gone; may be given several times")]
JoinedOption = Annotated[list[str] | None, typer.Option(help="a file with machines that join (YAML or JSON)")]
HorizonOption = Annotated[str, typer.Option(help='a change must pay back within this, such as "24 h"')]
OutOption = Annotated[str | None, typer.Option("--out", "-o", help="write the new plan to this file (JSON)")]
LimitOption = Annotated[float, typer.Option("--time-limit", min=0.1, help="seconds to search at most")]
EvaluationsOption = Annotated[int, typer.Option(min=1, help="shapes to try: more is better and slower")]
SeedOption = Annotated[int, typer.Option(min=0, help="the same seed gives the same answer")]


def replan(
    plan: PlanArgument,
    cluster: ClusterOption,
    jobs: JobsOption,
    lost: LostOption = None,
    joined: JoinedOption = None,
    horizon: HorizonOption = "24 h",
    out: OutOption = None,
    time_limit: LimitOption = TIME_LIMIT,
    evaluations: EvaluationsOption = EVALUATIONS,
    seed: SeedOption = 0,
    no_gnn: NoGnnOption = False,
    engine: EngineOption = "hulk",
    headroom: PlanHeadroomOption = DEFAULT,
    profile: ProfileOption = None,
    settings: SetOption = None,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Plan again after machines were lost or have joined, or something was --set: what stays, what moves, how long it
    takes, whether it pays.

    A job that lost nothing changes only where it, or another job by it, gains by that within the horizon. Exit code 3
    when a job that ran cannot run any more; the others are planned.
    """
    from hulk.cli.headroom import with_headroom
    from hulk.cli.inputs import announce_compilation
    from hulk.cli.plan import usable_network
    from hulk.cli.screen import print_json
    from hulk.cli.verbose import told
    from hulk.cost.engine import engine_named
    from hulk.io.files import check_output
    from hulk.io.plan_file import dump_plan, save_plan
    from hulk.replan import Change
    from hulk.replan import replan as plan_again
    from hulk.search.budget import Effort
    from hulk.search.request import Request
    from hulk.view.replanned import replan_json

    seconds, runner = _seconds(horizon), with_headroom(engine_named(engine), headroom)
    whole, work, joins = _read(cluster, jobs, joined or [])
    now = with_settings(whole, settings, quiet=as_json)
    inputs, machines, was = _split(plan, whole, now, work, joins, profile)
    check_output(out, "--out")
    strangers = [job.name for job in inputs.jobs if job.name not in {**inputs.plan.jobs, **inputs.plan.waiting}]
    if strangers:
        typer.echo(f"warning: not in the plan, and left out: {', '.join(strangers)} (see hulk plan)", err=True)
    announce_compilation(search=True)
    request = Request(inputs.cluster, inputs.jobs, inputs.compute, runner)
    change, effort = Change(tuple(lost or ()), tuple(machines), was), Effort(time_limit, evaluations, seed)
    network = None if no_gnn else usable_network()
    with told(verbose):
        result = plan_again(inputs.plan, request, change, horizon=seconds, effort=effort, network=network)
    if out:
        save_plan(result.plan, out, cluster=result.cluster)
    if as_json:
        document = replan_json(result) | {"plan": json.loads(dump_plan(result.plan, cluster=result.cluster))}
        print_json(document | set_json(settings))
    else:
        from hulk.cli.screen import console

        render(result, seconds, console())
        if out:
            console().print(f"plan: {out}", style="dim")
    if result.stopped:
        raise typer.Exit(code=3)


def _seconds(horizon: str) -> float:
    from hulk.errors import InputError
    from hulk.units import Dimension, parse

    try:
        seconds = parse(horizon, Dimension.TIME)
    except InputError as error:
        raise error.at("--horizon") from None
    if seconds <= 0:
        raise InputError("--horizon must be more than nothing", hint='write it like "24 h"')
    return seconds


def _read(cluster: str, jobs: str, joined: Sequence[str]) -> tuple[Cluster, tuple[Job, ...], frozenset[str]]:
    """The cluster with the machines that join, the jobs, and who joins."""
    from dataclasses import replace

    from hulk.io.cluster_file import load_cluster
    from hulk.io.jobs_file import load_jobs
    from hulk.io.joined_file import load_joined

    work = load_jobs(jobs)
    base, machines = load_joined(joined, load_cluster(cluster), cluster)
    whole = replace(base, machines=(*base.machines, *machines))
    return whole, work, frozenset(machine.name for machine in machines)


def _split(
    plan: str,
    base: Cluster,
    whole: Cluster,
    jobs: tuple[Job, ...],
    joins: frozenset[str],
    profiles: Sequence[str] | None,
) -> tuple[Inputs, tuple[Machine, ...], Cluster | None]:
    """The plan, checked, with what it refers to; the machines that join; and the plan's machines as they were, where
    something was set. Those that the plan knows already, since it was made when they joined, are part of the cluster,
    and so is what was set when it was made. `base`: the whole cluster before anything was set."""
    from dataclasses import replace
    from pathlib import Path

    from hulk.cli.inputs import Inputs, read_plan
    from hulk.domain.check import check_plan
    from hulk.domain.plan import machines_used
    from hulk.io.plan_file import load_plan_for
    from hulk.io.profiles import compute_with

    old = read_plan(plan, whole, base)
    joins -= machines_used(old.jobs.values()).union(old.idle)
    here = replace(whole, machines=tuple(machine for machine in whole.machines if machine.name not in joins))
    path = Path(plan)
    set_before = load_plan_for(path, whole)[1] is None and load_plan_for(path, base)[1] is not None
    was = None
    if whole != base and not set_before:
        was = replace(base, machines=tuple(base.machine(machine.name) for machine in here.machines))
    # A plan that a link's change has broken is what is to be mended; its GPUs must be there.
    check_plan(old, here if was is None else replace(was, machines=here.machines), jobs)
    new = tuple(machine for machine in whole.machines if machine.name in joins)
    return Inputs(old, here, jobs, compute_with(profiles)), new, was


def render(result: Replan, horizon: float, screen: Console) -> None:
    """Draw what becomes of every job."""
    from hulk.cli.screen import styled
    from hulk.view.replanned import replan_lines

    for line in replan_lines(result, horizon):
        screen.print(styled(*line))
