"""One pipeline's passes and messages: the rules of `hulk.cost.pipeline` and `hulk.cost.orders`, as events.

The GPUs of a stage, which may hold others too, do their passes in the schedule's order. A pass starts when they are
free and its input is there. Overlapped messages leave when their pass is done. A blocking message starts when its
sender has done the pass and its receiver stands before the pass that needs it; until it has arrived both wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from hulk.cost.compiled import plain
from hulk.cost.orders import is_ordered, is_split, order_of
from hulk.cost.pipeline import pass_at
from hulk.cost.prepared import Prepared
from hulk.cost.traffic import Traffic, Wire
from hulk.simulate.connection import Connection, Passage
from hulk.simulate.jitter import Jitter
from hulk.simulate.network import Network
from hulk.simulate.result import SpanKind
from hulk.simulate.spans import SpanLog

LastPass = Callable[[int, float, float], None]
"""(stage, seconds until its end, by how much jitter stretches it), called when a stage starts the last pass that makes
gradients of its weights."""

_KINDS = (SpanKind.FORWARD, SpanKind.BACKWARD, SpanKind.WEIGHTS)  # as `hulk.cost.orders` numbers them


class _Pass(NamedTuple):
    """A pass of some GPUs."""

    kind: SpanKind
    stage: int
    microbatch: int


@dataclass(slots=True, eq=False)
class _Direction:
    """The messages between two neighbours in one direction, microbatch by microbatch.

    factors  jitter of each message
    posted   messages whose sender has done the pass
    started  messages handed to the connection
    arrived  messages that are there
    """

    sender: int
    receiver: int
    wire: Wire
    connection: Connection
    factors: list[float]
    posted: int = 0
    started: int = 0
    arrived: int = 0

    @property
    def kind(self) -> SpanKind:
        """Of the passes that it connects: it carries activations, or gradients."""
        return SpanKind.FORWARD if self.sender < self.receiver else SpanKind.BACKWARD


@dataclass(slots=True, eq=False)
class _Slot:
    """The state of the GPUs that one stage, or several, are on.

    order    their passes
    last     stages by the pass that makes the last gradients of their weights
    factors  jitter of each pass
    sending  whether they wait for a blocking message of their own to arrive
    """

    order: list[_Pass]
    factors: list[float]
    last: dict[_Pass, int]
    done: int = 0
    busy: bool = False
    sending: bool = False


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
        rows = range(begin, begin + count)
        self._seconds = {
            kind: [float(seconds[n]) for n in rows]
            for kind, seconds in zip(_KINDS, (durations.forward, durations.backward, durations.weights), strict=True)
        }
        self._blocking = [bool(durations.blocking[n]) for n in rows[:-1]]
        self._slots = [
            _slot(order, jitter.factors(len(order)), microbatches) for order in _orders(prepared, index, microbatches)
        ]
        # A message comes into a stage, or leaves it, for or after a pass of this kind; a pipeline's ends lack some.
        self._inputs: dict[tuple[SpanKind, int], _Direction] = {}
        self._outputs: dict[tuple[SpanKind, int], _Direction] = {}
        connections: dict[tuple[int, int], Connection] = {}
        for s, blocking in enumerate(self._blocking):
            for sender, receiver in ((s, s + 1), (s + 1, s)):
                ends = sender % len(self._slots), receiver % len(self._slots)
                # A blocking connection carries both directions.
                key = (min(ends), max(ends)) if blocking else ends
                connection = connections.setdefault(key, Connection(network, blocking=blocking))
                wire = traffic.message(begin + sender, begin + receiver)
                direction = _Direction(sender, receiver, wire, connection, jitter.factors(microbatches))
                self._outputs[direction.kind, sender] = direction
                self._inputs[direction.kind, receiver] = direction

    def start(self) -> None:
        """Set out with what needs nothing from others."""
        for s, slot in enumerate(self._slots):
            wait = self._ready[self._begin + s]
            slot.busy = wait > 0.0
            if slot.busy:
                self._clock.after(wait, partial(self._get_ready, s))
            else:
                self._go_on(s)

    def _get_ready(self, s: int) -> None:
        self._slots[s].busy = False
        self._go_on(s)

    def _go_on(self, s: int) -> None:
        """Start the next pass of some GPUs if they can."""
        slot = self._slots[s]
        if slot.busy or slot.sending or slot.done == len(slot.order):
            return
        following = slot.order[slot.done]
        coming = self._inputs.get((following.kind, following.stage))
        if coming is not None and coming.arrived <= following.microbatch:
            return
        slot.busy = True
        factor = slot.factors[slot.done]
        seconds = self._seconds[following.kind][following.stage] * factor
        self._clock.after(seconds, partial(self._pass_done, s, following, self._clock.now))
        if following in slot.last:
            self._last_pass(self._begin + slot.last[following], seconds, factor)

    def _pass_done(self, s: int, done: _Pass, start: float) -> None:
        slot = self._slots[s]
        self._log.add(self._begin + done.stage, done.kind, start, self._clock.now, microbatch=done.microbatch)
        slot.busy = False
        slot.done += 1
        output = self._outputs.get((done.kind, done.stage))
        if output is not None:
            output.posted += 1
            slot.sending = self._is_blocking(output)
            self._send_ready(output)
        # The GPUs now stand before another pass, which may be what a blocking message to them waits for.
        for kind in (SpanKind.FORWARD, SpanKind.BACKWARD):
            direction = self._inputs.get((kind, done.stage))
            if direction is not None and self._is_blocking(direction):
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
            receiver = self._slots[direction.receiver % len(self._slots)]
            wanted = _Pass(direction.kind, direction.receiver, microbatch)
            if receiver.busy or receiver.order[receiver.done] != wanted:
                return
        direction.started += 1
        delivered = partial(self._delivered, direction, microbatch)
        direction.connection.send(direction.wire, direction.factors[microbatch], delivered)

    def _delivered(self, direction: _Direction, microbatch: int, passage: Passage) -> None:
        s, r = direction.sender, direction.receiver
        send, receive = SpanKind.SEND, SpanKind.RECEIVE
        self._log.add(self._begin + s, send, passage.start, passage.sent, microbatch=microbatch, peer=r)
        self._log.add(self._begin + r, receive, passage.first, passage.arrival, microbatch=microbatch, peer=s)
        direction.arrived += 1
        if self._is_blocking(direction):
            self._slots[s].sending = False
            self._go_on(s)
        self._go_on(r % len(self._slots))


def _orders(prepared: Prepared, index: int, microbatches: int) -> list[list[_Pass]]:
    """The passes of each slot of a pipeline."""
    encoded, pipeline = prepared.encoded, prepared.plan.pipelines[index]
    slots = len(pipeline.slots(prepared.plan.options.chunks))
    warmups = [int(encoded.warmup[encoded.starts[index] + s]) for s in range(slots)]
    if not plain(is_ordered)(encoded):
        turns = [[plain(pass_at)(i, warmup, microbatches) for i in range(2 * microbatches)] for warmup in warmups]
        return [[_Pass(_KINDS[not forward], s, m) for forward, m in own] for s, own in enumerate(turns)]
    split, chunks = bool(plain(is_split)(encoded)), len(pipeline.stages) // slots
    group = prepared.plan.options.schedule.group(slots, microbatches)
    orders = (order_of(s, slots, chunks, microbatches, warmup, group, split) for s, warmup in enumerate(warmups))
    return [[_Pass(_KINDS[kind], stage, m) for kind, stage, m in order.tolist()] for order in orders]


def _slot(order: list[_Pass], factors: list[float], microbatches: int) -> _Slot:
    makes = order[-1].kind  # the last pass makes gradients of weights, and so does every pass of its kind
    last = {each: each.stage for each in order if each.kind is makes and each.microbatch + 1 == microbatches}
    return _Slot(order, factors, last)
