"""What takes longer than a moment: each task waits for its turn, then has a process of its own, which tells how far it
is. Tasks know nothing of each other, and a cancelled one ends at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pickle
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from hulk.errors import HulkError
from hulk.serve.messages import TaskState
from hulk.serve.pool import BusyError, FaultError, answered, context, follow_parent, problem_of, result_of

_KEPT = 256  # tasks that are over and can still be asked about
_KEPT_BYTES = 16 * 2**20  # of their results, as JSON; the last one is kept however large it is
_WAITING_BYTES = 256 * 2**20  # of what all tasks that wait were given
_NICE = 10  # long work makes way for what people wait for
_GRACE = 90.0  # seconds beyond its own limit after which a task is ended
_ALIVE = 10.0  # seconds between signs of life on a connection where nothing happens
_GONE = 6.0  # seconds in which a page connects anew; one that does not is closed
_LANES = {"replan": "short", "timeline": "short", "trace": "long", "plan": "long", "explain": "long", "compare": "long"}
"""What people wait for at once does not stand in line behind long searches."""
_UNASKED = ("timeline", "explain")
"""What a page asks for by itself: of no use when it is closed."""

Event = tuple[str, dict[str, Any]]
Then = Callable[[Any], Awaitable[dict[str, Any] | None]]
"""What to do in the server with what a task has made; its result, which the page is told."""


class NoSuchTaskError(HulkError):
    """A task that is not known here."""


@dataclass
class Task:
    """One task: what it is to do, where it stands, and who wants to hear of it."""

    id: str
    kind: str
    arguments: tuple[Any, ...]
    seconds: float
    then: Then
    state: str = "queued"
    ahead: int = 0
    progress: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    kill: Callable[[], None] | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    listeners: int = 0
    size: int = 0
    """Bytes of what it was given; when it is over, of its result."""

    @property
    def over(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.state in ("done", "failed", "cancelled")

    def tell(self, **what: Any) -> None:
        """Change it, and wake whoever listens."""
        for name, value in what.items():
            setattr(self, name, value)
        if self.over:
            self.arguments, self.size = (), len(json.dumps(self.result))
        self.changed.set()
        self.changed = asyncio.Event()

    def view(self) -> TaskState:
        """Where it stands."""
        told = {name: getattr(self, name) for name in TaskState.model_fields}
        return TaskState(**told)

    def event(self) -> Event:
        """The same as an event."""
        if self.state == "queued":
            return "queued", {"ahead": self.ahead}
        if self.state == "running":
            return ("running", {}) if self.progress is None else ("progress", self.progress)
        if self.state == "done":
            return "done", self.result or {}
        return ("cancelled", {}) if self.state == "cancelled" else ("failed", {"error": self.error})


class Tasks:
    """All tasks; so many may wait."""

    def __init__(self, *, waiting: int) -> None:
        self._most = waiting
        self._tasks: dict[str, Task] = {}
        self._queues: dict[str, asyncio.Queue[Task]] = {lane: asyncio.Queue() for lane in set(_LANES.values())}
        self._runners: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to work."""
        self._runners = [asyncio.create_task(self._run(queue)) for queue in self._queues.values()]

    async def close(self) -> None:
        """End everything."""
        for task in self._tasks.values():
            if task.kill is not None and not task.over:
                task.kill()
        for runner in self._runners:
            runner.cancel()
        await asyncio.gather(*self._runners, return_exceptions=True)

    def add(self, kind: str, arguments: tuple[Any, ...], seconds: float, then: Then) -> Task:
        """A new task that may take so many seconds; BusyError where too many wait already."""
        if sum(task.state == "queued" for task in self._tasks.values()) >= self._most:
            raise BusyError(f"{self._most} tasks are waiting for their turn already; try again later")
        size = len(pickle.dumps(arguments))
        if size + sum(task.size for task in self._tasks.values() if task.state == "queued") > _WAITING_BYTES:
            raise BusyError("what waits for its turn fills the memory that there is for it; try again later")
        self._forget()
        task = Task(secrets.token_hex(8), kind, arguments, seconds, then, size=size)
        self._tasks[task.id] = task
        self._queues[_LANES[kind]].put_nowait(task)
        self._count()
        return task

    def _forget(self) -> None:
        """Of the tasks that are over, keep those that were added last."""
        kept = size = 0
        for key, task in reversed(list(self._tasks.items())):
            if task.over:
                kept, size = kept + 1, size + task.size
                if kept > _KEPT or (kept > 1 and size > _KEPT_BYTES):
                    del self._tasks[key]

    def get(self, key: str) -> Task:
        """The task of that id."""
        if key not in self._tasks:
            raise NoSuchTaskError(f"no task {key[:40]!r}")
        return self._tasks[key]

    def cancel(self, key: str) -> None:
        """End a task, whether it waits or runs."""
        task = self.get(key)
        if task.over:
            return
        kill = task.kill
        task.tell(state="cancelled")
        if kill is not None:
            kill()
        self._count()

    async def events(self, key: str) -> AsyncIterator[Event | None]:
        """What happens to a task, where it stands first; None where nothing happens for a while."""
        task, last = self.get(key), None
        task.listeners += 1
        try:
            while True:
                changed, now = task.changed, task.event()
                if now != last:
                    yield now
                    last = now
                if task.over:
                    return
                try:
                    await asyncio.wait_for(changed.wait(), _ALIVE)
                except TimeoutError:
                    yield None
        finally:
            task.listeners -= 1
            if task.kind in _UNASKED and not task.over:
                asyncio.get_running_loop().call_later(_GONE, self._leave, task)

    def _leave(self, task: Task) -> None:
        """End what nobody listens to any more."""
        if task.listeners == 0 and task.id in self._tasks:
            self.cancel(task.id)

    def _count(self) -> None:
        """How many wait before each."""
        before = dict.fromkeys(self._queues, 0)
        for task in self._tasks.values():
            if not task.over:
                lane = _LANES[task.kind]
                if task.state == "queued" and task.ahead != before[lane]:
                    task.tell(ahead=before[lane])
                before[lane] += 1

    async def _run(self, queue: asyncio.Queue[Task]) -> None:
        while True:
            task = await queue.get()
            if task.state != "queued":
                continue
            task.tell(state="running", ahead=0)
            try:
                made = await self._played(task)
                if not task.over:  # what was cancelled in the last moment is not kept
                    result = await task.then(made)
                    task.tell(state="done", result=result or {})
            except HulkError as error:
                if not task.over:
                    task.tell(state="failed", error=problem_of(error).model_dump())
            except Exception as error:  # whatever happens to one task, the next one has its turn
                if not task.over:
                    task.tell(state="failed", error={"message": f"a fault in hulk itself: {type(error).__name__}"})
            finally:
                task.kill = None
                self._forget()
                self._count()

    async def _played(self, task: Task) -> Any:
        """A task's work in a process of its own."""
        made = context()
        here, there = made.Pipe(duplex=False)
        life, own = made.Pipe(duplex=False)
        process = made.Process(target=_do, args=(task.kind, task.arguments, there, life))
        loop, begin = asyncio.get_running_loop(), asyncio.get_running_loop().time()
        try:
            await asyncio.to_thread(process.start)
            there.close()
            life.close()
            task.kill = lambda: _end(process.pid)
            if task.over:  # cancelled while it started
                _end(process.pid)
            while True:
                left = task.seconds + _GRACE - (loop.time() - begin)
                if not await asyncio.to_thread(here.poll, max(left, 0.0)):
                    raise FaultError(f"it took more than {task.seconds + _GRACE:g} s, and was ended")
                kind, value = await asyncio.to_thread(here.recv)
                if kind != "progress":
                    return result_of(kind, value)
                task.tell(progress=value)
        except (EOFError, OSError):
            raise FaultError("the process that worked on this ended; there may not be enough memory for it") from None
        finally:
            own.close()
            here.close()
            if process.is_alive():
                _end(process.pid)
            await asyncio.to_thread(process.join)


def _end(pid: int | None) -> None:
    """End a task's process and all that it has started: it leads a group of its own."""
    if pid is not None:
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(pid, 9)


def _do(kind: str, arguments: tuple[Any, ...], out: Connection, life: Connection) -> None:
    """In the task's own process."""
    from hulk.serve.work import LONG

    follow_parent(life)
    if _LANES[kind] == "long":
        os.nice(_NICE)

    def say(seconds: float, text: str) -> None:
        out.send(("progress", {"seconds": seconds, "text": text}))

    out.send(answered(lambda: LONG[kind](*arguments, say)))
    out.close()
