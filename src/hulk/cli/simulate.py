"""`hulk simulate`: a plan played event by event, with contention and jitter."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from hulk.cli.price import ClusterOption, EngineOption, JobsOption, JsonOption, PlanArgument
from hulk.cli.profile import ProfileOption
from hulk.cli.settings import SetOption, set_json

SeedOption = Annotated[int, typer.Option(help="seed of the jitter", min=0)]
JitterOption = Annotated[float, typer.Option(help="coefficient of variation of every pass and transfer", min=0, max=2)]
TraceOption = Annotated[str | None, typer.Option(help="write a Chrome/Perfetto trace to this file")]
ContentionOption = Annotated[bool, typer.Option(help="let transfers share network cards and trunks")]


def simulate(
    plan: PlanArgument,
    cluster: ClusterOption,
    jobs: JobsOption,
    seed: SeedOption = 0,
    jitter: JitterOption = 0.0,
    contention: ContentionOption = True,
    trace: TraceOption = None,
    engine: EngineOption = "hulk",
    profile: ProfileOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Play one step of a plan, all jobs side by side, and compare it with the price."""
    from hulk.cli.inputs import announce_compilation, load_inputs
    from hulk.cli.screen import console, print_json, table
    from hulk.cost.engine import engine_named
    from hulk.cost.prepared import prepare
    from hulk.cost.price import price_plan
    from hulk.cost.report import Infeasible
    from hulk.errors import InfeasibleError
    from hulk.io.files import check_output, write_atomic
    from hulk.simulate import simulate as play
    from hulk.simulate import to_trace
    from hulk.units import format_time

    runner = engine_named(engine)
    inputs = load_inputs(plan, cluster, jobs, settings, quiet=as_json, profiles=profile)
    check_output(trace, "--trace")
    announce_compilation()
    by_name = {job.name: job for job in inputs.jobs}
    ready = []
    priced = {}
    price = price_plan(inputs.plan, inputs.cluster, inputs.jobs, compute=inputs.compute, engine=runner)
    for name, job_plan in inputs.plan.jobs.items():
        prepared = prepare(by_name[name], job_plan, inputs.cluster, compute=inputs.compute, engine=runner)
        its = price.jobs[name]
        if isinstance(prepared, Infeasible) or isinstance(its, Infeasible):
            reason = prepared.reason if isinstance(prepared, Infeasible) else ""
            raise InfeasibleError(f"{name} cannot run by this plan: {reason}")
        ready.append(prepared)
        priced[name] = its.step
    result = play(ready, inputs.cluster, seed=seed, jitter=jitter, contention=contention)
    if trace is not None:
        write_atomic(trace, json.dumps(to_trace(result)))
    if as_json:
        summary = {name: {"step_s": result.steps[name], "price_s": priced[name]} for name in priced}
        print_json({"hulk": "simulation/1", "seed": seed, "jitter": jitter, "jobs": summary} | set_json(settings))
        return
    screen = console()
    rows = table("job", "simulated", "price", "difference", right=("simulated", "price", "difference"))
    for name, seconds in priced.items():
        difference = result.steps[name] / seconds - 1
        rows.add_row(name, format_time(result.steps[name]), format_time(seconds), f"{difference:+.1%}")
    screen.print(rows)
    if trace is not None:
        screen.print(f"trace: {trace} (open it in ui.perfetto.dev or chrome://tracing)", style="dim")
