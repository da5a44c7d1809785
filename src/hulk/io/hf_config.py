"""Hugging Face's config.json as an Architecture. Only fields that set a cost are read; transformers is not needed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from hulk.domain.architecture import Architecture
from hulk.errors import InputError, nearest
from hulk.io.files import read_file
from hulk.io.hf_fields import Fields
from hulk.io.hf_readers import READERS

LARGEST_FILE = 2**20
"""Bytes. A config.json has a few thousand; more is some other file."""

TEXT_PARTS: Mapping[str, str] = MappingProxyType({"gemma3": "gemma3_text", "llama4": "llama4_text"})
"""Models of several parts, and the type of their text part where `text_config` does not name it."""


def architecture_from_config(config: Mapping[str, object], *, where: str) -> Architecture:
    """The architecture a config describes. Raises InputError, with `where`, for anything wrong or unknown."""
    fields = text_part(Fields(config, where))
    where = fields.where
    model_type = fields.text("model_type")
    if model_type not in READERS:
        known = nearest(model_type, READERS) or "known: " + ", ".join(sorted(READERS))
        raise InputError(f"unknown model_type {model_type!r}", where=where, hint=known)
    fields.must_be("add_cross_attention", False)
    try:
        return READERS[model_type](fields)
    except InputError as error:
        raise error if error.where else error.at(where) from None


def text_part(fields: Fields) -> Fields:
    """The fields of the language model within a model of several parts (text and images); else all of them."""
    inner = fields.config.get("text_config")
    named = isinstance(inner, Mapping) and "model_type" in inner
    outer = fields.config.get("model_type")
    if not isinstance(outer, str) or outer not in TEXT_PARTS:
        return fields.inner("text_config") if named else fields
    if not isinstance(inner, Mapping):
        message = f"of {outer} models only the text part is counted, and there is no text_config"
        raise InputError(message, where=fields.where, hint=f"or model_type {TEXT_PARTS[outer]!r} with its fields")
    part = fields.inner("text_config")
    return part if named else Fields({"model_type": TEXT_PARTS[outer], **part.config}, part.where)


def load_config(path: Path) -> dict[str, object]:
    """The JSON object in that file; InputError where there is none."""
    where = str(path)
    try:
        parsed = json.loads(read_file(path, most=LARGEST_FILE).decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise InputError("not UTF-8 text", where=where) from None
    except RecursionError:
        raise InputError("nested too deeply", where=where) from None
    except ValueError as error:  # no JSON, or a number of 5000 digits
        raise InputError(f"not JSON: {error}", where=where) from None
    if not isinstance(parsed, dict):
        raise InputError("expected a JSON object", where=where)
    return parsed
