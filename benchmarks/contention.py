"""The price against the simulator where messages share network cards and trunks.

    contention.py [--plans 200] [--seed 2026] [--json]

Draws clusters with few cards and narrow trunks, one to three jobs, and plans on them that somebody might write: several
pipelines, gradient sums, GPUs of one machine in different pipelines or jobs. Compares what `hulk price` says of each
job's step with what the simulator plays, in plans where sharing costs some job a hundredth of its step or more.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from random import Random

import numpy as np

from common import Report, parser
from hulk.cost.compute import ComputeModel
from hulk.cost.prepared import Prepared, prepare
from hulk.cost.price import price_plan
from hulk.cost.report import JobPrice
from hulk.domain.cluster import Cluster, Link, Machine, Region, pair
from hulk.domain.gpu import Precision
from hulk.domain.job import Job
from hulk.domain.plan import JobPlan, Pipeline, Plan, Recompute, Schedule, Stage, Sync
from hulk.io.gpus import gpu
from hulk.io.models import build_named_model
from hulk.io.profiles import bundled_profiles
from hulk.simulate import simulate

GBIT = 1e9 / 8
MATTERS = 0.01  # of a step: plans in which sharing costs less are left out
ROOM = 1e14  # bytes of a GPU: what fits is not the question here
MODELS = ("bert-large", "gpt2-xl", "opt-350m", "llama-3.2-1b", "roberta-large", "gpt-neo-2.7b", "llama-3-8b")
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
        microbatch_size=size,
        schedule=Schedule.parse(rng.choice(("1f1b", "1f1b", "1f1b+1", "1f1b+4", "gpipe"))),
        recompute=rng.choice(tuple(Recompute)),
        sync=rng.choice(tuple(Sync)),
        shard_optimizer=len(pipelines) > 1 and rng.random() < 0.5,
    )
    batch = size * sum(pipeline.microbatches for pipeline in pipelines)
    return Job(name, model, global_batch=batch, precision=rng.choice((Precision.BF16, Precision.FP32))), plan


def played(case: Case, compute: ComputeModel) -> list[tuple[float, float, float]]:
    """Seconds of each job's step: by the price, simulated, simulated as if nothing were shared."""
    price = price_plan(case.plan, case.cluster, case.jobs, compute=compute)
    prepared = [prepare(job, case.plan.jobs[job.name], case.cluster, compute=compute) for job in case.jobs]
    ready = [one for one in prepared if isinstance(one, Prepared)]
    together, alone = simulate(ready, case.cluster), simulate(ready, case.cluster, contention=False)
    found = []
    for one in ready:
        said = price.jobs[one.job.name]
        assert isinstance(said, JobPrice)
        found.append((said.step, together.jobs[one.job.name].step, alone.jobs[one.job.name].step))
    return found


def main() -> int:
    """Command line."""
    options = parser(__doc__)
    options.add_argument("--plans", type=int, default=200)
    options.add_argument("--seed", type=int, default=2026)
    options.add_argument("--worst", type=int, default=12)
    given = options.parse_args()
    compute = ComputeModel(bundled_profiles())
    rows, drawn, kept = [], 0, 0
    while kept < given.plans:
        case = draw_case(Random(f"{given.seed} {drawn}"))
        drawn += 1
        found = played(case, compute)
        if all(together < (1 + MATTERS) * alone for _, together, alone in found):
            continue  # nobody waits for others here
        kept += 1
        for job, (price, together, alone) in zip(case.jobs, found, strict=True):
            rows.append((abs(price / together - 1), drawn - 1, job.name, len(case.jobs), price, together, alone))
    off = np.array([row[0] for row in rows])
    report = Report("contention")
    report.figure("plans", given.plans)
    report.figure("drawn", drawn)
    report.figure("median_error_percent", 100 * float(np.median(off)), most=3)
    report.figure("p95_error_percent", 100 * float(np.percentile(off, 95)), most=10)
    worst = sorted(rows, reverse=True)[: given.worst]
    report.table(
        "furthest apart", ["plan", "job", "jobs", "price", "simulated", "not shared"],
        [[i, name, jobs, *(f"{seconds:.3f}" for seconds in three)] for _, i, name, jobs, *three in worst],
    )  # fmt: skip
    return report.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
