"""A price for programs, and what does not fit, in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from hulk.cost.report import JobPrice, PlanPrice
from hulk.units import format_size


def over_full(result: PlanPrice, headroom: float = 0.0) -> Iterator[str]:
    """Every stage that needs more than its GPU has, less the share of it that is to stay free, in words."""
    for name, job in result.jobs.items():
        for p, pipeline in enumerate(job.pipelines if isinstance(job, JobPrice) else (), start=1):
            for s, stage in enumerate(pipeline, start=1):
                if stage.memory.used > stage.memory.capacity * (1.0 - headroom):
                    needs, has = format_size(stage.memory.used), format_size(stage.memory.capacity)
                    free = f", {headroom:.3g} of it to stay free" if headroom else ""
                    yield f"{name}: stage {p}.{s} on {stage.where} needs {needs} of {has}{free}"


def price_json(result: PlanPrice, headroom: float = 0.0) -> dict[str, object]:
    """The price for programs: seconds, bytes, dollars."""
    jobs: dict[str, object] = {}
    for name, job in result.jobs.items():
        if not isinstance(job, JobPrice):
            jobs[name] = {"feasible": False, "obstacle": job.obstacle, "reason": job.reason}
            continue
        jobs[name] = {
            "feasible": True,
            "step_s": job.step,
            "breakdown_s": asdict(job.breakdown),
            "tokens_per_s": job.tokens_per_second,
            "alone_s": job.alone,
            "finish_s": job.finish,
            "money_per_step": asdict(job.money) | {"total": job.money.total},
            "finish_money": job.finish_money,
            "bottleneck": job.bottleneck,
            "layer_times": {str(origin): count for origin, count in job.times.items()},
            "pipelines": [
                [asdict(stage) | {"memory_used": stage.memory.used} for stage in pipeline] for pipeline in job.pipelines
            ],
        }
    return {
        "hulk": "price/1",
        "jobs": jobs,
        "waiting": dict(result.waiting),
        "idle": list(result.idle),
        **({"does_not_fit": full} if (full := list(over_full(result, headroom))) else {}),
    }
