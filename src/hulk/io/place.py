"""`place` in a jobs file: where some layers may be, in words. `rules_of` makes the rules of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import PydanticCustomError, core_schema

from hulk.domain.job import Rule
from hulk.domain.model import LayerKind, Model
from hulk.errors import InputError, nearest
from hulk.io.fields import kind_of, shown
from hulk.io.yamlfile import Document, Loc

MAX_PATTERN = 100
MAX_PATTERNS = 1000
_KINDS = {"embedding": LayerKind.EMBEDDING, "blocks": LayerKind.BLOCK, "head": LayerKind.HEAD}
_NUMBERS = re.compile(r"layers? ([0-9]{1,9})(?: ?- ?([0-9]{1,9}))?")
_AND = re.compile(r" *, *| +and +")
_HINT = "say embedding, blocks, head, layer 3 or layers 0-3, several of them with 'and', and 'not' before all of them"


@dataclass(frozen=True, slots=True)
class Said:
    """A rule as the file has it: which layers, and regions. `key`: what it stands under in its entry of the list; None
    where the entry is all text."""

    key: str | None
    words: str
    patterns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Placing:
    """Marks an entry of `place`: `layers 0-3: rome`, as a mapping or as one text. It becomes a list of `Said`."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """How pydantic reads the entry."""
        return core_schema.no_info_plain_validator_function(_read)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """How the entry stands in a JSON schema."""
        text = {"type": "string", "minLength": 1, "maxLength": MAX_PATTERN}
        several = {"type": "array", "items": text, "minItems": 1, "maxItems": MAX_PATTERNS}
        mapping = {"type": "object", "minProperties": 1, "additionalProperties": {"anyOf": [text, several]}}
        return {"anyOf": [{"type": "string"}, mapping], "examples": [{"embedding and head": "eu-*"}]}


def _read(value: Any) -> list[Said]:
    if isinstance(value, str):
        words, colon, patterns = value.rpartition(":")
        if not colon:
            raise _problem(f"{shown(value)} names no region", hint="write it as `layers 0-3: eu-*`")
        return [Said(None, words.strip(), _patterns([part.strip() for part in patterns.split(",")], None))]
    if not isinstance(value, dict) or not value:
        raise _problem(f"expected layers and regions, such as `layers 0-3: eu-*` ({kind_of(value)} found)")
    return [Said(key, key.strip(), _patterns(its, key)) for key, its in value.items()]


def _patterns(value: Any, key: str | None) -> tuple[str, ...]:
    """A region or several, as names or patterns."""
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list):
        raise _problem(f"expected a region or a list of them ({kind_of(value)} found)", key)
    if not 1 <= len(found) <= MAX_PATTERNS:
        raise _problem(f"expected 1 to {MAX_PATTERNS:,} regions ({len(found):,} found)", key)
    for pattern in found:
        if not isinstance(pattern, str):
            raise _problem(f"expected the name of a region ({kind_of(pattern)} found)", key)
        if not 1 <= len(pattern) <= MAX_PATTERN:
            raise _problem(f"{shown(pattern)}: a region's name has 1 to {MAX_PATTERN} characters", key)
    return tuple(found)


def _problem(text: str, at: str | None = None, *, hint: str | None = None) -> PydanticCustomError:
    context = {"text": text} | ({} if at is None else {"at": at}) | ({} if hint is None else {"hint": hint})
    return PydanticCustomError("place", "{text}", context)


def rules_of(place: list[list[Said]], model: Model, document: Document, loc: Loc) -> tuple[Rule, ...]:
    """The rules for a model; InputError, with file and line, where they speak of layers that it does not have. `loc`:
    where `place` is in the document."""
    rules = []
    for number, entry in enumerate(place):
        for said in entry:
            try:
                rules.append(_rule(said, model))
            except InputError as error:
                at = (*loc, number) if said.key is None else (*loc, number, said.key)
                raise InputError(error.message, where=document.where(at), hint=error.hint) from None
    return tuple(rules)


def _rule(said: Said, model: Model) -> Rule:
    words = re.sub(r"\s+", " ", said.words)
    forbidden = words.startswith("not ")
    which = words.removeprefix("not ")
    layers = frozenset(layer for part in _AND.split(which) for layer in _layers(part, model))
    return Rule(which, layers, said.patterns, forbidden)


def _layers(part: str, model: Model) -> Iterator[int]:
    """The layers that some words name."""
    if part in _KINDS:
        found = [i for i, layer in enumerate(model.layers) if layer.kind is _KINDS[part]]
        if not found:
            raise InputError(f"model {model.name!r} has no {part}")
        yield from found
        return
    numbers = _NUMBERS.fullmatch(part)
    if numbers is None:
        raise InputError(f"{shown(part)} names no layers", hint=nearest(part, _KINDS) or _HINT)
    first, last = int(numbers[1]), int(numbers[2] or numbers[1])
    if first > last:
        raise InputError(f"{part!r} are none: {first} is after {last}", hint=f"write layers {last}-{first}")
    count = len(model.layers)
    if last >= count:
        raise InputError(
            f"model {model.name!r} has no layer {last}",
            hint=f"its layers are 0 (the embedding) to {count - 1}, as plan files count them",
        )
    yield from range(first, last + 1)
