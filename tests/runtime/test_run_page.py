"""`hulk run --page`: what a run measures, in the browser while it runs."""

from __future__ import annotations

import json

import httpx
from command import TWO, arguments, finish, start


def test_a_run_is_watched_until_it_ends(tmp_path):
    run = start(arguments(TWO, tmp_path, "--steps", "3", "--page"))
    address = next(line.split()[-1] for line in run.stdout if line.startswith("the page: "))
    with httpx.Client(base_url=address, timeout=120) as client:
        first = client.get("/api/live").json()
        assert first["document"]["cut"].keys() == {job["job"] for job in first["jobs"]}
        with client.stream("GET", "/api/live/events") as answer:
            told = [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: ")]
    code, _, errors = finish(run)
    assert code == 0, errors
    last = told[-1]
    assert last["state"] == "done"
    [job] = last["jobs"]
    assert [step for step, _ in job["loss"]] == [step for step, _ in job["seconds"]] == [1, 2, 3]
    assert len(job["stages"]) == 2
    assert all(stage["busy"] > 0 for stage in job["stages"])
    assert last["drawn"] == 1
