"""What the file formats share: quantities with units, names, strict numbers, and pydantic errors put into place."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError, core_schema

from hulk.domain.cluster import Origin
from hulk.errors import InputError, UnitError, nearest
from hulk.io.yamlfile import Document, Loc
from hulk.units import Dimension, parse

M = TypeVar("M", bound="Entry")

NAME_PATTERN = r"^[^\W_](?:[\w.-]*\w)?$"


class Entry(BaseModel):
    """Base of everything in a file: no unknown keys, nothing changed after reading, every field documented."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _only_known_keys(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            found = {"found": kind_of(value)}
            raise PydanticCustomError("not_a_mapping", "expected keys and values ({found} found)", found)
        for key in value:
            if key not in cls.model_fields:
                context = {"key": shown(key), "at": key, "hint": nearest(key, cls.model_fields)}
                raise PydanticCustomError("unknown_key", "unknown key {key}", context)
        return value


# ---- Scalars --------------------------------------------------------------------------------------------------------

Name = Annotated[str, Field(pattern=NAME_PATTERN, max_length=100)]
Text = Annotated[str, Field(max_length=100_000)]
Flag = Annotated[bool, Field(strict=True)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]


def whole(least: int, most: int) -> FieldInfo:
    """Marks a whole number between two limits, both included."""
    info: FieldInfo = Field(strict=True, ge=least, le=most)
    return info


@dataclass(frozen=True, slots=True)
class Stated:
    """A quantity of a link as its author stated it: measured, or, written with a leading "~", their own estimate."""

    value: float
    origin: Origin


@dataclass(frozen=True, slots=True)
class Several:
    """So many of one thing: `each` has a quantity."""

    count: int
    each: float


@dataclass(frozen=True, slots=True)
class Quantity:
    """Marks a field as a number with a unit, from `least` to `most` (SI) or, with `zero`, nothing at all.

    `Annotated[float, Quantity(...)]` becomes a float in SI units, `Annotated[Stated, Quantity(..., stated=True)]` a
    `Stated`, `Annotated[Several, Quantity(..., several=N)]`, which may say up to N of them ("8 x 200 Gbit/s"), a
    `Several`.
    """

    dimension: Dimension
    example: str
    most: float
    least: float = 1e-15
    zero: bool = False
    stated: bool = False
    several: int = 0

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """How pydantic reads the field."""
        read = self._read_stated if self.stated else self._read_several if self.several else self._read
        return core_schema.no_info_plain_validator_function(read)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """How the field stands in a JSON schema."""
        others = [f"~{self.example}"] * self.stated + [f"8 x {self.example}"] * bool(self.several)
        return {"type": ["string", "number"], "examples": [self.example, *others]}

    def _read(self, value: Any) -> float:
        try:
            result = parse(value, self.dimension)
        except UnitError as error:
            raise _problem(str(error)) from None
        if result > self.most:
            raise _problem(f"{value!r} is more than anything that exists")
        if result <= 0 and not self.zero:
            raise _problem(f"{value!r}: a {self.dimension} of nothing cannot be used here")
        if 0 < result < self.least:
            raise _problem(f"{value!r} is too little of a {self.dimension} to work with")
        return result

    def _read_stated(self, value: Any) -> Stated:
        if isinstance(value, str) and value.startswith("~"):
            return Stated(self._read(value[1:].strip()), Origin.ESTIMATED)
        return Stated(self._read(value), Origin.MEASURED)

    def _read_several(self, value: Any) -> Several:
        found = _SEVERAL.fullmatch(value.strip()) if isinstance(value, str) else None
        if found is None:
            return Several(1, self._read(value))
        if not 1 <= int(found[1]) <= self.several:
            raise _problem(f"{value!r}: 1 to {self.several} of them can be given")
        return Several(int(found[1]), self._read(found[2]))


_SEVERAL = re.compile(r"([0-9]{1,9}) ?[x×] ?(\S.*)", re.DOTALL)


def _problem(text: str) -> PydanticCustomError:
    return PydanticCustomError("quantity", "{text}", {"text": text})


# ---- Errors ---------------------------------------------------------------------------------------------------------


def validate(document: Document, model: type[M]) -> M:
    """The document as `model`; InputError with file, line, path and what to do for the first thing that is wrong."""
    try:
        return model.model_validate(document.value)
    except ValidationError as error:
        problems = error.errors(include_url=False)
    placed = [(_loc(problem), problem) for problem in problems]
    loc, first = min(placed, key=lambda item: document.line(item[0]) or 0)
    message, hint = _words(first)
    if len(placed) > 1:  # a list is read up to its first problem only, so there may be more than are counted here
        hint = f"{hint}; there are more problems in this file" if hint else "there are more problems in this file"
    raise InputError(message, where=document.where(loc), hint=hint)


def _loc(problem: ErrorDetails) -> Loc:
    loc = tuple(part for part in problem["loc"] if part != "[key]")
    at = problem.get("ctx", {}).get("at")
    return loc if at is None else (*loc, at)


def _words(problem: ErrorDetails) -> tuple[str, str | None]:
    """Message and hint for people: pydantic's own words speak of Python."""
    kind, value, context = problem["type"], problem["input"], problem.get("ctx", {})
    found = f"{kind_of(value)} found"
    simple: dict[str, tuple[str, str | None]] = {
        "string_pattern_mismatch": (f"{shown(value)} is not a name", "letters, digits, '-', '.' and '_' only"),
        "string_too_long": (f"longer than {context.get('max_length')} characters", None),
        "missing": ("this key is missing", None),
        "string_type": (f"expected text ({found})", "put it in quotes" if isinstance(value, int | float) else None),
        "int_type": (f"expected a whole number ({found})", None),
        "int_from_float": (f"expected a whole number ({found})", None),
        "float_type": (f"expected a number ({found})", None),
        "bool_type": (f"expected true or false ({found})", None),
        "list_type": (f"expected a list ({found})", None),
        "dict_type": (f"expected keys and values ({found})", None),
        "greater_than_equal": (f"must be at least {context.get('ge')}, not {shown(value)}", None),
        "greater_than": (f"must be more than {context.get('gt')}, not {shown(value)}", None),
        "less_than_equal": (f"must be at most {context.get('le')}, not {shown(value)}", None),
        "too_short": (f"expected at least {context.get('min_length')} in this list", None),
        "too_long": (f"expected at most {context.get('max_length')} in this list", None),
        "enum": (f"unknown value {shown(value)}", f"one of {context.get('expected')}"),
        "literal_error": (f"unknown value {shown(value)}", f"one of {context.get('expected')}"),
    }
    return simple.get(kind, (problem["msg"], context.get("hint")))


def shown(value: Any) -> str:
    """A value as a message shows it: quoted, and not longer than a line can bear."""
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


def kind_of(value: Any) -> str:
    """What a value of a document is, in words."""
    names: list[tuple[type, str]] = [(bool, "true/false"), (str, "text"), (int, "a number"), (float, "a number")]
    names += [(list, "a list"), (dict, "a mapping")]
    name = next((word for kind, word in names if isinstance(value, kind)), "nothing")
    return f"{name} {shown(value)}" if isinstance(value, str | int | float) else name
