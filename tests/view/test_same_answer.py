"""After a link has changed the page and `hulk replan` answer alike: it is the same function."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

import small
from hulk.cli.replan import replan
from hulk.io.plan_file import dump_plan
from hulk.serve import work
from hulk.serve.limits import Limits
from hulk.serve.messages import Change, Recipe, ReplanRequest, Source

app = typer.Typer()
app.command()(replan)
RECIPE = Recipe(cluster=Source(text=small.CLUSTER), jobs=Source(text=small.JOBS))
PLAN = json.loads(dump_plan(small.plan(), cluster=small.cluster()))


@pytest.mark.parametrize("setting", ["bandwidth=50 Mbit/s", "blocked=true"])
def test_a_link_that_is_slow_or_blocked(tmp_path, monkeypatch, setting):
    few = {"time_limit": 60.0, "evaluations": 200, "workers": 1}
    effort = work.Effort
    monkeypatch.setattr(work, "Effort", lambda seconds, seed, **_: effort(**few, seed=seed))
    link = Change(kind="link", a="rome", b="paris", setting=setting)
    request = ReplanRequest(changes=[link], seconds=60)
    made = work.plan_again(RECIPE, PLAN, request, Limits(), lambda seconds, words: None)
    options = ["--set", f"link rome paris {setting}", "--evaluations", "200", "--time-limit", "60", "--json"]
    done = CliRunner().invoke(app, [*small.write_files(tmp_path), *options])
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    assert made["plan"]["jobs"] == printed["plan"]["jobs"]
    told = made["document"]["replan"]["replan"]
    assert told["jobs"] == printed["jobs"]
    bert = told["jobs"]["bert"]
    assert bert["changed"]
    assert bert["before_s"] == pytest.approx(14.6, rel=0.01)  # as the link was
    assert bert["after_s"] is not None
    assert made["document"]["words"]["cannot_run"] == {}
