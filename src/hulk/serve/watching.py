"""A running job as the page shows it: what its steps report, put together as it comes."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from hulk.runtime.progress import StepReport
from hulk.view.document import Document

_MOST_POINTS = 4000  # of a curve; older ones go


class LiveRun:
    """What is known of a run, told by the thread that follows it and asked for by those that serve the page. Of several
    jobs, the one named is shown; what the others report is left out."""

    def __init__(self, job: str, steps: int, document: Document | None) -> None:
        self._lock, self._number = threading.Lock(), 0
        self._loss: deque[tuple[int, float]] = deque(maxlen=_MOST_POINTS)
        self._seconds: deque[tuple[int, float]] = deque(maxlen=_MOST_POINTS)
        self._told: dict[str, Any] = {
            "job": job, "step": 0, "steps": steps, "state": "starting", "message": "", "predicted": None, "stages": [],
            "document": document,
        }  # fmt: skip

    def tell(self, news: StepReport | str) -> None:
        """A step's report, or other news in words."""
        with self._lock:
            if isinstance(news, str):
                self._told["message"] = news
            elif news.job == self._told["job"]:
                self._step(news)
            else:
                return
            self._number += 1

    def end(self, state: str, message: str) -> None:
        """The run is over: "done" or "failed"."""
        with self._lock:
            self._told |= {"state": state, "message": message}
            self._number += 1

    def __call__(self) -> tuple[int, dict[str, Any]]:
        """How much was told, and all of it (`hulk.serve.live.LiveSource`)."""
        with self._lock:
            curves = {"loss": list(self._loss), "seconds": list(self._seconds)}
            return self._number, {**self._told, **curves}

    def _step(self, report: StepReport) -> None:
        if report.loss is not None:
            self._loss.append((report.step, report.loss))
        self._seconds.append((report.step, report.seconds))
        whole = report.seconds or 1.0
        self._told |= {
            "step": report.step,
            "state": "running",
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
