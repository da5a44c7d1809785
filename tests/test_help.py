"""Help, schemas and messages speak of verbs and options that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commands import OPTION, all_options, commands, wrong_commands
from hulk.cli.schema import Format
from hulk.io.schema import schema

ROOT = Path(__file__).parent.parent


def wrong(text: str, options: frozenset[str]) -> list[str]:
    """Verbs in backquotes that do not exist, and options that are not among these."""
    code = re.findall(r"`([^`]+)`", text)
    named = [each for part in code for each in wrong_commands(part)]
    # An option of a verb that is named with it is that verb's.
    rest = re.sub(r"`(?:sudo )?hulk [^`]*`", "", text)
    return named + [option for option in OPTION.findall(rest) if option not in options]


def helps() -> Iterator[tuple[str, str]]:
    """(verb, text) of every help there is: of verbs, arguments and options."""
    from typer.main import get_command

    from hulk.cli.app import app

    def walk(command: Any, name: str) -> Iterator[tuple[str, str]]:
        texts = [command.help, command.short_help, command.epilog, *(getattr(p, "help", None) for p in command.params)]
        yield from ((name, text) for text in texts if text)
        for verb, inner in getattr(command, "commands", {}).items():
            yield from walk(inner, f"{name} {verb}".strip())

    return walk(get_command(app), "")


def test_helps_name_what_exists():
    found = list(helps())
    assert {verb for verb, _ in found} == commands().keys()
    assert not [(verb, each) for verb, text in found for each in wrong(text, commands()[verb])]


def descriptions(value: Any) -> Iterator[str]:
    """Every title and description of a JSON Schema."""
    if isinstance(value, dict):
        yield from (value[key] for key in ("title", "description") if isinstance(value.get(key), str))
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from descriptions(each)


@pytest.mark.parametrize("which", Format)
def test_schemas_name_what_exists(which):
    found = list(descriptions(schema(which.value)))
    assert len(found) > 10
    assert not [each for text in found for each in wrong(text, all_options())]


def strings(path: Path) -> Iterator[str]:
    """Every text in a program, docstrings too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_messages_name_what_exists():
    texts = [text for path in sorted((ROOT / "src").rglob("*.py")) for text in strings(path)]
    assert not [each for text in texts for part in re.findall(r"`([^`]+)`", text) for each in wrong_commands(part)]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("as `hulk list gpus` lists them; see --cluster", 0),
        ("as `hulk gpus` lists them", 1),
        ("until `hulk testbed down --nothing`", 1),
        ("with `hulk run --resume`", 0),
        ("with --resume", 1),
        ("two words -- a dash, hulk is a name", 0),
    ],
)
def test_what_counts_as_wrong(text, count):
    assert len(wrong(text, commands()["price"])) == count
