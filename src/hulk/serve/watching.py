"""Running jobs as the page shows them: what their steps report, put together as it comes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from hulk.runtime.progress import StepReport
from hulk.view.build import plain_json
from hulk.view.document import Document

_MOST_POINTS = 4000  # of a curve; older ones go


class LiveRun:
    """What is known of a run, told by the thread that follows it and asked for by those that serve the page."""

    def __init__(self, jobs: Sequence[str], steps: int, document: Document | None) -> None:
        self._lock, self._number = threading.Lock(), 0
        self._jobs = {job: _JobRun() for job in jobs}
        self._told: dict[str, Any] = {
            "steps": steps, "state": "starting", "message": "", "drawn": 0, "document": plain_json(document),
        }  # fmt: skip

    def tell(self, news: StepReport | str) -> None:
        """A step's report, or other news in words."""
        with self._lock:
            if isinstance(news, str):
                self._told["message"] = news
            else:
                self._jobs[news.job].tell(news)
                self._told["state"] = "running"
            self._number += 1

    def draw(self, document: Document) -> None:
        """More is known of the plan than at the start."""
        with self._lock:
            self._told |= {"document": plain_json(document), "drawn": self._told["drawn"] + 1}
            self._number += 1

    def end(self, state: str, message: str) -> None:
        """The run is over: "done" or "failed"."""
        with self._lock:
            self._told |= {"state": state, "message": message}
            self._number += 1

    def __call__(self) -> tuple[int, dict[str, Any]]:
        """How much was told, and all of it (`hulk.serve.live.LiveSource`)."""
        with self._lock:
            return self._number, {
                **self._told,
                "jobs": [{"job": name, **job.told()} for name, job in self._jobs.items()],
            }


class _JobRun:
    """What is known of one job. Numbers that JSON has no word for are null: a loss that is not a number is what whoever
    watches must see."""

    def __init__(self) -> None:
        self._loss: deque[tuple[int, float | None]] = deque(maxlen=_MOST_POINTS)
        self._seconds: deque[tuple[int, float | None]] = deque(maxlen=_MOST_POINTS)
        self._last: dict[str, Any] = {"step": 0, "predicted": None, "stages": []}

    def told(self) -> dict[str, Any]:
        return {**self._last, "loss": list(self._loss), "seconds": list(self._seconds)}

    def tell(self, report: StepReport) -> None:
        if report.loss is not None:
            self._loss.append((report.step, plain_json(report.loss)))
        self._seconds.append((report.step, plain_json(report.seconds)))
        whole = report.seconds or 1.0
        last = {
            "step": report.step,
            "predicted": report.predicted,
            "stages": [
                {
                    "pipeline": stage.pipeline,
                    "stage": stage.stage,
                    "machine": stage.machine,
                    "busy": stage.busy / whole,
                    "waiting": stage.waiting / whole,
                    "predicted_busy": None
                    if stage.predicted_busy is None or not report.predicted
                    else stage.predicted_busy / report.predicted,
                }
                for stage in report.stages
            ],
        }
        self._last = plain_json(last)
