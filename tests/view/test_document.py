"""The document that the page shows: the same numbers and words as the terminal, and markup nowhere."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from itertools import pairwise

import pytest
from rich.console import Console

import small
from hulk.cli.answer import render_plan
from hulk.cost.price import price_plan
from hulk.domain.cluster import pair
from hulk.io.page_files import PageFiles, page_files
from hulk.simulate import SpanKind
from hulk.view.build import Extras, Shown, document_of
from hulk.view.report import DATA_TAG, SCRIPT_TAG, STYLE_TAG, json_for_html, report_html
from hulk.view.timeline import timeline_view
from hulk.view.traffic import between_machines


@pytest.fixture(scope="module")
def shown() -> Shown:
    return Shown(small.plan(), small.cluster(), small.jobs(), small.compute())


@pytest.fixture(scope="module")
def document(shown):
    return document_of(shown, shown.price(), Extras(simulation=shown.simulation()))


def test_it_is_json_and_has_what_the_price_has(shown, document):
    again = json.loads(json.dumps(document, allow_nan=False))
    assert again["hulk"] == "view/1"
    price = price_plan(shown.plan, shown.cluster, shown.jobs, compute=shown.compute)
    for name, job in price.jobs.items():
        assert again["price"]["jobs"][name]["step_s"] == job.step
        stages = [stage for pipeline in again["cut"][name]["pipelines"] for stage in pipeline["stages"]]
        priced = [stage for pipeline in job.pipelines for stage in pipeline]
        assert [stage["memory_used"] for stage in stages] == [stage.memory.used for stage in priced]
        assert [stage["busy"] for stage in stages] == [stage.busy for stage in priced]
    assert [again["jobs"][i]["name"] if i >= 0 else "" for i in again["owner"]] == [
        "bert", "bert", "", "bert", "second", "",
    ]  # fmt: skip


def test_the_words_are_those_of_the_terminal(document):
    screen = Console(width=200, record=True, file=io.StringIO())
    render_plan(document["words"], screen)
    printed = screen.export_text()
    for told in document["words"]["jobs"].values():
        for words in (told["bottleneck"], told["memory"], told["cost"], *told["group"], *told["cut"]):
            assert words in printed


def test_bytes_that_leave_a_region_are_those_that_are_paid_for(shown):
    dear = replace(shown.cluster, regions=tuple(replace(r, egress=1.0) for r in shown.cluster.regions))
    paid = replace(shown, cluster=dear)
    price = paid.price()
    region = {machine.name: machine.region for machine in dear.machines}
    for one in paid.prepared():
        between = between_machines(one).items()
        out = sum(its.messages + its.sums for (a, b), its in between if region[a] != region[b])
        assert out == pytest.approx(price.jobs[one.job.name].money.egress)
        assert all(ends == pair(*ends) for ends, _ in between)


def test_the_timeline_has_every_pass_once(shown, document):
    simulation = shown.simulation()
    for name, job in document["timeline"].items():
        passes = [span for span in simulation.jobs[name].spans if span.kind is SpanKind.FORWARD]
        rows = [row for row in job["rows"] if row["lane"] == "compute"]
        assert sum(row["kind"].count("f") for row in rows) == len(passes)
        assert job["resolution"] == 0.0
        for row in rows:  # GPUs do one thing at a time
            spans = list(zip(row["at"][::2], row["at"][1::2], strict=True))
            assert all(a + length <= b for (a, length), (b, _) in pairwise(spans))
            assert len(spans) == len(row["kind"]) == len(row["micro"])


def test_a_long_timeline_shows_everything_as_often_as_it_took_time(shown, monkeypatch):
    monkeypatch.setattr("hulk.view.timeline._MOST_SHOWN", 100)
    monkeypatch.setattr("hulk.view.timeline._LEAST_PIECES", 6)
    simulation = shown.simulation()
    made = timeline_view(simulation, dict(shown.plan.jobs))
    assert sum(len(row["kind"]) for job in made.values() for row in job["rows"]) <= 100
    assert made["second"]["resolution"] == 0.0  # what has few spans leaves room to what has many
    bert = made["bert"]
    computed = [span for span in simulation.jobs["bert"].spans if span.kind.computes]
    rows = [row for row in bert["rows"] if row["lane"] == "compute"]
    drawn = sum(sum(row["at"][1::2]) for row in rows) * bert["unit"]
    assert bert["resolution"] > 0.0
    assert drawn == pytest.approx(sum(span.seconds for span in computed), abs=bert["resolution"] * len(rows) / 2)


def test_jobs_that_do_not_run_are_told(shown):
    plan = replace(shown.plan, jobs={"bert": shown.plan.jobs["bert"]}, waiting={"second": "it <b>waits</b>"})
    tight = tuple(replace(m, memory=2.0**30) if m.name == "rome-1" else m for m in shown.cluster.machines)
    told = replace(shown, plan=plan, cluster=replace(shown.cluster, machines=tight))
    made = document_of(told, told.price())
    assert "rome-1" in made["words"]["cannot_run"]["bert"]
    assert made["words"]["waiting"] == {"second": "it <b>waits</b>"}
    assert made["cut"]["bert"]["pipelines"][0]["stages"][0]["busy"] is None


@pytest.mark.parametrize(
    "text",
    ["</script><script>alert(1)</script>", "<!--<script>", "a\u2028b\u2029c", "&lt;", "]]>", "\ud800", "\x00"],
)
def test_any_text_is_text_in_a_script_element(text):
    made = json_for_html({"label": text, "number": float("nan")})
    assert not set("<>&\u2028\u2029").intersection(made)
    if text != "\ud800":
        assert json.loads(made) == {"label": text, "number": None}


def test_the_report_is_one_file_that_asks_nobody_for_anything(document):
    text = report_html(document, page_files())
    assert len(text.encode()) < 3_000_000
    assert not any(tag in text for tag in (STYLE_TAG, SCRIPT_TAG, DATA_TAG))
    assert "default-src 'none'" in text
    head = text[: text.index("<style>")]
    assert "http://" not in head
    assert "https://" not in head


def test_a_page_that_would_end_itself_is_refused(document):
    index = f"<head>{STYLE_TAG}</head>{DATA_TAG}{SCRIPT_TAG}"
    for script, style in (("let a = '</script>'", ""), ("", "</style>"), ("<!--", "")):
        with pytest.raises(Exception, match="build"):
            report_html(document, PageFiles(index, script, style, "{}"))
    with pytest.raises(Exception, match="once"):
        report_html(document, PageFiles("<head>", "", "", "{}"))
