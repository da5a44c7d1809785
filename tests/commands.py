"""The verbs and options of the command line, and whether a text names others."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
VERB = re.compile(r"(?<![\w/.-])hulk ((?:[a-z]+ ?)+)([^`#\n]*)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")


@cache
def commands() -> dict[str, frozenset[str]]:
    """Every verb ("plan", "gnn", "gnn train") with its options."""
    from typer.main import get_command

    from hulk.cli.app import app

    found: dict[str, frozenset[str]] = {}

    def walk(command: object, name: str) -> None:
        parameters = command.params  # type: ignore[attr-defined]
        options = {option for each in parameters for option in (*each.opts, *each.secondary_opts)}
        found[name] = frozenset(option for option in options if option.startswith("-")) | {"--help"}
        for verb, inner in getattr(command, "commands", {}).items():
            walk(inner, f"{name} {verb}".strip())

    walk(get_command(app), "")
    return found


@cache
def all_options() -> frozenset[str]:
    """The options of all verbs."""
    return frozenset().union(*commands().values())


def wrong_commands(code: str) -> list[str]:
    """What a line of code says of `hulk` that is not so: verbs that do not exist, options that their verb has not."""
    wrong = []
    for words, rest in VERB.findall(code):
        first, *others = words.split()
        verb = first
        if any(name.startswith(f"{first} ") for name in commands()) and others:
            verb = f"{first} {others[0]}"
        if verb not in commands():
            wrong.append(f"hulk {verb}")
            continue
        wrong += [f"hulk {verb} {option}" for option in OPTION.findall(rest) if option not in commands()[verb]]
    return wrong


def wrong_paths(text: str) -> list[str]:
    """Files and folders of the project that a text names and that do not exist; and options of scripts that the script
    does not have."""
    wrong = []
    for path, rest in re.findall(
        r"(?<![\w/.-])((?:src|docs|tests|benchmarks|examples)/[\w./*-]*[\w*])((?: --?[\w-]+(?: [\w./,]+)*)*)", text
    ):
        if not list(ROOT.glob(path)):
            wrong.append(path)
        elif path.endswith(".py"):
            known = "".join((ROOT / file).read_text(encoding="utf-8") for file in (path, "benchmarks/common.py"))
            wrong += [f"{path} {option}" for option in OPTION.findall(rest) if f'"{option}"' not in known]
    return wrong
