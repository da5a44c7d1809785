"""The steps of one rank: its share of the batch through its stage, gradients added up, weights updated."""

from __future__ import annotations

import time
from typing import Any, Protocol

from hulk.runtime.context import Context
from hulk.runtime.peak import peak_memory
from hulk.runtime.report import READY
from hulk.runtime.settings import Compute
from hulk.runtime.work import Work


class Say(Protocol):
    """How a rank reports; `step` is the step under way, counted from 1."""

    step: int

    def say(self, event: str, **fields: Any) -> None:
        """Report an event."""


def train(context: Context, reporter: Say) -> None:
    """Run all steps of a rank."""
    work = make_work(context)
    device = Compute.EMULATED.value if context.settings.compute is Compute.EMULATED else context.device_name
    reporter.say("phase", phase=READY, device=device)
    settings = context.settings
    for step in range(work.done, settings.steps):
        reporter.step = step + 1
        reporter.say("begin")
        start = time.time()
        clock = work.clock
        clock.start(tracing=step >= settings.steps - settings.trace_steps)
        losses = work.passes(step)
        with clock.updates():
            work.update()
        work.share_weights()
        reporter.say(
            "step",
            started=start,
            seconds=time.time() - start,
            busy=clock.busy,
            waiting=clock.waiting,
            sync=clock.sync,
            update=clock.update,
            loss=losses,
            spans=clock.spans,
            memory=peak_memory(context.device),
        )
        last = step + 1 == settings.steps
        if settings.checkpoints is not None and (last or (settings.every and (step + 1) % settings.every == 0)):
            path = work.save(step + 1)
            if path is not None:
                reporter.say("checkpoint", path=path)
    work.close()
    reporter.say("done")


def make_work(context: Context) -> Work:
    """The rank's work. What waits needs the price's libraries, what computes needs transformers; not both."""
    if context.settings.compute is Compute.EMULATED:
        from hulk.runtime.waiting import EmulatedWork

        return EmulatedWork(context)
    from hulk.runtime.real import RealWork

    return RealWork(context)
