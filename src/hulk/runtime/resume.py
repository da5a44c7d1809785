"""What a checkpoint must have in common with the run that goes on from it. The plan is not among it: layers are saved
whole, so any plan will do. Works without torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hulk.domain.job import Job
from hulk.errors import InputError
from hulk.runtime.checkpoint import digest
from hulk.runtime.settings import Settings
from hulk.runtime.text import describe, text_files

_REFUSED = {
    "model": "model",
    "sequence": "sequence",
    "target_sequence": "target sequence",
    "global_batch": "global batch",
    "optimizer": "optimizer",
    "seed": "seed",
    "tokenizer": "tokenizer",
}
"""What makes it another training, by its name in a head and in words."""
_TOLD = {
    "rate": "learning rate",
    "decay": "weight decay",
    "dropout": "dropout",
    "precision": "precision",
    "data": "data",
}
"""What may change on the way; it is said."""
_NO_PART = ("architectures", "dtype", "torch_dtype", "transformers_version", "use_cache")
"""Fields of a model's config that have no part in its training, beside those that begin with an underscore."""


def facts_of(job: Job, settings: Settings) -> dict[str, Any]:
    """What a run trains and how, for the head of its checkpoints."""
    config = {
        str(key): value
        for key, value in sorted(job.model.config.items())
        if key not in _NO_PART and not str(key).startswith("_")
    }
    assert settings.data is not None
    width = config.get("d_model") if config.get("model_type") == "t5" else None
    return {
        "model": str(config.get("model_type", "unknown")),
        "config": config,
        "sequence": job.model.sequence,
        "target_sequence": round(job.model.layers[-1].output / int(str(width))) if width else None,
        "global_batch": job.global_batch,
        "optimizer": str(job.optimizer),
        "seed": settings.seed,
        "tokenizer": None if settings.tokenizer is None else digest(settings.tokenizer)[:16],
        "rate": settings.rate,
        "decay": settings.decay,
        "dropout": settings.dropout,
        "precision": settings.precision or str(job.precision),
        "data": describe(text_files(settings.data, tokenized=settings.tokenizer is not None)),
    }


def compare(was: Mapping[str, Any], now: Mapping[str, Any], *, where: Path) -> list[str]:
    """What is different now, in words, of what may be; InputError with all that may not."""
    refused = _differences(was, now, _REFUSED)
    old, new = dict(was.get("config") or {}), dict(now["config"])
    if was.get("model") == now["model"]:  # the fields of two kinds of model have nothing to do with each other
        refused += _differences(old, new, {key: f"model's {key}" for key in sorted({*old, *new})})
    if refused:
        raise InputError(
            f"another training than the one that is to go on: {'; '.join(refused)}",
            where=str(where),
            hint="go on with what it was, or begin anew in another --checkpoint-dir",
        )
    return _differences(was, now, _TOLD)


def _differences(was: Mapping[str, Any], now: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    return [
        f"{words} was {_show(was.get(key))}, is now {_show(now.get(key))}"
        for key, words in names.items()
        if was.get(key) != now.get(key)
    ]


def _show(value: Any) -> str:
    return "none" if value is None else str(value)
