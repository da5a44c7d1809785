"""The network as a fluid: flows that share a network card or a trunk share it max-min fairly.

Every flow has a limit of its own. A resource that its flows cannot fill even at their limits changes nothing; the
others are "crowded". When a flow starts or ends, only flows that hang together with it over crowded resources get new
rates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from operator import itemgetter

from hulk.cost.traffic import Fabric, Route
from hulk.simulate.clock import Action, Clock

# Rates that differ by less than this share are the same: no new end time for a flow over rounding.
_SAME_RATE = 1e-12
# Flows must want this much more than a resource has before it counts as crowded: two halves that round up do not.
_CROWDED = 1 + 1e-9


@dataclass(slots=True, eq=False)
class Resource:
    """Something flows share, in one direction.

    capacity  bytes/s
    carried   bytes it has been given so far
    flows     those on it: a set in order, for the same result every time
    wanted    bytes/s they would have without it
    """

    capacity: float
    carried: float = 0.0
    flows: dict[Flow, None] = field(default_factory=dict)
    wanted: float = 0.0

    @property
    def crowded(self) -> bool:
        """Whether its flows want more than it has."""
        return self.wanted > self.capacity * _CROWDED

    def add(self, flow: Flow) -> None:
        """A flow starts."""
        self.flows[flow] = None
        self.wanted += flow.limit

    def remove(self, flow: Flow) -> None:
        """A flow ends."""
        del self.flows[flow]
        self.wanted = self.wanted - flow.limit if self.flows else 0.0  # rounding must not add up


@dataclass(slots=True, eq=False)
class Flow:
    """Bytes on their way: `left` of them at the time `since`, going at `rate`, all there at `end`. `due` is when the
    clock next looks after it: at the end or, where it has been slowed down since, before."""

    limit: float
    resources: tuple[Resource, ...]
    left: float
    since: float
    done: Action
    rate: float = 0.0
    end: float = math.inf
    due: float = math.inf


@dataclass(frozen=True, slots=True)
class Network:
    """All flows of all jobs. Without `contention` every flow has its limit."""

    clock: Clock
    fabric: Fabric
    contention: bool
    _resources: dict[int, Resource] = field(default_factory=dict)
    _changed: dict[Resource, None] = field(default_factory=dict)

    def resource(self, number: int) -> Resource:
        """What has that number in the fabric."""
        if number not in self._resources:
            self._resources[number] = Resource(self.fabric.capacity[number])
        return self._resources[number]

    def send(self, route: Route, size: float, stretch: float, done: Action) -> None:
        """Move `size` bytes and then call `done`. `stretch` multiplies the seconds, not the bytes that are counted."""
        resources = tuple(self.resource(number) for number in route.resources)

        def arrived() -> None:
            for resource in resources:
                resource.carried += size
            done()

        if not self.contention or not resources or size <= 0:
            self.clock.after(size * stretch / route.limit, arrived)
            return
        flow = Flow(route.limit, resources, size * stretch, self.clock.now, arrived)
        for resource in flow.resources:
            resource.add(flow)
        crowded = [resource for resource in flow.resources if resource.crowded]
        if crowded:
            self._share_soon(crowded)
        else:
            self._set_rate(flow, flow.limit)

    def _look_after(self, flow: Flow, due: float) -> None:
        """Finish a flow, unless it has been given another time meanwhile."""
        if due != flow.due:
            return
        if flow.end > due:
            self._look_at_end(flow)
            return
        flow.due = -math.inf  # over: it is not looked after again
        crowded = [resource for resource in flow.resources if resource.crowded]
        for resource in flow.resources:
            resource.remove(flow)
        if crowded:
            self._share_soon(crowded)
        flow.done()

    def _share_soon(self, changed: Iterable[Resource]) -> None:
        """Once everything of this moment has happened: where one message ends another often starts."""
        if not self._changed:
            self.clock.after(0.0, self._share)
        self._changed.update(dict.fromkeys(changed))

    def _share(self) -> None:
        """New rates for the flows on changed resources and all that hang together with them."""
        resources = dict(self._changed)
        self._changed.clear()
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
        flow.end = now + flow.left / rate
        if flow.end < flow.due:
            self._look_at_end(flow)

    def _look_at_end(self, flow: Flow) -> None:
        flow.due = flow.end
        self.clock.at(flow.due, partial(self._look_after, flow, flow.due))


def fair_rates(flows: Iterable[Flow], resources: Iterable[Resource]) -> dict[Flow, float]:
    """The max-min fair rate of each flow, in bytes/s, by water-filling (Bertsekas and Gallager, Data Networks, 6.5.2):
    raise all rates together; a flow stops at its limit, or when a resource on its way is full."""
    left = {resource: resource.capacity for resource in resources}
    count = {resource: len(resource.flows) for resource in left}
    rising = dict.fromkeys(sorted(flows, key=lambda flow: flow.limit))
    rates: dict[Flow, float] = {}
    while rising:
        level, full = min(
            ((left[resource] / flows_on_it, resource) for resource, flows_on_it in count.items() if flows_on_it),
            key=itemgetter(0),
        )
        stopped = list(takewhile(lambda flow: flow.limit <= level, rising))  # noqa: B023 - used up at once
        if not stopped:
            stopped = [flow for flow in full.flows if flow in rising]
        for flow in stopped:
            rate = min(flow.limit, level)
            rates[flow] = rate
            del rising[flow]
            for resource in flow.resources:
                if resource in left:
                    left[resource] -= rate
                    count[resource] -= 1
    return rates
