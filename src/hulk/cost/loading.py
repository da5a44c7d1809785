"""Compiled code, loaded before it is needed; what is not there yet is compiled side by side."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from numba import typeof

from hulk.cost.arrays import empty_durations
from hulk.cost.compiled import is_cached
from hulk.cost.compute import ComputeModel
from hulk.cost.engine import HULK
from hulk.cost.flat import flatten
from hulk.cost.layers import build_model
from hulk.cost.play import run
from hulk.cost.play_state import Marks
from hulk.cost.prepared import Prepared, prepare
from hulk.cost.price import price_job
from hulk.cost.step import durations
from hulk.cost.tables import Hosts, encode, make_book
from hulk.cost.traffic import Fabric
from hulk.domain.architecture import Architecture, Family
from hulk.domain.cluster import Cluster, Link, Machine, Region, pair
from hulk.domain.gpu import GpuType, Precision
from hulk.domain.job import Job
from hulk.domain.options import Options, Schedule, ScheduleKind
from hulk.domain.plan import JobPlan, Pipeline, Stage
from hulk.forked import side_by_side

_GPU = GpuType("small", 16e9, 5e11, {Precision.FP32: 1e13, Precision.BF16: 5e13}, 2e10, price=1e-4)


def smallest_case() -> tuple[Cluster, Job]:
    """A cluster of three machines in two regions, and a job that fits into any of them: it needs all compiled code."""
    machines = tuple(Machine(name, region, _GPU, 2, 16e9, 1e9, 2e-4) for name, region in zip("abc", "xxy", strict=True))
    near, far = Link(1e-4, 1e9), Link(1e-2, 1e8)
    cluster = Cluster(
        "small", (Region("x"), Region("y")), machines, {pair("x", "x"): near, pair("y", "y"): near, pair("x", "y"): far}
    )
    architecture = Architecture(
        family=Family.DECODER, hidden=64, layers=4, heads=2, kv_heads=2, head_dim=32, ffn=256, vocab=256, embedding=64,
        positions=64, tied=True,
    )  # fmt: skip
    return cluster, Job("small", build_model(architecture, name="small", sequence=64), global_batch=8, tokens=1e6)


def load_price() -> None:
    """What a price needs. Its two large parts are compiled at the same time, in a process each."""
    cluster, job = smallest_case()
    last = len(job.model.layers) - 1
    stages = Stage("a", (0,), 0, 1), Stage("c", (0,), 2, last)
    plan = JobPlan((Pipeline(stages, 4), Pipeline((Stage("b", (0,), 0, last),), 4)), Options(microbatch_size=1))
    compute = ComputeModel()
    if not is_cached(run) and not is_cached(durations):
        given = job, plan, cluster, compute
        side_by_side(partial(_compile_durations, *given), [partial(_compile_playing, *given)])
    for kind in ScheduleKind:
        options = replace(plan.options, schedule=Schedule(kind))
        price_job(job, replace(plan, options=options), cluster, compute=compute)


def _compile_durations(job: Job, plan: JobPlan, cluster: Cluster, compute: ComputeModel) -> None:
    prepare(job, plan, cluster, compute=compute)


def _compile_playing(job: Job, plan: JobPlan, cluster: Cluster, compute: ComputeModel) -> None:
    """Compile what plays a step, for which the types of its arrays are enough."""
    ranks = [stage.ranks for stage in plan.stages]
    hosts = Hosts.of(cluster, plan.machines)
    book = make_book(job, hosts, ranks=ranks, options=plan.options, compute=compute, engine=HULK)
    count = len(plan.stages)
    unknown = empty_durations(count)
    prepared = Prepared(job, plan, cluster, HULK, book, encode(plan, cluster, book), unknown, sets=1)
    flat, marks = flatten([prepared], Fabric(cluster)), Marks(*np.zeros((4, count)))
    run.compile(tuple(map(typeof, (flat, 1, 1, np.zeros(count), marks))))  # type: ignore[attr-defined]
