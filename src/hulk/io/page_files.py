"""The built files of the page, as they come with Hulk."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from hulk.errors import HulkError

INDEX, SCRIPT, STYLE, LAND = "index.html", "page.js", "page.css", "land.json"


@dataclass(frozen=True)
class PageFiles:
    """The page: its frame, its script, its style, and the coasts that the map shows (TopoJSON)."""

    index: str
    script: str
    style: str
    land: str


@cache
def page_files() -> PageFiles:
    """The files, read once."""
    folder = Path(str(resources.files("hulk"))) / "page_files"
    try:
        texts = [(folder / name).read_text(encoding="utf-8") for name in (INDEX, SCRIPT, STYLE, LAND)]
    except OSError as error:
        raise HulkError(f"the page's own files are not here: {error.strerror} (make page builds them)") from None
    return PageFiles(*texts)
