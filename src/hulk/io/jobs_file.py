"""The jobs file: what to train, and how. `load_jobs` reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import FailFast, Field

from hulk.domain.gpu import Precision
from hulk.domain.job import Attention, Job, Optimizer
from hulk.domain.model import Model
from hulk.errors import InputError
from hulk.io.fields import Entry, Name, Number, Quantity, Text, validate, whole
from hulk.io.files import find_file
from hulk.io.models import build_model_from_path, build_named_model
from hulk.io.place import Placing, Said, rules_of
from hulk.io.yamlfile import Document, read_document
from hulk.units import Dimension

MAX_JOBS = 1000
Pattern = Annotated[str, Field(min_length=1, max_length=100)]
Sequence = Annotated[int, whole(1, 2**24)]


class JobEntry(Entry):
    """One model to train."""

    name: Name
    """The job's name."""
    model: Annotated[Text, Field(min_length=1)]
    """A model of the catalogue, or the path of a Hugging Face config.json, relative to this file."""
    sequence: Sequence | None = None
    """Tokens of a sequence; the model's own length if not given."""
    target_sequence: Sequence | None = None
    """Tokens on the decoder's side of an encoder-decoder model; as many as `sequence` if not given."""
    global_batch: Annotated[int, whole(1, 10**7)]
    """Sequences of a step, over all replicas."""
    precision: Precision = Precision.BF16
    """Number format of the matrix work and of the weights it reads."""
    optimizer: Optimizer = Optimizer.ADAMW
    """The optimizer: its state takes memory."""
    attention: Attention = Attention.FUSED
    """fused never writes the score matrix (FlashAttention); fused-softmax writes it, with one kernel for scale, mask
    and softmax (Megatron); eager has a kernel for each."""
    tokens: Annotated[float, Quantity(Dimension.COUNT, "300B", most=1e18, least=1.0)] | None = None
    """The budget: how many tokens to train on."""
    deadline: Annotated[float, Quantity(Dimension.TIME, "5 days", most=1e10)] | None = None
    """The time in which the tokens must be trained on."""
    weight: Annotated[Number, Field(ge=1e-9, le=1e9)] = 1.0
    """How much this job's time counts against the others'."""
    allow: Annotated[list[Pattern], Field(max_length=1000)] = Field(default_factory=list)
    """Regions where the job may run, as names or patterns such as eu-*; everywhere if left out, nowhere if empty."""
    deny: Annotated[list[Pattern], Field(max_length=1000)] = Field(default_factory=list)
    """Regions where it must not run; wins over `allow`."""
    place: Annotated[list[Annotated[list[Said], Placing()]], Field(max_length=1000)] = Field(default_factory=list)
    """Regions where some layers may be, and nowhere else: `embedding and head: eu-*`; or where they must not be: `not
    layers 10-20: spot-*`. Layers are counted from 0, the embedding. All rules hold, and `allow` and `deny` besides."""


class JobsFile(Entry):
    """The models to train."""

    hulk: Literal["jobs/1"] = "jobs/1"
    """The format and its version."""
    about: Text = ""
    """What these jobs are, and what in them is assumed."""
    jobs: Annotated[list[JobEntry], FailFast(), Field(min_length=1, max_length=MAX_JOBS)]
    """The jobs."""


def load_jobs(path_or_name: str | Path) -> tuple[Job, ...]:
    """The jobs of a file, or of a bundled one by name ("paper4"). InputError for anything wrong in it."""
    path = find_file(path_or_name, "jobs")
    return read_jobs(read_document(path), folder=path.parent)


def read_jobs(document: Document, *, folder: Path | None = None) -> tuple[Job, ...]:
    """The jobs of a document that is already here; `folder` is what paths in it are relative to."""
    jobs: dict[str, Job] = {}
    for index, entry in enumerate(validate(document, JobsFile).jobs):
        if entry.name in jobs:
            raise InputError(f"job {entry.name!r} is given twice", where=document.where(("jobs", index, "name")))
        if entry.deadline is not None and entry.tokens is None:
            where = document.where(("jobs", index, "deadline"))
            raise InputError("a deadline needs `tokens`, the work to be done by then", where=where)
        try:
            model = _model(entry, folder or Path())
        except InputError as error:
            message = f"{error.where}: {error.message}" if error.where else error.message  # where in the model's file
            raise InputError(message, where=document.where(("jobs", index, "model")), hint=error.hint) from None
        jobs[entry.name] = Job(
            name=entry.name,
            model=model,
            global_batch=entry.global_batch,
            precision=entry.precision,
            optimizer=entry.optimizer,
            attention=entry.attention,
            tokens=entry.tokens,
            weight=entry.weight,
            allow=tuple(entry.allow) if "allow" in entry.model_fields_set else None,
            deny=tuple(entry.deny),
            deadline=entry.deadline,
            place=rules_of(entry.place, model, document, ("jobs", index, "place")),
        )
    return tuple(jobs.values())


def _model(entry: JobEntry, folder: Path) -> Model:
    if "/" in entry.model or entry.model.endswith(".json"):
        return build_model_from_path(
            entry.model, sequence=entry.sequence, target_sequence=entry.target_sequence, folder=folder
        )
    return build_named_model(entry.model, sequence=entry.sequence, target_sequence=entry.target_sequence)
