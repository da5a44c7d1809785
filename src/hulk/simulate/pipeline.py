"""One pipeline's passes and messages: the rules of `hulk.cost.pipeline`, as events.

A stage does its passes in the schedule's order. A pass starts when the stage is free and its input is there. Overlapped
messages leave when their pass is done. A blocking message starts when its sender has done the pass and its receiver
stands before the pass that needs it; until it has arrived both wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from hulk.cost.compiled import plain
from hulk.cost.pipeline import pass_at
from hulk.cost.prepared import Prepared
from hulk.cost.traffic import Traffic, Wire
from hulk.simulate.connection import Connection, Passage
from hulk.simulate.jitter import Jitter
from hulk.simulate.network import Network
from hulk.simulate.result import SpanKind
from hulk.simulate.spans import SpanLog

LastPass = Callable[[int, float, float], None]
"""(stage, seconds until its end, by how much jitter stretches it), called when a stage starts its last backward."""


@dataclass(slots=True, eq=False)
class _Direction:
    """The messages between two neighbours in one direction, microbatch by microbatch.

    factors  jitter of each message
    posted   messages whose sender has done the pass
    started  messages handed to the connection
    """

    sender: int
    receiver: int
    wire: Wire
    connection: Connection
    factors: list[float]
    posted: int = 0
    started: int = 0

    @property
    def forward(self) -> bool:
        """Whether it carries activations; else gradients."""
        return self.sender < self.receiver


@dataclass(slots=True, eq=False)
class _Stage:
    """One stage's state. Dictionaries are by "is it a forward?"; a pipeline's ends lack some inputs and outputs.

    order    (forward?, microbatch) of each pass
    seconds  of a pass
    factors  jitter of each pass
    sending  whether it waits for a blocking message of its own to arrive
    """

    order: list[tuple[bool, int]]
    seconds: dict[bool, float]
    factors: list[float]
    done: int = 0
    busy: bool = False
    sending: bool = False
    inputs: dict[bool, _Direction] = field(default_factory=dict)
    outputs: dict[bool, _Direction] = field(default_factory=dict)
    arrived: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})


class PipelineRun:
    """Plays pipeline `index` of a job. Stages are counted from the pipeline's first; `last_pass` is told of rows."""

    def __init__(
        self,
        prepared: Prepared,
        index: int,
        *,
        network: Network,
        traffic: Traffic,
        jitter: Jitter,
        log: SpanLog,
        last_pass: LastPass,
        ready: Sequence[float],
    ) -> None:
        """Lay out stages and connections and draw the jitter; nothing runs yet. `ready`: when each of the job's stages
        can begin."""
        self._ready = ready
        self._clock = network.clock
        self._log = log
        self._last_pass = last_pass
        encoded, durations = prepared.encoded, prepared.durations
        self._begin = begin = int(encoded.starts[index])
        count = int(encoded.starts[index + 1]) - begin
        microbatches = int(encoded.microbatches[index])
        self._blocking = [bool(durations.blocking[begin + s]) for s in range(count - 1)]
        in_order = plain(pass_at)
        self._stages = [
            _Stage(
                [in_order(i, int(encoded.warmup[n]), microbatches) for i in range(2 * microbatches)],
                {True: float(durations.forward[n]), False: float(durations.backward[n])},
                jitter.factors(2 * microbatches),
            )
            for n in range(begin, begin + count)
        ]
        for s, blocking in enumerate(self._blocking):
            down = Connection(network, blocking=blocking)
            up = down if blocking else Connection(network, blocking=False)
            for sender, receiver, connection in ((s, s + 1, down), (s + 1, s, up)):
                wire = traffic.message(begin + sender, begin + receiver)
                direction = _Direction(sender, receiver, wire, connection, jitter.factors(microbatches))
                self._stages[sender].outputs[direction.forward] = direction
                self._stages[receiver].inputs[direction.forward] = direction

    def start(self) -> None:
        """Set out with what needs nothing from others."""
        for s, stage in enumerate(self._stages):
            wait = self._ready[self._begin + s]
            stage.busy = wait > 0.0
            if stage.busy:
                self._clock.after(wait, partial(self._get_ready, s))
            else:
                self._go_on(s)

    def _get_ready(self, s: int) -> None:
        self._stages[s].busy = False
        self._go_on(s)

    def _go_on(self, s: int) -> None:
        """Start the stage's next pass if it can."""
        stage = self._stages[s]
        if stage.busy or stage.sending or stage.done == len(stage.order):
            return
        forward, microbatch = stage.order[stage.done]
        if forward in stage.inputs and stage.arrived[forward] <= microbatch:
            return
        stage.busy = True
        factor = stage.factors[stage.done]
        seconds = stage.seconds[forward] * factor
        self._clock.after(seconds, partial(self._pass_done, s, forward, microbatch, self._clock.now))
        if stage.done + 1 == len(stage.order):
            self._last_pass(self._begin + s, seconds, factor)

    def _pass_done(self, s: int, forward: bool, microbatch: int, start: float) -> None:
        stage = self._stages[s]
        kind = SpanKind.FORWARD if forward else SpanKind.BACKWARD
        self._log.add(self._begin + s, kind, start, self._clock.now, microbatch=microbatch)
        stage.busy = False
        stage.done += 1
        output = stage.outputs.get(forward)
        if output is not None:
            output.posted += 1
            stage.sending = self._is_blocking(output)
            self._send_ready(output)
        # The stage now stands before another pass, which may be what a blocking message to it waits for.
        for direction in stage.inputs.values():
            if self._is_blocking(direction):
                self._send_ready(direction)
        self._go_on(s)

    def _is_blocking(self, direction: _Direction) -> bool:
        return self._blocking[min(direction.sender, direction.receiver)]

    def _send_ready(self, direction: _Direction) -> None:
        """Hand the direction's next message to the connection, if there is one that may start."""
        microbatch = direction.started
        if microbatch == direction.posted:
            return
        if self._is_blocking(direction):
            receiver = self._stages[direction.receiver]
            if receiver.busy or receiver.order[receiver.done] != (direction.forward, microbatch):
                return
        direction.started += 1
        delivered = partial(self._delivered, direction, microbatch)
        direction.connection.send(direction.wire, direction.factors[microbatch], delivered)

    def _delivered(self, direction: _Direction, microbatch: int, passage: Passage) -> None:
        s, r = direction.sender, direction.receiver
        send, receive = SpanKind.SEND, SpanKind.RECEIVE
        self._log.add(self._begin + s, send, passage.start, passage.sent, microbatch=microbatch, peer=r)
        self._log.add(self._begin + r, receive, passage.first, passage.arrival, microbatch=microbatch, peer=s)
        self._stages[r].arrived[direction.forward] += 1
        if self._is_blocking(direction):
            self._stages[s].sending = False
            self._go_on(s)
        self._go_on(r)
