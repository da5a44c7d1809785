"""What the README and the docs name exists: paths, make targets, commands, links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def _code(page: Path) -> list[str]:
    """Inline code and lines of shell blocks."""
    text = page.read_text(encoding="utf-8")
    fenced = re.findall(r"```(?:sh|bash|console)\n(.*?)```", text, re.S)
    prose = re.sub(r"```.*?```", "", text, flags=re.S)
    lines = [line.strip().removeprefix("$ ") for block in fenced for line in block.splitlines()]
    return re.findall(r"`([^`\n]+)`", prose) + lines


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_exist(page):
    for text in _code(page):
        if re.fullmatch(r"(src|docs|tests|benchmarks|examples|\.ci)/[\w./*-]*", text):
            assert list(ROOT.glob(text.rstrip("/"))), f"{page.name} names {text}, which does not exist"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which does not exist"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_exist(page):
    from typer.main import get_command

    from hulk.cli.app import app

    verbs = get_command(app).commands  # type: ignore[attr-defined]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for text in _code(page):
        if match := re.match(r"make (\w+)", text):
            assert re.search(rf"^{match[1]}:", makefile, re.M), f"{page.name} names {text!r}"
        if match := re.match(r"(?:\.venv/bin/)?hulk ([a-z]+)(.*)", text):
            verb, rest = match.groups()
            assert verb in verbs, f"{page.name} names `hulk {verb}`"
            known = {option for parameter in verbs[verb].params for option in parameter.opts + parameter.secondary_opts}
            for option in re.findall(r"(?<!\S)--[\w-]+", rest):
                assert option in known, f"{page.name}: `hulk {verb}` has no {option}"


def test_layers_know_nothing_of_higher_ones():
    """The layering of docs/architecture.md, as pyproject.toml states it for import-linter."""
    from importlinter.cli import lint_imports

    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0
