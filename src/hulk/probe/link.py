"""One link, measured between two agents: round trips of small messages, and what one or several flows carry.

The agent that was told to measure sends; the other one echoes, or takes what comes and times it. Who takes ends a flow
too, after so many seconds or bytes, whichever is first. All seconds are on one machine's clock.
"""

from __future__ import annotations

import contextlib
import select
import socket
import statistics
import struct
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Barrier, BrokenBarrierError
from typing import Any, NamedTuple

from hulk.probe.wire import Address, Channel, WireError, call, readable

MOST_PINGS, MOST_FLOWS, MOST_SECONDS, MOST_BYTES = 200, 16, 30.0, 16 * 2**30
BINS = 10
"""Parts of the time that a flow is measured over, each with a rate of its own."""

_MESSAGE = 64  # bytes
_PING_INTERVAL = 0.02  # seconds
_PATIENCE = 10.0  # seconds without a byte after which the other side counts as gone
_CHUNK = 1 << 18
_BUFFER = 1 << 20
_MARK, _MARKS = 2e-3, 64  # seconds between two notes of how much has come, and how many notes of all bytes at least
# A connection needs some round trips until TCP has found the rate; what it carries before is not counted.
_WARM_SECONDS, _WARM_TRIPS, _WARM_MOST = 0.3, 6, 6.0
_WARM_SHARE = 0.25  # of the bytes, at most
# After flows have ended, what they left in queues on the way is still there; until a message is as quick as before.
_SETTLED_SHARE, _SETTLED_SLACK, _SETTLE_SECONDS = 1.25, 1e-3, 3.0


class Load(NamedTuple):
    """So many flows at once. `seconds` are counted, after `skip` (None: as many as this link needs) and before `tail`,
    in which flows go on so that others beside them are not measured alone; at most `most` bytes a flow."""

    flows: int
    seconds: float
    most: int
    skip: float | None = None
    tail: float = 0.0


class Mark(NamedTuple):
    """How many bytes had come so many seconds after the first."""

    seconds: float
    total: int


def load_of(order: dict[str, Any]) -> Load:
    """What an order asks for; ValueError where it asks for more than an agent does."""
    skip = order.get("skip")
    load = Load(
        flows=int(order["flows"]),
        seconds=float(order["seconds"]),
        most=int(order["most"]),
        skip=None if skip is None else float(skip),
        tail=float(order.get("tail", 0.0)),
    )
    long = load.seconds + load.tail + (load.skip or 0.0)
    if not (1 <= load.flows <= MOST_FLOWS and load.seconds > 0 and load.tail >= 0 and (load.skip or 0.0) >= 0):
        raise ValueError("a load that is none")
    if not (long <= MOST_SECONDS and 0 < load.most <= MOST_BYTES):
        raise ValueError("more than an agent sends")
    return load


def measure(address: Address, token: bytes, pings: int, loads: Sequence[Load]) -> dict[str, Any]:
    """Round trips in seconds, and for every load what it carried: {"trips": …, "loads": [{rate, bins, bytes}]}."""
    if not 1 <= pings <= MOST_PINGS:
        raise ValueError("more than an agent sends")
    channel = call(address, token)
    try:
        trips = ping(channel, pings)
        usual = statistics.median(trips)
        warm = min(_WARM_SECONDS + _WARM_TRIPS * usual, _WARM_MOST)
        found = []
        for load in loads:
            found.append(_carry(address, token, load._replace(skip=warm) if load.skip is None else load))
            _settle(channel, usual)
        return {"trips": trips, "loads": found}
    finally:
        channel.close()


# ---- Small messages -------------------------------------------------------------------------------------------------


def ping(channel: Channel, count: int) -> list[float]:
    """Round trips in seconds, one message every 20 ms, however long they take."""
    _order(channel, {"do": "echo", "count": count})
    link, message = channel.link, bytes(_MESSAGE)
    sent: list[float] = []
    trips: list[float] = []
    waiting = 0  # bytes of an echo that has not come in full
    try:
        while len(trips) < count:
            now = time.monotonic()
            if len(sent) < count and (not sent or now >= sent[-1] + _PING_INTERVAL):
                sent.append(now)
                link.sendall(message)
            until = sent[-1] + (_PING_INTERVAL if len(sent) < count else _PATIENCE)
            left = until - time.monotonic()
            if left > 0 and readable(link.fileno(), left):
                part = len(link.recv(_MESSAGE * count))
                now = time.monotonic()
                if part == 0:
                    raise WireError("lost", "the other agent has gone")
                waiting += part
                while waiting >= _MESSAGE:
                    trips.append(now - sent[len(trips)])
                    waiting -= _MESSAGE
            elif len(sent) == count and left <= 0:
                raise WireError("silent", f"a small message was not answered within {_PATIENCE:g} s")
    except OSError as error:
        raise WireError("lost", f"the connection is gone: {error.strerror or error}") from None
    return trips


def echo(channel: Channel, count: int) -> None:
    """The other side of `ping`."""
    if not 1 <= count <= MOST_PINGS:
        raise ValueError("more than an agent answers")
    channel.send({"ok": True})
    left = _MESSAGE * count
    channel.link.settimeout(_PATIENCE)
    while left > 0:
        part = channel.link.recv(min(left, 1 << 14))
        if not part:
            return
        channel.link.sendall(part)
        left -= len(part)


def _settle(channel: Channel, usual: float) -> None:
    """Wait until a message takes what it took before."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while time.monotonic() < deadline:
        if ping(channel, 1)[0] <= _SETTLED_SHARE * usual + _SETTLED_SLACK:
            return


# ---- Flows ----------------------------------------------------------------------------------------------------------


def _carry(address: Address, token: bytes, load: Load) -> dict[str, Any]:
    """All flows of a load, begun together: their rate in bytes/s, its parts over time, and the bytes that came."""
    together = Barrier(load.flows, timeout=_PATIENCE)
    with ThreadPoolExecutor(load.flows) as pool:
        flows = [pool.submit(_flow, address, token, load, together) for _ in range(load.flows)]
        reports = [flow.result() for flow in flows]
    bins = [sum(values) for values in zip(*(report["bins"] for report in reports), strict=True)]
    return {
        "rate": sum(report["rate"] for report in reports),
        "bins": bins,
        "bytes": sum(report["bytes"] for report in reports),
    }


def _flow(address: Address, token: bytes, load: Load, together: Barrier) -> dict[str, Any]:
    """Send until the other side reports."""
    try:
        channel = call(address, token)
    except WireError:
        together.abort()
        raise
    link, chunk = channel.link, memoryview(bytes(_CHUNK))
    try:
        _order(channel, {"do": "sink", **load._asdict()})
        together.wait()
        link.setblocking(False)
        deadline = time.monotonic() + (load.skip or 0.0) + load.seconds + load.tail + _PATIENCE
        while time.monotonic() < deadline:
            readable, writable, _ = select.select([link], [link], (), _PATIENCE)
            if readable:
                break
            if writable:
                with contextlib.suppress(BlockingIOError):
                    link.send(chunk)
        return channel.receive(_PATIENCE)
    except BrokenBarrierError:
        raise WireError("lost", "another flow could not begin") from None
    except OSError as error:
        raise WireError("lost", f"the connection is gone: {error.strerror or error}") from None
    finally:
        # What has not been sent is thrown away: the link shall be free at once.
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        channel.close()


def sink(channel: Channel, load: Load) -> None:
    """The other side of a flow: take what comes, and report."""
    channel.send({"ok": True})
    link, buffer = channel.link, bytearray(_BUFFER)
    link.settimeout(_PATIENCE)
    end = (load.skip or 0.0) + load.seconds + load.tail
    marks: list[Mark] = []
    total, began = 0, None
    while True:
        count = link.recv_into(buffer)
        now = time.monotonic()
        if count == 0:
            return
        total += count
        began = now if began is None else began
        if not marks or now - began - marks[-1].seconds >= _MARK or total - marks[-1].total >= load.most / _MARKS:
            marks.append(Mark(now - began, total))
        if now - began >= end or total >= load.most:
            break
    rate, bins = rates(marks, load)
    channel.send({"rate": rate, "bins": bins, "bytes": total})
    with contextlib.suppress(OSError):  # until the sender has seen the report and hangs up
        deadline = time.monotonic() + _PATIENCE
        while link.recv_into(buffer) and time.monotonic() < deadline:
            pass


def rates(marks: Sequence[Mark], load: Load) -> tuple[float, list[float]]:
    """Bytes/s between the warm-up's end and the tail's beginning, and in each of `BINS` equal parts of that time."""
    skip = load.skip or 0.0
    first = next(
        (i for i, mark in enumerate(marks) if mark.seconds >= skip or mark.total >= _WARM_SHARE * load.most), 0
    )
    first = min(first, max(0, len(marks) - 2))
    start = marks[first]
    inside = [mark for mark in marks[first:] if mark.seconds <= start.seconds + load.seconds]
    if len(inside) < 2:
        inside = list(marks[first : first + 2])
    last = inside[-1]
    if last.seconds <= start.seconds:  # everything came at once
        return 0.0, [0.0] * BINS
    edges = [start.seconds + (last.seconds - start.seconds) * i / BINS for i in range(BINS + 1)]
    totals = [_total_at(inside, edge) for edge in edges]
    width = (last.seconds - start.seconds) / BINS
    bins = [(b - a) / width for a, b in pairwise(totals)]
    return (last.total - start.total) / (last.seconds - start.seconds), bins


def _total_at(marks: Sequence[Mark], seconds: float) -> float:
    """Bytes that had come by then, between two marks in proportion."""
    for before, after in pairwise(marks):
        if after.seconds >= seconds:
            share = (seconds - before.seconds) / (after.seconds - before.seconds)
            return before.total + min(max(share, 0.0), 1.0) * (after.total - before.total)
    return float(marks[-1].total)


def _order(channel: Channel, order: dict[str, Any]) -> None:
    """Have the other agent do something; WireError where it will not."""
    channel.send(order)
    reply = channel.receive(_PATIENCE)
    if not reply.get("ok"):
        raise WireError("refused", f"the other agent does not do that: {str(reply.get('error'))[:200]}")
