"""`hulk compare`: this planner beside every baseline, by the same price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from hulk.cli.price import JsonOption

if TYPE_CHECKING:
    from rich.console import Console

    from hulk.cost.compute import ComputeModel
    from hulk.domain.cluster import Cluster
    from hulk.domain.job import Job
    from hulk.search.baselines import BaselineResult

ClusterArgument = Annotated[str, typer.Argument(help="a cluster file, or the name of a bundled one")]
JobsArgument = Annotated[str, typer.Argument(help="a jobs file, or the name of a bundled one")]
LimitOption = Annotated[float, typer.Option("--time-limit", help="seconds for each of the planners", min=0.1)]
SeedOption = Annotated[int, typer.Option(help="seed of everything that is drawn", min=0)]


def compare(
    cluster: ClusterArgument,
    jobs: JobsArgument,
    time_limit: LimitOption = 10.0,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Plan with Hulk and with every baseline, and print each job's step time and the total side by side."""
    from hulk.cli.inputs import announce_compilation
    from hulk.cost.compute import ComputeModel
    from hulk.cost.engine import HULK
    from hulk.errors import HulkError
    from hulk.io.cluster_file import load_cluster
    from hulk.io.jobs_file import load_jobs
    from hulk.io.profiles import bundled_profiles
    from hulk.search.baselines import BASELINES

    the_cluster, the_jobs = load_cluster(cluster), load_jobs(jobs)
    compute = ComputeModel(bundled_profiles())
    announce_compilation(search=True)
    results = [("hulk", "this planner", _planned(the_cluster, the_jobs, compute, time_limit, seed))]
    left_out: dict[str, str] = {}
    for entry in BASELINES.entries():
        try:
            found = entry.run(the_cluster, the_jobs, compute=compute, engine=HULK, seed=seed, time_limit=time_limit)
        except HulkError as error:
            left_out[entry.name] = str(error)
            continue
        results.append((entry.name, entry.title, found))
    if as_json:
        from hulk.cli.screen import print_json

        print_json(to_json(results, left_out))
    else:
        from hulk.cli.screen import console

        render(results, left_out, [job.name for job in the_jobs], console())
    if results[0][2].waiting:
        raise typer.Exit(code=3)


def _planned(
    cluster: Cluster, jobs: Sequence[Job], compute: ComputeModel, time_limit: float, seed: int
) -> BaselineResult:
    """This planner's answer in the form of a baseline's."""
    from hulk.cost.price import price_plan
    from hulk.cost.report import JobPrice
    from hulk.planner import plan_in_parallel
    from hulk.search.baselines import BaselineResult, Placement

    plan = plan_in_parallel(cluster, jobs, compute=compute, time_limit=time_limit, seed=seed, workers=2).plan
    prices = price_plan(plan, cluster, jobs, compute=compute).jobs
    placed = {
        name: Placement(plan.jobs[name], price.step, price.breakdown)
        for name, price in prices.items()
        if isinstance(price, JobPrice)
    }
    return BaselineResult("hulk", concurrent=True, placed=placed, waiting=dict(plan.waiting))


def to_json(results: Sequence[tuple[str, str, BaselineResult]], left_out: dict[str, str]) -> dict[str, object]:
    """The comparison for programs, in seconds."""
    systems = {}
    for name, title, result in results:
        jobs: dict[str, object] = {
            job: {"step_s": placement.seconds, "breakdown_s": asdict(placement.breakdown)}
            for job, placement in result.placed.items()
        }
        systems[name] = {
            "title": title,
            "concurrent": result.concurrent,
            "total_s": result.total,
            "jobs": jobs,
            "waiting": dict(result.waiting),
            "notes": dict(result.notes),
        }
    return {"hulk": "comparison/1", "systems": systems, "left_out": left_out}


def render(
    results: Sequence[tuple[str, str, BaselineResult]], left_out: dict[str, str], jobs: Sequence[str], screen: Console
) -> None:
    """One table: a row a system, its step time for every job and in total."""
    from hulk.cli.screen import table
    from hulk.units import format_time

    ours = results[0][2].total
    rows = table("system", *jobs, "total", "against hulk", "", right=(*jobs, "total", "against hulk"))
    for name, title, result in results:
        seconds = [result.seconds(job) for job in jobs]
        ratio = f"×{result.total / ours:.3g}" if result.total is not None and ours else ""
        rows.add_row(
            name,
            *("waits" if s is None else format_time(s) for s in seconds),
            "–" if result.total is None else format_time(result.total),
            ratio,
            title,
        )
    screen.print(rows)
    screen.print(
        "total: until every job has done one step; A, B, C and alone train the jobs one after the other, "
        "the others side by side",
        style="dim",
    )
    reasons: dict[tuple[str, str], list[str]] = {}
    for name, _, result in results:
        for kind, texts in (("waits", result.waiting), ("", result.notes)):
            for job, text in texts.items():
                reasons.setdefault((f"{job} {kind}".strip(), text), []).append(name)
    for (job, text), names in reasons.items():
        screen.print(f"{', '.join(names)}: {job}: {text}", style="dim")
    for name, reason in left_out.items():
        screen.print(f"{name} is left out: {reason}", style="dim")
