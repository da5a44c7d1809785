"""`hulk validate`: does what was predicted hold? Hulk's plan and the paper's systems, run on an emulated network."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from hulk.cli.price import JsonOption

if TYPE_CHECKING:
    from rich.console import Console

    from hulk.runtime.validate import SystemResult

ClusterArgument = Annotated[str, typer.Argument(help="a cluster file, or the name of a bundled one; up to 16 machines")]
JobsArgument = Annotated[str, typer.Argument(help="a jobs file, or the name of a bundled one")]
StepsOption = Annotated[int, typer.Option(help="steps of every run; the first is not counted", min=2)]
LimitOption = Annotated[float, typer.Option("--time-limit", help="seconds for each of the planners", min=0.1)]
SeedOption = Annotated[int, typer.Option(help="seed of everything that is drawn", min=0)]


def validate(
    cluster: ClusterArgument,
    jobs: JobsArgument,
    steps: StepsOption = 5,
    time_limit: LimitOption = 10.0,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Plan with Hulk and with systems A, B and C, run each on an emulated network with emulated compute, and print the
    measured step times beside the predicted ones (Linux, as root)."""
    from hulk.cli.inputs import announce_compilation
    from hulk.cost.compute import ComputeModel
    from hulk.errors import InputError
    from hulk.io.cluster_file import load_cluster
    from hulk.io.jobs_file import load_jobs
    from hulk.io.profiles import bundled_profiles
    from hulk.runtime.runnable import check_engine
    from hulk.runtime.validate import validate as run_all

    the_cluster, the_jobs = load_cluster(cluster), load_jobs(jobs)
    try:
        from hulk.testbed import Testbed
    except ImportError:
        raise InputError("there is no testbed in this installation") from None
    check_engine()
    announce_compilation(search=True)
    with Testbed.up(the_cluster, name=f"validate-{os.getpid()}") as testbed:
        results = run_all(
            the_cluster,
            the_jobs,
            files=(cluster, jobs),
            hosts=testbed,
            compute=ComputeModel(bundled_profiles()),
            time_limit=time_limit,
            seed=seed,
            steps=steps,
            say=_say,
        )
    if as_json:
        from hulk.cli.screen import print_json

        print_json(to_json(results, steps))
    else:
        from hulk.cli.screen import console

        render(results, [job.name for job in the_jobs], console())
    if results[0].waiting:
        raise typer.Exit(code=3)


def _say(words: str) -> None:
    """What goes on, beside the answer: runs take minutes."""
    sys.stderr.write(f"{words} …\n")
    sys.stderr.flush()


def to_json(results: Sequence[SystemResult], steps: int) -> dict[str, object]:
    """The answer for programs, in seconds; null where something was not run."""
    systems = {}
    for result in results:
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
            "jobs": of_jobs,
            "waiting": dict(result.waiting),
            "notes": dict(result.notes),
        }
    return {"hulk": "validation/1", "steps": steps, "systems": systems}


def render(results: Sequence[SystemResult], jobs: Sequence[str], screen: Console) -> None:
    """One table, a row a job of a system, and what is to be said of them."""
    from hulk.cli.screen import table
    from hulk.units import format_time

    numbers = ("predicted", "measured", "prediction off by")
    rows = table("system", "job", *numbers, "", right=numbers)
    for result in results:
        totals = [("total", result.predicted_total, result.measured_total)] if len(jobs) > 1 else []
        for name, predicted, measured in [*_jobs(result, jobs), *totals]:
            rows.add_row(
                result.name,
                name,
                "waits" if predicted is None else format_time(predicted),
                "not run" if measured is None else format_time(measured),
                "" if predicted is None or measured is None else f"{predicted / measured - 1:+.1%}",
                result.title,
            )
    screen.print(rows)
    ours = results[0].measured_total
    others = {r.name: r.measured_total for r in results[1:] if r.measured_total is not None}
    if ours is not None and others:
        best = min(others, key=lambda name: others[name])
        screen.print(f"hulk takes {1 - ours / others[best]:.0%} less than {best}, the best of those that ran")
    for result in results:
        for job, text in (*((f"{j} waits", t) for j, t in result.waiting.items()), *result.notes.items()):
            screen.print(f"{result.name}, {job}: {text}", style="dim")


def _jobs(result: SystemResult, jobs: Sequence[str]) -> list[tuple[str, float | None, float | None]]:
    """Job, seconds predicted, seconds measured."""
    measured = {name: one.seconds for name, one in result.measured.items()}
    return [(name, result.predicted.get(name), measured.get(name)) for name in jobs]
