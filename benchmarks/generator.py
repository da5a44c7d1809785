"""Irregular clusters with jobs, drawn by seed: few machines here, many there, of many kinds, over all sorts of links.

Latencies follow distance with a detour of their own, bandwidths follow latency with luck of their own; some pairs of
regions cannot talk. Models are drawn from the catalogue as long as they fit together.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from hulk.cost.memory import optimizer_bytes, weight_bytes
from hulk.domain.cluster import BLOCKED, Cluster, Link, Machine, Origin, Region, pair
from hulk.domain.gpu import Precision
from hulk.domain.job import Job, Optimizer
from hulk.io.estimate import INSIDE_LATENCY, bandwidth_from_latency, distance, latency_from_distance
from hulk.io.gpus import gpu
from hulk.io.models import build_named_model

GPUS = (
    "v100-16",
    "v100-32",
    "a100-40",
    "a100-80",
    "rtx-3090",
    "rtx-2080ti",
    "t4",
    "a10",
    "l4",
    "l40s",
    "rtx-4090",
    "h100",
)
MODELS = {
    # name: sequence. Customary lengths, shortened where they would leave no room on small GPUs.
    "opt-30b": 2048, "t5-11b": 512, "llama-3-8b": 2048, "gpt-neo-2.7b": 2048, "gpt2-xl": 1024, "llama-3.2-1b": 2048,
    "bert-large": 512, "roberta-large": 512, "opt-350m": 2048, "gpt2": 1024,
}  # fmt: skip
BLOCKED_SHARE = 0.06
MEMORY_SHARE = 0.4
"""Of all GPU memory, what the jobs' weights and optimizer state may take: the rest is for activations and bad cuts."""


def irregular(seed: int) -> tuple[Cluster, tuple[Job, ...]]:
    """A cluster of 8 to 40 machines in 2 to 10 regions, with 1 to 6 jobs."""
    rng = np.random.default_rng(seed)
    regions = _regions(rng)
    machines = _machines(rng, regions)
    cluster = Cluster(f"irregular-{seed}", regions, machines, _links(rng, regions))
    return cluster, _jobs(rng, cluster)


def _regions(rng: np.random.Generator) -> tuple[Region, ...]:
    count = int(rng.integers(2, 11))
    return tuple(
        Region(f"r{i}", float(rng.uniform(-35, 60)), float(rng.uniform(-180, 180)), egress=float(rng.uniform(0, 9e-11)))
        for i in range(count)
    )


def _machines(rng: np.random.Generator, regions: tuple[Region, ...]) -> tuple[Machine, ...]:
    count = int(rng.integers(8, 41))
    crowd = rng.dirichlet(np.full(len(regions), 1.0))
    kinds = rng.choice(GPUS, size=int(rng.integers(2, 6)), replace=False)
    machines = []
    for i in range(count):
        region = regions[i if i < len(regions) else int(rng.choice(len(regions), p=crowd))]
        kind = gpu(str(rng.choice(kinds)))
        gpus = int(rng.choice([1, 2, 4, 8]))
        network = float(rng.choice([1.25e9, 3.125e9, 12.5e9]))
        machines.append(Machine(f"m{i}", region.name, kind, gpus, kind.memory, network, kind.price * gpus))
    return tuple(machines)


def _links(rng: np.random.Generator, regions: tuple[Region, ...]) -> dict[tuple[str, str], Link]:
    links = {}
    for region in regions:
        latency = INSIDE_LATENCY * float(rng.uniform(0.1, 2.0))
        links[region.name, region.name] = _link(rng, latency)
    for a, b in combinations(regions, 2):
        metres = distance(a, b)
        assert metres is not None
        latency = latency_from_distance(metres) * float(rng.lognormal(0.0, 0.3))
        links[pair(a.name, b.name)] = BLOCKED if rng.random() < BLOCKED_SHARE else _link(rng, latency)
    return links


def _link(rng: np.random.Generator, latency: float) -> Link:
    bandwidth = bandwidth_from_latency(latency) * float(rng.lognormal(0.0, 0.4))
    return Link(latency, bandwidth, Origin.ESTIMATED, Origin.ESTIMATED)


def _jobs(rng: np.random.Generator, cluster: Cluster) -> tuple[Job, ...]:
    """Models at random, each where what is left of the memory allows it; at least the smallest one."""
    left = MEMORY_SHARE * sum(machine.memory * machine.gpus for machine in cluster.machines)
    state = weight_bytes(Precision.BF16) + optimizer_bytes(Precision.BF16, Optimizer.ADAMW)
    wanted = int(rng.integers(1, 7))
    jobs: list[Job] = []
    for name in rng.permutation(list(MODELS)).tolist():
        model = build_named_model(name, MODELS[name])
        if len(jobs) < wanted and model.params * state <= left / 1.5:
            left -= model.params * state
            jobs.append(Job(name, model, global_batch=int(rng.choice([64, 128, 256, 512]))))
    return tuple(jobs)
