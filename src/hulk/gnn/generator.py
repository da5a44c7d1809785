"""Clusters with jobs, drawn by seed: few machines here, many there, of many kinds, over all sorts of links.

Latencies follow distance with a detour of their own, bandwidths follow latency with luck of their own; some pairs of
regions cannot talk. Models are drawn from the catalogue as long as they fit together. `irregular` draws small clusters
in which every machine is another; `scattered` draws what the network learns from: sizes from a handful to a thousand
machines, large ones made of classes of alike machines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations

import numpy as np

from hulk.cost.memory import optimizer_bytes, weight_bytes
from hulk.domain.cluster import BLOCKED, Cluster, Link, Machine, Origin, Region, pair
from hulk.domain.gpu import GpuType, Precision
from hulk.domain.job import Job, Optimizer
from hulk.domain.model import Model
from hulk.io.estimate import INSIDE_LATENCY, bandwidth_from_latency, distance, latency_from_distance

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
LARGE_MODELS = {"opt-175b": 2048, "llama-3-70b": 2048, "xlnet-large": 512, "bert-base": 512, "opt-125m": 2048}
"""Only in scattered clusters, which may be large enough for the large ones."""
OLDER_GPUS = ("gtx-1080ti", "titan-xp", "p100-16", "rtx-2080", "rtx-3060", "rtx-3080", "rtx-a6000", "a40")
BATCHES = (64, 128, 256, 512)
BLOCKED_SHARE = 0.06
MEMORY_SHARE = 0.4
"""Of all GPU memory, what the jobs' weights and optimizer state may take: the rest is for activations and bad cuts."""
_APART = 64
"""Up to this many machines, some clusters have a link of its own between any two."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How large scattered clusters are: least and most machines, and most jobs; drawn evenly in the logarithm."""

    least: int = 4
    most: int = 1000
    jobs: int = 20


def irregular(seed: int) -> tuple[Cluster, tuple[Job, ...]]:
    """A cluster of 8 to 40 machines in 2 to 10 regions, with 1 to 6 jobs."""
    rng = np.random.default_rng(seed)
    regions = _regions(rng, int(rng.integers(2, 11)))
    machines = _machines(rng, regions, int(rng.integers(8, 41)))
    cluster = Cluster(f"irregular-{seed}", regions, machines, _links(rng, regions, BLOCKED_SHARE))
    return cluster, _jobs(rng, cluster, tuple(MODELS), wanted=int(rng.integers(1, 7)))


def scattered(seed: int, scale: Scale | None = None) -> tuple[Cluster, tuple[Job, ...]]:
    """A cluster of any size and jobs for it, for the network to learn from."""
    scale = scale or Scale()
    rng = np.random.default_rng([seed, 1])
    count = _log_uniform(rng, scale.least, scale.most)
    regions = _regions(rng, min(count, _log_uniform(rng, max(2, count // 60), 8 + count // 20)))
    machines = _machines(rng, regions, count) if count <= 40 and rng.random() < 0.4 else _classes(rng, regions, count)
    blocked = float(rng.choice([0.0, 0.03, BLOCKED_SHARE, 0.15]))
    links = _links(rng, regions, blocked)
    own = _own_links(rng, machines, links) if count <= _APART and rng.random() < 0.3 else {}
    own = {key: _measured(link) for key, link in own.items()}
    cluster = Cluster(f"scattered-{seed}", regions, machines, _some_measured([seed, 2], links), own)
    models = tuple(rng.permutation([*MODELS, *LARGE_MODELS, *MODELS]).tolist())
    most = max(1, min(scale.jobs, count))
    wanted = 1 if rng.random() < 0.08 else _log_uniform(rng, min(2, most), most)  # one job alone teaches little
    jobs = _jobs(rng, cluster, models * 2, wanted=wanted)
    return cluster, _varied(rng, jobs, regions)


def _regions(rng: np.random.Generator, count: int) -> tuple[Region, ...]:
    return tuple(
        Region(f"r{i}", float(rng.uniform(-35, 60)), float(rng.uniform(-180, 180)), egress=float(rng.uniform(0, 9e-11)))
        for i in range(count)
    )


def _machines(rng: np.random.Generator, regions: tuple[Region, ...], count: int) -> tuple[Machine, ...]:
    """Every machine drawn for itself."""
    crowd = rng.dirichlet(np.full(len(regions), 1.0))
    kinds = rng.choice(GPUS, size=int(rng.integers(2, 6)), replace=False)
    machines = []
    for i in range(count):
        region = regions[i if i < len(regions) else int(rng.choice(len(regions), p=crowd))]
        kind = _gpu(str(rng.choice(kinds)))
        gpus = int(rng.choice([1, 2, 4, 8]))
        network = float(rng.choice([1.25e9, 3.125e9, 12.5e9]))
        machines.append(Machine(f"m{i}", region.name, kind, gpus, kind.memory, network, kind.price * gpus))
    return tuple(machines)


def _classes(rng: np.random.Generator, regions: tuple[Region, ...], count: int) -> tuple[Machine, ...]:
    """In every region one to four kinds of machines, each with GPUs and card fixed, in unequal numbers."""
    known = rng.permutation([*GPUS, *OLDER_GPUS])[: int(rng.integers(1, 9))]
    weights, kinds = [], []
    for region in regions:
        crowd = float(rng.lognormal(0.0, 0.8))
        for name in rng.choice(known, size=int(rng.integers(1, min(4, len(known)) + 1)), replace=False):
            gpus = int(rng.choice([1, 2, 4, 8], p=[0.15, 0.15, 0.2, 0.5]))
            kinds.append((region, _gpu(str(name)), gpus, float(rng.choice([1.25e9, 3.125e9, 12.5e9]))))
            weights.append(crowd * float(rng.lognormal(0.0, 0.7)))
    share = np.array(weights) / sum(weights)
    # Every kind has one machine first, as far as they go; the others are spread by weight.
    given = np.zeros(len(kinds), np.int64)
    given[rng.permutation(len(kinds))[:count]] = 1
    given += rng.multinomial(count - int(given.sum()), share)
    machines: list[Machine] = []
    for (region, kind, gpus, network), many in zip(kinds, given.tolist(), strict=True):
        for _ in range(many):
            name = f"m{len(machines)}"
            machines.append(Machine(name, region.name, kind, gpus, kind.memory, network, kind.price * gpus))
    return tuple(machines)


def _links(rng: np.random.Generator, regions: tuple[Region, ...], blocked: float) -> dict[tuple[str, str], Link]:
    links = {}
    for region in regions:
        latency = INSIDE_LATENCY * float(rng.uniform(0.1, 2.0))
        links[region.name, region.name] = _link(rng, latency)
    for a, b in combinations(regions, 2):
        metres = distance(a, b)
        assert metres is not None
        latency = latency_from_distance(metres) * float(rng.lognormal(0.0, 0.3))
        links[pair(a.name, b.name)] = BLOCKED if rng.random() < blocked else _link(rng, latency)
    return links


def _own_links(
    rng: np.random.Generator, machines: tuple[Machine, ...], links: dict[tuple[str, str], Link]
) -> dict[tuple[str, str], Link]:
    """As measured between single machines: around the regions' figures, some pairs blocked."""
    own = {}
    for a, b in combinations(machines, 2):
        around = links[pair(a.region, b.region)]
        if not around.blocked:
            latency = around.latency * float(rng.lognormal(0.0, 0.15))
            blocked = a.region != b.region and rng.random() < BLOCKED_SHARE / 3
            own[pair(a.name, b.name)] = BLOCKED if blocked else _link(rng, latency)
    return own


def _some_measured(seed: Sequence[int], links: Mapping[tuple[str, str], Link]) -> dict[tuple[str, str], Link]:
    """None, half, or all of the links as measured ones. It has a seed of its own, since no plan depends on it."""
    rng = np.random.default_rng(seed)
    share = float(rng.choice([0.0, 0.5, 1.0]))
    return {key: _measured(link) if rng.random() < share else link for key, link in links.items()}


def _measured(link: Link) -> Link:
    return link if link.blocked else replace(link, latency_origin=Origin.MEASURED, bandwidth_origin=Origin.MEASURED)


def _link(rng: np.random.Generator, latency: float) -> Link:
    bandwidth = bandwidth_from_latency(latency) * float(rng.lognormal(0.0, 0.4))
    return Link(latency, bandwidth, Origin.ESTIMATED, Origin.ESTIMATED)


def _jobs(rng: np.random.Generator, cluster: Cluster, models: Sequence[str], wanted: int) -> tuple[Job, ...]:
    """Models at random, each where what is left of the memory allows it; at least the smallest one. A model that comes
    again gets a name of its own."""
    left = MEMORY_SHARE * sum(machine.memory * machine.gpus for machine in cluster.machines)
    state = weight_bytes(Precision.BF16) + optimizer_bytes(Precision.BF16, Optimizer.ADAMW)
    sequences = {**MODELS, **LARGE_MODELS}
    jobs: list[Job] = []
    for name in rng.permutation(list(models)).tolist():
        if len(jobs) == wanted:
            break
        model = _model(name, sequences[name])
        if model.params * state <= left / 1.5:
            left -= model.params * state
            again = sum(job.model.name == model.name for job in jobs)
            own = f"{name}-{again + 1}" if again else name
            jobs.append(Job(own, model, global_batch=int(rng.choice(BATCHES))))
    return tuple(jobs)


def _varied(rng: np.random.Generator, jobs: tuple[Job, ...], regions: tuple[Region, ...]) -> tuple[Job, ...]:
    """Some sets of jobs with weights, some with token budgets, and a few jobs that must keep out of a region."""
    weighted, budgeted, bound = (bool(rng.random() < share) for share in (0.3, 0.25, 0.2))
    varied = []
    for job in jobs:
        weight = float(rng.lognormal(0.0, 0.7)) if weighted else 1.0
        tokens = float(20 * job.model.params * rng.lognormal(0.0, 0.5)) if budgeted else None
        kept_out = bound and len(regions) > 2 and rng.random() < 0.3
        deny = (regions[int(rng.integers(len(regions)))].name,) if kept_out else ()
        varied.append(replace(job, weight=weight, tokens=tokens, deny=deny))
    return tuple(varied)


@cache
def _gpu(name: str) -> GpuType:
    from hulk.io.gpus import gpu

    return gpu(name)


@cache
def _model(name: str, sequence: int) -> Model:
    from hulk.io.models import build_named_model

    return build_named_model(name, sequence)


def _log_uniform(rng: np.random.Generator, least: int, most: int) -> int:
    """A whole number, evenly drawn in the logarithm, both ends included."""
    return int(np.clip(np.floor(np.exp(rng.uniform(np.log(least), np.log(most + 1)))), least, most))
