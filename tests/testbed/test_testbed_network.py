"""A cluster as the testbed emulates it."""

from __future__ import annotations

import json
from string import ascii_lowercase

import pytest
from wide import MBIT, THREE, wide_cluster

from hulk.domain.cluster import Link
from hulk.errors import InputError
from hulk.testbed import Network


def test_a_wire_carries_the_least_of_the_flow_and_the_cards():
    network = Network.of(wide_cluster(THREE, card=80 * MBIT))
    assert [(w.a, w.b, w.latency, w.bandwidth) for w in network.wires] == [
        (0, 1, 1e-3, 50 * MBIT),
        (0, 2, 40e-3, 80 * MBIT),
    ]
    assert network.wire(2, 1) is None
    assert network.wire(2, 0) == network.wire(0, 2)


def test_a_trunk_limits_a_wire():
    network = Network.of(wide_cluster({"ab": Link(1e-3, 50 * MBIT, trunk=20 * MBIT)}, machines="ab"))
    assert network.wires[0].most == 20 * MBIT


def test_packets_take_two_milliseconds_at_most_and_fit_into_ipv4():
    speeds = {"ab": Link(1e-3, MBIT), "ac": Link(1e-3, 100 * MBIT), "bc": Link(1e-3, 10e3 * MBIT)}
    network = Network.of(wide_cluster(speeds))
    assert network.packets(0) == {"10.77.0.2": 1500, "10.77.0.3": 25000}
    assert network.packets(2)["10.77.0.2"] == 60000


def test_it_survives_json():
    network = Network.of(wide_cluster(THREE))
    assert Network.from_json(json.loads(json.dumps(network.to_json()))) == network


def test_seventeen_machines_are_too_many():
    with pytest.raises(InputError, match="17 machines; a testbed takes 1 to 16"):
        Network.of(wide_cluster({}, machines=ascii_lowercase[:17]))
    assert len(Network.of(wide_cluster({}, machines=ascii_lowercase[:16])).hosts) == 16


def test_an_unknown_machine_is_named():
    with pytest.raises(InputError, match="no machine 'd'"):
        Network.of(wide_cluster(THREE)).index("d")
