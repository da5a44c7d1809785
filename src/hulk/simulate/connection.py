"""One pipeline's connection between two neighbouring stages: messages go one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from hulk.cost.traffic import Wire
from hulk.simulate.network import Network


class Passage(NamedTuple):
    """When a message went: the sender holds the connection from `start` to `sent`, the receiver sees it from `first` to
    `arrival`. Seconds."""

    start: float
    sent: float
    first: float
    arrival: float


Delivered = Callable[[Passage], None]


@dataclass(slots=True, eq=False)
class Connection:
    """First come, first served. An overlapped connection is free for the next message when one is sent; a blocking one,
    which carries both directions, when one has arrived."""

    network: Network
    blocking: bool
    _waiting: deque[tuple[Wire, float, Delivered]] = field(default_factory=deque)
    _held: bool = False
    _last_arrival: float = 0.0

    def send(self, wire: Wire, stretch: float, delivered: Delivered) -> None:
        """Queue a message; `stretch` multiplies its seconds."""
        self._waiting.append((wire, stretch, delivered))
        if not self._held:
            self._start_next()

    def _start_next(self) -> None:
        self._held = bool(self._waiting)
        if not self._held:
            return
        wire, stretch, delivered = self._waiting.popleft()
        clock = self.network.clock
        start = clock.now

        def on_the_wire() -> None:
            self.network.send(wire.route, wire.size, stretch, sent)

        def sent() -> None:
            now = clock.now
            latency = wire.latency * stretch
            # In order: with jitter, a message may be quick, but it cannot overtake the one before.
            first = max(start + latency, self._last_arrival)
            arrival = max(now + latency, self._last_arrival)
            self._last_arrival = arrival
            passage = Passage(start, now, first, arrival)

            def arrive() -> None:
                delivered(passage)
                if self.blocking:
                    self._start_next()

            clock.at(arrival, arrive)
            if not self.blocking:
                self._start_next()

        clock.after(wire.fixed * stretch, on_the_wire)
