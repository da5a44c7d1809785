"""Watching the workers of a run: their events as they come, and the one reason when something goes wrong. Works without
torch."""

from __future__ import annotations

import contextlib
import json
import queue
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from hulk.errors import HulkError
from hulk.runtime.launch import Worker
from hulk.runtime.report import PHASES, READY
from hulk.units import format_size

START_SILENCE = 20.0
"""Seconds without a sign of life that a worker is given before it is ready, where `--timeout` is less: a busy machine
starts programs slowly, and libraries may hold their worker's tongue while they load."""
START_LIMIT = 180.0
"""Seconds workers may take until all are ready: they import libraries and build their stage."""
SETTLE = 1.0
"""Seconds to wait for others' last words after the first sign of trouble: the first to fail may be heard last."""

SILENCE = 6.0
"""Seconds without a sign of life that tell a worker that stands still from one that fails for want of it; workers give
one every second."""

_OTHERS = 2 * 2**30
"""Bytes of a GPU outside of a rank's tensors that its own context and libraries do not explain."""
_CRASHES = (signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV)
"""Signals that a program's own mistakes end it with: its log then says where each of its threads was."""

Event = dict[str, Any]
Listener = Callable[[Worker, Event], None]


class RunError(HulkError):
    """A run that ended before its last step."""


class PortTakenError(RunError):
    """The port on which the ranks were to meet is in use."""


@dataclass
class _State:
    """What is known of one worker."""

    worker: Worker
    step: int = 0
    phase: int = -1
    done: bool = False
    heard: float = field(default_factory=time.monotonic)
    last_words: Event | None = None
    closed: bool = False
    parts: str = ""

    @property
    def ready(self) -> bool:
        """Whether it can begin its first step."""
        return self.phase >= READY

    @property
    def place(self) -> str:
        """The worker in words."""
        seat = self.worker.seat
        return f"{seat.machine} (rank {seat.rank}, GPU {seat.gpu}, stage {seat.pipeline + 1}.{seat.stage + 1})"

    @property
    def when(self) -> str:
        """The step it is in, in words."""
        return f"in step {self.step}" if self.step else "before the first step"

    @property
    def doing(self) -> str:
        """How far it is with getting ready, in words."""
        return PHASES[self.phase] if self.phase >= 0 else "has not said a word yet"

    def patience(self, timeout: float) -> float:
        """Seconds it may be silent."""
        return timeout if self.ready else max(timeout, START_SILENCE)


def watch(workers: Sequence[Worker], listener: Listener, *, timeout: float) -> None:
    """Pass on the workers' events until all are done. RunError with machine and step where one fails, or is silent for
    `timeout` seconds."""
    events: queue.Queue[tuple[int, bytes | None]] = queue.Queue()
    states = [_State(worker) for worker in workers]
    for index, worker in enumerate(workers):
        threading.Thread(target=_read, args=(index, worker, events), daemon=True).start()
    start = time.monotonic()
    trouble: float | None = None
    while not all(state.done and state.closed for state in states):
        with contextlib.suppress(queue.Empty):
            index, line = events.get(timeout=0.2)
            _take(states[index], line, listener)
        now = time.monotonic()
        if trouble is None and _in_trouble(states, now, start, timeout):
            trouble = now
        if trouble is not None and now - trouble > SETTLE and events.empty():
            kind = PortTakenError if _any_kind(states, "port") else RunError
            error = kind(explain(states, timeout=timeout))
            error.exit_code = _exit_code(states)
            raise error


def _read(index: int, worker: Worker, events: queue.Queue[tuple[int, bytes | None]]) -> None:
    for line in worker.output:
        events.put((index, line))
    events.put((index, None))


def _take(state: _State, line: bytes | None, listener: Listener) -> None:
    state.heard = time.monotonic()
    if line is None:
        state.closed = True
        return
    event = _event(state, line)
    if event is None:
        return
    state.step = int(event.get("step", state.step))
    kind = event.get("event")
    if kind == "phase":
        state.phase = max(state.phase, int(event["phase"]))
    state.done = state.done or kind == "done"
    if kind in ("error", "cut off", "stopped"):
        state.last_words = event
    listener(state.worker, event)


def _event(state: _State, line: bytes) -> Event | None:
    """What a line says; None where it is not a worker's, or a part of one that goes on."""
    try:
        event = json.loads(line)
        if isinstance(event, dict) and "part" in event:
            state.parts += str(event["part"])
            if not event["last"]:
                return None
            event, state.parts = json.loads(state.parts), ""
    except (ValueError, KeyError):
        state.parts = ""
        return None
    return event if isinstance(event, dict) else None


def _in_trouble(states: Sequence[_State], now: float, start: float, timeout: float) -> bool:
    for state in states:
        if state.last_words is not None or (state.worker.process.poll() not in (None, 0) and not state.done):
            return True
        if state.closed and not state.done:
            return True
        if not state.done and now - state.heard > state.patience(timeout):
            return True
    return now - start > START_LIMIT and not all(state.ready for state in states)


def explain(states: Sequence[_State], *, timeout: float) -> str:
    """The one message: who failed for a reason of its own comes before who failed for want of another."""
    silence = partial(_silent, timeout=timeout)
    clues = (_killed, _out_of_memory, _own_error, silence, _cut_off, _ended, _lost_touch, _not_ready)
    found = (clue(states) for clue in clues)
    fallback = f"{states[0].place} stopped {states[0].when}"
    return next((words for words in found if words is not None), fallback)


def _exit_code(states: Sequence[_State]) -> int:
    """That of a worker's own error where it has one: wrong input is wrong input, wherever it is found."""
    codes = [int(state.last_words.get("code", 1)) for state in states if state.last_words is not None]
    return max(codes, default=RunError.exit_code)


def _any_kind(states: Sequence[_State], kind: str) -> bool:
    return any(state.last_words is not None and state.last_words.get("kind") == kind for state in states)


def _killed(states: Sequence[_State]) -> str | None:
    for state in states:
        code = state.worker.process.poll()
        if code is not None and code < 0 and state.last_words is None and not state.done:
            name = signal.Signals(-code).name if -code in list(signal.Signals) else str(-code)
            log = f"; see {state.worker.log}" if -code in _CRASHES else ""
            return f"{state.place} was killed by {name} {state.when}{log}"
    return None


def _out_of_memory(states: Sequence[_State]) -> str | None:
    for state in states:
        words = state.last_words
        if words is not None and words.get("kind") == "memory":
            memory, expected = words.get("memory") or {}, state.worker.predicted_memory
            others = memory["used"] - memory["reserved"] if memory else 0
            predicted = f"{format_size(expected)} predicted" if expected else ""
            amounts = ", ".join(part for part in (_reached(memory, others), predicted) if part) or str(words["message"])
            advice = (
                "end what else runs there, or plan without that machine (hulk plan --avoid)"
                if others > _OTHERS
                else "smaller microbatches, recomputation or more headroom (hulk plan --headroom) make a plan that "
                "needs less"
            )
            return f"{state.place} ran out of memory {state.when}: {amounts}; {advice}"
    return None


def _reached(memory: Mapping[str, int], others: int) -> str:
    """What was in use of a GPU when it was full; `others`: bytes outside of this rank's tensors."""
    if not memory:
        return ""
    if others > _OTHERS:
        own, all_there_is = format_size(memory["reserved"]), format_size(memory["total"])
        return f"{own} of {all_there_is} were in use, and {format_size(others)} by other processes"
    return f"{format_size(memory['used'])} of {format_size(memory['total'])} were in use"


def _own_error(states: Sequence[_State]) -> str | None:
    for state in states:
        if state.last_words is not None and state.last_words.get("kind") in ("own", "port"):
            return f"{state.place} failed {state.when}: {state.last_words['message']}"
    return None


def _silent(states: Sequence[_State], *, timeout: float) -> str | None:
    """A worker that stands still; those that miss it may have given up before `watch` did."""
    now = time.monotonic()
    for state in states:
        quiet, limit = now - state.heard, min(state.patience(timeout), SILENCE if state.ready else START_SILENCE)
        if state.worker.process.poll() is None and quiet > limit and not state.done:
            last = "" if state.ready else f"; it {state.doing}"
            return f"{state.place} has given no sign of life for {quiet:.0f} s, {state.when}{last}"
    return None


def _ended(states: Sequence[_State]) -> str | None:
    for state in states:
        code = state.worker.process.poll()
        if code not in (None, 0) and state.last_words is None:
            said = _last_line(state.worker.log)
            return f"{state.place} ended with code {code} {state.when}{said}; see {state.worker.log}"
    return None


def _last_line(log: Path) -> str:
    """What a process said last, for a message."""
    with contextlib.suppress(OSError):
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return f": {lines[-1].strip()[:200]}" if lines else ""
    return ""


def _lost_touch(states: Sequence[_State]) -> str | None:
    for state in states:
        if state.last_words is not None and state.last_words["event"] == "error":
            behind = [other for other in states if other.phase < state.phase]
            if behind:
                return _behind(behind, f"the others waited for it in vain; see {behind[0].worker.log}")
            return f"{state.place} lost touch with another rank {state.when}: {state.last_words['message']}"
    return None


def _not_ready(states: Sequence[_State]) -> str | None:
    waiting = [state for state in states if not state.ready]
    if not waiting:
        return None
    least = min(state.phase for state in waiting)
    behind = [state for state in waiting if state.phase == least]
    return _behind(behind, f"{START_LIMIT:.0f} s after the start; see {behind[0].worker.log}")


def _behind(states: Sequence[_State], why: str) -> str:
    """Those that have not come as far as others."""
    places = ", ".join(state.place for state in states)
    return (
        f"{places} did not get ready: it still {states[0].doing}, {why}"
        if len(states) == 1
        else (f"{places} did not get ready: each still {states[0].doing}, {why}")
    )


def _cut_off(states: Sequence[_State]) -> str | None:
    """Machines that do not reach the first one: where none does, it is the first one that is cut off."""
    cut = [state for state in states if state.last_words is not None and state.last_words["event"] == "cut off"]
    if not cut:
        return None
    first = states[0].worker.seat.machine
    machines = list(dict.fromkeys(state.worker.seat.machine for state in cut))
    others = {state.worker.seat.machine for state in states} - {first}
    step = max(state.step for state in cut)
    if len(others) > 1 and set(machines) == others:
        return f"{first} is cut off from all other machines, in step {step}"
    return f"{', '.join(machines)} cannot reach {first} any more, in step {step}"
