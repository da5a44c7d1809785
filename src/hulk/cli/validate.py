"""`hulk validate`: does what was predicted hold? Hulk's plan and the paper's systems, run on an emulated network."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from hulk.cli.compare import LimitOption, SeedOption
from hulk.cli.plan import EvaluationsOption, JobsArgument, NoGnnOption, WorkersOption
from hulk.cli.price import JsonOption
from hulk.search.defaults import EVALUATIONS, TIME_LIMIT, WORKERS

if TYPE_CHECKING:
    from rich.console import Console

    from hulk.domain.job import Job
    from hulk.runtime.validate import SystemResult

ClusterArgument = Annotated[str, typer.Argument(help="a cluster file, or the name of a bundled one; up to 16 machines")]
StepsOption = Annotated[int, typer.Option(help="steps of every run; the first is not counted", min=2)]


def validate(
    cluster: ClusterArgument,
    jobs: JobsArgument,
    steps: StepsOption = 5,
    time_limit: LimitOption = TIME_LIMIT,
    evaluations: EvaluationsOption = EVALUATIONS,
    seed: SeedOption = 0,
    workers: WorkersOption = WORKERS,
    no_gnn: NoGnnOption = False,
    as_json: JsonOption = False,
) -> None:
    """Plan with Hulk, as `hulk plan` does with the same options, and with systems A, B and C, run each on an emulated
    network with emulated compute, and print the measured step times beside the predicted ones (Linux, as root)."""
    from hulk.cli.inputs import announce_compilation
    from hulk.cli.plan import usable_network
    from hulk.cli.progress import parts
    from hulk.contestant import compared, paper_systems
    from hulk.errors import InputError
    from hulk.io.cluster_file import load_cluster
    from hulk.io.jobs_file import load_jobs
    from hulk.io.profiles import bundled_compute
    from hulk.runtime.measure import Trial
    from hulk.runtime.runnable import check_engine
    from hulk.runtime.validate import validate as run_all
    from hulk.search.budget import Effort

    the_cluster, the_jobs = load_cluster(cluster), load_jobs(jobs)
    try:
        from hulk.testbed import Testbed
    except ImportError:
        raise InputError("there is no testbed in this installation") from None
    check_engine()
    network = None if no_gnn else usable_network()
    announce_compilation(search=True)
    compute = bundled_compute()
    effort = Effort(time_limit=time_limit, evaluations=evaluations, seed=seed, workers=workers)
    with (
        Testbed.up(the_cluster, name=f"validate-{os.getpid()}") as testbed,
        parts(2 + len(paper_systems()), "parts") as say,
    ):
        say(f"planning {the_cluster.name}")
        planned = compared(
            the_cluster, the_jobs, paper_systems(), compute=compute, network=network, effort=effort
        ).results
        trial = Trial(the_cluster, the_jobs, files=(cluster, jobs), hosts=testbed, compute=compute, steps=steps)
        results = run_all(planned, trial, say=say)
    if as_json:
        from hulk.cli.screen import print_json

        print_json(to_json(results, the_jobs, steps))
    else:
        from hulk.cli.screen import console

        render(results, the_jobs, console())
    if results[0].waiting:
        raise typer.Exit(code=3)


def to_json(results: Sequence[SystemResult], jobs: Sequence[Job], steps: int) -> dict[str, object]:
    """The answer for programs, in seconds; null where something was not run. `total`: until every job has done a step;
    `objective`: weight × seconds, as `hulk compare` adds them up."""
    from hulk.view.compare import measure

    systems = {}
    for result in results:
        predicted_score, measured_score = result.predicted_score(jobs), result.measured_score(jobs)
        of_jobs = {}
        for name, predicted in result.predicted.items():
            one = result.measured.get(name)
            of_jobs[name] = {
                "predicted_s": predicted,
                "measured_s": None if one is None else one.seconds,
                "steps_s": [] if one is None else list(one.steps),
            }
        systems[result.name] = {
            "title": result.title,
            "concurrent": result.concurrent,
            "predicted_total_s": result.predicted_total,
            "measured_total_s": result.measured_total,
            "predicted_objective_s": predicted_score and predicted_score.running,
            "measured_objective_s": measured_score and measured_score.running,
            "jobs": of_jobs,
            "waiting": dict(result.waiting),
            "notes": dict(result.notes),
        }
    return {"hulk": "validation/1", "steps": steps, "objective": measure(jobs), "systems": systems}


def render(results: Sequence[SystemResult], jobs: Sequence[Job], screen: Console) -> None:
    """One table, a row a job of a system, and what is to be said of them."""
    from hulk.cli.screen import table
    from hulk.units import format_time
    from hulk.view.compare import measure

    numbers = ("predicted", "measured", "prediction off by")
    rows = table("system", "job", *numbers, "", right=numbers)
    for result in results:
        for name, predicted, measured in _jobs(result, [job.name for job in jobs]):
            rows.add_row(
                result.name,
                name,
                "waits" if predicted is None else format_time(predicted),
                "not run" if measured is None else format_time(measured),
                "" if predicted is None or measured is None else f"{predicted / measured - 1:+.1%}",
                result.title,
            )
    screen.print(rows)
    scores = {result.name: found.running for result in results if (found := result.measured_score(jobs)) is not None}
    if scores:
        least = min(scores.values())
        screen.print(f"\nmeasured {measure(jobs)}, the least is the best")
        sums = table("", "system", "sum", "against hulk", right=("sum", "against hulk"))
        for name in sorted(scores, key=lambda name: scores[name]):
            ratio = f"×{scores[name] / scores['hulk']:.3g}" if "hulk" in scores else "–"
            sums.add_row("★" if scores[name] == least else "", name, format_time(scores[name]), ratio)
        screen.print(sums)
    for result in results:
        for job, text in (*((f"{j} waits", t) for j, t in result.waiting.items()), *result.notes.items()):
            screen.print(f"{result.name}, {job}: {text}", style="dim")


def _jobs(result: SystemResult, jobs: Sequence[str]) -> list[tuple[str, float | None, float | None]]:
    """Job, seconds predicted, seconds measured."""
    measured = {name: one.seconds for name, one in result.measured.items()}
    return [(name, result.predicted.get(name), measured.get(name)) for name in jobs]
