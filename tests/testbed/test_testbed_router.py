"""The router between sockets instead of TUN devices: needs no rights."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from wide import MBIT, wide_cluster

from hulk.domain.cluster import Link
from hulk.testbed.network import Network
from hulk.testbed.router import Router

LATENCY = 0.02


@pytest.fixture
def bench() -> Iterator[tuple[Router, list[socket.socket]]]:
    """A running router, and the far ends of its three devices. Hosts 1 and 2 are blocked."""
    network = Network.of(wide_cluster({"ab": Link(LATENCY, 100 * MBIT), "ac": Link(LATENCY, 100 * MBIT)}))
    near, far = zip(*(socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in network.hosts), strict=True)
    for each in near:
        each.setblocking(False)
    for each in far:
        each.settimeout(10)
    router = Router(network, [each.fileno() for each in near])
    stopped, stop = os.pipe()
    thread = threading.Thread(target=router.run, args=({stopped: lambda: setattr(router, "running", False)},))
    thread.start()
    yield router, list(far)
    os.close(stop)
    thread.join()
    os.close(stopped)
    for each in (*near, *far):
        each.close()


def packet(target: int, text: str) -> bytes:
    """Enough of an IPv4 header for a router."""
    return bytes(16) + bytes([10, 77, 0, target + 1]) + text.encode()


def test_packets_reach_their_target_after_the_latency(bench):
    _, hosts = bench
    began = time.monotonic()
    hosts[0].send(packet(2, "to c"))
    assert hosts[2].recv(100) == packet(2, "to c")
    assert time.monotonic() - began >= LATENCY


def test_blocked_and_unknown_targets_get_nothing_and_the_router_goes_on(bench):
    _, hosts = bench
    hosts[1].send(packet(2, "blocked"))
    hosts[1].send(packet(77, "nobody"))
    hosts[1].send(b"not even a header")
    hosts[0].send(packet(2, "after"))
    assert hosts[2].recv(100) == packet(2, "after")


def test_a_cut_host_neither_sends_nor_receives_until_it_is_restored(bench):
    router, hosts = bench
    router.cut.add(2)
    hosts[0].send(packet(2, "lost on the way in"))
    hosts[2].send(packet(0, "lost on the way out"))
    hosts[1].send(packet(0, "arrives"))
    assert hosts[0].recv(100) == packet(0, "arrives")
    hosts[0].send(packet(1, "later than the lost one"))
    assert hosts[1].recv(100) == packet(1, "later than the lost one")
    router.cut.discard(2)
    hosts[0].send(packet(2, "again"))
    assert hosts[2].recv(100) == packet(2, "again")
    assert router.fabric.paths[0, 2].packets == 1
