"""Reads a YAML or JSON file that a person wrote, safely, and remembers on which line everything stands.

The reader knows less YAML than YAML has, on purpose: no aliases (they can grow a small file without bound), no tags
(they name code), no merge keys, no keys given twice. Numbers and booleans are those of YAML 1.2, so that `no` stays the
word it looks like. Whatever is wrong comes out as one `InputError` that names file, line and the place in the document.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import yaml

from hulk.errors import InputError
from hulk.io.files import read_file

MAX_BYTES = 16 * 2**20
MAX_DEPTH = 32
MAX_VALUES = 1_000_000
"""Keys and values of a file: ten thousand machines, each with all that can be said of it, have 200,000."""
# More digits than any number here needs, fewer than would overflow a float.
_MAX_DIGITS = 300

Loc = tuple[int | str, ...]

_TAG_DIRECTIVE = re.compile(r"^%TAG", re.MULTILINE)
_NUMBER_START = frozenset("0123456789+-.")
_INT = re.compile(r"[-+]?[0-9][0-9_]*")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_WORDS: dict[str, bool | None] = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
_WORDS |= {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml where PyYAML was built with it: ten times faster


@dataclass(frozen=True)
class Document:
    """A file's content as plain values (dict, list, str, int, float, bool, None), and the line of each of them."""

    name: str
    value: Any
    text: str = field(repr=False)
    _lines: dict[Loc, int] = field(default_factory=dict, repr=False)

    def line(self, loc: Loc) -> int | None:
        """The line (from 1) of the value at `loc`, or of the nearest thing around it; None where it is not known."""
        if not self._lines:
            self._lines.update(_lines_of(self.text))
        for length in range(len(loc), -1, -1):
            if loc[:length] in self._lines:
                return self._lines[loc[:length]]
        return None

    def where(self, loc: Loc = ()) -> str:
        """A place for people: "cluster.yaml:12: machines[3].network"."""
        line = self.line(loc)
        place = f"{self.name}:{line}" if line is not None else self.name
        return f"{place}: {path_text(loc)}" if loc else place


def path_text(loc: Loc) -> str:
    """A place inside a document for people: ("machines", 3, "gpu") is "machines[3].gpu"."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc]
    return _short("".join(parts).removeprefix("."))


def read_document(path: str | Path) -> Document:
    """The file's content; InputError for anything that cannot be read. `.json` is read as JSON, all else as YAML."""
    path = Path(path)
    return parse_document(_read_text(path), name=str(path), is_json=path.suffix.lower() == ".json")


def parse_document(text: str, *, name: str, is_json: bool = False) -> Document:
    """The same for text that is already here; `name` stands for the file in messages."""
    if is_json:
        return Document(name, _parse_json(text, name), text)
    builder = _Builder(name)
    builder.run(text)
    if builder.root is _NOTHING or builder.root is None:
        raise InputError("the file is empty", where=name)
    return Document(name, builder.root, text, builder.lines)


def _read_text(path: Path) -> str:
    raw = read_file(path, most=MAX_BYTES)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise InputError("the file is not UTF-8 text", where=f"{path}:{line}", hint="save it as UTF-8") from None


# ---- YAML -----------------------------------------------------------------------------------------------------------

_NOTHING: Any = object()


@dataclass
class _Open:
    """A mapping or sequence that is being read. `key` is the mapping key that waits for its value."""

    value: dict[str, Any] | list[Any]
    loc: Loc
    key: str | None = None
    key_line: int = 0


class _Builder:
    """Builds plain values from parser events with an explicit stack: no recursion, whatever the file holds."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.root: Any = _NOTHING
        self.lines: dict[Loc, int] = {}
        self.stack: list[_Open] = []
        self.count = 0

    def run(self, text: str) -> None:
        """Reads all of the text into `root` and `lines`."""
        if _TAG_DIRECTIVE.search(text):  # libyaml compares each with all before it: thousands take minutes
            self.fail("%TAG lines are not allowed", None, hint="write plain values, without tags")
        try:
            for event in yaml.parse(text, Loader=_PARSER):
                self.take(event)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark is not None else None
            self.fail(f"not valid YAML: {error.problem or error.context or error}", line)
        except yaml.YAMLError as error:
            self.fail(f"not valid YAML: {str(error).splitlines()[0]}", None)
        except ValueError as error:  # libyaml on code points that are none, such as "\ud800"
            self.fail(f"not valid YAML: {_short(str(error))}", None)

    def take(self, event: Any) -> None:
        """Takes one event of the parser."""
        kind = type(event)
        line = event.start_mark.line + 1
        self.count += 1
        if self.count > MAX_VALUES:
            self.fail(f"more than {MAX_VALUES:,} values in one file", line)
        if kind is yaml.ScalarEvent:
            self.take_scalar(event, line)
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            self.take_start(event, line)
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            self.stack.pop()
        elif kind is yaml.AliasEvent:
            self.fail("aliases (*name) are not allowed", line, hint="write the value out")
        elif kind is yaml.DocumentStartEvent and self.root is not _NOTHING:
            self.fail("more than one document in the file", line, hint="remove what follows the '---' line")

    def take_start(self, event: Any, line: int) -> None:
        """Opens a mapping or a sequence."""
        self.refuse_tag(event, line)
        if len(self.stack) >= MAX_DEPTH:
            self.fail(f"nested more than {MAX_DEPTH} levels deep", line)
        value: dict[str, Any] | list[Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
        top = self.stack[-1] if self.stack else None
        if top is not None and isinstance(top.value, dict) and top.key is None:
            self.fail("a key must be a plain word, not a list or a mapping", line)
        self.stack.append(_Open(value, self.add(value, line)))

    def take_scalar(self, event: Any, line: int) -> None:
        """Adds a key or a value."""
        self.refuse_tag(event, line)
        top = self.stack[-1] if self.stack else None
        if top is None or not isinstance(top.value, dict) or top.key is not None:
            self.add(self.scalar(event, line), line)
            return
        key = event.value
        if key == "<<" and event.implicit[0]:
            self.fail("merge keys (<<) are not allowed", line, hint="write the values out")
        if key in top.value:
            first = self.lines[(*top.loc, key)]
            self.fail(f"key {_short(key)!r} is given twice (first on line {first})", line, top.loc)
        top.key, top.key_line = key, line

    def add(self, value: Any, line: int) -> Loc:
        """Puts a value where it belongs and notes its line; its place in the document comes back."""
        if not self.stack:
            self.root = value
            self.lines[()] = line
            return ()
        top = self.stack[-1]
        if isinstance(top.value, dict):
            key = top.key
            assert key is not None
            loc: Loc = (*top.loc, key)
            top.value[key] = value
            top.key, line = None, top.key_line
        else:
            loc = (*top.loc, len(top.value))
            top.value.append(value)
        self.lines[loc] = line
        return loc

    def scalar(self, event: Any, line: int) -> Any:
        """The value a plain word stands for under YAML 1.2's rules; what is quoted stays text."""
        text: str = event.value
        if text in _WORDS and event.implicit[0]:
            return _WORDS[text]
        if not event.implicit[0] or text[0] not in _NUMBER_START or len(text) > _MAX_DIGITS:
            return text
        if (text.isascii() and text.isdigit()) or _INT.fullmatch(text):
            return int(text.replace("_", ""))
        if _FLOAT.fullmatch(text):
            number = float(text.replace("_", ""))
            if not math.isfinite(number):
                self.fail(f"{_short(text)} is too large a number", line)
            return number
        if _NOT_FINITE.fullmatch(text):
            self.fail(f"{text} is not a number that can be used here", line)
        return text

    def refuse_tag(self, event: Any, line: int) -> None:
        """Tags (!!python/object and the like) name types, and this reader knows which types there are."""
        if event.tag is not None and event.tag != "!":
            self.fail(f"tags such as {_short(event.tag)!r} are not allowed", line, hint="write a plain value")

    def fail(self, message: str, line: int | None, loc: Loc | None = None, *, hint: str | None = None) -> NoReturn:
        """Raises the InputError, placed at what is being read."""
        if loc is None and self.stack:
            top = self.stack[-1]
            here = len(top.value) if isinstance(top.value, list) else top.key
            loc = top.loc if here is None else (*top.loc, here)
        place = self.name if line is None else f"{self.name}:{line}"
        raise InputError(message, where=f"{place}: {path_text(loc)}" if loc else place, hint=hint) from None


def _lines_of(text: str) -> dict[Loc, int]:
    """The lines of a JSON text: JSON is (nearly) YAML, and this is only needed to place an error."""
    builder = _Builder("")
    with contextlib.suppress(InputError):  # what was read up to there still helps
        builder.run(text)
    return builder.lines or {(): 1}


# ---- JSON -----------------------------------------------------------------------------------------------------------


def _parse_json(text: str, name: str) -> Any:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(items)
        if len(result) < len(items):
            seen: set[str] = set()
            twice = next(key for key, _ in items if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise InputError(f"key {_short(twice)!r} is given twice", where=name)
        return result

    def constant(word: str) -> NoReturn:
        raise InputError(f"{word} is not a number that can be used here", where=name)

    def integer(digits: str) -> int:
        if len(digits) > _MAX_DIGITS:
            raise InputError(f"{_short(digits)} is too large a number", where=name)
        return int(digits)

    def real(digits: str) -> float:
        number = float(digits)
        return number if math.isfinite(number) else constant(_short(digits))

    try:
        value = json.loads(text, object_pairs_hook=pairs, parse_constant=constant, parse_int=integer, parse_float=real)
    except json.JSONDecodeError as error:
        raise InputError(f"not valid JSON: {error.msg}", where=f"{name}:{error.lineno}") from None
    except RecursionError:
        raise InputError(f"nested more than {MAX_DEPTH} levels deep", where=name) from None
    values = 0
    for depth, text_found, size in _walk(value):
        values += size
        if values > MAX_VALUES:
            raise InputError(f"more than {MAX_VALUES:,} values in one file", where=name)
        if depth > MAX_DEPTH:
            raise InputError(f"nested more than {MAX_DEPTH} levels deep", where=name)
        if text_found is not None and not _encodable(text_found):
            raise InputError("text with half a surrogate pair (\\ud800 to \\udfff)", where=name)
    return value


def _walk(value: Any) -> Iterator[tuple[int, str | None, int]]:
    """Depth of every container, every text in it, keys too, and how many values a container holds."""
    todo: list[tuple[Any, int]] = [(value, 1)]
    while todo:
        item, depth = todo.pop()
        if isinstance(item, str):
            yield 0, item, 0
        elif isinstance(item, dict | list):
            children = [*item, *item.values()] if isinstance(item, dict) else item
            yield depth, None, len(children)
            todo.extend((child, depth + 1) for child in children)


def _encodable(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _short(text: str, most: int = 80) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
