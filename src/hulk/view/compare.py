"""Hulk beside other planners: ranked, for programs, in words, and as the bars that the paper draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from hulk.contestant import Compared
from hulk.domain.job import Job
from hulk.search.baselines import BaselineResult, Score
from hulk.view.document import Bar, ComparisonView

_IN_TURN = "in turn: one job after the other, each on all machines it may use"
_TO_THE_END = f"{_IN_TURN}; a job with a token budget ends after those before it, in the order that makes the sum least"
_OWN_STEPS = f"{_IN_TURN}; the sum counts each job's own step, not the time before its turn"
_ANEW = "hulk's row is a plan made anew, as those of the others are; the plan shown here may be another"


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


def beside_plan(found: Compared, jobs: Sequence[Job]) -> ComparisonView:
    """A comparison that stands beside a plan, which need not be the one that it calls hulk's."""
    view = comparison_view(ranked(found.results, jobs), jobs, found.left_out)
    view["notes"].insert(0, _ANEW)
    return view


def comparison_view(systems: Sequence[System], jobs: Sequence[Job], left_out: Mapping[str, str]) -> ComparisonView:
    """The comparison as the page shows it."""
    bars = []
    for system in systems:
        for job in jobs:
            placed = system.result.placed.get(job.name)
            bars.append(
                Bar(
                    system=system.name,
                    job=job.name,
                    computation=None if placed is None else placed.computation,
                    communication=None if placed is None else placed.communication,
                )
            )
    return ComparisonView(
        comparison=comparison_json(systems, jobs, left_out),
        verdict=verdict(systems),
        notes=comparison_notes(systems, jobs, left_out),
        bars=bars,
    )


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


def comparison_json(systems: Sequence[System], jobs: Sequence[Job], left_out: Mapping[str, str]) -> dict[str, object]:
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


def verdict(systems: Sequence[System]) -> str:
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


def comparison_notes(systems: Sequence[System], jobs: Sequence[Job], left_out: Mapping[str, str]) -> list[str]:
    """What is to be said of the systems besides their figures."""
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
        lines.append(f"ended by the time limit before all was tried: {', '.join(hurried)}")
    reasons: dict[tuple[str, str], list[str]] = {}
    for system in systems:
        for kind, texts in ((" waits", system.result.waiting), ("", system.result.notes)):
            for job, text in texts.items():
                reasons.setdefault((f"{job}{kind}", text), []).append(system.name)
    lines += [f"{', '.join(names)}: {job}: {text}" for (job, text), names in reasons.items()]
    return lines + [f"{name} is left out: {reason}" for name, reason in left_out.items()]
