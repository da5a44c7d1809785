"""`hulk compare`: this planner beside every baseline, by the number that it makes small."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
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
    from hulk.search.baselines import BaselineResult, Score

BaselineOption = Annotated[
    list[str] | None, typer.Option(help="only this baseline; may be given several times (all of them otherwise)")
]
LimitOption = Annotated[float, typer.Option("--time-limit", help="seconds for each of the planners", min=0.1)]
SeedOption = Annotated[int, typer.Option(help="seed of everything that is drawn", min=0)]

_COLUMNS = 8  # jobs side by side in one table
_IN_TURN = "in turn: one job after the other, each on all machines it may use"
_TO_THE_END = f"{_IN_TURN}; a job with a token budget ends after those before it, in the order that makes the sum least"
_OWN_STEPS = f"{_IN_TURN}; the sum counts each job's own step, not the time before its turn"


@dataclass(frozen=True)
class System:
    """One row: a planner, what it answered, and what that is worth. `ratio` is to Hulk's sum; None where the two do not
    run the same jobs."""

    title: str
    result: BaselineResult
    score: Score
    rank: int
    ratio: float | None

    @property
    def name(self) -> str:
        """What it is called."""
        return self.result.name

    @property
    def best(self) -> bool:
        """Whether none is better. One that has a place for no job is not the best of anything."""
        return self.rank == 1 and bool(self.result.placed)


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
    from hulk.contestant import TITLE, hulk_result
    from hulk.cost.engine import engine_named
    from hulk.errors import HulkError
    from hulk.io.cluster_file import load_cluster
    from hulk.io.jobs_file import load_jobs
    from hulk.io.profiles import compute_with
    from hulk.search.baselines import BASELINES
    from hulk.search.budget import Effort

    runner = with_headroom(engine_named(engine), headroom)
    entries = [BASELINES.get(name) for name in dict.fromkeys(baseline)] if baseline else BASELINES.entries()
    the_cluster, the_jobs = load_cluster(cluster), load_jobs(jobs)
    compute = compute_with(profile)
    network = None if no_gnn else usable_network()
    effort = Effort(time_limit=time_limit, evaluations=evaluations, seed=seed, workers=workers)
    announce_compilation(search=True)
    _say("hulk", len(entries) + 1)
    ours = hulk_result(the_cluster, the_jobs, compute=compute, network=network, effort=effort, engine=runner)
    results = [(TITLE, ours)]
    left_out: dict[str, str] = {}
    for left, entry in zip(range(len(entries), 0, -1), entries, strict=True):
        _say(entry.name, left)
        try:
            found = entry.run(the_cluster, the_jobs, compute=compute, engine=runner, seed=seed, time_limit=time_limit)
        except HulkError as error:
            left_out[entry.name] = str(error)
            continue
        results.append((entry.title, found))
    _say("", 0)
    systems = ranked(results, the_jobs)
    if as_json:
        from hulk.cli.screen import print_json

        print_json(to_json(systems, the_jobs, left_out))
    else:
        from hulk.cli.screen import console

        render(systems, the_jobs, left_out, console())
    if results[0][1].waiting:
        raise typer.Exit(code=3)


def _say(name: str, left: int) -> None:
    """Who plans now, on stderr where somebody looks."""
    if sys.stderr.isatty():
        words = f"{name} plans, {left - 1} more to come …" if name else ""
        sys.stderr.write(f"\r{words:<60}{'' if name else chr(13)}")
        sys.stderr.flush()


def ranked(results: Sequence[tuple[str, BaselineResult]], jobs: Sequence[Job]) -> list[System]:
    """The systems from best to worst; equal ones share a rank, Hulk (the first of `results`) before the others."""
    hulk = results[0][1]
    scores = [result.score(jobs) for _, result in results]
    ranks = [score.rank for score in scores]
    systems = []
    for (title, result), score in zip(results, scores, strict=True):
        same = result.placed.keys() == hulk.placed.keys() and bool(hulk.placed)
        ratio = score.running / scores[0].running if same else None
        systems.append(System(title, result, score, 1 + sum(rank < score.rank for rank in ranks), ratio))
    return sorted(systems, key=lambda system: system.rank)


def to_json(systems: Sequence[System], jobs: Sequence[Job], left_out: Mapping[str, str]) -> dict[str, object]:
    """The comparison for programs, best first: seconds, and for objectives weight × seconds. An objective is null where
    a job waits; `running` is that of the jobs that do not."""
    made: dict[str, object] = {}
    for system in systems:
        result, finish = system.result, system.score.finish
        made[system.name] = {
            "title": system.title,
            "rank": system.rank,
            "objective_s": None if result.waiting else system.score.running,
            "running_s": system.score.running,
            "ratio_to_hulk": system.ratio,
            "concurrent": result.concurrent,
            "ended_early": result.hurried,
            "jobs": {
                job.name: {
                    "weight": job.weight,
                    "step_s": result.placed[job.name].seconds,
                    "finish_s": finish.get(job.name),
                    "breakdown_s": asdict(result.placed[job.name].breakdown),
                }
                for job in jobs
                if job.name in result.placed
            },
            "waiting": dict(result.waiting),
            "notes": dict(result.notes),
        }
    best = [system.name for system in systems if system.best]
    return {
        "hulk": "comparison/1",
        "objective": measure(jobs),
        "best": best,
        "systems": made,
        "left_out": dict(left_out),
    }


def measure(jobs: Sequence[Job]) -> str:
    """What is compared, in words."""
    weighted = "weighted sum" if any(job.weight != 1 for job in jobs) else "sum"
    without = [job.name for job in jobs if not job.steps]
    if len(without) == len(jobs):
        return f"{weighted} of step times"
    also = f" (of the step time for {', '.join(without)}: no token budget)" if without else ""
    return f"{weighted} of times to finish{also}"


def render(systems: Sequence[System], jobs: Sequence[Job], left_out: Mapping[str, str], screen: Console) -> None:
    """The ranking, what it means for each job, and what is to be said of them."""
    from hulk.cli.screen import styled

    screen.print(styled((measure(jobs), "bold"), ", the least is the best\n"))
    _ranking(systems, screen)
    screen.print(f"\n{_verdict(systems)}\n")
    steps = {system.name: {name: one.seconds for name, one in system.result.placed.items()} for system in systems}
    _by_job("a step takes", systems, [job.name for job in jobs], steps, screen)
    limited = [job.name for job in jobs if job.steps]
    if limited:
        finish = {system.name: system.score.finish for system in systems}
        _by_job("until its tokens are used up", systems, limited, finish, screen)
    for line in _notes(systems, jobs, left_out):
        screen.print(line, style="dim")


def _ranking(systems: Sequence[System], screen: Console) -> None:
    from hulk.cli.answer import count
    from hulk.cli.screen import table
    from hulk.units import format_time

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


def _verdict(systems: Sequence[System]) -> str:
    """Who is best, and how far Hulk is from the next or from the best."""
    hulk = next(system for system in systems if system.name == "hulk")
    others = [system for system in systems if system is not hulk]
    if not systems[0].result.placed:
        return "No system has a place for any job."
    if not others:
        return "There is nothing to compare hulk with."
    best = others[0]
    equal = [system.name for system in others if system.rank == hulk.rank]
    if hulk.rank == 1 and equal:
        return f"hulk is best, and {_listed(equal)} {'does' if len(equal) == 1 else 'do'} as well."
    if hulk.rank == 1:
        gap = "" if best.ratio is None else f", {_percent(1 - 1 / best.ratio)} below the next best, {best.name}"
        return f"hulk is best{gap or f': it has a place for more than {best.name}, the next best'}."
    gap = "" if best.ratio is None else f": {_percent(1 - best.ratio)} below hulk"
    return f"{best.name} is best{gap or ': it has a place for more than hulk'}."


def _percent(share: float) -> str:
    return f"{share:.1%}" if share >= 0.001 else "less than 0.1%"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


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


def _notes(systems: Sequence[System], jobs: Sequence[Job], left_out: Mapping[str, str]) -> list[str]:
    lines = []
    if any(job.weight != 1 for job in jobs):
        lines.append(f"weights: {', '.join(f'{job.name} {job.weight:g}' for job in jobs)}")
    if any(not system.result.concurrent for system in systems):
        lines.append(_TO_THE_END if any(job.steps for job in jobs) else _OWN_STEPS)
    if any(system.result.waiting for system in systems):
        lines.append(
            "waiting: jobs without a place; the less weight waits the better, and the sum is that of the others"
        )
    hurried = [system.name for system in systems if system.result.hurried]
    if hurried:
        lines.append(f"ended by --time-limit before all was tried: {', '.join(hurried)}")
    reasons: dict[tuple[str, str], list[str]] = {}
    for system in systems:
        for kind, texts in ((" waits", system.result.waiting), ("", system.result.notes)):
            for job, text in texts.items():
                reasons.setdefault((f"{job}{kind}", text), []).append(system.name)
    lines += [f"{', '.join(names)}: {job}: {text}" for (job, text), names in reasons.items()]
    return lines + [f"{name} is left out: {reason}" for name, reason in left_out.items()]
