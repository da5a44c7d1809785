"""The benchmark of the testbed's links makes networks of the kind that it says."""

from __future__ import annotations

import pytest

import testbed_links
from hulk.testbed import Network


@pytest.mark.parametrize("links", [1, 3])
def test_pairs_of_machines_with_a_link_each(links):
    network = Network.of(testbed_links.cluster_of(links, mbits=500, milliseconds=75))
    for i in range(links):
        wire = network.wire(network.index(f"a{i}"), network.index(f"b{i}"))
        assert wire is not None
        assert (wire.latency, wire.most) == (pytest.approx(0.075), pytest.approx(500e6 / 8))
    if links > 1:
        assert network.wire(network.index("a0"), network.index("a1")) is None
