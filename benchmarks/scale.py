"""How planning grows: 100, 1,000 and 10,000 machines of 8 GPUs in 5, 20 and 60 regions with 5, 20 and 60 jobs.

A feasible plan within 2, 10 and 60 s, under 4 GiB, no worse than greedy by region; time grows with an exponent of at
most 1.2.
Each size runs in a process of its own, so that its memory is its own.
"""

from __future__ import annotations

import json
import math
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from common import Report, parser
from hulk.contestant import PLANNED, hulk_result
from hulk.cost.compute import ComputeModel
from hulk.domain.cluster import Cluster, Link, Machine, Origin, Region, pair
from hulk.domain.gpu import Precision
from hulk.domain.job import Job
from hulk.io.estimate import bandwidth_from_latency, distance, latency_from_distance
from hulk.io.gpus import gpu
from hulk.io.models import build_named_model
from hulk.io.profiles import bundled_profiles
from hulk.planner import plan_jobs
from hulk.propose import bundled_network
from hulk.search.baselines import BASELINES
from hulk.search.budget import Effort
from hulk.search.request import Request

SIZES = {100: (5, 5, 2.0), 1_000: (20, 20, 10.0), 10_000: (60, 60, 60.0)}
GPUS = ("a100-80", "a100-40", "h100", "v100-32", "rtx-3090", "l40s")
MODELS = ("bert-large", "gpt2-xl", "t5-11b", "llama-3-8b", "gpt-neo-2.7b", "opt-30b", "roberta-large", "llama-3-70b")


def scenario(machines: int, regions: int, jobs: int, seed: int) -> tuple[Cluster, list[Job]]:
    """Regions anywhere on land's latitudes, each with one to three kinds of machines; models of all sizes."""
    rng = np.random.default_rng(seed)
    places = [
        Region(f"r{i}", latitude=float(rng.uniform(-40, 60)), longitude=float(rng.uniform(-180, 180)))
        for i in range(regions)
    ]
    links = {}
    for i, a in enumerate(places):
        links[pair(a.name, a.name)] = Link(0.0005, 25e9 / 8, Origin.ESTIMATED, Origin.ESTIMATED)
        for b in places[i + 1 :]:
            latency = latency_from_distance(distance(a, b) or 0.0)
            links[pair(a.name, b.name)] = Link(
                latency, bandwidth_from_latency(latency), Origin.ESTIMATED, Origin.ESTIMATED
            )
    kinds = {place.name: rng.choice(GPUS, size=int(rng.integers(1, 4)), replace=False) for place in places}
    made = []
    for i in range(machines):
        place = places[i % regions]
        kind = gpu(str(rng.choice(kinds[place.name])))
        made.append(Machine(f"m{i}", place.name, kind, 8, kind.memory, 25e9 / 8, kind.price * 8))
    cluster = Cluster(f"scale-{machines}", tuple(places), tuple(made), links)
    work = []
    for j in range(jobs):
        name = MODELS[j % len(MODELS)]
        model = build_named_model(name, sequence=1024 if "llama" in name else None)
        work.append(Job(f"{model.name}-{j}", model, global_batch=512, precision=Precision.BF16))
    return cluster, work


def run_one(machines: int, seed: int) -> dict[str, float]:
    """Plan one size; called in a process of its own."""
    regions, jobs, limit = SIZES[machines]
    cluster, work = scenario(machines, regions, jobs, seed)
    compute, network = ComputeModel(bundled_profiles()), bundled_network()
    one = Request(cluster, tuple(work[:1]), compute)
    plan_jobs(one, Effort(evaluations=10, time_limit=5.0, seed=seed))  # load compiled code
    start = time.perf_counter()
    effort = Effort(time_limit=limit * 0.88, seed=seed)
    result = hulk_result(cluster, work, compute=compute, network=network, effort=effort)
    seconds = time.perf_counter() - start
    used = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    memory = sum(used) * 1024
    greedy = BASELINES.get("greedy").run(cluster, work, compute=compute, engine=PLANNED, seed=seed, time_limit=limit)
    ratio = result.score(work).cost / greedy.score(work).cost
    return {"seconds": seconds, "bytes": float(memory), "waiting": len(result.waiting), "cost_over_greedy": ratio}


def build_report(seed: int, sizes: list[int]) -> Report:
    """All sizes."""
    report = Report("scale")
    times = {}
    for machines in sizes:
        command = [sys.executable, __file__, "--one", str(machines), "--seed", str(seed)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent)
        found = json.loads(done.stdout)
        times[machines] = found["seconds"]
        report.figure(f"{machines}.plan_s", found["seconds"], most=SIZES[machines][2])
        report.figure(f"{machines}.memory_gib", found["bytes"] / 2**30, most=4.0)
        report.figure(f"{machines}.jobs_waiting", found["waiting"], most=0)
        report.figure(f"{machines}.cost_over_greedy", found["cost_over_greedy"], most=1.0)
    if len(times) > 1:
        small, large = min(times), max(times)
        report.figure("exponent", math.log(times[large] / times[small]) / math.log(large / small), most=1.2)
    return report


def main() -> int:
    """Command line."""
    arguments = parser(__doc__)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--sizes", type=int, nargs="*", default=list(SIZES))
    arguments.add_argument("--one", type=int, help="plan one size and print its numbers")
    given = arguments.parse_args()
    if given.one:
        print(json.dumps(run_one(given.one, given.seed)))
        return 0
    return build_report(given.seed, given.sizes).finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
