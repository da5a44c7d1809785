"""Models by name, from data/models.yaml, and models from a config.json of one's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Field

from hulk.cost.layers import build_model
from hulk.domain.architecture import Architecture
from hulk.domain.model import Model
from hulk.errors import InputError, nearest
from hulk.io.fields import Entry, Name, Text, validate, whole
from hulk.io.files import data_path
from hulk.io.hf_config import architecture_from_config, load_config
from hulk.io.yamlfile import read_document

_PART = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_HUB = re.compile(rf"(?:(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/)?({_PART}/{_PART})/?")
"""A repository of huggingface.co."""


class ModelEntry(Entry):
    """One model of the catalogue."""

    name: Name
    """How job files name it."""
    aliases: tuple[Name, ...] = ()
    """Other names that mean the same."""
    hub: tuple[Text, ...] = ()
    """Repositories of huggingface.co with models of this very shape."""
    config: dict[str, Any]
    """The fields of its Hugging Face config.json that set its shape."""
    sequence: Annotated[int, whole(1, 10_000_000)]
    """Tokens of a sample, as it was customarily trained."""
    target_sequence: Annotated[int, whole(1, 10_000_000)] | None = None
    """Tokens an encoder-decoder writes for a sample."""
    source: Text
    """Where the facts come from."""

    def architecture(self) -> Architecture:
        """The model's shape."""
        return architecture_from_config(self.config, where=f"models.yaml: {self.name}")


class ModelsFile(Entry):
    """The file of models."""

    models: Annotated[list[ModelEntry], Field(min_length=1)]
    """The models."""


@cache
def load_catalogue_models() -> Mapping[str, ModelEntry]:
    """All bundled models by name and by alias."""
    document = read_document(data_path("models.yaml"))
    entries: dict[str, ModelEntry] = {}
    for index, entry in enumerate(validate(document, ModelsFile).models):
        for name in (entry.name, *entry.aliases):
            if name in entries:
                raise InputError(f"model {name!r} is given twice", where=document.where(("models", index)))
            entries[name] = entry
    return MappingProxyType(entries)


def model_names() -> tuple[str, ...]:
    """The names of the bundled models, aliases left out, in the catalogue's order."""
    return tuple(dict.fromkeys(entry.name for entry in load_catalogue_models().values()))


def build_named_model(name: str, sequence: int | None = None, target_sequence: int | None = None) -> Model:
    """The bundled model of that name or alias, in any case, at its customary sequence lengths where none are given.

    A target length that is not given stays the customary one only together with the customary sequence; else it follows
    the sequence. InputError with the nearest known name otherwise.
    """
    entries = load_catalogue_models()
    entry = entries.get(name) or entries.get(name.lower())
    if entry is None:
        raise InputError(f"unknown model {name!r}", hint=nearest(name.lower(), entries))
    if sequence is None and target_sequence is None:
        target_sequence = entry.target_sequence
    model = build_model(
        entry.architecture(),
        name=entry.name,
        sequence=entry.sequence if sequence is None else sequence,
        target_sequence=target_sequence,
        source=entry.source,
    )
    return replace(model, config=MappingProxyType(entry.config))


def hub_name(given: str) -> str | None:
    """The repository of huggingface.co ("owner/name") that these words can mean, by name or address; else None."""
    found = _HUB.fullmatch(given)
    return None if found is None or given.endswith((".json", ".yaml", ".yml")) else found[1]


def _refuse_hub_name(repository: str) -> None:
    """InputError that says how a model of huggingface.co is given."""
    for entry in load_catalogue_models().values():
        if repository.lower() in (each.lower() for each in entry.hub):
            hint = f"the catalogue has this model of huggingface.co as {entry.name!r}"
            raise InputError(f"no such file or folder: {repository!r}", hint=hint)
    folder = repository.rpartition("/")[2]
    raise InputError(
        f"no such file or folder: {repository!r}; models are not fetched from huggingface.co",
        hint=f"fetch its config: `hf download {repository} config.json --local-dir {folder}`, "
        f"then give the path {folder}/config.json",
    )


def build_model_from_path(
    path: str | Path,
    sequence: int | None = None,
    target_sequence: int | None = None,
    *,
    name: str | None = None,
    folder: Path | None = None,
) -> Model:
    """The model of a Hugging Face config.json, or of the folder it is in. `folder` is what a path is relative to.

    Without a sequence length it takes the longest its position table allows; a model without such a table needs one
    given. The name is that of the file, or of its folder where the file is called config.json.
    """
    given, path = str(path), (folder or Path()) / path
    with suppress(OSError, ValueError):  # a name too long, or with a NUL byte: reading it says so
        repository = hub_name(given)
        if repository is not None and not path.exists():
            _refuse_hub_name(repository)
        if path.is_dir():
            path /= "config.json"
    config = load_config(path)
    architecture = architecture_from_config(config, where=str(path))
    length = architecture.max_sequence if sequence is None else sequence
    if length is None:
        raise InputError("this model has no sequence length of its own", where=str(path), hint="give a sequence length")
    if name is None:
        name = path.stem if path.name != "config.json" else path.absolute().parent.name
    try:
        model = build_model(architecture, name=name, sequence=length, target_sequence=target_sequence, source=str(path))
    except InputError as error:
        raise error.at(str(path)) from None
    return replace(model, config=MappingProxyType(config))
