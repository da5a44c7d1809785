"""Is the network what the cluster says? Measures latency and throughput between machines of a testbed.

Latency is half the round trip of a small datagram. Throughput is what one TCP connection carries once it has found its
rate. Pairs are measured one after the other, each in one direction.
"""

from __future__ import annotations

import contextlib
import json
import random
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hulk.errors import HulkError
from hulk.testbed.network import Wire
from hulk.testbed.testbed import Testbed

LATENCY_SLACK = 2e-3  # seconds, or
LATENCY_SHARE = 0.05  # of the latency, whichever is more
THROUGHPUT_SHARE = 0.10
THROUGHPUT_HELD = 200e6 / 8  # bytes/s up to which the throughput is promised; beyond, it is measured but not judged

_PINGS = 10
_BLOCKED_WAIT = 0.5  # seconds without an answer that make a pair blocked, beyond the longest round trip
_FASTEST = 1e9 / 8  # bytes/s; no more is sent than this wire would carry in the time
_WARM_SECONDS = 0.3  # and this many round trips until TCP has found the rate of a wire:
_WARM_TRIPS = 6
_PROBE = (sys.executable, "-P", "-m", "hulk.testbed.probe")  # -P: no code from the folder this is in


@dataclass(frozen=True, slots=True)
class Reading:
    """One pair, measured from `source` to `target`. Seconds one way, bytes/s. None: nothing came through, and for what
    was expected, that the pair is blocked."""

    source: str
    target: str
    expected_latency: float | None
    latency: float | None
    expected_throughput: float | None
    throughput: float | None

    @property
    def blocked(self) -> bool:
        """Whether the cluster says that the two cannot talk."""
        return self.expected_latency is None

    @property
    def latency_ok(self) -> bool:
        """Within 2 ms or 5 %; for a blocked pair, silent."""
        if self.expected_latency is None or self.latency is None:
            return self.expected_latency is None and self.latency is None
        slack = max(LATENCY_SLACK, LATENCY_SHARE * self.expected_latency)
        return abs(self.latency - self.expected_latency) <= slack

    @property
    def throughput_ok(self) -> bool:
        """Within 10 % up to 200 Mbit/s; not judged beyond."""
        if self.expected_throughput is None or self.throughput is None:
            return self.throughput is None and self.blocked
        if self.expected_throughput > THROUGHPUT_HELD:
            return True
        return abs(self.throughput - self.expected_throughput) <= THROUGHPUT_SHARE * self.expected_throughput

    @property
    def ok(self) -> bool:
        """Both."""
        return self.latency_ok and self.throughput_ok


def choose(testbed: Testbed, most: int, *, seed: int = 0) -> list[tuple[str, str]]:
    """At most that many pairs of machines, drawn at random where there are more, in directions that take turns."""
    hosts = testbed.network.hosts
    pairs = [(hosts[a].name, hosts[b].name) for a, b, _ in testbed.network.pairs()]
    if len(pairs) > most:
        chosen = set(random.Random(seed).sample(range(len(pairs)), most))  # noqa: S311 - nothing secret
        pairs = [pair for index, pair in enumerate(pairs) if index in chosen]
    return [pair if index % 2 == 0 else (pair[1], pair[0]) for index, pair in enumerate(pairs)]


def check(
    testbed: Testbed,
    pairs: Sequence[tuple[str, str]],
    *,
    seconds: float = 2.0,
    progress: Callable[[Reading], None] = lambda reading: None,
) -> list[Reading]:
    """Measure these (source, target) pairs, throughput over that many seconds each; `progress` sees every reading."""
    readings = []
    longest = max((wire.latency for wire in testbed.network.wires), default=0.0)
    with _serving(testbed, sorted({target for _, target in pairs})):
        for source, target in pairs:
            wire = testbed.network.wire(testbed.network.index(source), testbed.network.index(target))
            latency = _latency(testbed, source, target, wait=2 * longest + _BLOCKED_WAIT)
            throughput = (
                None if latency is None or wire is None else _throughput(testbed, source, target, wire, seconds)
            )
            expected = (None, None) if wire is None else (wire.latency, wire.most)
            readings.append(Reading(source, target, expected[0], latency, expected[1], throughput))
            progress(readings[-1])
    return readings


def _latency(testbed: Testbed, source: str, target: str, *, wait: float) -> float | None:
    found = _probe(testbed, source, "ping", testbed.address(target), str(_PINGS), str(wait))
    trips = found["round_trips"]
    return statistics.median(trips) / 2 if trips else None


def _throughput(testbed: Testbed, source: str, target: str, wire: Wire, seconds: float) -> float | None:
    rate = min(wire.most, _FASTEST)
    skip = int(rate * (_WARM_SECONDS + _WARM_TRIPS * 2 * wire.latency))
    found = _probe(testbed, source, "send", testbed.address(target), str(skip + int(rate * seconds)), str(skip))
    return float(found["bytes"] / found["seconds"]) if found["seconds"] > 0 else None


def _probe(testbed: Testbed, machine: str, *arguments: str) -> dict[str, Any]:
    command = testbed.command(machine, [*_PROBE, *arguments])
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own probe
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise HulkError(f"measuring from {machine} failed: {last}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@contextlib.contextmanager
def _serving(testbed: Testbed, machines: Sequence[str]) -> Iterator[None]:
    """A server for probes on each of these machines."""
    with contextlib.ExitStack() as stack:
        servers = []
        for machine in machines:
            command = testbed.command(machine, [*_PROBE, "serve"])
            server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603 - the same
            servers.append(stack.enter_context(server))  # leaving it closes its input, which ends it
        for machine, server in zip(machines, servers, strict=True):
            assert server.stdout is not None
            if not server.stdout.readline():
                raise HulkError(f"the probe on {machine} did not start")
        yield
