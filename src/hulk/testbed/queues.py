"""The queues a packet passes on its way, and how long it spends in each.

A packet from host a to host b passes a's network card, the trunk between the two regions where there is one, the wire,
and b's network card. Each is a first-in-first-out queue that serves at its own rate and drops what does not fit. It
starts to forward a packet as soon as its first bit is there, so a packet alone on its way takes latency + size / the
least rate, as the price says, and not one serialisation per queue.

Pure: times are seconds on the caller's clock, packets go in and come out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

from hulk.testbed.network import Network

# Room for a second of traffic: TCP finds the rate of the longest wire (0.3 s there and back) without losing packets.
# Slow queues hold some tens of packets even so, and fast ones do not eat the memory of the machine.
_QUEUE_SECONDS = 1.0
_QUEUE_LEAST = 4e6
_QUEUE_MOST = 128e6

_OUT = -1  # instead of the number of a queue: the packet has passed them all


class Queue:
    """One direction of a wire, a card or a trunk. Serves `rate` bytes/s; its end is `delay` seconds away; it is busy
    until `free` and takes no packet that would wait longer than `patience` seconds."""

    __slots__ = ("delay", "free", "patience", "rate")

    def __init__(self, rate: float, delay: float = 0.0) -> None:
        self.rate = rate
        self.delay = delay
        self.free = 0.0
        self.patience = min(max(_QUEUE_SECONDS * rate, _QUEUE_LEAST), _QUEUE_MOST) / rate


@dataclass(slots=True)
class Path:
    """From one host to another: its queues in order; packets and bytes delivered, and packets dropped so far."""

    source: int
    target: int
    queues: tuple[Queue, ...]
    packets: int = 0
    size: int = 0
    dropped: int = 0


# (due, order of arrival, path, which queue comes next, the packet, when its last bit is there)
_Event = tuple[float, int, Path, int, bytes, float]


class Fabric:
    """All paths of a network and the packets on them. `paths` has no entry for a blocked pair; cards and trunks are
    shared between paths."""

    def __init__(self, network: Network) -> None:
        self.paths = _paths(network)
        self._events: list[_Event] = []
        self._order = 0

    def send(self, now: float, path: Path, packet: bytes) -> None:
        """A packet sets out."""
        self._enter(now, path, 0, packet, now)

    def due(self) -> float | None:
        """When something happens next; None if nothing is on its way."""
        return self._events[0][0] if self._events else None

    def advance(self, now: float) -> Iterator[tuple[Path, bytes]]:
        """Move everything on that is due by now; the packets that arrive, in order."""
        events = self._events
        while events and events[0][0] <= now:
            due, _, path, step, packet, complete = heappop(events)
            if step == _OUT:
                yield path, packet
            else:
                self._enter(due, path, step, packet, complete)

    def _enter(self, now: float, path: Path, step: int, packet: bytes, complete: float) -> None:
        """A packet's first bit reaches a queue now, its last one at `complete`."""
        queue = path.queues[step]
        start = max(now, queue.free)
        if start - now > queue.patience:
            path.dropped += 1
            return
        queue.free = end = start + len(packet) / queue.rate
        complete = max(end, complete) + queue.delay
        step += 1
        # Shared queues take packets in the order in which they get there, so each step waits for its own time.
        due = start + queue.delay
        if step == len(path.queues):
            step, due = _OUT, complete
        self._order += 1
        heappush(self._events, (due, self._order, path, step, packet, complete))


def _paths(network: Network) -> dict[tuple[int, int], Path]:
    out = [Queue(host.card) for host in network.hosts]
    into = [Queue(host.card) for host in network.hosts]
    trunks: dict[tuple[str, str, float], Queue] = {}
    paths = {}
    for wire in network.wires:
        for a, b in ((wire.a, wire.b), (wire.b, wire.a)):
            queues = [out[a]]
            if wire.trunk is not None:
                key = (network.hosts[a].region, network.hosts[b].region, wire.trunk)
                queues.append(trunks.setdefault(key, Queue(wire.trunk)))
            queues += [Queue(wire.bandwidth, wire.latency), into[b]]
            paths[a, b] = Path(a, b, tuple(queues))
    return paths
