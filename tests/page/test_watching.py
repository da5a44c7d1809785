"""A running job on the page, in a real browser."""

from __future__ import annotations

import pytest

import small
from browsing import BROWSER, LIMIT, by, chromium, picture, watched
from hulk.runtime.progress import StageStep, StepReport
from hulk.serve.app import make_live_app
from hulk.serve.background import Background
from hulk.serve.watching import LiveRun
from hulk.view.build import Extras, Shown, document_of

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")


def report(job: str, step: int, loss: float, *stages: tuple[int, int, str, float, float]) -> StepReport:
    """A step of a second; of its stages pipeline, stage, machine, and seconds at work and waiting."""
    made = tuple(
        StageStep(p, s, machine, busy, waiting, 0.0, 0.0, None, None, 1e9, 0.6)
        for p, s, machine, busy, waiting in stages
    )
    return StepReport(job, step, loss, 1.0, 0.9, 1000.0, made)


@pytest.fixture(scope="module")
def run():
    shown = Shown(small.plan(), small.cluster(), small.jobs(), small.compute())
    return LiveRun(["bert", "second"], 5, document_of(shown, shown.price(), Extras(simulation=shown.simulation())))


def test_two_jobs_are_watched(run):
    with Background(make_live_app(run), "127.0.0.1", 0) as server, chromium() as browser:
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.set_default_timeout(LIMIT)
        wrong = watched(page)
        page.goto(server.address)
        page.locator(by("live-state")).get_by_text("starting").wait_for()
        for step in (1, 2, 3):
            bert = ((0, 0, "rome-1", 0.5, 0.25), (0, 1, "rome-1", 0.7, 0.05), (1, 0, "rome-2", 0.2, 0.7))
            run.tell(report("bert", step, 4.0 / step, *bert))
        run.tell(report("second", 1, float("nan"), (0, 0, "paris-2", 0.9, 0.1)))
        page.locator(by("live-state")).get_by_text("step 3 of 5").wait_for()
        # On the map: how the time of each machine is spent, of several stages their mean.
        dot = page.locator(by("machine", machine="rome-1"))
        page.wait_for_selector(f"{by('machine', machine='rome-1')} .busy-ring", state="attached")
        assert dot.locator(".waiting-ring").count() == 1
        assert "at work 60%, waiting 15%" in " ".join((dot.get_attribute("aria-label") or "").split())
        assert page.locator(f"{by('machine', machine='rome-3')} .busy-ring").count() == 0
        dot.click()
        facts = " ".join(page.locator(by("facts")).inner_text().split())
        assert "at work 50%, waiting 25%" in facts
        assert "at work 70%, waiting 5%" in facts
        assert "measured: at work" in page.locator(".legend, .legend-box").first.inner_text().replace("\n", " ")
        # In the timeline: under the names, in the key, and in words.
        page.locator(by("timeline-box")).scroll_into_view_if_needed()
        assert "waiting" in page.locator(".timeline-card .key").inner_text()
        box = page.locator(by("timeline-box")).bounding_box()
        page.mouse.move(box["x"] + 40, box["y"] + 40)
        page.locator(".timeline .tooltip").get_by_text("waiting 25%").wait_for()
        picture(page, "live-timeline")
        page.mouse.move(0, 0)
        # The other job: a loss that is not a number is said, and the page goes on.
        page.locator(by("live-job")).select_option("second")
        page.locator(by("live-state")).get_by_text("loss is not a number").wait_for()
        assert page.locator(f"{by('live-table')} tbody tr").count() == 1
        run.tell(report("second", 2, 1.5, (0, 0, "paris-2", 0.9, 0.1)))
        page.locator(by("live-state")).get_by_text("loss 1.500").wait_for()
        page.evaluate("scrollTo(0, 640)")
        picture(page, "live")
        run.end("done", "all steps are done")
        page.locator(by("live-state")).get_by_text("all steps are done").wait_for()
        assert not wrong
