"""`hulk plan`: who trains what, cut how. The main job."""

from __future__ import annotations

import json
import signal
import sys
import time
import warnings
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from hulk.cli.price import JsonOption
from hulk.search.defaults import EVALUATIONS, TIME_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hulk.planner import Policy
    from hulk.propose import Network
    from hulk.search.objective import Objective

ClusterArgument = Annotated[str, typer.Argument(help="a cluster file, or the name of a bundled cluster")]
JobsArgument = Annotated[str, typer.Argument(help="a jobs file, or the name of bundled jobs")]
OutOption = Annotated[str | None, typer.Option("--out", "-o", help="write the plan to this file (JSON)")]
LimitOption = Annotated[float, typer.Option("--time-limit", min=0.1, help="seconds to search at most")]
EvaluationsOption = Annotated[int, typer.Option(min=1, help="shapes to try: more is better and slower")]
SeedOption = Annotated[int, typer.Option(min=0, help="the same seed gives the same plan")]
CostOption = Annotated[str | None, typer.Option(help='most throughput for at most this, such as "50 $/h"')]
ThroughputOption = Annotated[float | None, typer.Option(min=0, help="least money for at least so many tokens/s")]
ExactOption = Annotated[bool, typer.Option("--exact", help="the proven optimum; small cases only")]
PinOption = Annotated[list[str] | None, typer.Option(help="JOB=MACHINE: keep a machine for a job")]
WorkersOption = Annotated[int, typer.Option(min=1, max=64, help="searches side by side; the best one counts")]
AvoidOption = Annotated[list[str] | None, typer.Option(help="JOB=MACHINE: keep a machine from a job")]
NoGnnOption = Annotated[bool, typer.Option("--no-gnn", help="search without the graph network's proposals")]
PolicyOption = Annotated[str, typer.Option(help="search, or paper: one shot of the network deals the machines out")]

_HURRIED = (
    "The search was ended before all its tries were made (--time-limit, Ctrl-C): a longer one may find a better plan, "
    "and the same seed may find another one."
)


def plan(
    cluster: ClusterArgument,
    jobs: JobsArgument,
    out: OutOption = None,
    time_limit: LimitOption = TIME_LIMIT,
    evaluations: EvaluationsOption = EVALUATIONS,
    seed: SeedOption = 0,
    max_cost: CostOption = None,
    min_throughput: ThroughputOption = None,
    exact: ExactOption = False,
    pin: PinOption = None,
    avoid: AvoidOption = None,
    workers: WorkersOption = 2,
    no_gnn: NoGnnOption = False,
    policy: PolicyOption = "search",
    as_json: JsonOption = False,
) -> None:
    """Plan all jobs on a cluster: machines for each, where each model is cut, what it takes and costs, and why.

    Ctrl-C ends the search with the best plan so far. Exit code 3 when a job finds no place; the others are planned.
    """
    from hulk.cli.inputs import announce_compilation
    from hulk.cli.screen import console, print_json
    from hulk.cost.compute import ComputeModel
    from hulk.cost.price import price_plan
    from hulk.io.cluster_file import load_cluster
    from hulk.io.files import check_output
    from hulk.io.jobs_file import load_jobs
    from hulk.io.plan_file import dump_plan, save_plan
    from hulk.io.profiles import bundled_profiles

    machines, work = load_cluster(cluster), load_jobs(jobs)
    check_output(out, "--out")
    compute = ComputeModel(bundled_profiles())
    keep = _reservations(pin or [], avoid or [], [job.name for job in work], machines.machine)
    objective = _objective(max_cost, min_throughput)
    way = _policy(policy, no_gnn=no_gnn, exact=exact)
    announce_compilation(search=True)
    if exact:
        from hulk.search.exact import solve_exactly

        best, _ = solve_exactly(machines, work, compute=compute)
        hurried = False
    else:
        from hulk.errors import InputError
        from hulk.planner import Policy, plan_in_parallel

        network = None if no_gnn else usable_network()
        if network is None and way is Policy.PAPER:
            raise InputError("--policy paper needs the network", hint="it could not be read; see above")
        with _Bar(partial(objective.describe, jobs=work), quiet=as_json) as bar:
            result = plan_in_parallel(
                machines, work, compute=compute, objective=objective, time_limit=time_limit, evaluations=evaluations,
                seed=seed, progress=bar.update, keep_from=keep, stop=bar.interrupted, workers=workers,
                network=network, policy=way,
            )  # fmt: skip
        best = result.plan
        hurried = result.hurried
    price = price_plan(best, machines, work, compute=compute)
    if out:
        save_plan(best, out, cluster=machines)
    if as_json:
        from hulk.cli.price import to_json

        document = {
            "plan": json.loads(dump_plan(best, cluster=machines)),
            "price": to_json(price),
            "ended_early": hurried,
        }
        print_json(document)
    else:
        from hulk.cli.answer import render_plan
        from hulk.io.gpus import load_gpus
        from hulk.whatif import suggest

        hints = suggest(best, machines, work, compute=compute, gpus=tuple(load_gpus().values()))
        render_plan(best, price, machines, work, hints, console())
        if hurried:
            console().print(_HURRIED, style="dim")
        if out:
            console().print(f"plan: {out}", style="dim")
    if best.waiting:
        raise typer.Exit(code=3)


def _objective(max_cost: str | None, min_throughput: float | None) -> Objective:
    from hulk.errors import InputError
    from hulk.search.objective import Objective
    from hulk.units import Dimension, parse

    if max_cost is not None and min_throughput is not None:
        raise InputError("--max-cost and --min-throughput cannot go together", hint="choose one of them")
    most = None if max_cost is None else parse(max_cost, Dimension.HOURLY)
    return Objective(most_dollars_per_second=most, least_tokens_per_second=min_throughput)


def _policy(name: str, *, no_gnn: bool, exact: bool) -> Policy:
    """The policy of that name, checked against the options it cannot go with."""
    from hulk.errors import InputError, nearest
    from hulk.planner import Policy

    known = [policy.value for policy in Policy]
    if name not in known:
        raise InputError(f"--policy {name!r}: no such policy", hint=nearest(name, known))
    for given, option in ((no_gnn, "--no-gnn"), (exact, "--exact")):
        if given and name == Policy.PAPER.value:
            raise InputError(f"--policy paper and {option} cannot go together", hint="choose one of them")
    return Policy(name)


def usable_network() -> Network | None:
    """The bundled network; where it cannot be used, None and one line on stderr that says why."""
    from hulk.propose import bundled_network

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RuntimeWarning)
        network = bundled_network()
    for warning in caught if network is None else ():
        typer.echo(f"warning: {warning.message}", err=True)
    return network


def _reservations(
    pins: Sequence[str], avoids: Sequence[str], jobs: Sequence[str], machine: Callable[[str], object]
) -> dict[str, frozenset[str]]:
    """Job → machines it must not use: those it avoids, and those kept for others."""
    from hulk.errors import InputError, nearest

    def pair(text: str, option: str) -> tuple[str, str]:
        job, separator, name = text.partition("=")
        if not separator:
            raise InputError(f"{option} {text!r}: write JOB=MACHINE")
        if job not in jobs:
            raise InputError(f"{option} {text!r}: no job {job!r}", hint=nearest(job, jobs))
        machine(name)  # an unknown machine is an error with the nearest known name
        return job, name

    keep: dict[str, set[str]] = {job: set() for job in jobs}
    for text in avoids:
        job, name = pair(text, "--avoid")
        keep[job].add(name)
    for text in pins:
        job, name = pair(text, "--pin")
        for other in jobs:
            if other != job:
                keep[other].add(name)
    return {job: frozenset(names) for job, names in keep.items()}


class _Bar:
    """The best so far, on stderr while the search runs (nothing where nobody looks), and Ctrl-C caught meanwhile."""

    def __init__(self, describe: Callable[[float], str], *, quiet: bool) -> None:
        self._describe = describe
        self._show = not quiet and sys.stderr.isatty()
        self._last = 0.0
        self._interrupted = False

    def __enter__(self) -> _Bar:
        self._before = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def _interrupt(self, *_: object) -> None:
        """The first Ctrl-C ends the search, a second one the program."""
        self._interrupted = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupted(self) -> bool:
        """Whether somebody pressed Ctrl-C."""
        return self._interrupted

    def update(self, seconds: float, cost: float) -> None:
        """A better plan."""
        from hulk.cli.screen import status

        now = time.monotonic()
        if self._show and now - self._last > 0.1:
            self._last = now
            status(f"{seconds:5.1f} s  best so far: {self._describe(cost)}")

    def __exit__(self, *_: object) -> None:
        from hulk.cli.screen import status

        signal.signal(signal.SIGINT, self._before)
        if self._show:
            status("")
