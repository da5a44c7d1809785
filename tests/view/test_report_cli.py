"""`hulk report`, and `hulk plan --open`."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
import typer
from typer.testing import CliRunner

import small
from hulk import contestant
from hulk.cli.plan import plan
from hulk.cli.report import report
from hulk.errors import InputError
from hulk.search.baselines import BASELINES, Entry

app = typer.Typer()
app.command("plan")(plan)
app.command("report")(report)


@pytest.fixture
def files(tmp_path):
    return small.write_files(tmp_path)


def run(*arguments: str):
    return CliRunner().invoke(app, arguments)


def shown(path) -> dict[str, object]:
    """The document in a report."""
    text = path.read_text(encoding="utf-8")
    data = re.search(r'<script id="hulk-data" type="application/json">(.*?)</script>', text, re.S)
    assert data
    return json.loads(data[1])


def test_a_plan_as_one_file(files, tmp_path):
    done = run("report", *files, "-o", str(tmp_path / "report.html"))
    assert done.exit_code == 0, done.output
    found = shown(tmp_path / "report.html")
    assert found["mode"] == "report"
    assert found["document"]["timeline"].keys() == {"bert", "second"}
    assert found["land"]["type"] == "Topology"


def test_what_if_something_were_different(files, tmp_path):
    done = run(
        "report", *files, "--no-timeline", "--set", "machine rome-1 memory=2 GiB", "-o", str(tmp_path / "r.html")
    )
    assert done.exit_code == 3  # the report says why
    assert "memory" in shown(tmp_path / "r.html")["document"]["words"]["cannot_run"]["bert"]


def test_it_does_not_replace_what_it_reads(files):
    done = run("report", *files, "-o", files[0])
    assert isinstance(done.exception, InputError)


def test_planning_and_looking_at_it(files, tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    out = tmp_path / "new.json"
    options = ("--evaluations", "100", "--workers", "1", "--no-gnn", "--json", "--open", "-o", str(out))
    done = run("plan", files[2], files[4], *options)
    assert done.exit_code == 0, done.output
    assert opened == [out.with_suffix(".html").as_uri()]
    assert shown(out.with_suffix(".html"))["document"]["plan"]["jobs"] == json.loads(out.read_text())["jobs"]


@pytest.mark.parametrize(
    ("option", "systems", "left_out"),
    [
        ("--compare", {"hulk", "A", "B", "B-tour", "C"}, {}),
        ("--all-baselines", {"hulk", "greedy"}, {"broken": "it cannot plan this"}),
    ],
)
def test_hulk_beside_others(files, tmp_path, monkeypatch, option, systems, left_out):
    def broken(*_, **__):
        raise InputError("it cannot plan this")

    def quick(*given, effort, **options):
        return compared(*given, effort=replace(effort, time_limit=2.0, evaluations=200, workers=1), **options)

    compared = contestant.compared
    monkeypatch.setattr(contestant, "compared", quick)
    few = [BASELINES.get("greedy"), Entry("broken", "one that is broken", broken)]
    monkeypatch.setattr(BASELINES, "entries", lambda: few)
    done = run("report", *files, "--no-timeline", option, "-o", str(tmp_path / "r.html"))
    assert done.exit_code == 0, done.output
    found = shown(tmp_path / "r.html")["document"]["comparison"]
    assert found["comparison"]["hulk"] == "comparison/1"
    assert found["comparison"]["systems"].keys() == systems
    assert found["comparison"]["left_out"] == left_out
    assert {bar["system"] for bar in found["bars"]} == systems
    assert "a plan made anew" in found["notes"][0]
    assert all(any(name in note for note in found["notes"]) for name in left_out)
