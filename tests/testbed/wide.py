"""Small wide-area clusters for the tests of the testbed, and what those need that build real ones."""

from __future__ import annotations

import itertools
import os

import pytest

import factories
from hulk.domain.cluster import BLOCKED, Cluster, Link
from hulk.testbed import missing

MBIT = 1e6 / 8  # bytes/s
THREE = {"ab": Link(1e-3, 50 * MBIT), "ac": Link(40e-3, 100 * MBIT), "bc": BLOCKED}

needs_testbed = pytest.mark.skipif(bool(missing()), reason=f"a testbed needs {', and '.join(missing())}")
_numbers = itertools.count()


def wide_cluster(links: dict[str, Link], *, card: float = 25e3 * MBIT, machines: str = "abc") -> Cluster:
    """Machines with one-letter names, each in a region of its own; `links` by pairs such as "ab", others blocked."""
    regions = {each: each.upper() for each in machines}
    between = {(regions[a], regions[b]): link for (a, b), link in links.items()}
    return factories.cluster(regions, between, default=BLOCKED, network=card)


def fresh_name() -> str:
    """A testbed name that nothing else uses, not even another run of the tests beside this one."""
    return f"test-{os.getpid()}-{next(_numbers)}"
