"""Headless Chromium for the tests of the page. Pictures of what was seen go to the folder that HULK_PICTURES names."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PICTURES = os.environ.get("HULK_PICTURES")
LIMIT = 60_000  # milliseconds; what is awaited comes much sooner
_FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


@contextmanager
def chromium() -> Iterator[Any]:
    """The browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=BROWSER, args=_FLAGS)
        yield started
        started.close()


def watched(page: Any) -> list[str]:
    """What will go wrong on the page, as its console tells it."""
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda told: wrong.append(told.text) if told.type == "error" else None)
    return wrong


def by(name: str, **data: str) -> str:
    return f'[data-testid="{name}"]' + "".join(f'[data-{key}="{value}"]' for key, value in data.items())


def picture(page: Any, name: str) -> None:
    if PICTURES:
        page.screenshot(path=str(Path(PICTURES) / f"{name}.png"))
