"""How long packets take: latency, serialisation, sharing, drops. No clock: times are given."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wide import wide_cluster

from hulk.domain.cluster import Link
from hulk.testbed.network import Network
from hulk.testbed.queues import Fabric

FAST = 1e12  # bytes/s: no limit


def fabric(links: dict[str, Link], *, card: float = FAST) -> Fabric:
    return Fabric(Network.of(wide_cluster(links, card=card)))


def arrivals(fabric: Fabric) -> list[tuple[float, int, int, bytes]]:
    """Let everything arrive: (when, source, target, packet)."""
    found = []
    while (due := fabric.due()) is not None:
        found += [(due, path.source, path.target, packet) for path, packet in fabric.advance(due)]
    return found


def test_a_packet_alone_takes_latency_and_one_serialisation():
    """1000 bytes at 1000 bytes/s: one second, though cards and wire all serve at that rate."""
    net = fabric({"ab": Link(0.25, 1000.0, trunk=1000.0)}, card=1000.0)
    net.send(10.0, net.paths[0, 1], bytes(1000))
    assert arrivals(net) == [(pytest.approx(11.25), 0, 1, bytes(1000))]


def test_packets_on_one_wire_wait_for_each_other_but_not_for_the_other_direction():
    net = fabric({"ab": Link(0.5, 1000.0)})
    for _ in range(3):
        net.send(0.0, net.paths[0, 1], bytes(1000))
    net.send(0.0, net.paths[1, 0], bytes(1000))
    assert [(when, source) for when, source, _, _ in arrivals(net)] == [
        (pytest.approx(1.5), 0),
        (pytest.approx(1.5), 1),
        (pytest.approx(2.5), 0),
        (pytest.approx(3.5), 0),
    ]


@pytest.mark.parametrize("ends", [((0, 1), (0, 2)), ((1, 0), (2, 0))], ids=["out", "in"])
def test_wires_share_a_network_card(ends):
    """Two wires of 1000 bytes/s at one card of 1000: together they take as long as one after the other."""
    net = fabric({"ab": Link(0.0, 1000.0), "ac": Link(0.0, 1000.0)}, card=1000.0)
    for _ in range(2):
        for end in ends:
            net.send(0.0, net.paths[end], bytes(1000))
    assert [when for when, *_ in arrivals(net)] == pytest.approx([1, 2, 3, 4])


def test_a_far_sender_does_not_hold_the_card_before_its_packet_is_there():
    net = fabric({"ab": Link(10.0, 1000.0), "ac": Link(0.0, 1000.0)}, card=1000.0)
    net.send(0.0, net.paths[1, 0], bytes(1000))
    net.send(0.0, net.paths[2, 0], bytes(1000))
    assert [(when, source) for when, source, _, _ in arrivals(net)] == [(1, 2), (11, 1)]


def test_a_slow_wire_does_not_hold_up_another_of_the_same_card():
    net = fabric({"ab": Link(0.0, 10.0), "ac": Link(0.0, 1000.0)}, card=1000.0)
    net.send(0.0, net.paths[0, 1], bytes(100))
    net.send(0.0, net.paths[0, 1], bytes(100))
    net.send(0.0, net.paths[0, 2], bytes(100))
    assert [(round(when, 6), target) for when, _, target, _ in arrivals(net)] == [(0.3, 2), (10, 1), (20, 1)]


def test_a_full_queue_drops_what_comes_last():
    net = fabric({"ab": Link(0.0, 1e6)})  # room for 4 MB
    path = net.paths[0, 1]
    for _ in range(200):
        net.send(0.0, path, bytes(50_000))
    arrived = arrivals(net)
    assert len(arrived) == 81  # one on the wire, 80 × 50 kB behind it
    assert path.dropped == 200 - 81
    net.send(arrived[-1][0], path, bytes(50_000))
    assert len(arrivals(net)) == 1


def test_blocked_pairs_have_no_path():
    assert set(fabric({"ab": Link(0.0, 1.0)}).paths) == {(0, 1), (1, 0)}


@given(
    packets=st.lists(st.tuples(st.floats(0, 5), st.sampled_from([(0, 1), (0, 2), (1, 2)]), st.integers(20, 2000))),
    card=st.sampled_from([500.0, 1000.0, FAST]),
)
def test_packets_of_one_path_keep_their_order_and_no_wire_exceeds_its_rate(packets, card):
    links = {"ab": Link(0.3, 1000.0), "ac": Link(1.0, 700.0), "bc": Link(0.1, 2000.0)}
    net = fabric(links, card=card)
    for number, (when, ends, size) in enumerate(sorted(packets)):
        net.send(when, net.paths[ends], number.to_bytes(4, "big") + bytes(size - 4))
    seen = arrivals(net)
    assert len(seen) == len(packets)
    for ends, latency, rate in (((0, 1), 0.3, 1000.0), ((0, 2), 1.0, 700.0), ((1, 2), 0.1, 2000.0)):
        mine = [(when, packet) for when, source, target, packet in seen if (source, target) == ends]
        assert [packet[:4] for _, packet in mine] == sorted(packet[:4] for _, packet in mine)
        if mine:
            first = min(when for when, each, _ in packets if each == ends)
            assert mine[-1][0] >= first + latency + sum(len(p) for _, p in mine) / min(rate, card) - 1e-6
