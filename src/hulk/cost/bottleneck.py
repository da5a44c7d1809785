"""What holds a job back, in one sentence."""

from __future__ import annotations

from itertools import pairwise

from hulk.cost.report import Breakdown, StagePrice
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.plan import JobPlan
from hulk.units import format_bandwidth, format_count, format_time


def describe_bottleneck(
    job: Job,
    plan: JobPlan,
    cluster: Cluster,
    parts: Breakdown,
    pipelines: tuple[tuple[StagePrice, ...], ...],
) -> str:
    """The largest part of the step, and the stage or link behind it."""
    shares = {
        "compute": parts.compute,
        "bubble": parts.bubble,
        "transfer": parts.transfer,
        "sync": parts.sync,
        "update": parts.update,
    }
    worst = max(shares, key=lambda name: shares[name])
    share = f"{shares[worst] / parts.step:.0%}"
    stages = [stage for pipeline in pipelines for stage in pipeline]
    if worst == "compute":
        stage = max(stages, key=lambda s: s.busy)
        return (
            f"compute, {share} of the step: layers {stage.first}–{stage.last} on {stage.where} "
            f"({stage.ranks}×{stage.gpu}) are at work {stage.busy:.0%} of the time"
        )
    if worst == "bubble":
        pipeline = max(plan.pipelines, key=lambda p: len(p.stages) / p.microbatches)
        return (
            f"bubble, {share} of the step: {len(pipeline.stages)} stages share {pipeline.microbatches} microbatches, "
            "so they wait while the pipeline fills and drains; more or smaller microbatches would help"
        )
    if worst == "transfer":
        hops = [hop for pipeline in pipelines for hop in pairwise(pipeline)]
        a, b = max(hops, key=lambda hop: hop[0].send_latency + hop[0].send_wire)
        if a.machine == b.machine:
            return f"transfer, {share} of the step: activations inside {a.machine}"
        link = cluster.link(a.machine, b.machine)
        return (
            f"transfer, {share} of the step: an activation takes {format_time(a.send_latency + a.send_wire)} "
            f"from {a.machine} to {b.machine} "
            f"({link.latency_origin} {format_time(link.latency)}, {format_bandwidth(link.bandwidth)} a flow)"
        )
    if worst == "sync":
        regions = sorted({stage.region for stage in stages})
        return (
            f"sync, {share} of the step: {len(plan.pipelines)} replicas add up the gradients of "
            f"{format_count(job.model.params)} parameters across {', '.join(regions)}"
        )
    return f"update, {share} of the step: the optimizer"
