"""Figures and pictures in the docs say which command made them.

A picture needs a command in its own paragraph or in one next to it; a table of figures in its section. A table is one
of figures where a column, not the first, begins with a number in at least half of its rows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND = re.compile(r"(benchmarks|docs)/\w+\.py|`(sudo )?hulk [a-z]|^ *(sudo )?hulk [a-z]|`make \w|^make \w", re.M)
NUMBER = re.compile(r"[*≥≤±+−$-]*\s*\d")


@dataclass(frozen=True)
class Section:
    """What stands between two headings, cut at empty lines."""

    title: str
    blocks: tuple[str, ...]

    @property
    def named(self) -> bool:
        """Whether a command is named anywhere in it."""
        return any(map(COMMAND.search, self.blocks))


def sections(text: str) -> list[Section]:
    """The sections of a page; a heading inside a code block is none."""
    found: list[tuple[str, list[str]]] = [("the beginning", [])]
    fenced = False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        if not fenced and (heading := re.match(r"#+ (.*)", line)):
            found.append((heading[1], []))
        else:
            found[-1][1].append(line)
    return [Section(title, tuple(re.split(r"\n\s*\n", "\n".join(lines).strip()))) for title, lines in found]


def has_figures(block: str) -> bool:
    """Whether a block is a table with a column of figures."""
    lines = block.splitlines()
    head = next((i for i, (_, line) in enumerate(pairwise(lines)) if re.fullmatch(r"[|\s:-]*-[|\s:-]*", line)), None)
    if head is None or "|" not in lines[head]:
        return False
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines[head + 2 :]]
    for column in range(1, max(map(len, rows), default=0)):
        cells = [row[column] for row in rows if column < len(row) and row[column]]
        if 2 * sum(NUMBER.match(cell) is not None for cell in cells) >= len(rows):
            return True
    return False


def unnamed(text: str) -> list[str]:
    """Tables of figures and pictures that no command is named for, by their sections."""
    found = []
    for section in sections(text):
        for i, block in enumerate(section.blocks):
            if "![" in block and not any(map(COMMAND.search, section.blocks[max(0, i - 1) : i + 2])):
                found.append(f"{section.title}: a picture")
            if has_figures(block) and not section.named:
                found.append(f"{section.title}: a table of figures")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_figures_name_the_command_that_made_them(page):
    assert not unnamed(page.read_text(encoding="utf-8"))


def test_the_docs_have_figures_and_pictures():
    text = "\n\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert sum(has_figures(block) for section in sections(text) for block in section.blocks) > 15
    assert text.count("![") >= 4


TABLE = "| GPU | error |\n|---|---|\n| a | 3.1 % |\n| b | **+4 %** |\n| c | waits |"
WORDS = "| option | does |\n|---|---|\n| a | keeps 3 |\n| b | 2 of them |\n| c | none |"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (TABLE, 1),
        (WORDS, 0),
        (f"# One\n\n`benchmarks/speed.py`:\n\n{TABLE}\n\n# Two\n\n{TABLE}", 1),
        (f"# One\n\n{TABLE}\n\nwords\n\n```sh\nhulk price plan.json\n```", 0),
        (f"```sh\n# not a heading\nmake bench\n```\n\n{TABLE}", 0),
        ("words\n\n![a](a.png)\n\nwords", 1),
        ("words\n\n![a](a.png)\n\n`python docs/pictures.py` draws it.", 0),
        ("`docs/pictures.py`\n\nwords\n\n![a](a.png)", 1),
        (f"{TABLE}\n\nThe module `hulk.cost` and makes of benchmarks/data/a.json are no commands.", 1),
    ],
)
def test_what_counts_as_named(text, count):
    assert len(unnamed(text)) == count
