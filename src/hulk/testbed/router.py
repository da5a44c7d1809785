"""The router: reads packets from every host's TUN device, holds each as its path says, hands it to the target's.

Packets are large (see `hulk.testbed.network`), so a gigabit a second is about two thousand of them, and plain Python
keeps up. A packet's times follow from when it was read, not from when the router woke up, so being late once
does not add up.
"""

from __future__ import annotations

import gc
import os
import select
import time
from collections.abc import Callable, Mapping, Sequence

from hulk.testbed.network import Network
from hulk.testbed.queues import Fabric

_LARGEST_PACKET = 65536
_BURST = 64  # packets read from one device before the others and what is due get their turn
_TARGET = slice(16, 20)  # the destination in an IPv4 header


class Router:
    """Between the hosts' devices. `devices` are non-blocking TUN descriptors in the order of the network's hosts; `cut`
    holds the hosts whose packets are all dropped; the router runs while `running`."""

    def __init__(self, network: Network, devices: Sequence[int]) -> None:
        self.fabric = Fabric(network)
        self.cut: set[int] = set()
        self.running = True
        self._devices = devices
        addresses = [bytes(int(part) for part in host.address.split(".")) for host in network.hosts]
        self._routes = [
            {addresses[b]: path for (a, b), path in self.fabric.paths.items() if a == source}
            for source in range(len(devices))
        ]

    def run(self, others: Mapping[int, Callable[[], None]]) -> None:
        """Route until `running` is false. `others` are further descriptors to listen to, each with what to call."""
        gc.disable()  # nothing here makes cycles, and a collection would hold up packets
        source_of = {device: index for index, device in enumerate(self._devices)}
        watched = [*self._devices, *others]
        clock = time.monotonic
        while self.running:
            due = self.fabric.due()
            wait = None if due is None else max(0.0, due - clock())
            # select, not epoll: its timeout is in microseconds, and there are few descriptors.
            for ready in select.select(watched, (), (), wait)[0]:
                source = source_of.get(ready)
                if source is None:
                    others[ready]()
                else:
                    self._read(source, clock())
            self._deliver(clock())

    def _read(self, source: int, now: float) -> None:
        """Take what a host has sent; what goes to a blocked or unknown address, or comes from one cut off, is lost."""
        device, routes = self._devices[source], self._routes[source]
        for _ in range(_BURST):
            try:
                packet = os.read(device, _LARGEST_PACKET)
            except BlockingIOError:
                return
            path = routes.get(packet[_TARGET])
            if path is not None and source not in self.cut:
                self.fabric.send(now, path, packet)

    def _deliver(self, now: float) -> None:
        """Hand over what has arrived by now."""
        cut = self.cut
        for path, packet in self.fabric.advance(now):
            if path.target in cut or path.source in cut:
                continue
            path.packets += 1  # before it is handed over, so that whoever has it finds it counted
            path.size += len(packet)
            try:
                os.write(self._devices[path.target], packet)
            except OSError:  # the device is down or out of memory: networks lose packets
                path.packets -= 1
                path.size -= len(packet)
                path.dropped += 1
