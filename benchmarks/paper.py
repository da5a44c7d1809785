"""The paper's comparison: hulk47 with its four and its six jobs, Hulk against systems A, B, C and every other baseline.

Communication and computation time of a step per job and in total, as a table and as benchmarks/results/paper.png.
Total: the time until every job has done one step. A, B, C and `alone` run the jobs one after the other: their times add
up; the others run them side by side, so the slowest job's time is the total. A job that waits is shown so, and a system
under which a job waits has no total. That is the paper's measure, and what Hulk is held against A, B and C by. Planners
that choose machines as Hulk does are compared by what they all make small, the sum of the jobs' step times.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from common import Report, parser
from hulk.contestant import NAME, PLANNED, hulk_result
from hulk.cost.compute import ComputeModel
from hulk.domain.job import Job
from hulk.io.cluster_file import load_cluster
from hulk.io.jobs_file import load_jobs
from hulk.io.profiles import bundled_profiles
from hulk.propose import bundled_network
from hulk.search.baselines import BASELINES, BaselineResult
from hulk.search.budget import Effort
from hulk.search.defaults import TIME_LIMIT

PICTURE = Path(__file__).parent / "results" / "paper.png"
PAPER_SYSTEMS = ("A", "B", "B-tour", "C")
LEAST_REDUCTION = 50.0
"""Percent below the best of the paper's systems; the paper claims 20."""


@dataclass(frozen=True)
class Bars:
    """One system: (communication, computation) seconds per job and in total; None where it waits."""

    name: str
    jobs: dict[str, tuple[float, float] | None]
    total: tuple[float, float] | None


def bars(result: BaselineResult, jobs: tuple[Job, ...]) -> Bars:
    """A result as the paper draws it."""
    found = {name: (entry.communication, entry.computation) for name, entry in result.placed.items()}
    total = None
    if result.total is not None:
        if result.concurrent:
            total = found[max(result.placed, key=lambda name: result.placed[name].seconds)]
        else:
            total = (sum(part[0] for part in found.values()), sum(part[1] for part in found.values()))
    return Bars(result.name, {job.name: found.get(job.name) for job in jobs}, total)


def evaluate(report: Report, jobs_name: str, time_limit: float) -> list[Bars]:
    """One set of jobs: all systems, figures and the table."""
    cluster, jobs, compute = load_cluster("hulk47"), load_jobs(jobs_name), ComputeModel(bundled_profiles())
    effort = Effort(time_limit=time_limit)
    ours = hulk_result(cluster, jobs, compute=compute, network=bundled_network(), effort=effort)
    results = [
        entry.run(cluster, jobs, compute=compute, engine=PLANNED, seed=effort.seed, time_limit=10 * time_limit)
        for entry in BASELINES.entries()
    ]
    rows = []
    for result in (ours, *results):
        its = bars(result, jobs)
        cells = [_cell(its.jobs[job.name]) for job in jobs]
        together = "side by side" if result.concurrent else "in turn"
        own = "–" if result.waiting else f"{result.score(jobs).cost:.4g}"
        rows.append([result.name, *cells, _cell(its.total), own, together])
        for job in jobs:
            seconds = result.seconds(job.name)
            if seconds is not None:
                report.figure(f"{jobs_name}.{result.name}.{job.name}.step_s", seconds)
        if result.total is not None:
            report.figure(f"{jobs_name}.{result.name}.total_s", result.total)
            report.figure(f"{jobs_name}.{result.name}.objective_s", result.score(jobs).cost)
        for name, text in {**result.waiting, **result.notes}.items():
            report.note(f"{jobs_name}, {result.name}, {name}: {text}")
    head = ["system", *(job.name for job in jobs), "total", "sum", "jobs"]
    report.table(f"{jobs_name}: seconds of a step = communication + computation", head, rows)
    _verdict(report, jobs_name, jobs, ours, results)
    return [bars(result, jobs) for result in (ours, *results) if result.name in (*PAPER_SYSTEMS, "hulk")]


def _verdict(
    report: Report, jobs_name: str, jobs: tuple[Job, ...], ours: BaselineResult, results: list[BaselineResult]
) -> None:
    """How far Hulk's total is below the best of the paper's systems, and its objective below the best of all others."""
    others = tuple(result.name for result in results if result.name not in PAPER_SYSTEMS)
    for title, names, least in (("paper_systems", PAPER_SYSTEMS, LEAST_REDUCTION), ("other_baselines", others, 0.0)):
        found = {
            result.name: result.total if names is PAPER_SYSTEMS else result.score(jobs).cost
            for result in (ours, *results)
            if result.name in (NAME, *names)
        }
        totals = {name: seconds for name, seconds in found.items() if seconds is not None and name != NAME}
        if not totals:
            continue
        mine = found[NAME] or float("inf")
        best = min(totals, key=lambda name: totals[name])
        report.figure(f"{jobs_name}.below_best_of_{title}_percent", 100 * (1 - mine / totals[best]), least=least)
        report.note(f"{jobs_name}: best of {', '.join(names)}: {best}, {totals[best]:.1f} s; Hulk: {mine:.1f} s")
    # Fair to a system under which a job waits: the total over the jobs that it does run.
    for result in results:
        if result.name in PAPER_SYSTEMS and result.waiting and result.placed:
            own = sum(entry.seconds for entry in result.placed.values())
            same = max(ours.seconds(name) or float("inf") for name in result.placed)
            report.figure(f"{jobs_name}.below_{result.name}_on_its_jobs_percent", 100 * (1 - same / own))


def _cell(part: tuple[float, float] | None) -> str:
    return "waits" if part is None else f"{part[0] + part[1]:.4g} = {part[0]:.3g} + {part[1]:.3g}"


def draw(sets: dict[str, list[Bars]], path: Path) -> None:
    """Bars per job and in total, one row a set of jobs; communication left, computation right. Logarithmic."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(sets), 2, figsize=(14, 4.2 * len(sets)), squeeze=False)
    for row, (jobs_name, systems) in enumerate(sets.items()):
        labels = [*systems[0].jobs, "total"]
        for column, what in enumerate(("communication", "computation")):
            axis = axes[row][column]
            width = 0.8 / len(systems)
            for i, system in enumerate(systems):
                parts = [*system.jobs.values(), system.total]
                for x, part in enumerate(parts):
                    place = x + (i - (len(systems) - 1) / 2) * width
                    if part is None:
                        axis.text(place, 1.5e-3, "waits", rotation=90, ha="center", va="bottom", fontsize=6)
                    else:
                        label = system.name if x == next(k for k, p in enumerate(parts) if p is not None) else None
                        axis.bar(place, max(part[column], 1e-3), width, color=f"C{i}", label=label)
            axis.set(yscale="log", ylabel="seconds a step", title=f"{jobs_name} on hulk47: {what}", ylim=(1e-3, None))
            axis.set_xticks(range(len(labels)), labels, rotation=15)
            axis.legend(fontsize=8)
    figure.tight_layout()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def build_report(time_limit: float = TIME_LIMIT, picture: Path | None = PICTURE) -> Report:
    """Both sets of jobs."""
    report = Report("paper")
    sets = {name: evaluate(report, name, time_limit) for name in ("paper4", "paper6")}
    if picture is not None:
        draw(sets, picture)
        report.note(f"bars: {picture}")
    return report


def main() -> int:
    """Command line."""
    arguments = parser(__doc__)
    arguments.add_argument(
        "--time-limit", type=float, default=TIME_LIMIT, help="seconds for Hulk; baselines have ten times as many"
    )
    given = arguments.parse_args()
    return build_report(given.time_limit).finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
