"""What stands in a plan, as the checker of promises reads it: stages, the GPUs of each, and what these cost."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from promises_case import Machine

Document = Mapping[str, Any]


def form_of(pipeline: Document) -> str:
    """What pipelines have in common that are all alike: microbatches, and the GPUs and layers of every stage."""
    stages = pipeline["stages"]
    degrees = [sum(len(part["gpus"]) for part in parts_of_stage(stage)) for stage in stages]
    return json.dumps([pipeline["microbatches"], degrees, [stage["layers"] for stage in stages]])


def chunks_of(job: Document) -> int:
    """How many rounds its pipelines go."""
    return int(job.get("chunks", 1))


def stages_of(job: Document, *, lead: bool = False) -> Iterator[Document]:
    """All stages; `lead`: of each group of GPUs the first one."""
    for pipeline in job["pipelines"]:
        stages = pipeline["stages"]
        yield from stages[: len(stages) // chunks_of(job)] if lead else stages


def parts_of(job: Document, *, lead: bool = False) -> Iterator[Document]:
    """Machines with their GPUs, of these stages."""
    return (part for stage in stages_of(job, lead=lead) for part in parts_of_stage(stage))


def parts_of_stage(stage: Document) -> tuple[Document, ...]:
    """Its machines with their GPUs."""
    return (stage, *stage.get("beside", ()))


def hourly(own: Document, machines: Mapping[str, Machine]) -> float:
    """Dollars an hour of the GPUs that a job uses."""
    return sum(
        machines[part["machine"]].dollars / machines[part["machine"]].gpus * len(part["gpus"])
        for part in parts_of(own, lead=True)
    )
