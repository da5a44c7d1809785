"""Training runs that others have published, as clusters, jobs and plans that Hulk can price.

One JSON object a line (`data/published_runs.jsonl`, and any file with the same fields):

    config                    shape of the model, in the fields of a Hugging Face config.json
    sequence                  tokens of a sequence
    microbatch, global_batch  sequences of a microbatch; of a step, over all replicas
    tensor, pipeline, data    degrees; `chunks`: pieces of the model that a stage holds (interleaved 1F1B), 1: plain
    zero                      0: nothing sharded, 1: the optimizer's state, 3: parameters too (FSDP)
    sequence_parallel, overlap_tensor, compiled   Megatron's sequence parallelism; tensor parallel communication hidden
                              behind compute; torch.compile
    recompute                 none, full, selective-attention (Megatron's), selective-op (torchtitan's)
    attention                 flash, fused-softmax, eager
    precision                 bf16, fp16, fp32, tf32, fp8 (matrix products in fp8, the rest in bf16)
    gpu, gpus_per_node, node_network   a GPU, how many a node has, the node's network cards together
    order                     which degree varies fastest over GPUs: tp-pp-dp, tp-dp-pp
    layers_per_stage          where stages are not even; embedding and head count
    step_s, memory_gib        what was measured: seconds of a step; peak of a GPU, where published
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hulk.cost.engine import ENGINES, Engine
from hulk.cost.layers import build_model
from hulk.domain.cluster import Cluster, Link, Machine, Region
from hulk.domain.gpu import Precision
from hulk.domain.job import Attention, Job
from hulk.domain.options import Options, Recompute, Sharding
from hulk.domain.plan import JobPlan, Pipeline, Stage, rounds_problem
from hulk.errors import InputError
from hulk.io.gpus import gpu
from hulk.io.hf_config import architecture_from_config
from hulk.units import Dimension, parse

DATA = Path(__file__).parent / "data" / "published_runs.jsonl"
Row = Mapping[str, Any]

# What a run needs is predicted even where the prediction exceeds the card: the run did fit.
UNLIMITED = 1e15
HIDDEN = 0.8
"""Of tensor parallel communication where it is overlapped: gathers go GPU by GPU and show one part of eight, scatters
go in four pieces and show the last."""
LINE_SHARE = 0.9
"""Of a card's line rate: what large messages of NCCL reach of it."""
LATENCY = 5e-6
"""Seconds between two nodes of one hall, one way (InfiniBand and RoCE: 2 to 10 µs with the switches)."""

# The bundled engine that is nearest to the one which ran; megatron where a row names another one.
NEAREST_ENGINE = {
    "megatron": "megatron",
    "megatron-core": "megatron",  # the same kernels and schedules, as a library
    "megatron-lm": "megatron",
    "nemo": "megatron",  # NeMo trains with Megatron-Core
    "libai": "megatron",  # LiBai has Megatron's layers and fused kernels
    "oneflow": "megatron",  # OneFlow's GPT is Megatron's, with the like fused kernels
    "flash-attention": "megatron",  # its training code has fused dropout-add-norm, gelu and cross entropy kernels
    "megatron-deepspeed": "megatron-deepspeed",
    "llm-foundry": "torchtitan",  # PyTorch's FSDP over plain modules with flash attention
    "torchtitan": "torchtitan",
    "hulk": "hulk",
}
# Where an engine differs from the bundled one that is nearest.
VARIANTS: dict[str, dict[str, Any]] = {
    "megatron": {"overlap_sync": False},  # Megatron-LM before Megatron-Core sums gradients after the last backward
    "libai": {"overlap_sync": False},
    # Its loss is flash-attention's: logits in 16 bits, their gradient in their place, a copy for a moment.
    "llm-foundry": {"logit_bytes": (2.0, 2.0)},
    # A static graph: casting and clipping are part of its update's kernel, and no step waits for Python.
    "oneflow": {"update_copies": 0.0, "step_overhead": 0.0},
}
RECOMPUTES = {
    "none": Recompute.NONE,
    "full": Recompute.FULL,
    "selective-attention": Recompute.ATTENTION,
    "selective-op": Recompute.OPERATIONS,
}
ATTENTIONS = {"flash": Attention.FUSED, "fused-softmax": Attention.FUSED_SOFTMAX, "eager": Attention.EAGER}


@dataclass(frozen=True)
class Published:
    """A run to predict: how it is priced, what a plan cannot say of it, and what was measured."""

    name: str
    group: str
    engine: Engine
    cluster: Cluster
    job: Job
    plan: JobPlan
    missing: tuple[str, ...]
    step: float
    memory: float | None
    source: str


def read_runs(path: Path = DATA) -> list[Published]:
    """The runs of a file of JSON lines."""
    runs = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            runs.append(published(json.loads(line)))
        except InputError as error:
            raise error.at(where) from error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"not a published run: {error!r}", where=where) from error
    if not runs:
        raise InputError("no runs", where=str(path))
    return runs


def published(row: Row) -> Published:
    """A row as something to price."""
    engine = _engine(row)
    architecture = architecture_from_config(row["config"], where=row["name"])
    model = build_model(architecture, name=row["name"], sequence=int(row["sequence"]))
    job = Job(
        name=row["name"],
        model=model,
        global_batch=int(row["global_batch"]),
        precision=Precision(row["precision"]),
        attention=ATTENTIONS[row["attention"]],
    )
    cluster = _cluster(row)
    return Published(
        name=row["name"],
        group=row.get("group", ""),
        engine=engine,
        cluster=cluster,
        job=job,
        plan=_plan(row, len(model.layers), cluster),
        missing=tuple(_missing(row)),
        step=float(row["step_s"]),
        memory=None if row.get("memory_gib") is None else float(row["memory_gib"]) * 2.0**30,
        source=row.get("source", ""),
    )


def _engine(row: Row) -> Engine:
    """The bundled engine nearest to the one that ran, with the switches that the row names."""
    engine = ENGINES[NEAREST_ENGINE.get(row["engine"], "megatron")]
    engine = replace(engine, **VARIANTS.get(row["engine"], {}))
    if engine.name == "torchtitan":
        engine = replace(engine, fused_kernels=bool(row["compiled"]))
    return replace(engine, hidden_exchange=HIDDEN) if row["overlap_tensor"] else engine


def _missing(row: Row) -> list[str]:
    """What of a run no plan can say."""
    return [] if _chunks(row) == row["chunks"] else ["interleaving"]


def _chunks(row: Row) -> int:
    """Pieces of the model that a stage holds; 1 where a plan cannot say them."""
    share = int(row["global_batch"]) // (int(row["microbatch"]) * int(row["data"]))
    return 1 if rounds_problem(int(row["pipeline"]), int(row["chunks"]), share) else int(row["chunks"])


def _cluster(row: Row) -> Cluster:
    """Nodes in one hall. NCCL spreads what a node sends over all its cards, so one exchange has them all."""
    kind, per_node = gpu(row["gpu"]), int(row["gpus_per_node"])
    nodes = -(-row["tensor"] * row["pipeline"] * row["data"] // per_node)
    network = LINE_SHARE * parse(row["node_network"], Dimension.BANDWIDTH)
    machines = tuple(Machine(f"node-{n}", "hall", kind, per_node, UNLIMITED, network, 0.0) for n in range(nodes))
    return Cluster(row["name"], (Region("hall"),), machines, {("hall", "hall"): Link(LATENCY, network)})


def _plan(row: Row, layers: int, cluster: Cluster) -> JobPlan:
    tensor, stages, replicas = int(row["tensor"]), int(row["pipeline"]), int(row["data"])
    per_node, pieces = int(row["gpus_per_node"]), stages * _chunks(row)
    counts = row.get("layers_per_stage") or even_layers(layers, pieces)
    if sum(counts) != layers or len(counts) != pieces:
        raise InputError(
            f"{sum(counts)} layers on {len(counts)} stages: the model has {layers}, the run {pieces} stages"
        )
    share, rest = divmod(int(row["global_batch"]), int(row["microbatch"]) * replicas)
    if rest:
        raise InputError(f"{row['global_batch']} sequences do not divide over {replicas} replicas")
    near = row["order"].index("pp") < row["order"].index("dp")
    pipelines = []
    for replica in range(replicas):
        made, first = [], 0
        for piece, count in enumerate(counts):
            stage = piece % stages
            rank = tensor * (stage + stages * replica if near else replica + replicas * stage)
            host, slot = divmod(rank, per_node)
            made.append(Stage(cluster.machines[host].name, tuple(range(slot, slot + tensor)), first, first + count - 1))
            first += count
        pipelines.append(Pipeline(tuple(made), share))
    return JobPlan(
        tuple(pipelines),
        Options(
            int(row["microbatch"]),
            chunks=_chunks(row),
            recompute=RECOMPUTES[row["recompute"]],
            sharding=_sharding(row),
            sequence_parallel=bool(row["sequence_parallel"]),
        ),
    )


def _sharding(row: Row) -> Sharding:
    """FSDP beside pipelines keeps weights gathered and sums up gradients once, after the last microbatch (torchtitan's
    default there): holders then split what an optimizer needs, and nothing goes around with every pass."""
    if row["zero"] > 2 and row["pipeline"] > 1:
        return Sharding.OPTIMIZER
    return (Sharding.NONE, Sharding.OPTIMIZER, Sharding.GRADIENTS, Sharding.PARAMETERS)[row["zero"]]


def even_layers(layers: int, stages: int) -> Sequence[int]:
    """As Megatron cuts: blocks evenly, the embedding with the first stage and the head with the last."""
    blocks = layers - 2
    counts = [blocks // stages + (stage < blocks % stages) for stage in range(stages)]
    counts[0] += 1
    counts[-1] += 1
    return counts
