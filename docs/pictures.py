"""Makes the README's pictures: the page in a browser, with the plan that the README prints.

.venv/bin/python docs/pictures.py

Beside them, `benchmarks/results/page-pictures.json` says which plan they show: a test compares it with the README's.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))
import hulk  # noqa: E402
from serving import Served  # noqa: E402

PLAN = ROOT / "examples" / "hulk47.plan.json"
RESULTS = ROOT / "benchmarks" / "results"
NOTE = RESULTS / "page-pictures.json"
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--force-device-scale-factor=1",
]


def digest(path: Path) -> str:
    """What a file is, in short."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def by(name: str, **data: str) -> str:
    """What tests hold on to on the page."""
    return f'[data-testid="{name}"]' + "".join(f'[data-{key}="{value}"]' for key, value in data.items())


def draw(page: Page, served: Served) -> None:
    """The map; a step's timeline; a machine lost, and what it takes then."""
    key = served.loaded()
    served.done(f"/api/plans/{key}/timeline", {})
    page.goto(f"{served.address}/#plan={key}")
    page.wait_for_selector(f'html[data-ready="{key}"]', state="attached")
    page.locator(by("map")).scroll_into_view_if_needed()
    page.screenshot(path=str(RESULTS / "page-map.png"))
    page.locator(by("timeline-box")).scroll_into_view_if_needed()
    page.evaluate("document.querySelector('[data-testid=timeline-box]').scrollIntoView({block: 'center'})")
    page.screenshot(path=str(RESULTS / "page-timeline.png"))
    page.evaluate("window.scrollTo(0, 0)")
    page.locator(by("machine", machine="california-2")).click()
    page.locator(by("lose-button")).click()
    page.locator(by("whatif")).get_by_text("t5-11b").first.wait_for()
    page.screenshot(path=str(RESULTS / "page-whatif.png"))
    page.locator(by("theme-toggle")).click()
    page.screenshot(path=str(RESULTS / "page-dark.png"))


def main() -> None:
    """Draw all, and write down what they show."""
    with tempfile.TemporaryDirectory() as folder, Served(Path(folder)) as served, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=FLAGS)
        page = browser.new_page(viewport={"width": 1400, "height": 1000}, color_scheme="light", reduced_motion="reduce")
        draw(page, served)
        browser.close()
    told = hulk.load(PLAN, "hulk47", "paper4").words["jobs"]
    note = {
        "plan": digest(PLAN),
        "headlines": {name: words["headline"] for name, words in told.items()},
        "pictures": {path.name: digest(path) for path in sorted(RESULTS.glob("page-*.png"))},
    }
    NOTE.write_text(json.dumps(note, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    sys.stdout.write(f"{len(note['pictures'])} pictures in {RESULTS.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
