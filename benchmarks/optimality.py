"""The planner against the exact optimum, on small cases drawn by seed.

    python benchmarks/optimality.py                    200 cases against the kept optima
    python benchmarks/optimality.py --fresh            solve them again, --at-once at a time, and keep the optima
    python benchmarks/optimality.py --count 20 --seed 7
    python benchmarks/optimality.py --engine torchtitan --count 30

3 to 6 machines of mixed GPU types with 1, 2 or 4 GPUs in 2 to 4 regions (1–150 ms, 0.1–10 Gbit/s, some pairs
blocked); 1 to 3 small transformers of up to 8 layers, some too large for the smaller GPUs. The optimum is that of
`hulk.search.exact`, whose docstring says which plans it covers. Kept optima carry a fingerprint of what they depend
on: a case whose fingerprint has changed is solved again.

For another engine than Hulk's own, cases are smaller, since there are more options to go through: 2 to 4 machines with
up to 6 GPUs in 1 to 3 regions, 1 or 2 jobs of up to 5 layers, mixtures of experts and long sequences among them. Their
optima are not kept, and moves end the planner's search, as they end that of `hulk plan`, not the clock.

The solver, as every search, goes by the closed forms of the price, and its answer is then priced as all plans are, by
playing it. So there are two gaps: that of the prices, which people get; and that of the closed forms, in which nothing
can be below the optimum.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from common import Report, parser
from hulk.cost.compute import ComputeModel
from hulk.cost.engine import ENGINES, HULK, Engine, engine_named
from hulk.cost.layers import build_model
from hulk.cost.prepared import Prepared, prepare
from hulk.cost.price import closed_form, price_plan
from hulk.cost.report import JobPrice
from hulk.domain.architecture import Architecture, Family
from hulk.domain.cluster import BLOCKED, Cluster, Link, Machine, Region, pair
from hulk.domain.job import Attention, Job
from hulk.domain.options import words_of
from hulk.domain.plan import JobPlan, Plan
from hulk.io.gpus import gpu
from hulk.io.profiles import bundled_profiles
from hulk.planner import plan_in_parallel
from hulk.search.budget import Effort
from hulk.search.exact import solve_exactly
from hulk.search.job_space import JobSpace, Places
from hulk.search.objective import job_cost
from hulk.search.request import Request

KEPT = Path(__file__).parent / "data" / "optimality.json"
GPUS = ("gtx-1080", "t4", "v100-16", "rtx-2080ti", "rtx-3090", "a10g", "l4", "rtx-4090", "a100-40", "a100-80", "h100")
GBIT = 1e9 / 8
MOST_GPUS = 10
FEWER_GPUS = 6  # for engines with more options
TIME_LIMIT = 0.8


@dataclass(frozen=True)
class Case:
    """One instance."""

    seed: int
    cluster: Cluster
    jobs: tuple[Job, ...]


def draw(seed: int, engine: Engine = HULK) -> Case:
    """The case of a seed: smaller for engines other than Hulk's own."""
    rng = np.random.default_rng([20230227, seed])
    large = engine is HULK
    regions = [f"r{i}" for i in range(int(rng.integers(2, 5) if large else rng.integers(1, 4)))]
    count = int(rng.integers(3, 7) if large else rng.integers(max(2, len(regions)), 5))
    machines = []
    left = MOST_GPUS if large else FEWER_GPUS
    for i in range(count):
        name = str(rng.choice(GPUS))
        gpus = min(int(rng.choice([1, 2, 4], p=[0.55, 0.3, 0.15])), left - (count - 1 - i))
        gpus = 1 << (gpus.bit_length() - 1)
        left -= gpus
        kind = gpu(name)
        # The first machines see to it that every region has one.
        region = regions[i] if i < len(regions) and i < count else str(rng.choice(regions))
        network = float(rng.choice([10, 25, 100])) * GBIT
        machines.append(Machine(f"m{i}", region, kind, gpus, kind.memory, network, kind.price * gpus))
    links: dict[tuple[str, str], Link] = {}
    blocked = rng.random() < 0.2
    for i, a in enumerate(regions):
        links[pair(a, a)] = Link(latency=1e-4, bandwidth=float(rng.choice([10, 25])) * GBIT)
        for b in regions[i + 1 :]:
            latency = float(np.exp(rng.uniform(np.log(1e-3), np.log(0.15))))
            bandwidth = float(np.exp(rng.uniform(np.log(0.1), np.log(10)))) * GBIT
            links[pair(a, b)] = Link(latency, bandwidth)
    if blocked and len(regions) > 1:
        keys = [key for key in links if key[0] != key[1]]
        links[keys[int(rng.integers(len(keys)))]] = BLOCKED
    cluster = Cluster(f"case {seed}", tuple(Region(name) for name in regions), tuple(machines), links)
    jobs = tuple(
        _draw_job(f"job{i}", rng, large=large) for i in range(int(rng.integers(1, 4) if large else rng.integers(1, 3)))
    )
    return Case(seed, cluster, jobs)


def _draw_job(name: str, rng: np.random.Generator, *, large: bool) -> Job:
    """Of those that are not large, every third is a mixture of experts, every fifth has long sequences."""
    hidden = int(rng.choice([1024, 1536, 2048, 3072, 4096]))
    sequence = int(rng.choice([512, 1024]))
    heads = hidden // 128
    architecture = Architecture(
        family=Family.DECODER,
        hidden=hidden,
        layers=int(rng.integers(2, 7) if large else rng.integers(1, 4)),
        heads=heads,
        kv_heads=heads,
        head_dim=128,
        ffn=4 * hidden,
        vocab=int(rng.choice([8192, 32000])),
        embedding=hidden,
        positions=1024,
        tied=bool(rng.random() < 0.5),
    )
    attention = Attention.EAGER if rng.random() < 0.3 else Attention.FUSED
    batch, weight = int(rng.choice([8, 16])), float(rng.choice([1, 1, 2]))
    if not large:
        batch = 8
        if rng.random() < 1 / 3:
            architecture = replace(architecture, experts=4, experts_per_token=2, ffn=hidden)
        if rng.random() < 1 / 5:
            architecture, sequence, attention = replace(architecture, positions=8192), 8192, Attention.FUSED
    model = build_model(architecture, name=name, sequence=sequence)
    return Job(name, model, global_batch=batch, attention=attention, weight=weight)


def cost_of(case: Case, seconds: Mapping[str, float | None]) -> tuple[float, float]:
    """(weight of the jobs that wait, cost of the others): what the default objective adds up."""
    waits, cost = 0.0, 0.0
    for job in case.jobs:
        its = seconds[job.name]
        if its is None:
            waits += job.weight
        else:
            cost += job_cost(job, its)
    return waits, cost


def fingerprint(case: Case, compute: ComputeModel, engine: Engine = HULK) -> str:
    """Changes with the case and with what the price says of it: machines, links, and every table of every job."""
    made = hashlib.sha256(repr((case.cluster.machines, sorted(case.cluster.region_links.items()))).encode())
    places = Places.of(case.cluster)
    for job in case.jobs:
        space = JobSpace(job, case.cluster, places, compute=compute, engine=engine)
        made.update(repr((job.name, job.global_batch, job.weight)).encode())
        for value in space.tables(space.plainest):
            numbers = np.asarray(value, float)
            made.update(" ".join(f"{x:.6g}" for x in numbers.ravel()).encode())
    return made.hexdigest()[:16]


@dataclass(frozen=True)
class Optimum:
    """What is kept of a solved case: seconds a step of every job (None: it waits) by the closed forms and as it is
    priced, in words the plan, and how long it took."""

    fingerprint: str
    seconds: dict[str, float | None]
    priced: dict[str, float | None]
    plan: dict[str, str]
    solved_in: float


def solve(seed: int, engine: Engine = HULK) -> Optimum:
    """The exact optimum of a case."""
    case, compute = draw(seed, engine), ComputeModel(bundled_profiles())
    begin = time.perf_counter()
    plan, seconds = solve_exactly(case.cluster, case.jobs, compute=compute, engine=engine)
    took = round(time.perf_counter() - begin, 2)
    priced = price_plan(plan, case.cluster, case.jobs, compute=compute, engine=engine).jobs
    steps = {name: price.step if isinstance(price, JobPrice) else None for name, price in priced.items()}
    return Optimum(fingerprint(case, compute, engine), seconds, dict.fromkeys(seconds) | steps, in_words(plan), took)


def by_closed_forms(case: Case, plan: Plan, compute: ComputeModel, engine: Engine = HULK) -> dict[str, float | None]:
    """Seconds a step of every job (None: it waits), as the solver counts them."""
    found: dict[str, float | None] = dict.fromkeys(job.name for job in case.jobs)
    for job in case.jobs:
        if job.name in plan.jobs:
            ready = prepare(job, plan.jobs[job.name], case.cluster, compute=compute, engine=engine)
            found[job.name] = closed_form(ready, ready.book.tables) if isinstance(ready, Prepared) else None
    return found


def in_words(plan: Plan) -> dict[str, str]:
    """Every job's plan in a line: "2 × (m0×1:0-3 m1×2:4-5) mb1 1f1b+2" is two microbatches of 1 through two stages, and
    then its other options."""
    return {name: _job_in_words(job) for name, job in plan.jobs.items()}


def _job_in_words(job: JobPlan) -> str:
    pipelines = " + ".join(
        f"{pipeline.microbatches} × ("
        + " ".join(f"{s.machine}×{s.ranks}:{s.first}-{s.last}" for s in pipeline.stages)
        + ")"
        for pipeline in job.pipelines
    )
    return f"{pipelines} mb{job.options.microbatch_size} {', '.join(words_of(job.options, job.shape)[1:])}"


def optima(seeds: Sequence[int], engine: Engine, *, fresh: bool, at_once: int) -> dict[int, Optimum]:
    """The optima of these cases: kept ones where nothing they depend on has changed, the others solved and kept. Those
    of other engines than Hulk's own are solved each time."""
    if engine is not HULK:
        with ProcessPoolExecutor(at_once) as pool:
            return dict(zip(seeds, pool.map(partial(_solve_for, engine.name), seeds), strict=True))
    kept: dict[int, Optimum] = {}
    if KEPT.exists():
        entries = json.loads(KEPT.read_text())["optima"]
        kept = {int(seed): Optimum(**entry) for seed, entry in entries.items() if "priced" in entry}
    compute = ComputeModel(bundled_profiles())
    needed = [s for s in seeds if fresh or s not in kept or kept[s].fingerprint != fingerprint(draw(s), compute)]
    if needed:
        with ProcessPoolExecutor(at_once) as pool:
            kept.update(zip(needed, pool.map(solve, needed, chunksize=4), strict=True))
        made = {
            "made_by": "python benchmarks/optimality.py --fresh",
            "optima": {str(seed): asdict(kept[seed]) for seed in sorted(kept)},
        }
        KEPT.write_text(json.dumps(made, indent=1) + "\n")
    return {seed: kept[seed] for seed in seeds}


def _solve_for(engine: str, seed: int) -> Optimum:
    return solve(seed, engine_named(engine))


def build_report(
    count: int = 200,
    first: int = 0,
    engine: Engine = HULK,
    *,
    fresh: bool = False,
    worst: int = 15,
    at_once: int = 2,
) -> Report:
    """Plan `count` cases from seed `first` on and compare. Both plan in one space: the solver knows no recomputation of
    some of a stage's blocks."""
    report = Report("optimality" if engine is HULK else f"optimality for {engine.name}")
    seeds = range(first, first + count)
    best = optima(seeds, engine, fresh=fresh, at_once=at_once)
    compute = ComputeModel(bundled_profiles())
    warm, planned = draw(first, engine), replace(engine, counts=())
    effort = Effort(time_limit=TIME_LIMIT, workers=2) if engine is HULK else Effort()
    plan_in_parallel(Request(warm.cluster, tuple(warm.jobs), compute, planned), effort)  # compiles
    gaps, closed_gaps, times, rows, infeasible = [], [], [], [], 0
    for seed in seeds:
        case = draw(seed, engine)
        begin = time.perf_counter()
        result = plan_in_parallel(Request(case.cluster, tuple(case.jobs), compute, planned), effort)
        times.append(time.perf_counter() - begin)
        found, least = cost_of(case, result.seconds), cost_of(case, best[seed].priced)
        closed = cost_of(case, by_closed_forms(case, result.plan, compute, engine))
        optimum = cost_of(case, best[seed].seconds)
        if found[0] > least[0]:
            infeasible += 1
            rows.append((float("inf"), seed, result.plan, result.seconds))
        elif found[0] < least[0]:  # the optimum lets a job wait that the planner runs: the solver is wrong
            rows.append((-float("inf"), seed, result.plan, result.seconds))
            closed_gaps.append(-float("inf"))
        else:
            gap = 100 * (found[1] / least[1] - 1) if least[1] else 0.0
            gaps.append(gap)
            closed_gaps.append(100 * (closed[1] / optimum[1] - 1) if optimum[1] else 0.0)
            rows.append((gap, seed, result.plan, result.seconds))
    report.figure("cases", count)
    report.figure("mean_gap_percent", float(np.mean(gaps)), most=0.5)
    report.figure("worst_gap_percent", max(gaps), most=3.0)
    report.figure("least_gap_percent", min(gaps))
    report.figure("least_closed_gap_percent", min(closed_gaps), least=-0.001)
    report.figure("mean_closed_gap_percent", float(np.mean(closed_gaps)))
    report.figure("beyond_half_a_percent", sum(gap > 0.5 for gap in gaps))
    report.figure("infeasible_where_feasible", infeasible, most=0)
    report.figure("worst_seconds_to_plan", max(times), most=1.0 if engine is HULK else None)
    report.figure("mean_seconds_to_plan", float(np.mean(times)))
    report.figure("mean_seconds_to_solve_exactly", float(np.mean([best[seed].solved_in for seed in seeds])))
    rows.sort(key=lambda row: -row[0])
    for gap, seed, plan, seconds in rows[:worst]:
        if gap > 0.05:
            report.note(_beside(draw(seed, engine), gap, in_words(plan), seconds, best[seed]))
    return report


def _beside(
    case: Case, gap: float, words: Mapping[str, str], seconds: Mapping[str, float | None], best: Optimum
) -> str:
    """One case's optimum and plan, one above the other, where they differ."""
    machines = ", ".join(f"{m.name} {m.gpus}×{m.gpu.name} {m.region}" for m in case.cluster.machines)
    lines = [f"case {case.seed}: {gap:.2f} % above the optimum; {machines}"]
    for job in case.jobs:
        name = job.name
        if seconds[name] != best.priced[name]:
            size = f"{job.model.params / 1e6:.0f} M parameters, batch {job.global_batch}, weight {job.weight:g}"
            lines.append(f"  {name} ({size})")
            lines.append(f"    best {best.priced[name] or 0:.5f} s  {best.plan.get(name, 'waits')}")
            lines.append(f"    plan {seconds[name] or 0:.5f} s  {words.get(name, 'waits')}")
    return "\n".join(lines)


def main() -> int:
    """Command line."""
    arguments = parser(__doc__)
    arguments.add_argument("--count", type=int, default=200, help="how many cases")
    arguments.add_argument("--seed", type=int, default=0, help="the first case")
    arguments.add_argument("--engine", choices=ENGINES, default=HULK.name, help="what runs the plans")
    arguments.add_argument("--fresh", action="store_true", help="solve all cases again")
    arguments.add_argument("--worst", type=int, default=15, help="how many cases to show")
    arguments.add_argument("--at-once", type=int, default=2, help="cases solved exactly at a time")
    given = arguments.parse_args()
    options = {"fresh": given.fresh, "worst": given.worst, "at_once": given.at_once}
    report = build_report(given.count, given.seed, engine_named(given.engine), **options)
    return report.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
