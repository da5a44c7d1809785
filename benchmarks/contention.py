"""The price against the simulator where messages share network cards and trunks.

    contention.py [--plans 200] [--planned 20] [--seed 2026] [--json]

Draws clusters with few cards and narrow trunks, one to three jobs, and plans on them that somebody might write: several
pipelines, gradient sums, GPUs of one machine in different pipelines or jobs. Compares what `hulk price` says of each
job's step with what the simulator plays, in plans where sharing costs some job a hundredth of its step or more; and,
for every engine, the closed forms that a search goes by with what is played, each job alone, in all plans drawn.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from random import Random

import numpy as np

from common import Report, parser
from hulk.cost.compute import ComputeModel
from hulk.cost.engine import ENGINES, Engine
from hulk.cost.play import play
from hulk.cost.prepared import Prepared, prepare
from hulk.cost.price import closed_form, price_plan
from hulk.cost.report import JobPrice
from hulk.domain.cluster import Cluster, Link, Machine, Region, pair
from hulk.domain.gpu import Precision
from hulk.domain.job import Job
from hulk.domain.options import Options, Recompute, Schedule, Sharding, Sync
from hulk.domain.plan import JobPlan, Pipeline, Plan, Stage
from hulk.io.cluster_file import load_cluster
from hulk.io.files import bundled_names
from hulk.io.gpus import gpu
from hulk.io.models import build_named_model
from hulk.io.profiles import bundled_profiles
from hulk.planner import plan_jobs
from hulk.search.objective import Objective, Outcome
from hulk.search.request import Request
from hulk.simulate import simulate

GBIT = 1e9 / 8
MATTERS = 0.01  # of a step: plans in which sharing costs less are left out
SAME = 0.005  # of a plan's cost: closer than that is as good
ROOM = 1e14  # bytes of a GPU: what fits is not the question here
MODELS = ("bert-large", "gpt2-xl", "opt-350m", "llama-3.2-1b", "roberta-large", "gpt-neo-2.7b", "llama-3-8b")
SMALLER = ("bert-large", "gpt2-xl", "opt-350m", "llama-3.2-1b", "roberta-large")
CARDS = (1, 2, 5, 10, 25, 100)  # Gbit/s


@dataclass(frozen=True)
class Case:
    """A drawn plan with what it is for."""

    cluster: Cluster
    jobs: tuple[Job, ...]
    plan: Plan


def draw_cluster(rng: Random) -> Cluster:
    """One to three regions of a few machines each; some trunks are narrower than the cards that use them."""
    regions = [f"r{i}" for i in range(rng.choice((1, 2, 2, 3)))]
    machines: list[Machine] = []
    for region in regions:
        kind = gpu(rng.choice(("a100-80", "v100-16", "rtx-4090", "h100", "rtx-3090")))
        gpus, card = rng.choice((1, 2, 4, 8)), rng.choice(CARDS) * GBIT
        cards = rng.choice((1, 1, 1, 2, 4)) if gpus > 1 else 1
        for _ in range(rng.randint(1, 5)):
            name = f"{region}-m{len(machines)}"
            machines.append(Machine(name, region, kind, gpus, ROOM, card * cards, 0.0, cards))
    links = {}
    for i, a in enumerate(regions):
        links[pair(a, a)] = Link(rng.uniform(1e-4, 1e-3), rng.choice((5, 10, 25, 100)) * GBIT)
        for b in regions[:i]:
            flow = rng.choice((0.5, 1, 2, 5, 10)) * GBIT
            trunk = flow * rng.choice((1, 1.5, 2, 4)) if rng.random() < 0.75 else None
            links[pair(a, b)] = Link(rng.uniform(2e-3, 0.1), flow, trunk=trunk)
    return Cluster("drawn", tuple(map(Region, regions)), tuple(machines), links)


def draw_case(rng: Random) -> Case:
    """A cluster, jobs, and a plan that uses about all GPUs."""
    cluster = draw_cluster(rng)
    count = rng.choice((1, 1, 2, 3))
    free = [(machine, i) for machine in cluster.machines for i in range(machine.gpus)]
    names = rng.sample(MODELS, count)
    if rng.random() < 0.5:  # whole machines to a job, or GPUs of one machine to several
        order = {machine.name: rng.random() for machine in cluster.machines}
        free.sort(key=lambda one: order[one[0].name])
    bounds = [round(i * len(free) / count) for i in range(count + 1)]
    jobs, plans = [], {}
    for i, name in enumerate(names):
        own = free[bounds[i] : bounds[i + 1]]
        if not own:
            continue
        job, plan = draw_plan(rng, name, [(m.name, i) for m, i in own])
        jobs.append(job)
        plans[job.name] = plan
    return Case(cluster, tuple(jobs), Plan(plans))


def draw_plan(rng: Random, name: str, gpus: list[tuple[str, int]]) -> tuple[Job, JobPlan]:
    """Pipelines over these GPUs, cut about evenly."""
    model = build_named_model(name)
    slots: list[tuple[str, tuple[int, ...]]] = []
    width = rng.choice((1, 1, 2, 4))
    for machine in dict.fromkeys(machine for machine, _ in gpus):
        own = [i for m, i in gpus if m == machine]
        slots += [(machine, tuple(own[k : k + width])) for k in range(0, len(own) - width + 1, width)]
    if not slots:
        slots = [(machine, (i,)) for machine, i in gpus]
    if rng.random() < 0.4:
        rng.shuffle(slots)
    stages = rng.randint(1, min(len(slots), 8))
    replicas = max(1, min(len(slots) // stages, 16))
    if rng.random() < 0.5:  # neighbours in one pipeline, or beside each other
        groups = [slots[p * stages : (p + 1) * stages] for p in range(replicas)]
    else:
        groups = [slots[p : replicas * stages : replicas] for p in range(replicas)]
    pipelines = []
    few = rng.choice((2, 4, 8, 16, 32))
    for group in groups:
        cuts = [round(i * len(model.layers) / stages) for i in range(stages + 1)]
        if rng.random() < 0.3 and stages > 1:
            k = rng.randrange(1, stages)
            cuts[k] = min(max(cuts[k] + rng.choice((-1, 1)), cuts[k - 1] + 1), cuts[k + 1] - 1)
        made = tuple(Stage(m, g, cuts[s], cuts[s + 1] - 1) for s, (m, g) in enumerate(group))
        pipelines.append(Pipeline(made, few if rng.random() < 0.7 else max(1, few // 2)))
    size = rng.choice((1, 2, 4, 8))
    plan = JobPlan(
        tuple(pipelines),
        Options(
            microbatch_size=size,
            schedule=Schedule.parse(rng.choice(("1f1b", "1f1b", "1f1b+1", "1f1b+4", "gpipe"))),
            recompute=rng.choice((Recompute.NONE, Recompute.FULL)),
            sync=rng.choice(tuple(Sync)),
            sharding=Sharding.OPTIMIZER if len(pipelines) > 1 and rng.random() < 0.5 else Sharding.NONE,
        ),
    )
    batch = size * sum(pipeline.microbatches for pipeline in pipelines)
    return Job(name, model, global_batch=batch, precision=rng.choice((Precision.BF16, Precision.FP32))), plan


def played(case: Case, compute: ComputeModel) -> list[tuple[float, float, float, float]]:
    """Seconds of each job's step: by the price, simulated, simulated as if nothing were shared, and by the closed forms
    that a search goes by, which know nothing of other jobs."""
    price = price_plan(case.plan, case.cluster, case.jobs, compute=compute)
    prepared = [prepare(job, case.plan.jobs[job.name], case.cluster, compute=compute) for job in case.jobs]
    ready = [one for one in prepared if isinstance(one, Prepared)]
    together, alone = simulate(ready, case.cluster), simulate(ready, case.cluster, contention=False)
    found = []
    for one in ready:
        said = price.jobs[one.job.name]
        assert isinstance(said, JobPrice)
        steps = together.jobs[one.job.name].step, alone.jobs[one.job.name].step
        found.append((said.step, *steps, closed_form(one, one.book.tables)))
    return found


def closed_form_errors(case: Case, compute: ComputeModel, engine: Engine) -> list[float]:
    """How far the closed form of each job's step is from what is played, each job alone."""
    errors = []
    for job in case.jobs:
        one = prepare(job, case.plan.jobs[job.name], case.cluster, compute=compute, engine=engine)
        assert isinstance(one, Prepared)
        errors.append(abs(closed_form(one, one.book.tables) / play([one])[0].seconds - 1))
    return errors


@dataclass(frozen=True)
class Planned:
    """A plan that the planner made: how far price and closed forms are from the simulator, at most over its jobs; what
    it costs by the simulator, and what the best plan on any one region's machines costs."""

    name: str
    price_error: float
    closed_error: float
    cost: float
    best_region: float


def plan_one(name: str, cluster: Cluster, jobs: Sequence[Job], compute: ComputeModel) -> Planned:
    """Plan on all machines, and on those of each region alone."""
    plan = plan_jobs(Request(cluster, tuple(jobs), compute)).plan
    found = played(Case(cluster, tuple(job for job in jobs if job.name in plan.jobs), plan), compute)
    best = np.inf
    for region in cluster.regions if len(cluster.regions) > 1 else ():
        own = tuple(cluster.in_region(region.name))
        names = {machine.name for machine in own}
        inside = {ends: link for ends, link in cluster.machine_links.items() if names.issuperset(ends)}
        small = replace(cluster, regions=(region,), machines=own, machine_links=inside)
        if own:
            best = min(best, simulated_cost(small, jobs, plan_jobs(Request(small, tuple(jobs), compute)).plan, compute))
    return Planned(
        name,
        max((abs(price / together - 1) for price, together, _, _ in found), default=0.0),
        max((abs(closed / together - 1) for _, together, _, closed in found), default=0.0),
        simulated_cost(cluster, jobs, plan, compute),
        best,
    )


def simulated_cost(cluster: Cluster, jobs: Sequence[Job], plan: Plan, compute: ComputeModel) -> float:
    """What the planner makes small, by the simulator's steps."""
    running = [job for job in jobs if job.name in plan.jobs]
    ready = [prepare(job, plan.jobs[job.name], cluster, compute=compute) for job in running]
    steps = simulate([one for one in ready if isinstance(one, Prepared)], cluster).steps
    return Objective().score(jobs, [Outcome(steps.get(job.name)) for job in jobs]).goal


def scenes(count: int, seed: int) -> Iterator[tuple[str, Cluster, list[Job]]]:
    """Every bundled cluster with two jobs, and drawn clusters with one to three."""
    half = {"precision": Precision.FP16}
    two = [
        Job("gpt2-xl", build_named_model("gpt2-xl"), 512, **half),
        Job("bert-large", build_named_model("bert-large"), 256, **half),
    ]
    for name in bundled_names("clusters"):
        yield name, load_cluster(name), two
    for i in range(count):
        rng = Random(f"{seed} planned {i}")
        drawn = draw_cluster(rng)
        cluster = replace(drawn, machines=tuple(replace(m, memory=m.gpu.memory) for m in drawn.machines))
        names = rng.sample(
            ("bert-large", "gpt2-xl", "opt-350m", "llama-3.2-1b", "roberta-large"), rng.choice((1, 1, 2, 3))
        )
        jobs = [Job(name, build_named_model(name), rng.choice((64, 128, 256)), **half) for name in names]
        yield f"drawn {i}", cluster, jobs


def plan_scene(number: int, given: argparse.Namespace) -> Planned:
    """`plan_one` of a scene by its number: scenes and prices cannot be sent to another process."""
    name, cluster, jobs = list(scenes(given.planned, given.seed))[number]
    return plan_one(name, cluster, jobs, ComputeModel(bundled_profiles()))


def report_planned(report: Report, given: argparse.Namespace) -> None:
    """Plans that the planner makes."""
    rows = []
    with ProcessPoolExecutor(given.at_once, mp_context=get_context("fork")) as pool:
        count = len(bundled_names("clusters")) + given.planned
        for row in pool.map(partial(plan_scene, given=given), range(count)):
            rows.append(row)
            print(f"planned {row.name}", file=sys.stderr)
    report.figure("planned_worst_error_percent", 100 * max(row.price_error for row in rows), most=4)
    report.figure(
        "planned_closed_form_median_error_percent", 100 * float(np.median([row.closed_error for row in rows]))
    )
    slower = [row for row in rows if row.cost > row.best_region * (1 + SAME)]
    report.figure("planned_slower_than_one_region", len(slower), most=0)
    report.table(
        "planned", ["cluster", "price off", "closed form off", "cost", "best region"],
        [
            [r.name, f"{r.price_error:.2%}", f"{r.closed_error:.1%}", f"{r.cost:.4g}", f"{r.best_region:.4g}"]
            for r in rows
        ],
    )  # fmt: skip


def main() -> int:
    """Command line."""
    options = parser(__doc__)
    options.add_argument("--plans", type=int, default=200, help="drawn plans")
    options.add_argument("--planned", type=int, default=20, help="drawn clusters to plan on, besides the bundled ones")
    options.add_argument("--seed", type=int, default=2026)
    options.add_argument("--worst", type=int, default=12, help="plans to list")
    options.add_argument("--at-once", type=int, default=1, help="clusters planned on at a time")
    given = options.parse_args()
    compute = ComputeModel(bundled_profiles())
    rows, closed_errors, drawn, kept = [], [], 0, 0
    by_engine: dict[str, list[float]] = {name: [] for name in ENGINES}
    while kept < given.plans:
        case = draw_case(Random(f"{given.seed} {drawn}"))
        drawn += 1
        for name, engine in ENGINES.items():
            by_engine[name] += closed_form_errors(case, compute, engine)
        found = played(case, compute)
        if all(together < (1 + MATTERS) * alone for _, together, alone, _ in found):
            continue  # nobody waits for others here
        kept += 1
        for job, (price, together, alone, closed) in zip(case.jobs, found, strict=True):
            if len(case.jobs) == 1:
                closed_errors.append(abs(closed / together - 1))
            rows.append((abs(price / together - 1), drawn - 1, job.name, len(case.jobs), price, together, alone))
    off = np.array([row[0] for row in rows])
    report = Report("contention")
    report.figure("plans", given.plans)
    report.figure("drawn", drawn)
    report.figure("median_error_percent", 100 * float(np.median(off)), most=3)
    report.figure("p95_error_percent", 100 * float(np.percentile(off, 95)), most=10)
    report.figure("closed_form_median_error_percent", 100 * float(np.median(closed_errors)))
    report.figure("closed_form_p95_error_percent", 100 * float(np.percentile(closed_errors, 95)))
    for name, errors in by_engine.items():
        key = name.replace("-", "_")
        report.figure(f"closed_form_{key}_median_error_percent", 100 * float(np.median(errors)), most=3)
        report.figure(f"closed_form_{key}_p90_error_percent", 100 * float(np.percentile(errors, 90)))
    worst = sorted(rows, reverse=True)[: given.worst]
    report.table(
        "furthest apart", ["plan", "job", "jobs", "price", "simulated", "not shared"],
        [[i, name, jobs, *(f"{seconds:.3f}" for seconds in three)] for _, i, name, jobs, *three in worst],
    )  # fmt: skip
    if given.planned:
        report_planned(report, given)
    return report.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
