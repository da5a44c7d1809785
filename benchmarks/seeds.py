"""How much a plan depends on the seed: hulk47 with the paper's four and six jobs, ten seeds each, as `hulk plan` plans.

Every plan's objective (the weighted sum of the jobs' step times) is held against the best one ever found. That plan is
kept in benchmarks/data/seeds/ and priced anew in every run; benchmarks/data/seeds.json says how it was found. A run
that finds a better one is held against its own best, and says so; --keep keeps it. There is no time limit: moves end
every search, so that a busy machine finds the plans of an idle one.

benchmarks/seeds.py --search 1000000 --seeds 4   searches longer, with so many moves, and keeps what is better
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, median

from common import Report, commit, format_table, parser
from hulk.contestant import PLANNED, hulk_result
from hulk.cost.compute import ComputeModel
from hulk.cost.price import price_plan
from hulk.cost.report import JobPrice
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.plan import Plan
from hulk.errors import HulkError
from hulk.io.cluster_file import load_cluster
from hulk.io.files import write_atomic
from hulk.io.jobs_file import load_jobs
from hulk.io.plan_file import load_plan, save_plan
from hulk.io.profiles import bundled_profiles
from hulk.propose import bundled_network
from hulk.search.baselines.score import score
from hulk.search.budget import Effort

CLUSTER = "hulk47"
SETS = ("paper4", "paper6")
WATCHED = "opt-175b"
"""The job that decides: nearly all of the objective is its step."""
SEEDS = 10
MOST_WORST, MOST_MEDIAN = 5.0, 2.0
"""Percent above the best ever found."""
WITHOUT_END = 1e6
"""Seconds that a search may take: its moves end it."""
KEPT = Path(__file__).parent / "data" / "seeds.json"
SAME = 1e-9
"""Objectives that differ by less than this share are those of one plan, added up in another order."""


@dataclass(frozen=True)
class Found:
    """What one search found for a set of jobs: its objective and the watched job's step (None: it waits), in seconds;
    and how long planning took."""

    jobs_name: str
    effort: Effort
    objective: float
    step: float | None
    plan: Plan
    took: float


@dataclass(frozen=True)
class Best:
    """How the best plan ever found was found, and its objective (seconds) by the price of that time."""

    objective_s: float
    moves: int
    seed: int
    workers: int
    commit: str | None


@dataclass
class Kept:
    """The best plans ever found: how, in a file; the plans in a folder of the same name beside it. The commit is that
    of the moment when this is made, before searches that may take hours."""

    path: Path = KEPT
    commit: str | None = field(default_factory=commit)
    _best: dict[str, Best] = field(init=False)

    def __post_init__(self) -> None:
        entries = json.loads(self.path.read_text(encoding="utf-8"))["best"] if self.path.exists() else {}
        self._best = {name: Best(**entry) for name, entry in entries.items()}

    def objective(self, jobs_name: str, cluster: Cluster, jobs: Sequence[Job]) -> float | None:
        """Seconds of the best plan by the price of now; None where there is none that can be read and run."""
        if jobs_name not in self._best:
            return None
        try:
            plan = load_plan(self._plan_of(jobs_name))
            prices = price_plan(plan, cluster, jobs, compute=ComputeModel(bundled_profiles()), engine=PLANNED).jobs
        except HulkError:
            return None
        steps = {name: price.step for name, price in prices.items() if isinstance(price, JobPrice)}
        return score(jobs, steps, concurrent=True).cost if len(steps) == len(jobs) else None

    def how(self, jobs_name: str) -> str:
        """In words, how the best plan was found."""
        best = self._best[jobs_name]
        return (
            f"{best.objective_s:.6g} s when it was found, with {best.moves:,} moves in {best.workers} processes "
            f"and seed {best.seed}, at commit {best.commit or 'unknown'}"
        )

    def keep(self, found: Found, cluster: Cluster) -> None:
        """From now on this is the best plan."""
        effort = found.effort
        best = Best(found.objective, effort.evaluations, effort.seed, effort.workers, self.commit)
        self._best[found.jobs_name] = best
        self._plan_of(found.jobs_name).parent.mkdir(parents=True, exist_ok=True)
        save_plan(found.plan, self._plan_of(found.jobs_name), cluster=cluster.name)
        entries = {name: asdict(self._best[name]) for name in sorted(self._best)}
        made = {"made_by": "python benchmarks/seeds.py --search MOVES, or --keep", "best": entries}
        write_atomic(self.path, json.dumps(made, indent=1) + "\n")

    def _plan_of(self, jobs_name: str) -> Path:
        return self.path.with_suffix("") / f"{jobs_name}.plan.json"


def search(jobs_name: str, effort: Effort) -> Found:
    """One search, as `hulk plan` searches."""
    cluster, jobs, compute = load_cluster(CLUSTER), load_jobs(jobs_name), ComputeModel(bundled_profiles())
    network = bundled_network()
    start = time.perf_counter()
    result = hulk_result(cluster, jobs, compute=compute, network=network, effort=effort, engine=PLANNED)
    took = time.perf_counter() - start
    (plan,) = result.plans(cluster)
    objective = result.score(jobs).cost
    return Found(jobs_name, effort, objective, result.seconds(WATCHED), plan, took)


def searches(efforts: Iterable[Effort], jobs_names: Iterable[str], at_once: int) -> Iterator[Found]:
    """One search for each set of jobs and effort, in this order, so many side by side."""
    asked = [(name, effort) for name in jobs_names for effort in efforts]
    if at_once == 1:
        yield from (search(*each) for each in asked)
        return
    with ProcessPoolExecutor(at_once, mp_context=get_context("fork")) as pool:
        yield from pool.map(search, *zip(*asked, strict=True))


def build_report(found: Sequence[Found], kept: Kept, *, keep: bool = False) -> Report:
    """All sets of jobs that were searched; with `keep`, what is better than the best ever found is kept."""
    report = Report("seeds")
    for jobs_name in dict.fromkeys(one.jobs_name for one in found):
        its = [one for one in found if one.jobs_name == jobs_name]
        best = _best(report, jobs_name, its, kept, keep=keep)
        _figures(report, jobs_name, its, best)
    return report


def _best(report: Report, jobs_name: str, found: Sequence[Found], kept: Kept, *, keep: bool) -> float:
    """The objective that others are held against, in seconds."""
    cluster, jobs = load_cluster(CLUSTER), load_jobs(jobs_name)
    known = kept.objective(jobs_name, cluster, jobs)
    own = min(found, key=lambda one: one.objective)
    if known is not None and known <= own.objective * (1 + SAME):
        report.note(f"{jobs_name}: the best plan ever found takes {known:.6g} s ({kept.how(jobs_name)})")
        return known
    before = "there is none to compare with" if known is None else f"the best kept takes {known:.6g} s"
    report.note(
        f"{jobs_name}: BETTER than any before: {own.objective:.6g} s with seed {own.effort.seed}; {before}; "
        + ("kept" if keep else "--keep keeps it")
    )
    if keep:
        kept.keep(own, cluster)
    return own.objective


def _figures(report: Report, jobs_name: str, found: Sequence[Found], best: float) -> None:
    """Figures of a set of jobs, and its table: a row a seed."""
    rows = [
        [
            one.effort.seed,
            f"{one.objective:.6g}",
            f"{_above(one.objective, best):.2f} %",
            "waits" if one.step is None else f"{one.step:.6g}",
            f"{one.took:.1f}",
        ]
        for one in found
    ]
    head = ["seed", "objective, s", "above the best", f"{WATCHED}, s", "planned in, s"]
    report.table(f"{jobs_name} on {CLUSTER}, {found[0].effort.evaluations:,} moves", head, rows)
    objectives = [one.objective for one in found]
    steps = [one.step for one in found if one.step is not None]
    for what, values in (("objective_s", objectives), (f"{WATCHED}.step_s", steps)):
        named: tuple[tuple[str, Callable[[Sequence[float]], float]], ...] = (
            ("best", min), ("median", median), ("worst", max),
        )  # fmt: skip
        for name, of in named if values else ():
            report.figure(f"{jobs_name}.{name}.{what}", of(values))
    report.figure(f"{jobs_name}.best_known.objective_s", best)
    report.figure(f"{jobs_name}.worst_above_best_percent", _above(max(objectives), best), most=MOST_WORST)
    report.figure(f"{jobs_name}.median_above_best_percent", _above(median(objectives), best), most=MOST_MEDIAN)
    report.figure(f"{jobs_name}.planned_in_mean_s", mean(one.took for one in found))


def _above(objective: float, best: float) -> float:
    """Percent above the best."""
    return 100 * (objective / best - 1)


def search_longer(found: Iterable[Found], kept: Kept) -> str:
    """Keep what is better than the best, search by search, so that nothing is lost when this is stopped; a table."""
    cluster = load_cluster(CLUSTER)
    rows = []
    for one in found:
        known = kept.objective(one.jobs_name, cluster, load_jobs(one.jobs_name))
        better = known is None or one.objective < known * (1 - SAME)
        if better:
            kept.keep(one, cluster)
        before = "–" if known is None else f"{known:.6g}"
        verdict = "kept" if better else ""
        rows.append([one.jobs_name, one.effort.seed, f"{one.objective:.6g}", before, f"{one.took:.0f}", verdict])
        print("  ".join(map(str, rows[-1])), file=sys.stderr)
    return format_table(["jobs", "seed", "objective, s", "best before, s", "took, s", ""], rows)


def main() -> int:
    """Command line."""
    arguments = parser(__doc__)
    arguments.add_argument("--seeds", type=_positive, default=SEEDS, help=f"how many seeds ({SEEDS})")
    arguments.add_argument("--first", type=int, default=0, help="the first of them (0)")
    arguments.add_argument("--workers", type=_positive, default=1, metavar="N", help="so many searches at once (1)")
    arguments.add_argument("--keep", action="store_true", help="keep a plan that is better than the best ever found")
    arguments.add_argument(
        "--search", type=_positive, metavar="MOVES", help="only search for better plans, with so many moves; keep them"
    )
    given = arguments.parse_args()
    kept = Kept()
    plain = [Effort(seed=seed, time_limit=WITHOUT_END) for seed in range(given.first, given.first + given.seeds)]
    if given.search is not None:
        longer = [replace(each, evaluations=given.search) for each in plain]
        print(search_longer(searches(longer, SETS, given.workers), kept))
        return 0
    found = []
    for one in searches(plain, SETS, given.workers):
        print(f"{one.jobs_name}, seed {one.effort.seed}: {one.objective:.6g} s …", file=sys.stderr)
        found.append(one)
    return build_report(found, kept, keep=given.keep).finish(given.json)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return value


if __name__ == "__main__":
    sys.exit(main())
