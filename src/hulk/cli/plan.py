"""`hulk plan`: who trains what, cut how. The main job."""

from __future__ import annotations

import json
import signal
import sys
import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from hulk.cli.headroom import DEFAULT, PlanHeadroomOption
from hulk.cli.price import EngineOption, JsonOption
from hulk.cli.profile import ProfileOption
from hulk.cli.settings import SetOption, set_json, with_settings
from hulk.cli.verbose import VerboseOption
from hulk.search.defaults import EVALUATIONS, TIME_LIMIT, WORKERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hulk.cost.compute import ComputeModel
    from hulk.cost.engine import Engine
    from hulk.cost.report import PlanPrice
    from hulk.domain.cluster import Cluster
    from hulk.domain.job import Job
    from hulk.domain.plan import Plan
    from hulk.planner import PlanResult, Policy
    from hulk.propose import Network
    from hulk.search.budget import Effort
    from hulk.search.objective import Score
    from hulk.search.request import Request

ClusterArgument = Annotated[str, typer.Argument(help="a cluster file, or the name of a bundled cluster")]
JobsArgument = Annotated[str, typer.Argument(help="a jobs file, or the name of bundled jobs")]
OutOption = Annotated[str | None, typer.Option("--out", "-o", help="write the plan to this file (JSON)")]
LimitOption = Annotated[float, typer.Option("--time-limit", min=0.1, help="seconds to search at most")]
EvaluationsOption = Annotated[int, typer.Option(min=1, help="shapes to try: more is better and slower")]
SeedOption = Annotated[int, typer.Option(min=0, help="the same seed gives the same plan")]
CostOption = Annotated[str | None, typer.Option(help='most throughput for at most this, such as "50 $/h"')]
ThroughputOption = Annotated[float | None, typer.Option(help="least money for at least so many tokens/s, all jobs")]
CheapestOption = Annotated[bool, typer.Option("--cheapest", help="least money to finish that meets every deadline")]
ExactOption = Annotated[
    bool,
    typer.Option("--exact", help="the proven optimum of the default objective, however long it takes; small cases"),
]
PinOption = Annotated[list[str] | None, typer.Option(help="JOB=MACHINE: the job uses this machine, and no other does")]
WorkersOption = Annotated[int, typer.Option(min=1, max=64, help="searches side by side; the best one counts")]
AvoidOption = Annotated[list[str] | None, typer.Option(help="JOB=MACHINE: keep a machine from a job")]
NoGnnOption = Annotated[bool, typer.Option("--no-gnn", help="search without the graph network's proposals")]
UniformOption = Annotated[
    bool, typer.Option("--uniform", help="pipelines all alike, one set of degrees, an even cut: what most engines run")
]
ForOption = Annotated[
    str | None,
    typer.Option("--for", help="plan what this target of `hulk export` can express, with its engine's price"),
]
OpenOption = Annotated[bool, typer.Option("--open", help="write the report of the plan and open it in the browser")]
PolicyOption = Annotated[str, typer.Option(help="search, or paper: one shot of the network deals the machines out")]

_HURRIED = (
    "The search was ended before all its tries were made (--time-limit, Ctrl-C): a longer one may find a better plan, "
    "and the same seed may find another one."
)

_MONEY = "--cheapest, --max-cost and --min-throughput"

_NEAREST = "This is the nearest to it that was found: a longer search (--evaluations, --time-limit) may find more."


def plan(
    cluster: ClusterArgument,
    jobs: JobsArgument,
    out: OutOption = None,
    time_limit: LimitOption = TIME_LIMIT,
    evaluations: EvaluationsOption = EVALUATIONS,
    seed: SeedOption = 0,
    max_cost: CostOption = None,
    min_throughput: ThroughputOption = None,
    cheapest: CheapestOption = False,
    exact: ExactOption = False,
    pin: PinOption = None,
    avoid: AvoidOption = None,
    workers: WorkersOption = WORKERS,
    no_gnn: NoGnnOption = False,
    policy: PolicyOption = "search",
    uniform: UniformOption = False,
    target: ForOption = None,
    engine: EngineOption = "hulk",
    headroom: PlanHeadroomOption = DEFAULT,
    profile: ProfileOption = None,
    settings: SetOption = None,
    verbose: VerboseOption = False,
    open_it: OpenOption = False,
    as_json: JsonOption = False,
) -> None:
    """Plan all jobs on a cluster: machines for each, where each model is cut, what it takes and costs, and why.

    Ctrl-C ends the search with the best plan so far. Exit code 3 when a job finds no place (the others are planned),
    and when a limit or a deadline cannot be kept: then the nearest plan found is shown, and not written.
    """
    from hulk.cli.headroom import with_headroom
    from hulk.cli.inputs import announce_compilation
    from hulk.cli.regular import check_jobs, formed, target_of
    from hulk.cost.engine import engine_named
    from hulk.cost.price import price_plan
    from hulk.io.cluster_file import load_cluster
    from hulk.io.files import check_output
    from hulk.io.jobs_file import load_jobs
    from hulk.io.plan_file import save_plan
    from hulk.io.profiles import compute_with
    from hulk.search.wishes import broken_promises, objective_of, read_wishes

    wanted = target_of(target, {"--engine": engine != "hulk", "--uniform": uniform, "--exact": exact})
    runner = with_headroom(engine_named(wanted.engine.name if wanted else engine), headroom)
    base, work = load_cluster(cluster), load_jobs(jobs)
    check_output(out, "--out")
    machines = with_settings(base, settings, quiet=as_json)
    compute = compute_with(profile)
    check_jobs(wanted, work, machines)
    wishes = read_wishes(pin or [], avoid or [], work, machines)
    objective = objective_of(max_cost, min_throughput, cheapest=cheapest)
    way = _policy(policy, no_gnn=no_gnn, exact=exact)
    if exact:
        refuse_with_exact({"--pin": bool(pin), _MONEY: objective.needs_money, "--uniform": uniform})
    announce_compilation(search=not exact, exact=exact)
    notes, hurried = list[str](), False
    if exact:
        from hulk.search.exact import solve_exactly

        best, _ = solve_exactly(machines, work, compute=compute, keep_from=wishes.avoid, engine=runner)
        price = price_plan(best, machines, work, compute=compute, engine=runner)
    else:
        from hulk.cli.verbose import told
        from hulk.search.budget import Effort
        from hulk.search.request import Request

        request = Request(machines, work, compute, runner, objective, wishes.avoid, wishes.pins)
        with told(verbose):
            result = _searched(
                request, Effort(time_limit, evaluations, seed, workers), way, no_gnn=no_gnn, quiet=as_json or verbose
            )
        hurried = result.hurried
        best, price, notes = formed(wanted, request, result, uniform=uniform, headroom=headroom)
    broken = broken_promises(best, price, work, objective, wishes)
    if out and not broken:
        save_plan(best, out, cluster=machines)
    answer = _Answer(best, price, machines, work, broken, hurried, out, notes)
    if as_json:
        _print_json(answer, settings)
    else:
        _print(answer, compute, runner)
    _open(answer, compute, runner, wanted=open_it)
    if best.waiting or broken:
        raise typer.Exit(code=3)


def _searched(request: Request, effort: Effort, policy: Policy, *, no_gnn: bool, quiet: bool) -> PlanResult:
    """The best plan found, with a bar on the terminal meanwhile unless it is to be quiet."""
    from hulk.errors import InputError
    from hulk.planner import Policy, plan_in_parallel

    network = None if no_gnn else usable_network()
    if network is None and policy is Policy.PAPER:
        raise InputError("--policy paper needs the network", hint="it could not be read; see above")
    with _Bar(request.objective.describe, quiet=quiet) as bar:
        return plan_in_parallel(
            request, effort, network=network, policy=policy, progress=bar.update, stop=bar.interrupted
        )


@dataclass(frozen=True)
class _Answer:
    """All that is printed of a plan. `broken`: what it does not keep, in words; `out`: the file it goes to."""

    plan: Plan
    price: PlanPrice
    cluster: Cluster
    jobs: Sequence[Job]
    broken: Sequence[str]
    hurried: bool
    out: str | None
    notes: Sequence[str] = ()


def _print_json(answer: _Answer, settings: Sequence[str] | None) -> None:
    from hulk.cli.screen import print_json
    from hulk.io.plan_file import dump_plan
    from hulk.view.price import price_json

    document = {
        "plan": json.loads(dump_plan(answer.plan, cluster=answer.cluster)),
        "price": price_json(answer.price),
        "broken": list(answer.broken),
        **({"notes": list(answer.notes)} if answer.notes else {}),
        "ended_early": answer.hurried,
    }
    print_json(document | set_json(settings))


def _print(answer: _Answer, compute: ComputeModel, engine: Engine) -> None:
    from hulk.cli.answer import render_plan
    from hulk.cli.screen import console
    from hulk.io.gpus import load_gpus
    from hulk.view.words import plan_words
    from hulk.whatif import suggest

    screen, gpus = console(), tuple(load_gpus().values())
    hints = suggest(answer.plan, answer.cluster, answer.jobs, compute=compute, gpus=gpus, engine=engine)
    render_plan(plan_words(answer.plan, answer.price, answer.cluster, answer.jobs, hints), screen)
    for words in answer.notes:
        screen.print(words)
    if answer.hurried:
        screen.print(_HURRIED, style="dim")
    for words in answer.broken:
        screen.print(f"not kept: {words}", style="red")
    if answer.broken:
        screen.print(_NEAREST + (f" {answer.out} is not written." if answer.out else ""))
    elif answer.out:
        screen.print(f"plan: {answer.out}", style="dim")


def _open(answer: _Answer, compute: ComputeModel, engine: Engine, *, wanted: bool) -> None:
    """Where it is wanted, write the report beside the plan, or to a folder of its own where the plan goes nowhere, and
    open it."""
    import tempfile
    from pathlib import Path

    from hulk.cli.report import open_report, write_report
    from hulk.view.build import Extras, Shown

    if not wanted:
        return
    shown = Shown(answer.plan, answer.cluster, tuple(answer.jobs), compute, engine)
    where = Path(answer.out).with_suffix(".html") if answer.out else Path(tempfile.mkdtemp("-hulk")) / "report.html"
    notes = [*answer.notes, *(f"not kept: {words}" for words in answer.broken)]
    write_report(shown, answer.price, Extras(simulation=shown.simulation(), notes=notes), str(where))
    typer.echo(f"report: {where}", err=True)
    open_report(str(where))


def refuse_with_exact(given: Mapping[str, bool]) -> None:
    """InputError for options that the exact solver does not know."""
    from hulk.errors import InputError

    for option, is_given in given.items():
        if is_given:
            raise InputError(f"--exact knows the default objective only, and no {option}", hint="plan without --exact")


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


class _Bar:
    """The best so far, on stderr while the search runs (nothing where nobody looks), and Ctrl-C caught meanwhile."""

    def __init__(self, describe: Callable[[Score], str], *, quiet: bool) -> None:
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

    def update(self, seconds: float, score: Score) -> None:
        """A better plan."""
        from hulk.cli.screen import status

        now = time.monotonic()
        if self._show and now - self._last > 0.1:
            self._last = now
            status(f"{seconds:5.1f} s  best so far: {self._describe(score)}")

    def __exit__(self, *_: object) -> None:
        from hulk.cli.screen import status

        signal.signal(signal.SIGINT, self._before)
        if self._show:
            status("")
