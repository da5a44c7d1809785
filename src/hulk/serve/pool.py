"""Processes that answer. Quick questions go to a few that stay, one question at a time each; a long one has a process
of its own. Whatever hangs is ended, and whoever asked is told; the server goes on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from hulk.errors import HulkError, InputError
from hulk.serve.messages import Problem

_log = logging.getLogger("hulk.serve")


class BusyError(HulkError):
    """Too many others have asked; later there may be room."""


class RefusedError(HulkError):
    """A worker's answer to a question that is wrong, as a person may read it."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class FaultError(HulkError):
    """Hulk itself failed, or took too long."""


def context() -> Any:
    """How processes are made: forked from one that has everything loaded and no threads."""
    made = get_context("forkserver")
    made.set_forkserver_preload(["hulk.serve.warm"])
    return made


def problem_of(error: HulkError) -> Problem:
    """An error as messages have it."""
    if isinstance(error, RefusedError):
        return error.problem
    if isinstance(error, InputError):
        return Problem(message=error.message, where=error.where, hint=error.hint)
    return Problem(message=str(error))


def answered(work: Callable[[], Any]) -> tuple[str, Any]:
    """What came of some work: ("done", value), ("refused", problem) or ("fault", words)."""
    try:
        return "done", work()
    except HulkError as error:
        return "refused", problem_of(error).model_dump()
    except MemoryError:
        return "fault", "there is not enough memory for this"
    except RecursionError:
        return "refused", Problem(message="the input is nested too deeply").model_dump()
    except Exception as error:
        _log.exception("a worker failed")
        return "fault", f"a fault in hulk itself: {type(error).__name__}"


def result_of(kind: str, value: Any) -> Any:
    """The value of an answer; the error that it stands for otherwise."""
    if kind == "done":
        return value
    raise RefusedError(Problem(**value)) if kind == "refused" else FaultError(value)


def follow_parent(connection: Connection) -> None:
    """End this process, and all it has started, as soon as the server is gone or says so."""

    def wait() -> None:
        with contextlib.suppress(EOFError, OSError):
            connection.recv()
        os.killpg(os.getpgid(0), signal.SIGKILL)

    os.setsid()
    threading.Thread(target=wait, daemon=True).start()


def _answer_questions(connection: Connection, life: Connection) -> None:
    """In a worker that stays."""
    from hulk.serve.work import QUICK

    follow_parent(life)
    while True:
        try:
            name, arguments = connection.recv()
        except EOFError:
            return
        connection.send(answered(lambda name=name, arguments=arguments: QUICK[name](*arguments)))  # type: ignore[misc]


class Worker:
    """A process that stays and answers one question at a time."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        made = context()
        self._here, there = made.Pipe()
        life, self._life = made.Pipe(duplex=False)
        self._process = made.Process(target=_answer_questions, args=(there, life), daemon=True)
        self._process.start()
        there.close()
        life.close()

    def ask(self, name: str, arguments: tuple[Any, ...], seconds: float) -> Any:
        """The answer; FaultError where there is none within so many seconds, and then a new process takes over."""
        try:
            self._here.send((name, arguments))
            if not self._here.poll(seconds):
                raise FaultError(f"no answer within {seconds:g} s: the request asks for too much at once")
            kind, value = self._here.recv()
        except FaultError:
            self._again()
            raise
        except (EOFError, OSError):
            self._again()
            raise FaultError("the process that worked on this ended; there may not be enough memory for it") from None
        return result_of(kind, value)

    def _again(self) -> None:
        self.close()
        self._start()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()
        self._here.close()
        self._life.close()


class Pool:
    """Some workers for quick questions. So many may wait for one; others are told that the server is busy."""

    def __init__(self, count: int, *, waiting: int, patience: float) -> None:
        self._count, self._most, self._patience = count, waiting, patience
        self._free: asyncio.Queue[Worker] = asyncio.Queue()
        self._waiting = 0
        self._all: list[Worker] = []

    async def start(self) -> None:
        """Start the workers; the first question waits until they have loaded everything."""
        for _ in range(self._count):
            worker = await asyncio.to_thread(Worker)
            self._all.append(worker)
            self._free.put_nowait(worker)

    async def ask(self, name: str, *arguments: Any) -> Any:
        """The answer of the first worker that is free."""
        if self._waiting >= self._most:
            raise BusyError("too many questions are waiting for an answer")
        self._waiting += 1
        try:
            worker = await asyncio.wait_for(self._free.get(), self._patience)
        except TimeoutError:
            raise BusyError("all workers are busy") from None
        finally:
            self._waiting -= 1
        asked = asyncio.ensure_future(asyncio.to_thread(worker.ask, name, arguments, self._patience))
        # Whoever asked may go away: the worker is free when it has answered, not before.
        asked.add_done_callback(lambda _: self._free.put_nowait(worker))
        return await asyncio.shield(asked)

    def close(self) -> None:
        """End all workers."""
        for worker in self._all:
            worker.close()
