"""Jobs with plans to export: a tiny one whose pipelines differ, and regular ones in a hall of equal machines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path

from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.options import Options, Schedule
from hulk.domain.plan import JobPlan, Pipeline, Stage
from hulk.domain.regular import parse_regular, regular_plan
from hulk.export import Scene
from hulk.io.cluster_file import read_cluster
from hulk.io.hosts_file import Host, HostList
from hulk.io.jobs_file import read_jobs
from hulk.io.yamlfile import parse_document
from hulk.runtime.settings import Settings

SITES = """
name: sites
regions:
  rome: {at: [41.9, 12.5]}
  oslo: {at: [59.9, 10.8]}
machines:
  - {name: rome, count: 3, region: rome, gpu: rtx-3090, gpus: 4, network: 10 Gbit/s}
  - {name: oslo, count: 3, region: oslo, gpu: v100-32, gpus: 4, network: 10 Gbit/s}
links:
  - {between: [rome, oslo], latency: 30 ms, bandwidth: 0.5 Gbit/s}
"""
HALL = """
name: hall
regions: {oslo: {at: [59.9, 10.8]}}
machines: [{name: oslo, count: 4, region: oslo, gpu: h100, gpus: 8, network: 8 x 400 Gbit/s}]
"""
JOBS = """
jobs:
  - {name: tiny, model: gpt2, sequence: 64, global_batch: 12, precision: fp32}
  - {name: llama, model: llama-3-8b, sequence: 4096, global_batch: 64}
"""
TRAINING = Settings(data=Path("/data/text.txt"), steps=20)


@cache
def clusters() -> dict[str, Cluster]:
    return {name: read_cluster(parse_document(text, name=name)) for name, text in (("sites", SITES), ("hall", HALL))}


@cache
def jobs() -> dict[str, Job]:
    return {job.name: job for job in read_jobs(parse_document(JOBS, name="jobs"))}


def uneven() -> JobPlan:
    """Two pipelines, of two stages and of one; tensor parallel 1 and 2."""
    two = (Stage("rome-1", (0,), 0, 6), Stage("oslo-1", (0, 1), 7, 13))
    return JobPlan((Pipeline(two, 8), Pipeline((Stage("oslo-2", (3,), 0, 13),), 4)), Options(1))


def tiny(hosts: HostList | None = None) -> Scene:
    """The small job between two sites."""
    inputs = {"plan.json": "{}\n", "cluster.json": "{}\n", "jobs.json": "{}\n"}
    places = hosts or HostList(
        hosts={
            "rome-1": Host("203.0.113.1", "me@rome", "n1"),
            "oslo-1": Host("oslo-1.example.org", "oslo-1.example.org", "n2", "eth1"),
        },
        regions={"rome": "aws/eu-south-1", "oslo": "gcp/europe-north1"},
    )
    made = Scene(jobs()["tiny"], uneven(), clusters()["sites"], places, inputs, TRAINING)
    return replace(made, image="registry.example.org/hulk:1", chance=counted())


def hall(layout: str) -> Scene:
    """A regular plan for the larger job."""
    job, cluster = jobs()["llama"], clusters()["hall"]
    plan = regular_plan(parse_regular(layout), job, cluster)
    return Scene(job, plan, cluster, settings=TRAINING, chance=counted())


def counted() -> object:
    """Bytes that are the same in every run."""
    numbers: Iterator[int] = count(1)
    return lambda size: bytes([next(numbers)]) * size


def recut(scene: Scene, cuts: tuple[int, ...]) -> Scene:
    """The same pipelines with stages that end at these layers."""
    pipelines = []
    for pipeline in scene.plan.pipelines:
        firsts = (0, *(cut + 1 for cut in cuts[:-1]))
        stages = tuple(
            replace(stage, first=a, last=b) for stage, a, b in zip(pipeline.stages, firsts, cuts, strict=True)
        )
        pipelines.append(replace(pipeline, stages=stages))
    return replace(scene, plan=replace(scene.plan, pipelines=tuple(pipelines)))


def changed(scene: Scene, **options: object) -> Scene:
    """The same pipelines with other options."""
    return replace(scene, plan=replace(scene.plan, options=replace(scene.plan.options, **options)))


def example(target: str) -> Scene:
    """The scene of a target's golden files, which its parser reads as well."""
    if target == "megatron":
        return recut(hall("tp2 cp2 pp4 dp2 mb1 sp zero1 recompute-attention"), (8, 17, 26, 33))
    if target in ("torchtitan", "automodel"):
        return recut(hall("tp2 cp2 pp2 dp4 mb1 sp fsdp hsdp recompute-operations dp-pp"), (14, 33))
    if target == "deepspeed":
        return recut(hall("pp4 dp8 mb1 zero1 recompute dp-pp"), (8, 17, 26, 33))
    if target == "accelerate":
        return hall("dp32 mb1 fsdp hsdp recompute")
    return tiny()


AHEAD = Schedule.parse("1f1b+4")
