"""`hulk serve`, asked as the page asks it: one server for all tests of this file."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import sqlite3
import zipfile
from pathlib import Path

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings

import small
from hulk.contestant import PAPER_SYSTEMS
from hulk.errors import InputError
from hulk.io.plan_file import dump_plan
from hulk.search.baselines import BASELINES
from hulk.serve import tasks
from hulk.serve.background import listening
from hulk.serve.history import History
from hulk.serve.limits import Limits
from hulk.serve.messages import Inputs, Source
from hulk.serve.pool import FaultError, Worker
from serving import EXAMPLE, HULK47, ROOT, Served
from warm import hulk

SMALL = {"cluster": {"text": small.CLUSTER}, "jobs": {"text": small.JOBS}}
QUICK = {"seconds": 5, "evaluations": 300}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Served(tmp_path_factory.mktemp("serve")) as served:
        yield served


@pytest.fixture(scope="module")
def plan(server) -> str:
    """The small case as a kept plan."""
    answer = server.post("/api/plans/load", {**SMALL, "plan": json.loads(dump_plan(small.plan()))})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["plan"])


@pytest.fixture(scope="module")
def example(server) -> str:
    return server.loaded()


def test_the_page_and_its_files_come_with_hulk(server):
    index = server.get("/")
    assert '{"mode":"serve"}' in index.text
    for name in ("page.js", "page.css", "land.json"):
        assert server.get(f"/{name}").text == (ROOT / "src/hulk/page_files" / name).read_text(encoding="utf-8")
    assert server.get("/docs").status_code == 404


def test_a_plan_tells_what_it_was_made_of(server, plan):
    found = server.get(f"/api/plans/{plan}/inputs").json()
    assert (found["cluster"]["text"], found["jobs"]["text"]) == (small.CLUSTER, small.JOBS)
    assert server.get("/api/plans/0123456789abcdef/inputs").status_code == 404


def test_what_there_is(server):
    found = server.get("/api/catalogue").json()
    assert "hulk47" in [cluster["name"] for cluster in found["clusters"]]
    assert "paper4" in [jobs["name"] for jobs in found["jobs"]]
    text = server.get("/api/catalogue/clusters/hulk47").json()["text"]
    checked = server.post("/api/check", {"cluster": {"text": text}, "jobs": {"name": "paper4"}}).json()
    assert len(checked["cluster"]["machines"]) == 47
    assert server.get("/api/catalogue/clusters/..%2fgpus").status_code in (404, 422)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"name": "hulk74"}, "did you mean 'hulk47'?"),
        ({"name": "../../etc/passwd"}, "no bundled cluster"),
        ({"text": "machines: [{name: '<img src=x onerror=alert(1)>', region: r, gpu: h100, gpus: 8}]"}, "<img"),
        ({"text": "machines: ["}, "not valid YAML"),
        ({"text": ""}, "empty"),
        ({"name": "hulk47", "text": "x"}, "one of the two"),
        ({"text": "regions: {r: {}}\nmachines: [{name: m, count: 10001, region: r, gpu: h100, gpus: 8}]"}, "10,000"),
    ],
)
def test_wrong_input_is_answered_in_words(server, source, words):
    answer = server.post("/api/check", {"cluster": source})
    assert answer.status_code == 422
    assert words in json.dumps(answer.json(), ensure_ascii=False)


def test_ten_thousand_machines_are_read_and_fifty_megabytes_refused(server):
    text = "regions: {r: {}}\nmachines: [{name: m, count: 10000, region: r, gpu: h100, gpus: 8}]"
    assert len(server.post("/api/check", {"cluster": {"text": text}}).json()["cluster"]["machines"]) == 10_000
    try:
        large = server.client.post("/api/check", content=b'{"cluster": {"text": "' + b"#" * 50_000_000 + b'"}}')
        assert large.status_code == 413
    except httpx.TransportError:
        pass  # it hung up while the rest was on its way
    assert server.get("/api/catalogue").status_code == 200


def test_the_price_is_that_of_the_command_line(server, example):
    printed = hulk("price", "examples/hulk47.plan.json", "-c", "hulk47", "-j", "paper4", "--json")
    expected = json.loads(printed.stdout)
    assert server.post("/api/price", {**HULK47, "plan": EXAMPLE}).json() == expected
    assert server.get(f"/api/plans/{example}/price").json() == expected
    assert server.get(f"/api/plans/{example}").json()["price"] == expected


def test_a_plan_that_breaks_a_rule_is_refused(server):
    wrong = json.loads(json.dumps(EXAMPLE))
    wrong["jobs"]["bert-large"]["pipelines"][0]["stages"][0]["machine"] = "nowhere-1"
    answer = server.post("/api/price", {**HULK47, "plan": wrong})
    assert answer.status_code == 422
    assert "nowhere-1" in answer.json()["error"]["message"]


def test_what_if_and_back(server, plan):
    before = server.get(f"/api/plans/{plan}").json()
    lose = {"changes": [{"kind": "lose", "machine": "rome-2"}]}
    answer = server.post(f"/api/plans/{plan}/whatif", lose).json()
    assert answer["changed"]
    assert answer["idle"] == "rome: rome-3; paris: paris-1; oslo: oslo-1 (5 GPUs)"
    # Its slow pipeline over the wide link is gone with the machine.
    assert answer["jobs"]["bert"]["after"] < answer["jobs"]["bert"]["before"]
    assert answer["jobs"]["second"]["after"] == answer["jobs"]["second"]["before"]
    kept = server.post(f"/api/plans/{plan}/keep", lose).json()["plan"]
    after = server.get(f"/api/plans/{kept}").json()
    assert after["saved"]["parent"] == plan  # undo goes there
    assert "rome-2" not in [machine["name"] for machine in after["cluster"]["machines"]]
    assert after["price"]["jobs"]["bert"]["step_s"] == pytest.approx(answer["jobs"]["bert"]["after"])
    assert server.get(f"/api/plans/{plan}").json() == before


def test_a_machine_goes_to_another_job(server, plan):
    move = {"changes": [{"kind": "move", "machine": "rome-3", "job": "second"}]}
    answer = server.post(f"/api/plans/{plan}/whatif", move).json()
    names = [job["name"] for job in server.get(f"/api/plans/{plan}").json()["jobs"]]
    machines = [machine["name"] for machine in server.get(f"/api/plans/{plan}").json()["cluster"]["machines"]]
    assert names[answer["owner"][machines.index("rome-3")]] == "second"
    wrong = server.post(f"/api/plans/{plan}/whatif", {"changes": [{"kind": "move", "machine": "rome-3", "job": "x"}]})
    assert wrong.status_code == 422


def test_a_slower_link_takes_longer(server, plan):
    slow = {"changes": [{"kind": "link", "a": "rome", "b": "paris", "factor": 0.1}]}
    answer = server.post(f"/api/plans/{plan}/whatif", slow).json()
    assert answer["jobs"]["bert"]["after"] > answer["jobs"]["bert"]["before"]
    blocked = {"changes": [{"kind": "link", "a": "rome", "b": "paris", "setting": "blocked=true"}]}
    answer = server.post(f"/api/plans/{plan}/whatif", blocked).json()
    assert "blocked" in answer["jobs"]["bert"]["reason"]
    assert server.post(f"/api/plans/{plan}/keep", blocked).status_code == 422
    planned = server.done(f"/api/plans/{plan}/replan", {**blocked, "seconds": 0.5})["plan"]
    assert server.get(f"/api/plans/{planned}").json()["words"]["cannot_run"] == {}


def test_planning_is_told_and_kept(server):
    started = server.post("/api/plans", {**SMALL, "options": QUICK}).json()["task"]
    events = list(server.events(started))
    assert events[-1][0] == "done"
    assert {"progress"} <= {name for name, _ in events} <= {"queued", "running", "progress", "done"}
    made = server.get(f"/api/plans/{events[-1][1]['plan']}").json()
    assert made["words"]["waiting"] == {}
    assert made["saved"]["id"] in [entry["id"] for entry in server.get("/api/plans").json()["plans"]]
    assert server.get(f"/api/tasks/{started}").json()["state"] == "done"


def test_two_at_once_do_not_disturb_each_other_and_one_can_be_cancelled(server):
    long = {**HULK47, "options": {"seconds": 60, "evaluations": 10_000_000}}
    first = server.post("/api/plans", long).json()["task"]
    second = server.post("/api/plans", {**SMALL, "options": {**QUICK, "seed": 1}}).json()["task"]
    for name, _ in server.events(first):
        if name == "progress":
            break
    assert server.client.delete(f"/api/tasks/{first}").status_code == 204
    assert [name for name, _ in server.events(first)] == ["cancelled"]
    *_, (name, data) = server.events(second)
    assert name == "done"
    assert server.get(f"/api/plans/{data['plan']}").json()["cluster"]["name"] == "small"


def test_planning_again(server, plan):
    body = {"changes": [{"kind": "lose", "machine": "rome-1"}], "seconds": 0.5}
    made = server.get(f"/api/plans/{server.done(f'/api/plans/{plan}/replan', body)['plan']}").json()
    assert made["saved"]["parent"] == plan
    assert made["replan"]["replan"]["hulk"] == "replan/1"
    assert made["replan"]["lines"]
    joined = {"changes": [{"kind": "join", "text": small.NEW_MACHINE}], "seconds": 0.5}
    made = server.get(f"/api/plans/{server.done(f'/api/plans/{plan}/replan', joined)['plan']}").json()
    assert "rome-9" in [machine["name"] for machine in made["cluster"]["machines"]]
    again = {"changes": [{"kind": "lose", "machine": "rome-9"}], "seconds": 0.5}
    third = server.done(f"/api/plans/{made['saved']['id']}/replan", again)["plan"]
    made = server.get(f"/api/plans/{third}").json()
    assert "rome-9" not in [machine["name"] for machine in made["cluster"]["machines"]]


def test_the_timeline_comes_when_it_is_asked_for_and_stays(server, plan):
    made = server.done(f"/api/plans/{plan}/timeline", {})["timeline"]
    assert made == server.get(f"/api/plans/{plan}").json()["timeline"]
    trace = server.get(f"/api/plans/{plan}/trace.json").json()
    assert trace["traceEvents"]


@pytest.mark.parametrize("baselines", ["paper", "all"])
def test_hulk_beside_others(server, plan, baselines):
    made = server.done(f"/api/plans/{plan}/compare", {"baselines": baselines})["comparison"]
    assert made["comparison"]["hulk"] == "comparison/1"
    named = {*made["comparison"]["systems"]} | made["comparison"]["left_out"].keys()
    wanted = PAPER_SYSTEMS if baselines == "paper" else [entry.name for entry in BASELINES.entries()]
    assert named == {"hulk", *wanted}
    assert "a plan made anew" in made["notes"][0]
    assert server.get(f"/api/plans/{plan}").json()["comparison"] == made
    assert server.post(f"/api/plans/{plan}/compare", {"baselines": "some"}).status_code == 422


def test_what_would_help_is_what_the_command_line_says(server, plan, tmp_path):
    made = server.done(f"/api/plans/{plan}/explain", {})["explanation"]
    printed = hulk("explain", *small.write_files(tmp_path), "--json")
    assert made == json.loads(printed.stdout)
    words = server.get(f"/api/plans/{plan}").json()["words"]["jobs"]
    assert words["bert"]["would_help"] == [hint["text"] for hint in made["jobs"]["bert"]["what_if"]]


def test_files_to_take_away(server, plan):
    taken = server.get(f"/api/plans/{plan}/plan.json")
    assert "attachment" in taken.headers["content-disposition"]
    assert taken.json()["jobs"].keys() == {"bert", "second"}
    archive = zipfile.ZipFile(io.BytesIO(server.get(f"/api/plans/{plan}/export.zip?to=torchrun").content))
    assert any(name.endswith(".sh") for name in archive.namelist())
    assert all(not name.startswith("/") and ".." not in name for name in archive.namelist())
    assert server.get(f"/api/plans/{plan}/export.zip?to=abacus").status_code == 422
    assert "<style>" in server.get(f"/api/plans/{plan}/report.html").text


def test_what_is_removed_is_gone(server):
    answer = server.post("/api/plans/load", {**SMALL, "plan": json.loads(dump_plan(small.plan()))}).json()["plan"]
    assert server.client.delete(f"/api/plans/{answer}").status_code == 204
    assert server.get(f"/api/plans/{answer}").status_code == 404


def test_no_request_ends_in_a_fault(server, plan):
    schema = schemathesis.openapi.from_url(f"{server.address}/openapi.json")
    checked = set()
    for operation in schema.get_all_operations():
        made = operation.ok()
        checked.add(f"{made.method.upper()} {made.path}")
        _no_fault(made, plan)
    assert len(checked) > 15


def _no_fault(operation, plan: str) -> None:
    from hypothesis import given

    @settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None)
    @given(case=operation.as_strategy())
    def run(case):
        if "key" in (case.path_parameters or {}) and "tasks" not in case.path:
            case.path_parameters["key"] = plan if len(str(case.path_parameters["key"])) % 2 else "0" * 16
        if case.method.upper() == "DELETE" or case.path.endswith(("compare", "explain", "events")):
            case.path_parameters["key"] = "0" * 16
        answer = case.call(headers={"X-Hulk": "1"}, timeout=60)
        assert answer.status_code < 500, (case.path, answer.text)

    run()


def test_a_question_that_takes_too_long_is_ended_and_the_next_one_answered():
    worker = Worker()
    asked = (Inputs(cluster=Source(name="us4")), Limits())
    with pytest.raises(FaultError, match="too much"):
        worker.ask("check", asked, 0.0)
    assert worker.ask("check", asked, 60.0)["cluster"]["name"] == "us4"
    worker.close()


def test_killed_in_the_middle_of_a_plan_it_loses_none_that_was_kept(tmp_path: Path):
    with Served(tmp_path) as served:
        kept = served.post("/api/plans/load", {**SMALL, "plan": json.loads(dump_plan(small.plan()))}).json()["plan"]
        long = {**SMALL, "options": {"seconds": 100, "evaluations": 10_000_000}}
        task = served.post("/api/plans", long).json()["task"]
        for name, _ in served.events(task):
            if name == "progress":
                break
        served.kill()
        history = History(served.history, most=10)
        assert [entry["id"] for entry in history.plans()] == [kept]
        assert history.document(kept)["cluster"]["name"] == "small"


@pytest.mark.parametrize(("kind", "then"), [("timeline", "cancelled"), ("plan", "queued")])
def test_what_a_closed_page_has_asked_for_by_itself_is_ended(monkeypatch, kind, then):
    monkeypatch.setattr(tasks, "_GONE", 0.0)

    async def nothing(_):
        return None

    async def look_and_leave():
        all_tasks = tasks.Tasks(waiting=3)
        task = all_tasks.add(kind, (), 1.0, nothing)
        events = all_tasks.events(task.id)
        assert await anext(events) == ("queued", {"ahead": 0})
        await events.aclose()
        await asyncio.sleep(0.01)
        return task.state

    assert asyncio.run(look_and_leave()) == then


def test_a_database_of_others_is_left_alone(tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "theirs.sqlite")) as theirs:
        theirs.execute("CREATE TABLE songs (name TEXT)")
        theirs.commit()
    before = (tmp_path / "theirs.sqlite").read_bytes()
    with pytest.raises(InputError, match="not Hulk's"):
        History(tmp_path / "theirs.sqlite", most=3)
    assert (tmp_path / "theirs.sqlite").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["theirs.sqlite"]


@pytest.mark.parametrize("host", ["", "x" * 300, "a b", "[::1]", "..", "127.0.0.1:80", "192.0.2.1"])
def test_an_address_that_is_none_is_refused(host):
    with pytest.raises(InputError):
        listening(host, 0)
