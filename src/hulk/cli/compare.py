"""`hulk compare`: this planner beside every baseline, by the number that it makes small."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from hulk.cli.headroom import DEFAULT, PlanHeadroomOption
from hulk.cli.plan import ClusterArgument, EvaluationsOption, JobsArgument, NoGnnOption, WorkersOption
from hulk.cli.price import EngineOption, JsonOption
from hulk.cli.profile import ProfileOption
from hulk.search.defaults import EVALUATIONS, TIME_LIMIT, WORKERS

if TYPE_CHECKING:
    from rich.console import Console

    from hulk.domain.job import Job
    from hulk.view.compare import System

BaselineOption = Annotated[
    list[str] | None, typer.Option(help="only this baseline; may be given several times (all of them otherwise)")
]
LimitOption = Annotated[float, typer.Option("--time-limit", help="seconds for each of the planners", min=0.1)]
SeedOption = Annotated[int, typer.Option(help="seed of everything that is drawn", min=0)]

_COLUMNS = 8  # jobs side by side in one table


def compare(
    cluster: ClusterArgument,
    jobs: JobsArgument,
    baseline: BaselineOption = None,
    time_limit: LimitOption = TIME_LIMIT,
    evaluations: EvaluationsOption = EVALUATIONS,
    seed: SeedOption = 0,
    workers: WorkersOption = WORKERS,
    no_gnn: NoGnnOption = False,
    engine: EngineOption = "hulk",
    headroom: PlanHeadroomOption = DEFAULT,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Plan with Hulk, as `hulk plan` does with the same options, and with every baseline, and rank them by what `hulk
    plan` makes small: the sum over the jobs of weight × time to finish (× step time where a job has no token budget).

    Exit code 3 when a job finds no place in Hulk's plan.
    """
    from hulk.cli.headroom import with_headroom
    from hulk.cli.inputs import announce_compilation
    from hulk.cli.plan import usable_network
    from hulk.cli.screen import status
    from hulk.contestant import compared
    from hulk.cost.engine import engine_named
    from hulk.io.cluster_file import load_cluster
    from hulk.io.jobs_file import load_jobs
    from hulk.io.profiles import compute_with
    from hulk.search.baselines import BASELINES
    from hulk.search.budget import Effort
    from hulk.view.compare import comparison_json, ranked

    runner = with_headroom(engine_named(engine), headroom)
    entries = [BASELINES.get(name) for name in dict.fromkeys(baseline)] if baseline else BASELINES.entries()
    the_cluster, the_jobs = load_cluster(cluster), load_jobs(jobs)
    compute = compute_with(profile)
    network = None if no_gnn else usable_network()
    effort = Effort(time_limit=time_limit, evaluations=evaluations, seed=seed, workers=workers)
    announce_compilation(search=True)
    found = compared(
        the_cluster, the_jobs, entries, compute=compute, network=network, effort=effort, engine=runner,
        say=saying(len(entries)),
    )  # fmt: skip
    status("")
    systems, left_out = ranked(found.results, the_jobs), found.left_out
    if as_json:
        from hulk.cli.screen import print_json

        print_json(comparison_json(systems, the_jobs, left_out))
    else:
        from hulk.cli.screen import console

        render(systems, the_jobs, left_out, console())
    if found.results[0][1].waiting:
        raise typer.Exit(code=3)


def saying(others: int) -> Callable[[str], None]:
    """Tells who plans now, and how many of Hulk and so many `others` still will, on stderr where somebody looks."""
    from hulk.cli.screen import status

    left = iter(range(others, -1, -1))
    return lambda name: status(f"{name} plans, {next(left)} more to come …")


def render(systems: Sequence[System], jobs: Sequence[Job], left_out: Mapping[str, str], screen: Console) -> None:
    """The ranking, what it means for each job, and what is to be said of them."""
    from hulk.cli.screen import styled
    from hulk.view.compare import comparison_notes, measure, verdict

    screen.print(styled((measure(jobs), "bold"), ", the least is the best\n"))
    _ranking(systems, screen)
    screen.print(f"\n{verdict(systems)}\n")
    steps = {system.name: {name: one.seconds for name, one in system.result.placed.items()} for system in systems}
    _by_job("a step takes", systems, [job.name for job in jobs], steps, screen)
    limited = [job.name for job in jobs if job.steps]
    if limited:
        finish = {system.name: system.score.finish for system in systems}
        _by_job("until its tokens are used up", systems, limited, finish, screen)
    for line in comparison_notes(systems, jobs, left_out):
        screen.print(line, style="dim")


def _ranking(systems: Sequence[System], screen: Console) -> None:
    from hulk.cli.screen import table
    from hulk.units import format_time
    from hulk.view.words import count

    waits = ["waiting"] if any(system.result.waiting for system in systems) else []
    rows = table("", "system", *waits, "sum", "against hulk", "jobs run", "", right=("sum", "against hulk"))
    for system in systems:
        waiting = count(len(system.result.waiting), "job") if system.result.waiting else "none"
        rows.add_row(
            "★" if system.best else "",
            system.name,
            *([waiting] if waits else []),
            format_time(system.score.running) if system.result.placed else "–",
            _ratio(system.ratio),
            "side by side" if system.result.concurrent else "in turn",
            system.title,
            style="bold" if system.best else None,
        )
    screen.print(rows)


def _ratio(ratio: float | None) -> str:
    if ratio is None:
        return "–"
    close = abs(ratio - 1) < 0.1
    return f"×{ratio:,.0f}" if ratio >= 100 else f"×{ratio:.4g}" if close else f"×{ratio:.3g}"


def _by_job(
    what: str,
    systems: Sequence[System],
    jobs: Sequence[str],
    seconds: Mapping[str, Mapping[str, float]],
    screen: Console,
) -> None:
    """A row a system, a column a job."""
    from hulk.cli.screen import table
    from hulk.units import format_time

    for first in range(0, len(jobs), _COLUMNS):
        part = jobs[first : first + _COLUMNS]
        rows = table(what, *part, right=part)
        for system in systems:
            own = seconds[system.name]
            rows.add_row(system.name, *(format_time(own[name]) if name in own else "waits" for name in part))
        screen.print(rows)
        screen.print()
