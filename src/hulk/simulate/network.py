"""The network as a fluid: flows that share a network card or a trunk share it max-min fairly.

Every flow has a limit of its own. A resource that its flows cannot fill even at their limits changes nothing; the
others are "crowded". When a flow starts or ends, only flows that hang together with it over crowded resources get new
rates.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from hulk.simulate.clock import Action, Clock

# Rates that differ by less than this share are the same: no new end time for a flow over rounding.
_SAME_RATE = 1e-12
# Flows must want this much more than a resource has before it counts as crowded: two halves that round up do not.
_CROWDED = 1 + 1e-9


@dataclass(slots=True, eq=False)
class Resource:
    """Something flows share, in one direction: `capacity` in bytes/s, `carried` the bytes it has been given so far."""

    capacity: float
    carried: float = 0.0
    flows: dict[Flow, None] = field(default_factory=dict)  # a set in order, for the same result every time

    @property
    def crowded(self) -> bool:
        """Whether its flows want more than it has."""
        return sum(flow.limit for flow in self.flows) > self.capacity * _CROWDED


@dataclass(frozen=True, slots=True)
class Route:
    """The way from one machine to another: what a flow on it can have at most, in bytes/s, and what it shares."""

    limit: float
    resources: tuple[Resource, ...]


@dataclass(slots=True, eq=False)
class Flow:
    """Bytes on their way: `left` of them at the time `since`, going at `rate`."""

    limit: float
    resources: tuple[Resource, ...]
    left: float
    since: float
    done: Action
    rate: float = 0.0
    version: int = 0  # of its end time; ends of older versions are void


@dataclass(frozen=True, slots=True)
class Network:
    """All flows of all jobs. Without `contention` every flow has its limit."""

    clock: Clock
    contention: bool

    def send(self, route: Route, size: float, stretch: float, done: Action) -> None:
        """Move `size` bytes and then call `done`. `stretch` multiplies the seconds, not the bytes that are counted."""
        for resource in route.resources:
            resource.carried += size
        if not self.contention or not route.resources or size <= 0:
            self.clock.after(size * stretch / route.limit, done)
            return
        flow = Flow(route.limit, route.resources, size * stretch, self.clock.now, done)
        for resource in flow.resources:
            resource.flows[flow] = None
        crowded = [resource for resource in flow.resources if resource.crowded]
        if crowded:
            self._share(crowded)
        else:
            self._set_rate(flow, flow.limit)

    def _finish(self, flow: Flow, version: int) -> None:
        if version != flow.version:
            return
        crowded = [resource for resource in flow.resources if resource.crowded]
        for resource in flow.resources:
            del resource.flows[flow]
        if crowded:
            self._share(crowded)
        flow.done()

    def _share(self, changed: Iterable[Resource]) -> None:
        """New rates for the flows on these resources and all that hang together with them."""
        resources = dict.fromkeys(changed)
        flows: dict[Flow, None] = {}
        reached = list(resources)
        for resource in reached:
            for flow in resource.flows:
                if flow in flows:
                    continue
                flows[flow] = None
                for other in flow.resources:
                    if other not in resources and other.crowded:
                        resources[other] = None
                        reached.append(other)
        for flow, rate in fair_rates(flows, resources).items():
            self._set_rate(flow, rate)

    def _set_rate(self, flow: Flow, rate: float) -> None:
        if abs(rate - flow.rate) <= _SAME_RATE * rate:
            return
        now = self.clock.now
        flow.left = max(flow.left - flow.rate * (now - flow.since), 0.0)
        flow.rate = rate
        flow.since = now
        flow.version += 1
        self.clock.after(flow.left / rate, partial(self._finish, flow, flow.version))


def fair_rates(flows: Iterable[Flow], resources: Iterable[Resource]) -> dict[Flow, float]:
    """The max-min fair rate of each flow, in bytes/s, by water-filling (Bertsekas and Gallager, Data Networks, 6.5.2):
    raise all rates together; a flow stops at its limit, or when a resource on its way is full."""
    left = {resource: resource.capacity for resource in resources}
    rising = dict.fromkeys(flows)
    rates: dict[Flow, float] = {}
    while rising:
        shares = {
            resource: capacity / count
            for resource, capacity in left.items()
            if (count := sum(flow in rising for flow in resource.flows))
        }
        level = min(shares.values())
        stopped = [flow for flow in rising if flow.limit <= level]
        if not stopped:
            full = min(shares, key=shares.__getitem__)
            stopped = [flow for flow in full.flows if flow in rising]
        for flow in stopped:
            rate = min(flow.limit, level)
            rates[flow] = rate
            del rising[flow]
            for resource in flow.resources:
                if resource in left:
                    left[resource] = max(left[resource] - rate, 0.0)
    return rates
