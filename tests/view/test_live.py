"""A running job on the page."""

from __future__ import annotations

import json

import httpx
import pytest

from hulk.runtime.progress import StageStep, StepReport
from hulk.serve.app import make_live_app
from hulk.serve.background import Background
from hulk.serve.watching import LiveRun


def report(step: int, *, job: str = "bert", loss: float | None = None) -> StepReport:
    stages = tuple(StageStep(0, n, f"rome-{n}", 0.5, 0.25, 0.1, 0.1, None, None, 1e9, 0.8) for n in range(2))
    return StepReport(job, step, 2.0 / step if loss is None else loss, 1.0, 2.0, 1000.0, stages)


def test_what_a_run_tells_is_on_the_page_until_it_ends():
    run = LiveRun(["bert", "another"], 3, None)
    with Background(make_live_app(run), "127.0.0.1", 0) as page, httpx.Client(base_url=page.address) as client:
        assert '{"mode":"live"}' in client.get("/").text
        assert client.get("/api/live").json()["state"] == "starting"
        run.tell("all workers are ready")
        with client.stream("GET", "/api/live/events") as answer:
            told = (json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: "))
            assert next(told)["message"] == "all workers are ready"
            for step in (1, 2, 3):
                run.tell(report(step))
            run.tell(report(1, job="another"))
            run.draw({"hulk": "view/1"})
            run.end("done", "all steps are done")
            last = list(told)[-1]
    assert last["state"] == "done"
    assert last["drawn"] == 1  # and whoever looks asks for the document again
    first, other = last["jobs"]
    assert first["loss"] == [[1, 2.0], [2, 1.0], [3, 2.0 / 3]]
    assert (first["predicted"], first["step"]) == (2.0, 3)
    assert first["stages"][1] == {
        "pipeline": 0, "stage": 1, "machine": "rome-1", "busy": 0.5, "waiting": 0.25, "predicted_busy": 0.4,
    }  # fmt: skip
    assert (other["job"], other["loss"]) == ("another", [[1, 2.0]])


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_not_a_number_is_told_as_null_and_the_page_goes_on(loss):
    run = LiveRun(["bert"], 3, None)
    with Background(make_live_app(run), "127.0.0.1", 0) as page, httpx.Client(base_url=page.address) as client:
        run.tell(report(1))
        run.tell(report(2, loss=loss))
        assert client.get("/api/live").json()["jobs"][0]["loss"] == [[1, 2.0], [2, None]]
        with client.stream("GET", "/api/live/events") as answer:
            told = (json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: "))
            assert next(told)["jobs"][0]["loss"] == [[1, 2.0], [2, None]]
            run.tell(report(3))
            run.end("done", "all steps are done")
            assert list(told)[-1]["jobs"][0]["loss"] == [[1, 2.0], [2, None], [3, 2.0 / 3]]
