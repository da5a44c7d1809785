"""How a run ends that somebody or something ends early: told in one line, with the way on, and nothing left to run."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from hulk.runtime.progress import Progress
from hulk.runtime.settings import Settings
from hulk.runtime.watch import RunError


class InterruptedRunError(RunError):
    """Somebody ended a run: Ctrl-C, or SIGTERM."""

    exit_code = 130


@contextmanager
def told_early(progress: Progress, own: Callable[[], Mapping[str, Settings]]) -> Iterator[None]:
    """Jobs run in here. What ends them early, Ctrl-C, SIGTERM or a RunError, is told with how they can go on. `own`:
    the settings of each, as they are then."""
    previous = signal.signal(signal.SIGTERM, _stop)
    try:
        yield
    except KeyboardInterrupt:
        steps = [f"step {step} of {name}" for name in own() if (step := progress.step(name))]
        words = f"interrupted after {', '.join(steps)}" if steps else "interrupted before the first step was done"
        raise InterruptedRunError(f"{words}; {_way_on(progress, own())}") from None
    except RunError as error:
        # One line, whatever happened: what, where, and how to go on.
        error.args = (f"{error}; {_way_on(progress, own())}",)
        raise
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Who presses Ctrl-C twice must not be left with processes that nobody ends."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _way_on(progress: Progress, own: Mapping[str, Settings]) -> str:
    """How a run that ended early can go on."""
    if all(one.checkpoints is None for one in own.values()):
        return "nothing was saved, since there was no --checkpoint-dir"
    found = [progress.saved[name] for name in own if name in progress.saved]
    if not found:
        return "no checkpoint was written yet"
    return f"the last checkpoint is {', '.join(found)}: --resume goes on from it"


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    """SIGTERM means the same as Ctrl-C."""
    del number, frame
    raise KeyboardInterrupt
