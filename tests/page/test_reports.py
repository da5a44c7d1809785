"""Reports in a real browser: what they show of jobs that do not run."""

from __future__ import annotations

from dataclasses import replace

import pytest

import small
from browsing import BROWSER, LIMIT, by, chromium, picture, watched
from hulk.io.page_files import page_files
from hulk.view.build import Shown, document_of
from hulk.view.report import report_html

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")


def test_a_job_that_cannot_run_and_one_that_waits_are_shown_with_their_reasons(tmp_path):
    plan = replace(small.plan(), jobs={"bert": small.plan().jobs["bert"]}, waiting={"second": "there is no room"})
    tight = tuple(replace(m, memory=2.0**30) if m.name == "rome-1" else m for m in small.cluster().machines)
    shown = Shown(plan, replace(small.cluster(), machines=tight), small.jobs(), small.compute())
    file = tmp_path / "report.html"
    file.write_text(report_html(document_of(shown, shown.price()), page_files()), encoding="utf-8")
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.set_default_timeout(LIMIT)
        wrong = watched(page)
        page.goto(file.as_uri())
        cut = page.locator(by("cut-job", job="bert"))
        cut.wait_for()
        words = cut.inner_text()
        assert "cannot run" in words
        assert "rome-1" in words
        assert cut.locator(by("stage")).count() == 4
        waits = page.locator(by("cut-job", job="second"))
        assert "waits: there is no room" in waits.inner_text()
        assert waits.locator(by("stage")).count() == 0
        cut.scroll_into_view_if_needed()
        picture(page, "cannot-run")
        assert not wrong
