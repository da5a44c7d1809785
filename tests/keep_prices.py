"""Prices of 500 plans drawn by seed, kept in data/prices.json: a change of the code that must not change a price is
held against them (test_kept_prices.py). Where prices are meant to change, this writes the file again:

    python tests/keep_prices.py
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from hulk.cost.compute import ComputeModel
from hulk.cost.engine import ENGINES, HEADROOM, Engine
from hulk.cost.prepared import Prepared, prepare
from hulk.cost.price import closed_form, price_plan
from hulk.cost.report import Infeasible, JobPrice, PlanPrice
from hulk.cost.tables import without_sharing
from hulk.domain.cluster import Cluster, Machine
from hulk.domain.gpu import Precision
from hulk.domain.job import Job, Optimizer
from hulk.domain.model import Model
from hulk.domain.options import Options, Recompute, Schedule, Sharding, Sync
from hulk.domain.plan import JobPlan, Pipeline, Plan, Stage
from hulk.io.cluster_file import load_cluster
from hulk.io.files import bundled_names
from hulk.io.models import build_named_model
from hulk.io.profiles import bundled_profiles
from hulk.search.objective import Objective, Outcome
from hulk.simulate import simulate

KEPT = Path(__file__).parent / "data" / "prices.json"
SEED, COUNT = 2026, 500
SIMULATED = 60
SCORED_EACH = 5
"""One plan of so many is scored by every objective as well."""
GBIT = 1e9 / 8
MODELS = {  # sequence lengths to draw from
    "opt-125m": (512, 2048),
    "opt-350m": (512, 2048),
    "gpt2": (256, 1024),
    "gpt2-xl": (256, 1024),
    "gpt-neo-2.7b": (512,),
    "bert-base": (128, 512),
    "bert-large": (128, 512),
    "roberta-large": (128, 512),
    "xlnet-large": (128, 512),
    "t5-small": (128, 512),
    "t5-11b": (256,),
    "llama-3.2-1b": (512, 2048),
    "llama-3-8b": (512,),
    "mixtral-8x7b": (512,),
}
LARGE = ("t5-11b", "llama-3-8b", "mixtral-8x7b")
SCHEDULES = ("gpipe", "1f1b", "1f1b+1", "1f1b+3", "1f1b+8")
OBJECTIVES = {
    "time": Objective(),
    "cheapest": Objective(cheapest=True),
    "most-dollars": Objective(most_dollars_per_second=0.002),
    "least-tokens": Objective(least_tokens_per_second=20_000.0),
}


@dataclass(frozen=True)
class Way:
    """How a job trains, as it was drawn: for each pipeline its stages (machine, GPUs, first and last layer) and its
    microbatches, and the choices by their names in files."""

    pipelines: tuple[tuple[tuple[tuple[str, tuple[int, ...], int, int], ...], int], ...]
    microbatch_size: int
    schedule: str
    recompute: str
    sync: str
    sharded: bool


@dataclass(frozen=True)
class Case:
    """A drawn plan with what it is for."""

    base: str
    cluster: Cluster
    engine: Engine
    jobs: tuple[Job, ...]
    ways: Mapping[str, Way]

    @property
    def plan(self) -> Plan:
        """The plan itself."""
        return Plan({name: job_plan(way) for name, way in self.ways.items()})

    @property
    def digest(self) -> str:
        """Of what was drawn, so that other plans are not taken for other prices."""
        drawn = [
            (job.name, job.model.sequence, job.global_batch, str(job.precision), str(job.optimizer))
            for job in self.jobs
        ]
        text = repr((self.base, self.engine.name, self.engine.headroom, drawn, sorted(self.ways.items())))
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def job_plan(way: Way) -> JobPlan:
    """The only place here that knows which fields a job's plan has."""
    return JobPlan(
        tuple(
            Pipeline(tuple(Stage(machine, gpus, first, last) for machine, gpus, first, last in stages), microbatches)
            for stages, microbatches in way.pipelines
        ),
        Options(
            microbatch_size=way.microbatch_size,
            schedule=Schedule.parse(way.schedule),
            recompute=Recompute(way.recompute),
            sync=Sync(way.sync),
            sharding=Sharding.OPTIMIZER if way.sharded else Sharding.NONE,
        ),
    )


@cache
def bundled_cluster(name: str) -> Cluster:
    """Read once."""
    return load_cluster(name)


@cache
def model(name: str, sequence: int) -> Model:
    """Built once."""
    return build_named_model(name, sequence)


@cache
def compute_model() -> ComputeModel:
    """With the bundled profiles."""
    return ComputeModel(bundled_profiles())


def draw_case(index: int) -> Case:
    """The plan of that number; every bundled cluster has its turn."""
    rng = np.random.default_rng([SEED, index])
    names = bundled_names("clusters")
    base = names[index % len(names)]
    cluster = draw_cluster(rng, bundled_cluster(base))
    engine = ENGINES[pick(rng, ("hulk", "hulk", *ENGINES))]
    if rng.random() < 0.2:
        engine = replace(engine, headroom=HEADROOM)
    count = pick(rng, (1, 1, 2, 3))
    free = draw_gpus(rng, cluster)
    jobs, ways = [], {}
    for number in range(count):
        own = free[round(number * len(free) / count) : round((number + 1) * len(free) / count)]
        if own:
            job, way = draw_job(rng, f"job-{number}", own)
            jobs.append(job)
            ways[job.name] = way
    return Case(base, cluster, engine, tuple(jobs), ways)


def draw_cluster(rng: np.random.Generator, cluster: Cluster) -> Cluster:
    """The bundled cluster, often with dollars for bytes that leave a region, trunks, several network cards, or GPUs
    with room enough."""
    regions, links, machines = cluster.regions, dict(cluster.region_links), list(cluster.machines)
    if rng.random() < 0.5:
        regions = tuple(replace(region, egress=pick(rng, (0.01, 0.02, 0.08)) * 1e-9) for region in regions)
    if rng.random() < 0.4:
        for ends, link in links.items():
            if ends[0] != ends[1] and not link.blocked:
                links[ends] = replace(link, trunk=link.bandwidth * pick(rng, (1.0, 1.5, 3.0)))
    if rng.random() < 0.3:
        cards = pick(rng, (2, 4))
        machines = [replace(machine, cards=cards) if machine.gpus > 1 else machine for machine in machines]
    if rng.random() < 0.4:
        network = pick(rng, (1.0, 2.0, 10.0)) * GBIT
        machines = [replace(machine, network=network) for machine in machines]
    if rng.random() < 0.5:
        machines = [replace(machine, memory=4 * machine.memory) for machine in machines]
    return replace(cluster, regions=regions, region_links=links, machines=tuple(machines))


def draw_gpus(rng: np.random.Generator, cluster: Cluster) -> list[tuple[str, int]]:
    """GPUs of a few machines: machine by machine, or in turn, so that jobs share machines and their cards."""
    few = 4 if any(machine.gpus > 1 for machine in cluster.machines) else 16
    count = int(rng.integers(1, min(few, len(cluster.machines)) + 1))
    if rng.random() < 0.3:  # neighbours in the file are often of one region
        first = int(rng.integers(0, len(cluster.machines) - count + 1))
        chosen: list[Machine] = list(cluster.machines[first : first + count])
    else:
        chosen = [cluster.machines[i] for i in rng.choice(len(cluster.machines), count, replace=False)]
    gpus = [(machine.name, gpu) for machine in chosen for gpu in range(machine.gpus)]
    if rng.random() < 0.4:
        gpus.sort(key=lambda one: one[1])
    return gpus


def draw_job(rng: np.random.Generator, name: str, gpus: list[tuple[str, int]]) -> tuple[Job, Way]:
    """A job and its pipelines over some of these GPUs."""
    chosen = pick(rng, [each for each in MODELS if each not in LARGE or len(gpus) > 3])
    its = model(chosen, pick(rng, MODELS[chosen]))
    slots = draw_slots(rng, its, gpus)
    lengths = draw_lengths(rng, min(len(slots), 16), len(its.layers))
    few = pick(rng, (1, 2, 4, 8, 12))
    pipelines = []
    at = 0
    for length in lengths:
        cuts = draw_cuts(rng, len(its.layers), length)
        stages = tuple((*slots[at + number], first, after - 1) for number, (first, after) in enumerate(pairwise(cuts)))
        at += length
        pipelines.append((stages, few if rng.random() < 0.6 else int(rng.integers(1, few + 1))))
    size = pick(rng, (1, 1, 2, 3, 4, 8))
    way = Way(
        tuple(pipelines),
        microbatch_size=size,
        schedule=pick(rng, SCHEDULES),
        recompute=pick(rng, ("none", "full")),
        sync=pick(rng, ("ring", "by-region")),
        sharded=len(pipelines) > 1 and bool(rng.random() < 0.5),
    )
    job = Job(
        name,
        its,
        global_batch=size * sum(microbatches for _, microbatches in pipelines),
        precision=pick(rng, (Precision.FP16, Precision.BF16, Precision.FP32)),
        optimizer=pick(rng, (Optimizer.ADAMW, Optimizer.ADAMW, Optimizer.SGD, Optimizer.MOMENTUM)),
        tokens=pick(rng, (None, 1e9)),
        weight=pick(rng, (1.0, 1.0, 3.0)),
    )
    return job, way


def draw_slots(rng: np.random.Generator, its: Model, gpus: list[tuple[str, int]]) -> list[tuple[str, tuple[int, ...]]]:
    """GPUs of one machine together, as many as divide the attention heads, now and then of several degrees."""
    heads = [layer.head_width for layer in its.layers if layer.head_width]
    degrees = [degree for degree in (1, 2, 4, 5, 8) if all(width % degree == 0 for width in heads)]
    most = int(pick(rng, degrees))
    mixed = rng.random() < 0.3
    slots = []
    for machine in dict.fromkeys(name for name, _ in gpus):
        own = [gpu for name, gpu in gpus if name == machine]
        while own:
            fitting = [degree for degree in degrees if degree <= min(most, len(own))]
            degree = int(pick(rng, fitting)) if mixed else fitting[-1]
            slots.append((machine, tuple(own[:degree])))
            own = own[degree:]
    if rng.random() < 0.4:
        slots = [slots[i] for i in rng.permutation(len(slots))]
    return slots


def draw_lengths(rng: np.random.Generator, slots: int, layers: int) -> list[int]:
    """Stages of each pipeline: all alike, or each its own."""
    longest = min(slots, layers, 6)
    length = int(rng.integers(1, longest + 1))
    if rng.random() < 0.6:
        return [length] * min(slots // length, 6)
    lengths: list[int] = []
    while slots and len(lengths) < 5:
        lengths.append(int(rng.integers(1, min(slots, longest) + 1)))
        slots -= lengths[-1]
    return lengths


def draw_cuts(rng: np.random.Generator, layers: int, stages: int) -> list[int]:
    """Where the stages begin, and where the last one ends: about even, or anywhere."""
    if rng.random() < 0.6:
        return [round(i * layers / stages) for i in range(stages + 1)]
    inner = rng.choice(np.arange(1, layers), stages - 1, replace=False)
    return [0, *sorted(int(cut) for cut in inner), layers]


def pick(rng: np.random.Generator, values: Any) -> Any:
    """One of these."""
    return values[int(rng.integers(len(values)))]


def priced(index: int, *, simulated: bool) -> dict[str, Any]:
    """What is kept of the plan of that number; `simulated`: with the simulator's steps, where all its jobs can run."""
    case = draw_case(index)
    price = price_plan(case.plan, case.cluster, case.jobs, compute=compute_model(), engine=case.engine)
    ready = [
        prepare(job, job_plan(case.ways[job.name]), case.cluster, compute=compute_model(), engine=case.engine)
        for job in case.jobs
    ]
    kept: dict[str, Any] = {"cluster": case.base, "engine": case.engine.name, "plan": case.digest}
    kept["jobs"] = {
        job.name: price_in_numbers(price.jobs[job.name], one) for job, one in zip(case.jobs, ready, strict=True)
    }
    if index % SCORED_EACH == 0:
        kept["scores"] = {name: scored(objective, case, price) for name, objective in OBJECTIVES.items()}
    running = [one for one in ready if isinstance(one, Prepared)]
    if simulated and len(running) == len(ready):
        kept["simulated"] = simulate(running, case.cluster).steps
    return kept


def price_in_numbers(price: JobPrice | Infeasible, ready: Prepared | Infeasible) -> dict[str, Any]:
    """Seconds, dollars, and bytes of every stage; or what kind of obstacle there is."""
    if isinstance(price, Infeasible) or isinstance(ready, Infeasible):
        assert price == ready
        return {"obstacle": str(price.obstacle)}
    parts = price.breakdown
    return {
        "step": price.step,
        "parts": [parts.compute, parts.bubble, parts.transfer, parts.sync, parts.update],
        "alone": price.alone,
        "closed": closed_form(ready, ready.book.tables),
        "apart": closed_form(ready, without_sharing(ready.book.tables)),
        "dollars": [price.money.gpus, price.money.egress],
        "memory": [[stage.memory.used for stage in pipeline] for pipeline in price.pipelines],
    }


def scored(objective: Objective, case: Case, price: PlanPrice) -> list[float]:
    """What a search with that objective ranks the plan by."""
    outcomes = []
    for job in case.jobs:
        its = price.jobs[job.name]
        outcomes.append(Outcome(its.step, its.money.total) if isinstance(its, JobPrice) else Outcome(None))
    return list(objective.score(case.jobs, outcomes))


def read_kept() -> list[dict[str, Any]]:
    """What is kept, plan by plan."""
    kept: list[dict[str, Any]] = json.loads(KEPT.read_text())["plans"]
    return kept


def main() -> None:
    """Price all plans and keep that; the first of those that run are simulated."""
    plans = []
    for index in range(COUNT):
        enough = sum("simulated" in one for one in plans) >= SIMULATED
        plans.append(priced(index, simulated=index % 3 == 0 and not enough))
    lines = ",\n".join(json.dumps(one, separators=(",", ":")) for one in plans)
    KEPT.parent.mkdir(exist_ok=True)
    KEPT.write_text(f'{{"made_by":"python tests/keep_prices.py","seed":{SEED},"plans":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
