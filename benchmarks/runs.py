"""Training runs that really ran, as plans that Hulk can price.

Two formats: the compact one of data/runs.yaml, and the run files of the Sailor artifact (one JSON a run). What was
measured is kept apart from what is needed for a prediction.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from hulk.cost.layers import build_model
from hulk.domain.cluster import Cluster, Link, Machine, Region
from hulk.domain.gpu import Precision
from hulk.domain.job import Attention, Job
from hulk.domain.model import Model
from hulk.domain.options import Options
from hulk.domain.plan import JobPlan, Pipeline, Stage
from hulk.errors import InputError
from hulk.io.gpus import gpu
from hulk.io.models import load_catalogue_models
from hulk.units import Dimension, parse

DATA = Path(__file__).parent / "data" / "runs.yaml"
SEQUENCE = 2048
VOCABULARY_MULTIPLE = 128
# What a run needs is predicted even where the prediction exceeds the card: the run did fit.
UNLIMITED = 1e15
# How the artifact names GPUs. Its "RTX-2080" computes like a 2080 Ti.
ARTIFACT_GPUS = {
    "GH-96": "gh200-96", "A100-40": "a100-40", "A100-80": "a100-80", "V100-16": "v100-16",
    "RTX-3090": "rtx-3090", "RTX-2080": "rtx-2080ti", "Titan-RTX": "titan-rtx",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Placement:
    """One replica of one stage: tensor parallel over `ranks` GPUs of a machine that has `gpus`."""

    gpu: str
    ranks: int
    gpus: int


@dataclass(frozen=True)
class Replicas:
    """Pipelines that are cut alike: layers a stage, and for each stage where its replicas are."""

    layers: tuple[int, ...]
    placements: tuple[tuple[Placement, ...], ...]


@dataclass(frozen=True)
class Run:
    """A run to predict."""

    name: str
    groups: tuple[Replicas, ...]
    microbatch: int
    global_batch: int


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a run showed: seconds a step and peak bytes on the worst GPU."""

    step: float
    memory: float


def bundled_sets() -> dict[str, tuple[str, list[tuple[Run, Measurement]]]]:
    """Name of the set → (model, runs)."""
    document = yaml.safe_load(DATA.read_text(encoding="utf-8"))
    return {
        name: (entry["model"], [_from_compact(run) for run in entry["runs"]])
        for name, entry in document["sets"].items()
    }


def _from_compact(entry: dict[str, object]) -> tuple[Run, Measurement]:
    stages = entry["stages"]
    assert isinstance(stages, list)
    placements = []
    for stage in stages:
        row: list[Placement] = []
        for text in stage["where"]:
            match = re.fullmatch(r"(\d+) \* (\d+)x ([\w-]+)", text)
            assert match is not None, text
            count, ranks, name = int(match[1]), int(match[2]), match[3]
            row += [Placement(name, ranks, ranks)] * count
        placements.append(tuple(row))
    run = Run(
        name=str(entry["name"]),
        groups=(Replicas(tuple(stage["layers"] for stage in stages), tuple(placements)),),
        microbatch=int(str(entry["microbatch"])),
        global_batch=int(str(entry["global_batch"])),
    )
    return run, Measurement(parse(entry["step"], Dimension.TIME), parse(entry["memory"], Dimension.SIZE))


def artifact_runs(folder: Path) -> list[tuple[Run, Measurement]]:
    """The run files of a folder, in the artifact's format, by name."""
    files = sorted(folder.glob("*.json"))
    if not files:
        raise InputError(f"no run files (*.json) in {folder}")
    return [_from_artifact(path) for path in files]


def _from_artifact(path: Path) -> tuple[Run, Measurement]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        groups = tuple(
            Replicas(
                # Layers are counted, not read: the labels have slips.
                tuple(len(layers) for layers in group["layers_per_stage"]),
                tuple(tuple(_placement(entry) for entry in stage) for stage in group["tmp_per_stage"]),
            )
            for group in document["pipeline_list"]
        )
        run = Run(path.stem.removeprefix("plan_config_"), groups, int(document["mbs"]), int(document["gbs"]))
        return run, Measurement(float(document["real"]), float(document["max_mem"]))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise InputError(f"not a run file: {error!r}", where=str(path)) from error


def _placement(entry: Sequence[object]) -> Placement:
    machines, ranks = entry
    assert isinstance(machines, list)
    name, gpus, _zone = machines[0]
    if name not in ARTIFACT_GPUS:
        raise InputError(f"unknown GPU {name!r}")
    return Placement(ARTIFACT_GPUS[name], int(str(ranks)), int(gpus))


def network_facts() -> dict[str, dict[str, float]]:
    """GPU type → flow and card in bytes/s, latency in seconds, of the machines that the runs used."""
    document = yaml.safe_load(DATA.read_text(encoding="utf-8"))
    return {
        name: {
            "flow": parse(facts["flow"], Dimension.BANDWIDTH),
            "card": parse(facts["card"], Dimension.BANDWIDTH),
            "latency": parse(facts["latency"], Dimension.TIME),
        }
        for name, facts in document["network"].items()
    }


def as_trained(model_name: str, ranks: int) -> Model:
    """The model as those runs built it, which is not quite the catalogue's: the embedding is as wide as the hidden
    state, the output projection has weights of its own, the vocabulary is padded to a multiple of 128 × tensor
    parallel; OPT ran without dropout, and GPT-Neo without an output projection (its loss worked on the hidden
    state)."""
    entries = load_catalogue_models()
    if model_name not in entries:
        raise InputError(f"unknown model {model_name!r}")
    shape = entries[model_name].architecture()
    padded = -(-shape.vocab // (VOCABULARY_MULTIPLE * ranks)) * VOCABULARY_MULTIPLE * ranks
    shape = replace(shape, embedding=shape.hidden, tied=False, vocab=padded, hidden_dropout=0.0, embedding_dropout=0.0)
    model = build_model(shape, name=model_name, sequence=SEQUENCE)
    if model_name.startswith("gpt-neo"):
        norm = 2 * shape.hidden
        bare = replace(
            model.layers[-1],
            params_split=0,
            params_whole=norm,
            matmuls=(),
            held_split=0.0,
            moved_split=0.0,
            reductions=0,
        )
        model = replace(model, layers=(*model.layers[:-1], bare))
    return model


def scenario(run: Run, model_name: str) -> tuple[Cluster, Job, JobPlan]:
    """The run as a cluster, a job and a plan: one machine for each replica of each stage."""
    facts = network_facts()
    machines: list[Machine] = []
    pipelines: list[Pipeline] = []
    replicas = sum(len(group.placements[0]) for group in run.groups)
    if run.global_batch % (run.microbatch * replicas):
        raise InputError(f"run {run.name}: {run.global_batch} samples do not divide over {replicas} replicas")
    share = run.global_batch // (run.microbatch * replicas)
    for group in run.groups:
        firsts = [sum(group.layers[:s]) for s in range(len(group.layers))]
        for r in range(len(group.placements[0])):
            stages = []
            for first, count, row in zip(firsts, group.layers, group.placements, strict=True):
                place = row[r]
                kind = gpu(place.gpu)
                name = f"{place.gpu}-{len(machines) + 1}"
                card = facts[place.gpu]["card"]
                machines.append(Machine(name, "site", kind, place.gpus, UNLIMITED, card, 0.0))
                stages.append(Stage(name, tuple(range(place.ranks)), first, first + count - 1))
            pipelines.append(Pipeline(tuple(stages), share))
    ranks = max(place.ranks for group in run.groups for row in group.placements for place in row)
    links = dict(_links(machines, facts))
    inside = Link(latency=0.0, bandwidth=min(facts[m.gpu.name]["flow"] for m in machines))
    cluster = Cluster(run.name, (Region("site"),), tuple(machines), {("site", "site"): inside}, links)
    job = Job(
        name=model_name,
        model=as_trained(model_name, ranks),
        global_batch=run.global_batch,
        precision=Precision.TF32,
        attention=Attention.EAGER,
    )
    return cluster, job, JobPlan(tuple(pipelines), Options(run.microbatch))


def _links(machines: Sequence[Machine], facts: dict[str, dict[str, float]]) -> Iterator[tuple[tuple[str, str], Link]]:
    """Each pair as good as the worse of its two ends."""
    for i, a in enumerate(machines):
        for b in machines[i + 1 :]:
            one, two = facts[a.gpu.name], facts[b.gpu.name]
            key = (a.name, b.name) if a.name <= b.name else (b.name, a.name)
            yield key, Link(max(one["latency"], two["latency"]), min(one["flow"], two["flow"]))
