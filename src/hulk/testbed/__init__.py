"""A wide-area network on one Linux machine: a network namespace per machine of a cluster, and a router between them
that holds every packet for the latency and bandwidth of its link.

network (what is emulated) < queues (how long a packet takes) < router (packets in and out) < daemon (its process);
namespaces and state (what it makes, and how that goes away again); testbed (the handle others use); probe and check
(is it what the cluster says?).
"""

from __future__ import annotations

from hulk.testbed.check import Reading, check
from hulk.testbed.network import MOST_MACHINES, Network
from hulk.testbed.requirements import missing
from hulk.testbed.testbed import Testbed

__all__ = ["MOST_MACHINES", "Network", "Reading", "Testbed", "check", "missing"]
