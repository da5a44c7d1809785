"""The plan file: a `Plan` as JSON that people can read and edit. What is dumped loads as the same plan."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import AfterValidator, FailFast, Field, WithJsonSchema, create_model
from pydantic_core import PydanticCustomError

from hulk.domain.cluster import Cluster
from hulk.domain.options import SPACE, Options, Schedule, Sharding, plain_value
from hulk.domain.plan import JobPlan, Part, Pipeline, Plan, Stage
from hulk.errors import PlanError
from hulk.io.fields import Entry, Flag, Name, Text, validate, whole
from hulk.io.files import write_atomic
from hulk.io.made_for import MadeFor, differences, made_for
from hulk.io.yamlfile import Document, read_document

MAX_JOBS = 1000
_LINE = 110  # a value that fits in so many columns stays on one line

Whole = Annotated[int, whole(1, 10**9)]
Index = Annotated[int, whole(0, 10**6)]


def _schedule(text: str) -> str:
    try:
        Schedule.parse(text)
    except PlanError as error:
        raise PydanticCustomError("schedule", "{text}", {"text": error.message, "hint": error.hint}) from None
    return text


ScheduleText = Annotated[
    str,
    Field(max_length=20),
    AfterValidator(_schedule),
    WithJsonSchema({"type": "string", "pattern": r"^(gpipe|(1f1b|zb)(\+[0-9]{1,6})?)$"}),
]


Gpus = Annotated[list[Index], Field(min_length=1, max_length=1024)]


class PartEntry(Entry):
    """GPUs of a further machine that hold a stage."""

    machine: Name
    """The machine."""
    gpus: Gpus
    """Its GPUs, as many as the stage has of its first machine."""


class StageEntry(Entry):
    """Consecutive layers on some GPUs of one machine, or of several that are near each other."""

    machine: Name
    """The machine."""
    gpus: Gpus
    """Its GPUs, counted from 0; tensor parallel over all of them, or over each `context`-th part of them."""
    beside: Annotated[list[PartEntry], FailFast(), Field(max_length=1024)] = Field(default_factory=list)
    """Further machines whose GPUs hold the stage together with these."""
    layers: Annotated[list[Index], Field(min_length=2, max_length=2)]
    """First and last layer, both included, counted from 0."""
    recomputed: Index | None = None
    """How many of its blocks, from its first on, are computed again as `recompute` says; left out: all of them."""


class PipelineEntry(Entry):
    """One replica of the model."""

    microbatches: Whole
    """Microbatches a step: this replica's share of the global batch."""
    stages: Annotated[list[StageEntry], FailFast(), Field(min_length=1)]
    """The stages in order; with several chunks, round after round of the same GPUs."""


_IN_FILES: Mapping[Any, Any] = {int: Whole, bool: Flag, Schedule: ScheduleText}
"""What stands for a type of option in a file; the others stand for themselves."""


def _option_fields() -> dict[str, Any]:
    """A field for every option, as `create_model` takes them."""
    types, made = get_type_hints(Options), {}
    for choice, option in zip(SPACE, fields(Options), strict=True):
        default: Any = option.default
        if default is MISSING:
            default = ...
        elif isinstance(default, Schedule):
            default = str(default)
        kind = _IN_FILES.get(types[choice.name], types[choice.name])
        made[choice.name] = (kind, Field(default, description=choice.about))
    return made


class _Replicas(Entry):
    """How one job trains."""

    pipelines: Annotated[list[PipelineEntry], FailFast(), Field(min_length=1)]
    """The replicas."""
    shard_optimizer: Flag | None = None
    """Of older files: true stands for `sharding: optimizer`."""


JobPlanEntry = create_model("JobPlanEntry", __base__=_Replicas, __doc__=_Replicas.__doc__, **_option_fields())


class PlanFile(Entry):
    """Which layers of which job run on which GPUs."""

    hulk: Literal["plan/1"]
    """The format and its version."""
    cluster: Text | None = None
    """The name of the cluster it was made for."""
    made_for: MadeFor | None = None
    """What that cluster was, as far as the plan uses it: the plan is not compared with its cluster without it."""
    jobs: dict[Name, JobPlanEntry] = Field(default_factory=dict, max_length=MAX_JOBS)  # type: ignore[valid-type]
    """The jobs that train, by name."""
    idle: Annotated[list[Name], FailFast()] = Field(default_factory=list)
    """Machines that nothing runs on."""
    waiting: dict[Name, Text] = Field(default_factory=dict, max_length=MAX_JOBS)
    """Jobs that must wait, each with the reason."""


def load_plan(path: str | Path) -> Plan:
    """The plan of a file. InputError for anything wrong in it; `hulk.domain.check` checks it against the cluster."""
    return read_plan(read_document(path))


def load_plan_for(path: str | Path, cluster: Cluster) -> tuple[Plan, str | None]:
    """The plan of a file, and in words what is different here from the cluster it was made for (None: nothing)."""
    file = validate(read_document(path), PlanFile)
    return _plan(file), differences(file.made_for, file.cluster, cluster)


def read_plan(document: Document) -> Plan:
    """The plan of a document that is already here."""
    return _plan(validate(document, PlanFile))


def _plan(file: PlanFile) -> Plan:
    jobs = {name: _job_plan(entry) for name, entry in file.jobs.items()}
    return Plan(jobs=jobs, idle=tuple(file.idle), waiting=dict(file.waiting))


def dump_plan(plan: Plan, *, cluster: Cluster | str | None = None) -> str:
    """The plan as the text of a plan file; `cluster` is the one it was made for, or its name where that is all."""
    document: dict[str, Any] = {"hulk": "plan/1"}
    if cluster is not None:
        document["cluster"] = cluster if isinstance(cluster, str) else cluster.name
    if isinstance(cluster, Cluster):
        document["made_for"] = made_for(plan, cluster).model_dump(exclude_defaults=True)
    document["jobs"] = {name: _job_dict(job_plan) for name, job_plan in plan.jobs.items()}
    document["idle"] = list(plan.idle)
    document["waiting"] = dict(plan.waiting)
    return _layout(document, indent=0, used=0) + "\n"


def save_plan(plan: Plan, path: str | Path, *, cluster: Cluster | str | None = None) -> None:
    """Writes the plan file, whole or not at all."""
    write_atomic(path, dump_plan(plan, cluster=cluster))


def _job_plan(entry: Any) -> JobPlan:
    pipelines = tuple(
        Pipeline(
            stages=tuple(map(_stage, pipeline.stages)),
            microbatches=pipeline.microbatches,
        )
        for pipeline in entry.pipelines
    )
    given = {choice.name: getattr(entry, choice.name) for choice in SPACE}
    if entry.shard_optimizer and "sharding" not in entry.model_fields_set:
        given["sharding"] = Sharding.OPTIMIZER
    return JobPlan(pipelines, Options(**{**given, "schedule": Schedule.parse(given["schedule"])}))


def _stage(entry: StageEntry) -> Stage:
    beside = tuple(Part(part.machine, tuple(part.gpus)) for part in entry.beside)
    first, last = entry.layers
    return Stage(entry.machine, tuple(entry.gpus), first, last, beside, entry.recomputed)


def _stage_dict(stage: Stage) -> dict[str, Any]:
    own, *beside = ({"machine": part.machine, "gpus": list(part.gpus)} for part in stage.parts)
    made = {**own, **({"beside": beside} if beside else {}), "layers": [stage.first, stage.last]}
    return made if stage.recomputed is None else made | {"recomputed": stage.recomputed}


def _job_dict(plan: JobPlan) -> dict[str, Any]:
    return {
        **{choice.name: plain_value(getattr(plan.options, choice.name)) for choice in SPACE},
        "pipelines": [
            {
                "microbatches": pipeline.microbatches,
                "stages": list(map(_stage_dict, pipeline.stages)),
            }
            for pipeline in plan.pipelines
        ],
    }


def _layout(value: Any, *, indent: int, used: int) -> str:
    """JSON with a line for what fits on one (`used` columns are taken already), and an item a line for the rest."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or not value or (indent + used + len(line) <= _LINE and _flat(value)):
        return line
    inner = indent + 2
    if isinstance(value, dict):
        keys = [f"{json.dumps(key, ensure_ascii=False)}: " for key in value]
        items = [k + _layout(item, indent=inner, used=len(k)) for k, item in zip(keys, value.values(), strict=True)]
    else:
        items = [_layout(item, indent=inner, used=0) for item in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    body = ",\n".join(" " * inner + item for item in items)
    return f"{opening}\n{body}\n{' ' * indent}{closing}"


def _flat(value: dict[str, Any] | list[Any]) -> bool:
    """Whether a value holds no lists of mappings: those read better with an item a line."""
    children = value.values() if isinstance(value, dict) else value
    return not any(isinstance(child, dict) or (isinstance(child, list) and not _flat(child)) for child in children)
