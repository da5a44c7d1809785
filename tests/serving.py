"""`hulk serve` in a process of its own, and a client that asks it as the page does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from warm import COMMAND

ROOT = Path(__file__).parent.parent
EXAMPLE = json.loads((ROOT / "examples" / "hulk47.plan.json").read_text(encoding="utf-8"))
HULK47 = {"cluster": {"name": "hulk47"}, "jobs": {"name": "paper4"}}
LIMIT = 120.0


class Served:
    """A server with a history of its own, from `with` to its end. `address` ends without a slash."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.history = folder / "history.sqlite"
        self._arguments = ("serve", "--port", "0", "--history", str(self.history), *arguments)

    def __enter__(self) -> Served:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            [*COMMAND, *self._arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        )
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line.startswith("the page: http"), line
        self.address = line.split()[-1].rstrip("/")
        self.client = httpx.Client(base_url=self.address, headers={"X-Hulk": "1"}, timeout=LIMIT)
        return self

    def kill(self) -> None:
        """As hard as it gets."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(LIMIT)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.client.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(20.0)
            except subprocess.TimeoutExpired:
                self.kill()
        if self.process.stdout:
            self.process.stdout.close()

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.client.get(path, **options)

    def post(self, path: str, body: object) -> httpx.Response:
        return self.client.post(path, json=body)

    def loaded(self) -> str:
        """The bundled example as a kept plan; its id."""
        answer = self.post("/api/plans/load", {**HULK47, "plan": EXAMPLE})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["plan"])

    def events(self, task: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """What happens to a task, until it is over."""
        name = ""
        with self.client.stream("GET", f"/api/tasks/{task}/events") as answer:
            for line in answer.iter_lines():
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    yield name, json.loads(line.removeprefix("data: "))

    def done(self, path: str, body: object) -> dict[str, Any]:
        """The result of a task."""
        started = self.post(path, body)
        assert started.status_code == 202, started.text
        *_, (name, data) = self.events(started.json()["task"])
        assert name == "done", data
        return data
