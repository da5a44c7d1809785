"""Who may ask the page what, without a server: the guard, the queue of tasks, the history."""

from __future__ import annotations

import asyncio
import sqlite3

import httpx
import pytest

from hulk.cli.serve import token_for
from hulk.errors import InputError
from hulk.serve.guard import COOKIE, Guard
from hulk.serve.history import History, NoSuchPlanError
from hulk.serve.limits import Limits
from hulk.serve.messages import Change, Recipe, Source
from hulk.serve.pool import BusyError
from hulk.serve.scenes import cluster_of, document_of, jobs_of
from hulk.serve.tasks import Tasks

TOKEN = "a-token-of-some-length"
LIMITS = Limits(body=1000, machines=10)


async def echo(scope, receive, send):
    message = await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": message["body"]})


def ask(method: str, path: str = "/", *, token: str | None = None, host: str = "localhost:1", **options):
    async def go() -> httpx.Response:
        transport = httpx.ASGITransport(Guard(echo, LIMITS, token))
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
            return await client.request(method, path, **options)

    return asyncio.run(go())


def test_loopback_needs_no_token_and_answers_to_no_other_name():
    assert ask("GET").status_code == 200
    assert ask("GET", host="[::1]:8047").status_code == 200
    for host in ("evil.example", "evil.example:8047", "localhost.evil.example", "127.0.0.1.evil.example:80"):
        assert ask("GET", host=host).status_code == 403


def test_elsewhere_a_token_is_needed_and_leaves_the_address_at_once():
    far = {"token": TOKEN, "host": "planner.example"}
    assert ask("GET", **far).status_code == 401
    assert ask("GET", "/?token=wrong", **far).status_code == 401
    assert ask("GET", f"/api/plans?token={TOKEN}", **far).status_code == 401  # only where a person comes in
    first = ask("GET", f"/?token={TOKEN}", **far)
    assert (first.status_code, first.headers["location"]) == (303, "/")
    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    for headers in ({"Cookie": f"{COOKIE}={TOKEN}"}, {"Authorization": f"Bearer {TOKEN}"}):
        assert ask("GET", headers=headers, **far).status_code == 200
    for headers in ({"Cookie": f"{COOKIE}=no"}, {"Authorization": "Bearer"}, {"Cookie": "\x01=;;"}, {"X-Hulk": "1"}):
        assert ask("GET", headers=headers, **far).status_code == 401


def test_other_pages_cannot_send_anything():
    mine = {"X-Hulk": "1"}
    assert ask("POST", headers=mine).status_code == 200
    assert ask("POST", headers=mine | {"Origin": "http://localhost:1"}).status_code == 200
    for headers in (
        {},
        mine | {"Origin": "http://evil.example"},
        mine | {"Origin": "null"},
        mine | {"Origin": "http://localhost:2"},
        mine | {"Sec-Fetch-Site": "cross-site"},
        mine | {"Sec-Fetch-Site": "same-site"},
    ):
        for method in ("POST", "DELETE", "PUT"):
            assert ask(method, headers=headers).status_code == 403


def test_what_is_too_large_is_refused_whether_its_size_is_told_or_not():
    async def parts():
        for _ in range(30):
            yield b"x" * 100

    assert ask("POST", headers={"X-Hulk": "1"}, content=b"x" * 1000).status_code == 200
    assert ask("POST", headers={"X-Hulk": "1"}, content=b"x" * 1001).status_code == 413
    assert ask("POST", headers={"X-Hulk": "1"}, content=parts()).status_code == 413


def test_every_answer_has_a_strict_policy():
    for answer in (ask("GET"), ask("POST"), ask("GET", host="evil.example")):
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_token_is_made_wherever_others_can_reach_the_page(monkeypatch):
    monkeypatch.delenv("HULK_TOKEN", raising=False)
    assert token_for("127.0.0.1") is None
    made = token_for("0.0.0.0")
    assert made is not None
    assert len(made) >= 32
    assert made != token_for("0.0.0.0")
    monkeypatch.setenv("HULK_TOKEN", "short")
    with pytest.raises(InputError):
        token_for("127.0.0.1")


def test_only_so_many_tasks_wait():
    async def go() -> None:
        tasks = Tasks(waiting=2)

        async def nothing(_: object) -> None: ...

        first = tasks.add("plan", (), 1.0, nothing)
        assert tasks.add("plan", (), 1.0, nothing).ahead == 1
        with pytest.raises(BusyError):
            tasks.add("timeline", (), 1.0, nothing)
        tasks.cancel(first.id)  # leaves room
        third = tasks.add("timeline", (), 1.0, nothing)
        assert third.ahead == 0  # another lane
        assert [event async for event in tasks.events(first.id)] == [("cancelled", {})]

    asyncio.run(go())


def entry(title: str = "a") -> dict[str, object]:
    document = {"price": {"jobs": {}}, "words": {"jobs": {"a": {"would_help": None}}}, "timeline": None}
    return {"how": "planned", "title": title, "cluster": "small", "steps": {"a": 1.5}, "recipe": {}, "plan": {},
            "document": document}  # fmt: skip


def test_the_history_keeps_what_it_was_given(tmp_path):
    history = History(tmp_path / "h.sqlite", most=2)
    first = history.add(entry(), None)
    second = history.add(entry("b"), first)
    history.extend(first, "explanation", {"jobs": {"a": {"what_if": [{"text": "more of it"}]}}})
    history.extend(first, "timeline", {"a": 1})
    history.close()
    history = History(tmp_path / "h.sqlite", most=2)
    assert [plan["id"] for plan in history.plans()] == [second, first]
    assert history.document(second)["saved"]["parent"] == first
    found = history.document(first)
    assert found["timeline"] == {"a": 1}
    assert found["words"]["jobs"]["a"]["would_help"] == ["more of it"]
    with pytest.raises(InputError, match="holds"):
        history.add(entry(), None)
    history.remove(first)
    with pytest.raises(NoSuchPlanError):
        history.document(first)
    assert history.document(second)["price"] == {"jobs": {}}


def test_a_history_that_is_none_is_an_error_for_people(tmp_path):
    (tmp_path / "text").write_text("not a database at all, but long enough to look at" * 20)
    with pytest.raises(InputError, match="cannot keep plans"):
        History(tmp_path / "text", most=1)
    newer = tmp_path / "newer.sqlite"
    with sqlite3.connect(newer) as other:
        other.execute("PRAGMA user_version=99")
    with pytest.raises(InputError, match="another version"):
        History(newer, most=1)


def recipe(cluster: str, jobs: str = "jobs: []") -> Recipe:
    return Recipe(cluster=Source(text=cluster), jobs=Source(text=jobs))


def test_no_text_reads_a_path(tmp_path):
    (tmp_path / "secret.yaml").write_text("machines: []")
    for path in (str(tmp_path / "secret.yaml"), "../hulk47.yaml", "./hulk47", "/etc/passwd"):
        with pytest.raises(InputError, match="cannot extend"):
            cluster_of(recipe(f"extends: {path}"), LIMITS)
        with pytest.raises(InputError):
            document_of(Source(name=path), "clusters")
    for model in ("/etc/passwd", "./config.json", "config.json", "..\\config"):
        with pytest.raises(InputError, match="path"):
            jobs_of(Source(text=f"jobs: [{{name: a, model: '{model}', global_batch: 1}}]"))


def test_too_many_machines_are_counted_before_they_are_made():
    text = "regions: {r: {}}\nmachines: [{name: m, count: 11, region: r, gpu: h100, gpus: 8}]"
    with pytest.raises(InputError, match="11 machines"):
        cluster_of(recipe(text), LIMITS)
    assert len(cluster_of(recipe(text.replace("11", "10")), LIMITS).machines) == 10


@pytest.mark.parametrize("wrong", [{"kind": "lose"}, {"kind": "link", "a": "x", "b": "y"}, {"kind": "join"}])
def test_a_change_without_what_it_needs_is_refused(wrong):
    with pytest.raises(ValueError, match=r"needs|one of the two"):
        Change(**wrong)
