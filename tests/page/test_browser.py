"""The page in a real browser, headless Chromium: one server and one browser for all tests."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from browsing import BROWSER, LIMIT, by, chromium, picture, watched
from serving import EXAMPLE, ROOT, Served
from warm import hulk

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")

BY_ITSELF = re.compile(r"/api/plans/[0-9a-f]+/(timeline|explain)$")
"""What the page asks for when nobody does: seconds of a processor each time it is opened."""
COUNTS = {
    name: len({s["machine"] for p in job["pipelines"] for s in p["stages"]}) for name, job in EXAMPLE["jobs"].items()
}


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Served(tmp_path_factory.mktemp("browser")) as served:
        served.example = served.loaded()
        yield served


@pytest.fixture
def page(browser, server):
    """The page with the bundled example; nothing may go wrong in the console. What it asks for by itself waits."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000}, accept_downloads=True)
    context.set_default_timeout(LIMIT)
    context.route(BY_ITSELF, lambda _: None)
    opened = context.new_page()
    wrong = watched(opened)
    opened.goto(f"{server.address}/#plan={server.example}")
    open_plan(opened, server.example)
    yield opened
    context.close()
    assert not wrong


def open_plan(page, key: str) -> None:
    """Wait until a plan is drawn. (Strings of code, which would say more, are what the page's policy forbids.)"""
    page.wait_for_selector(f'html[data-ready="{key}"]', state="attached")


def ready(page) -> str:
    return str(page.evaluate("document.documentElement.dataset.ready"))


def dots(page) -> dict[str, int]:
    """Machines on the map by job."""
    found = page.eval_on_selector_all(by("machine"), "nodes => nodes.map(node => node.dataset.job)")
    return {job: found.count(job) for job in found}


def await_other(page, before: str) -> None:
    page.wait_for_selector(f'html[data-ready]:not([data-ready="{before}"])', state="attached")


def test_the_map_has_every_machine_in_its_jobs_colour(page):
    found = dots(page)
    idle = found.pop("", 0)
    assert found == COUNTS
    assert idle == len(EXAMPLE["idle"])
    assert page.locator(by("link")).count() > 5
    picture(page, "page-map")


def test_the_words_are_those_of_the_terminal(page, server):
    told = server.get(f"/api/plans/{server.example}").json()["words"]["jobs"]["opt-175b"]
    assert told["bottleneck"] in page.locator("body").inner_text()


def test_planning_in_the_browser(page):
    def fewer(route):
        body = json.loads(route.request.post_data)
        body["options"] = {**body.get("options", {}), "seconds": 5, "evaluations": 200}
        route.continue_(post_data=json.dumps(body))

    page.route(
        re.compile(r"/api/plans$"), lambda route: fewer(route) if route.request.method == "POST" else route.continue_()
    )
    before = ready(page)
    page.locator(by("cluster-select")).select_option("hulk47")
    page.locator(by("jobs-select")).select_option("paper4")
    page.locator(by("plan-button")).click()
    await_other(page, before)
    assert sum(dots(page).values()) == 47


def test_lose_a_machine_plan_again_and_undo(page):
    first, before = ready(page), dots(page)
    page.locator(by("machine", machine="california-2")).click()
    page.locator(by("lose-button")).click()
    page.locator(by("whatif")).get_by_text("t5-11b").first.wait_for()
    picture(page, "page-whatif")
    page.locator(by("replan-button")).click()
    await_other(page, first)
    assert page.locator(by("machine", machine="california-2")).count() == 0
    assert sum(dots(page).values()) == 46
    page.locator(by("undo-button")).click()
    open_plan(page, first)
    assert dots(page) == before


def test_lose_a_region(page):
    page.locator(by("region", region="rome")).locator(by("region-label")).click()
    page.locator(by("lose-region-button")).click()
    page.locator(by("whatif")).get_by_text("pipelines instead of 4").first.wait_for()
    assert page.locator(by("change")).count() == 5
    page.locator(by("machine", machine="rome-1")).click()
    facts = page.locator(by("facts")).inner_text()
    assert "it is lost" in facts
    assert "at work" not in facts
    rows = page.locator(f"{by('machines-table')} tbody tr").all_inner_texts()
    assert len([row for row in rows if "lost" in row.split()]) == 5
    idle = page.locator(f"{by('machine')}.idle:not(.lost)").count()
    assert page.locator(by("job", job="")).inner_text().startswith(f"{idle} machine")


def test_drag_a_machine_to_another_job(page):
    first = ready(page)
    dot = page.locator(by("machine", machine="london-1"))
    target = page.locator(by("job", job="bert-large"))
    start, end = dot.bounding_box(), target.bounding_box()
    page.mouse.move(start["x"] + start["width"] / 2, start["y"] + start["height"] / 2)
    page.mouse.down()
    page.mouse.move(end["x"] + end["width"] / 2, end["y"] + end["height"] / 2, steps=8)
    page.mouse.up()
    page.locator(by("whatif")).get_by_text("bert-large").first.wait_for()
    page.locator(by("keep-button")).click()
    await_other(page, first)
    assert page.locator(by("machine", machine="london-1")).get_attribute("data-job") == "bert-large"


def test_move_a_machine_by_keyboard(page):
    page.locator(by("machine", machine="london-1")).focus()
    page.keyboard.press("Enter")
    page.locator(by("move-select")).select_option("gpt2-xl")
    page.locator(by("whatif")).get_by_text("gpt2-xl").first.wait_for()


@pytest.mark.parametrize("name", ["plan", "report"])
def test_files_to_take_away(page, name):
    page.locator(by("download-menu")).first.click()
    with page.expect_download() as taken:
        page.locator(by(f"download-{name}")).click()
    text = Path(taken.value.path()).read_text(encoding="utf-8")
    assert json.loads(text)["hulk"] == "plan/1" if name == "plan" else "hulk-data" in text


def test_dark(page):
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    for _ in range(2):
        page.locator(by("theme-toggle")).click()
        if page.evaluate("document.documentElement.dataset.theme") == "dark":
            break
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    picture(page, "page-dark")


@pytest.mark.parametrize("width", [400, 3840])
def test_it_fits_small_and_large_windows(page, width):
    page.set_viewport_size({"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    picture(page, f"page-{width}")


HOSTILE = """
name: hostile
about: "</script><img src=x onerror='window.hurt=1'>"
regions:
  rome: {label: "<img src=x onerror='window.hurt=1'>", at: [41.9, 12.5]}
  oslo: {label: "</title><script>window.hurt=1</script>", at: [59.9, 10.8]}
machines:
  - {name: rome-1, region: rome, gpu: a100-40, gpus: 4}
  - {name: oslo-1, region: oslo, gpu: a100-40, gpus: 4}
"""
JOBS = "jobs: [{name: bert, model: bert-large, sequence: 128, global_batch: 32}]"


def test_names_and_labels_are_text(page, server, tmp_path):
    made = server.done(
        "/api/plans",
        {"cluster": {"text": HOSTILE}, "jobs": {"text": JOBS}, "options": {"seconds": 5, "evaluations": 100}},
    )["plan"]
    page.context.unroute(BY_ITSELF)
    page.goto(f"{server.address}/#plan={made}")
    page.reload()
    open_plan(page, made)
    page.locator(by("timeline-table")).wait_for()
    assert "<img src=x onerror='window.hurt=1'>" in page.locator("body").inner_text()
    page.locator(by("machine", machine="rome-1")).click()
    report = tmp_path / "report.html"
    report.write_text(server.get(f"/api/plans/{made}/report.html").text, encoding="utf-8")
    for _ in range(2):
        assert page.evaluate("window.hurt") is None
        assert page.locator("img").count() == 0
        page.goto(report.as_uri())
        open_plan(page, "report")


def test_a_report_opens_from_disk_with_the_network_off(browser, tmp_path):
    made = hulk("report", "examples/hulk47.plan.json", "-c", "hulk47", "-j", "paper4", "--no-timeline",
                "-o", str(tmp_path / "report.html"))  # fmt: skip
    assert made.returncode == 0, made.stderr
    context = browser.new_context(offline=True)
    context.set_default_timeout(LIMIT)
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((tmp_path / "report.html").as_uri())
    open_plan(page, "report")
    assert sum(dots(page).values()) == 47
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    assert (tmp_path / "report.html").stat().st_size < 3_000_000
    context.close()


def test_the_built_page_is_in_the_package():
    for name in ("index.html", "page.js", "page.css", "land.json"):
        assert (ROOT / "src" / "hulk" / "page_files" / name).is_file()
