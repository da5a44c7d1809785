"""Work side by side in processes that inherit what they need, so that nothing but the answers is sent."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import TypeVar

T = TypeVar("T")


def _answer(task: Callable[[], object], out: Connection) -> None:
    """In the child: do it, send the answer. What the parent tells of its own work, the child keeps to itself."""
    logging.disable()
    out.send(task())
    out.close()


def _never() -> bool:
    return False


def side_by_side(
    own: Callable[[], T], others: Sequence[Callable[[], T]], *, stop: Callable[[], bool] = _never
) -> list[T]:
    """The answers of `own`, done here, and of the others, each in a process of its own. Where `stop` says so after the
    own one is done, the others are ended and left out; so is one that died. Without fork, only `own` is done."""
    if not others or not hasattr(os, "fork"):
        return [own()]
    context = get_context("fork")
    running = []
    for task in others:
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_answer, args=(task, sender), daemon=True)
        process.start()
        sender.close()
        running.append((process, receiver))
    answers = []
    try:
        answers.append(own())
        for _, receiver in running:
            if stop():
                break
            try:
                answers.append(receiver.recv())
            except EOFError:
                continue
    finally:
        for process, receiver in running:
            receiver.close()
            process.terminate()
            process.join()
    return answers
