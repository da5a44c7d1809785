"""What the README and the docs name exists: paths, make targets, commands, links; and the README names all verbs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from commands import commands, wrong_commands, wrong_paths

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [README, ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


def _code(text: str) -> list[str]:
    """Inline code, and lines of shell blocks and of indented ones."""
    fenced = re.findall(r"```(?:sh|bash|console)\n(.*?)```", text, re.S)
    prose = re.sub(r"```.*?```", "", text, flags=re.S)
    lines = [line.strip().removeprefix("$ ") for block in fenced for line in block.splitlines()]
    indented = re.findall(r"^    (.+)$", prose, re.M)
    return re.findall(r"`([^`\n]+)`", prose) + lines + indented


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_and_scripts_exist(page):
    assert not wrong_paths(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which does not exist"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_exist(page):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for text in _code(page.read_text(encoding="utf-8")):
        assert not wrong_commands(text)
        if match := re.match(r"make (\w+)", text):
            assert re.search(rf"^{match[1]}:", makefile, re.M), f"{page.name} names {text!r}"


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("hulk plan CLUSTER JOBS --cheapest", []),
        ("sudo hulk testbed up cluster.yaml", []),
        ("hulk gnn train examples/ run/ --steps 10   # --nothing", []),
        ("hulk gpus", ["hulk gpus"]),
        ("hulk testbed begin", ["hulk testbed begin"]),
        ("hulk plan a b --lost rome-3", ["hulk plan --lost"]),
        (".venv/bin/hulk.py frobnicate", []),
    ],
)
def test_what_counts_as_a_command_that_does_not_exist(code, wrong):
    assert wrong_commands(code) == wrong


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("See docs/planner.md.", []),
        ("`python benchmarks/gnn.py --only marks --limit 4`, `benchmarks/speed.py --json`", []),
        ("`benchmarks/gnn.py --onli time`", ["benchmarks/gnn.py --onli"]),
        ("`benchmarks/speeed.py`", ["benchmarks/speeed.py"]),
        ("https://example.org/docs/none.md", []),
    ],
)
def test_what_counts_as_a_path_that_does_not_exist(text, wrong):
    assert wrong_paths(text) == wrong


def test_every_verb_is_in_the_readmes_table():
    rows = re.findall(r"^\| `hulk ([a-z]+)", README.read_text(encoding="utf-8"), re.M)
    assert {verb.split()[0] for verb in commands() if verb} == set(rows)


def test_extras_are_used_and_exist():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for extra in re.findall(r"hulk\[(\w+)\]|\(extra `(\w+)`\)", text):
            assert "".join(extra) in extras, f"{page.name} names the extra {''.join(extra)}"
    imports = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    for extra in extras.keys() - {"dev"}:
        modules = [re.match(r"[\w-]+", package)[0].replace("-", "_") for package in extras[extra]]
        assert re.search(rf"^\s*(import|from) ({'|'.join(modules)})\b", imports, re.M), (
            f"nothing uses the extra {extra}"
        )


def test_layers_know_nothing_of_higher_ones():
    """The layering of docs/architecture.md, as pyproject.toml states it for import-linter."""
    from importlinter.cli import lint_imports

    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0
