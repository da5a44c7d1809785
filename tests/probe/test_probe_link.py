"""Two agents measure the link between them, within bounds."""

from __future__ import annotations

import pytest
from agents import TOKEN, running

from hulk.probe.link import BINS, Load, Mark, rates
from hulk.probe.wire import call

LOAD = {"flows": 1, "seconds": 0.1, "most": 3_000_000, "skip": 0.0}


def ask(agent, order):
    channel = call(agent.address, TOKEN)
    try:
        channel.send(order)
        return channel.receive(30)
    finally:
        channel.close()


def test_one_agent_measures_its_way_to_another():
    with running(2) as (a, b):
        order = {"do": "measure", "target": b.address, "pings": 5, "loads": [LOAD, LOAD | {"flows": 3}]}
        found = ask(a, order)
    assert len(found["trips"]) == 5
    assert all(0 < trip < 5 for trip in found["trips"])
    one, several = found["loads"]
    assert one["rate"] > 0
    assert len(several["bins"]) == BINS
    # A flow ends at its bytes, or at the next chunk after them.
    assert one["bytes"] <= LOAD["most"] + 2**20
    assert several["bytes"] <= 3 * (LOAD["most"] + 2**20)


def test_who_reaches_whom():
    with running(2) as (a, b), running(1, b"a token of other people") as (stranger,):
        free = stranger.address[0], 9
        order = {"do": "reach", "targets": [b.address, stranger.address, free], "wait": 2.0}
        found = ask(a, order)["found"]
    assert found[0]["trip"] > 0
    assert [each.get("reason") for each in found[1:]] == ["token", "refused"]


@pytest.mark.parametrize(
    "order",
    [
        {"do": "measure", "target": ["127.0.0.1", 9], "pings": 10**6, "loads": []},
        {"do": "measure", "target": ["127.0.0.1", 9], "pings": 5, "loads": [LOAD | {"flows": 1000}]},
        {"do": "measure", "target": ["127.0.0.1", 9], "pings": 5, "loads": [LOAD | {"seconds": 1e9}]},
        {"do": "measure", "target": ["127.0.0.1", 9], "pings": 5, "loads": [LOAD | {"seconds": float("nan")}]},
        {"do": "measure", "target": ["127.0.0.1", 9], "pings": 5, "loads": [LOAD | {"most": 10**15}]},
        {"do": "measure", "target": "nowhere", "pings": 5, "loads": []},
        {"do": "reach", "targets": [["127.0.0.1", 9]] * 5000, "wait": 1.0},
        {"do": "reach", "targets": [["127.0.0.1", 9]], "wait": 1e6},
        {"do": "format the disk"},
        {},
    ],
)
def test_more_than_an_agent_does_is_refused(order):
    with running(1) as (agent,):
        assert "error" in ask(agent, order)
        assert "facts" in ask(agent, {"do": "facts"})


@pytest.mark.parametrize("order", [{"do": "echo", "count": 10**9}, {"do": "sink", **LOAD, "most": 2**60}])
def test_a_peer_that_asks_for_too_much_is_hung_up_on(order):
    from hulk.probe.wire import WireError

    with running(1) as (agent,), pytest.raises(WireError):
        ask(agent, order)


def test_rates_leave_out_warm_up_and_tail():
    """1 MB/s for a second, then 10 MB/s for two, then 20 MB/s."""
    steps = [(i / 100, 1e4) for i in range(1, 101)] + [(1 + i / 100, 1e5) for i in range(1, 201)]
    steps += [(3 + i / 100, 2e5) for i in range(1, 101)]
    marks, total = [Mark(0.0, 0)], 0
    for seconds, size in steps:
        total += int(size)
        marks.append(Mark(seconds, total))
    rate, bins = rates(marks, Load(1, 2.0, 10**9, skip=1.0, tail=1.0))
    assert rate == pytest.approx(10e6, rel=0.01)
    assert bins == pytest.approx([10e6] * BINS, rel=0.02)
    # Where bytes run out first, a quarter of them is warm-up.
    rate, _ = rates(marks, Load(1, 2.0, 4 * 10**6, skip=100.0))
    assert rate == pytest.approx(10e6, rel=0.01)


@pytest.mark.parametrize("marks", [[Mark(0.0, 5)], [Mark(0.0, 5), Mark(0.001, 9)]])
def test_rates_of_next_to_nothing(marks):
    rate, bins = rates(marks, Load(1, 1.0, 10, skip=0.0))
    assert rate >= 0
    assert len(bins) == BINS
