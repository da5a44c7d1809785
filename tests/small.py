"""A small real case: six machines in three regions and two BERT-sized jobs, for what plans anew and explains."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from hulk.cost.compute import ComputeModel
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.options import Options, Recompute, Sharding
from hulk.domain.plan import JobPlan, Pipeline, Plan, Stage
from hulk.io.cluster_file import read_cluster
from hulk.io.jobs_file import read_jobs
from hulk.io.yamlfile import parse_document

CLUSTER = """
name: small
regions:
  rome: {at: [41.9, 12.5]}
  paris: {at: [48.9, 2.4]}
  oslo: {at: [59.9, 10.8]}
machines:
  - {name: rome, count: 3, region: rome, gpu: rtx-3090, gpus: 2, network: 10 Gbit/s}
  - {name: paris, count: 2, region: paris, gpu: v100-32, gpus: 2, network: 10 Gbit/s}
  - {name: oslo-1, region: oslo, gpu: gtx-1080, gpus: 1, network: 1 Gbit/s}
links:
  - {between: [rome, paris], latency: 30 ms, bandwidth: 0.5 Gbit/s}
  - {between: [rome, oslo], latency: 50 ms, bandwidth: 0.1 Gbit/s}
  - {between: [paris, oslo], latency: 50 ms, bandwidth: 0.1 Gbit/s}
"""
JOBS = """
jobs:
  - {name: bert, model: bert-large, sequence: 128, global_batch: 32, precision: fp16, tokens: 1B}
  - {name: second, model: bert-large, sequence: 128, global_batch: 16, precision: fp16}
"""
NEW_MACHINE = "{name: rome-9, region: rome, gpu: a100-80, gpus: 2, network: 25 Gbit/s}\n"


@cache
def cluster() -> Cluster:
    return read_cluster(parse_document(CLUSTER, name="small.yaml"))


@cache
def jobs() -> tuple[Job, ...]:
    return read_jobs(parse_document(JOBS, name="jobs.yaml"))


@cache
def compute() -> ComputeModel:
    return ComputeModel()


def plan(*, shard: bool = False) -> Plan:
    """bert: a replica on rome-1, and one over rome-2 and paris-1; second: on paris-2; rome-3 and oslo-1 idle."""
    last = len(jobs()[0].model.layers) - 1
    bert = JobPlan(
        (
            Pipeline((Stage("rome-1", (0,), 0, 11), Stage("rome-1", (1,), 12, last)), 10),
            Pipeline((Stage("rome-2", (0, 1), 0, 11), Stage("paris-1", (0, 1), 12, last)), 6),
        ),
        Options(microbatch_size=2, recompute=Recompute.FULL, sharding=Sharding.OPTIMIZER if shard else Sharding.NONE),
    )
    second = JobPlan((Pipeline((Stage("paris-2", (0,), 0, last),), 8),), Options(microbatch_size=2))
    return Plan({"bert": bert, "second": second}, ("rome-3", "oslo-1"))


def write_files(folder: Path) -> tuple[str, ...]:
    """The case as files: the arguments of a verb that takes a plan."""
    from hulk.io.plan_file import save_plan

    (folder / "small.yaml").write_text(CLUSTER)
    (folder / "jobs.yaml").write_text(JOBS)
    save_plan(plan(), folder / "plan.json", cluster="small")
    names = ("plan.json", "small.yaml", "jobs.yaml")
    chosen = [str(folder / name) for name in names]
    return (chosen[0], "--cluster", chosen[1], "--jobs", chosen[2])
