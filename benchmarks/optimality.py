"""The planner against the exact optimum, on small cases drawn by seed.

    python benchmarks/optimality.py                    200 cases against the kept optima
    python benchmarks/optimality.py --fresh            solve them again, in two processes, and keep the optima
    python benchmarks/optimality.py --count 20 --seed 7

3 to 6 machines of mixed GPU types with 1, 2 or 4 GPUs in 2 to 4 regions (1–150 ms, 0.1–10 Gbit/s, some pairs blocked); 1 to
3 small transformers of up to 8 layers, some too large for the smaller GPUs. The optimum is that of `hulk.search.exact`,
whose docstring says which plans it covers. Kept optima carry a fingerprint of what they depend on: a case whose
fingerprint has changed is solved again.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from common import Report, parser

from hulk.cost.compute import ComputeModel
from hulk.cost.layers import build_model
from hulk.domain.architecture import Architecture, Family
from hulk.domain.cluster import BLOCKED, Cluster, Link, Machine, Region, pair
from hulk.domain.job import Job
from hulk.io.gpus import gpu
from hulk.io.profiles import bundled_profiles
from hulk.planner import plan_jobs
from hulk.search.exact import solve_exactly
from hulk.search.objective import job_cost

KEPT = Path(__file__).parent / "data" / "optimality.json"
GPUS = ("t4", "v100-16", "rtx-2080ti", "rtx-3090", "a10g", "l4", "rtx-4090", "a100-40", "a100-80", "h100")
GBIT = 1e9 / 8
MOST_GPUS = 10
TIME_LIMIT = 0.9


@dataclass(frozen=True)
class Case:
    """One instance."""

    seed: int
    cluster: Cluster
    jobs: tuple[Job, ...]


def draw(seed: int) -> Case:
    """The case of a seed."""
    rng = np.random.default_rng([20230227, seed])
    regions = [f"r{i}" for i in range(int(rng.integers(2, 5)))]
    count = int(rng.integers(3, 7))
    machines = []
    left = MOST_GPUS
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
    if blocked:
        keys = [key for key in links if key[0] != key[1]]
        links[keys[int(rng.integers(len(keys)))]] = BLOCKED
    cluster = Cluster(f"case {seed}", tuple(Region(name) for name in regions), tuple(machines), links)
    jobs = tuple(_draw_job(f"job{i}", rng) for i in range(int(rng.integers(1, 4))))
    return Case(seed, cluster, jobs)


def _draw_job(name: str, rng: np.random.Generator) -> Job:
    hidden = int(rng.choice([1024, 1536, 2048, 3072, 4096]))
    sequence = int(rng.choice([512, 1024]))
    heads = hidden // 128
    architecture = Architecture(
        family=Family.DECODER,
        hidden=hidden,
        layers=int(rng.integers(2, 7)),
        heads=heads,
        kv_heads=heads,
        head_dim=128,
        ffn=4 * hidden,
        vocab=int(rng.choice([8192, 32000])),
        embedding=hidden,
        positions=1024,
        tied=bool(rng.random() < 0.5),
    )
    model = build_model(architecture, name=name, sequence=sequence)
    return Job(name, model, global_batch=int(rng.choice([8, 16])), weight=float(rng.choice([1, 1, 2])))


def cost_of(case: Case, seconds: dict[str, float | None]) -> tuple[float, float]:
    """(weight of the jobs that wait, cost of the others): what the default objective adds up."""
    running = [(job, seconds[job.name]) for job in case.jobs]
    waits = sum(job.weight for job, its in running if its is None)
    return waits, sum(job_cost(job, its) for job, its in running if its is not None)
