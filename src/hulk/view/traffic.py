"""What a plan's jobs send over which links in a step, and how long that keeps them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hulk.cost.prepared import Prepared
from hulk.cost.traffic import Fabric, Traffic, Wire, sums_of
from hulk.domain.cluster import Cluster, pair
from hulk.view.document import LinkTraffic, PairTraffic, TrafficView

_MOST_PAIRS = 3000  # pairs of machines that are listed

Ends = tuple[str, str]


@dataclass
class Amounts:
    """What one job moves between two machines, or two regions: bytes of both directions, and the seconds a step that
    its busiest connection is at work. A connection carries the messages of one pipeline, or sums, one way."""

    messages: float = 0.0
    sums: float = 0.0
    at_work: float = 0.0

    def add(self, other: Amounts) -> None:
        """What moves between machines that are part of this."""
        self.messages += other.messages
        self.sums += other.sums
        self.at_work = max(self.at_work, other.at_work)


def traffic_view(
    prepared: Sequence[Prepared], cluster: Cluster, jobs: Sequence[str], steps: Mapping[str, float]
) -> TrafficView:
    """What moves in a step of these jobs; `jobs` are the names of all jobs, in the document's order, `steps` the
    seconds a step of those that run."""
    region = {machine.name: machine.region for machine in cluster.machines}
    links: list[LinkTraffic] = []
    pairs: list[tuple[float, Ends, str]] = []
    for one in prepared:
        name = one.job.name
        by_regions: dict[Ends, Amounts] = defaultdict(Amounts)
        for (a, b), amounts in between_machines(one).items():
            pairs.append((amounts.messages + amounts.sums, (a, b), name))
            by_regions[pair(region[a], region[b])].add(amounts)
        links += [
            LinkTraffic(
                job=name,
                a=ends[0],
                b=ends[1],
                messages=its.messages,
                sums=its.sums,
                cost=min(1.0, its.at_work / steps[name]) if name in steps else None,
            )
            for ends, its in sorted(by_regions.items(), key=lambda item: -item[1].messages - item[1].sums)
        ]
    return TrafficView(links=links, pairs=_columns(pairs, cluster, jobs))


def between_machines(prepared: Prepared) -> Mapping[Ends, Amounts]:
    """What a job moves by pairs of different machines, keys made by `pair`."""
    fabric = Fabric.of([prepared])
    traffic = Traffic(prepared, fabric)
    found: dict[Ends, Amounts] = defaultdict(Amounts)
    machines, row = [stage.machine for stage in prepared.stages], 0
    for pipeline in prepared.plan.pipelines:
        rows = range(row, row + len(pipeline.stages))
        for a, b in pairwise(rows):
            if machines[a] != machines[b]:
                there, back = traffic.message(a, b), traffic.message(b, a)
                count = pipeline.microbatches
                longest = max(_seconds(there), _seconds(back))
                size = count * (there.size + back.size)
                found[pair(machines[a], machines[b])].add(Amounts(size, 0.0, count * longest))
        row += len(pipeline.stages)
    used = dict.fromkeys(machines)
    sender = {fabric.sending(name): name for name in used}
    receiver = {fabric.receiving(name): name for name in used}
    one_way: dict[Ends, float] = defaultdict(float)
    for part in sums_of(prepared, traffic):
        for branch in (branch for phase in part.phases for branch in phase):
            for hop in branch.hops:
                if hop.route.resources:  # a way inside a machine shares nothing, and is no link
                    ends = sender[hop.route.resources[0]], receiver[hop.route.resources[1]]
                    one_way[ends] += hop.size / hop.route.limit
                    found[pair(*ends)].add(Amounts(0.0, hop.size, one_way[ends]))
    return found


def _seconds(wire: Wire) -> float:
    """How long a message keeps its connection: what it costs to send, without the way, on which the next follows."""
    return wire.fixed + wire.size / wire.route.limit


def _columns(pairs: list[tuple[float, Ends, str]], cluster: Cluster, jobs: Sequence[str]) -> PairTraffic:
    heaviest = sorted(pairs, key=lambda one: -one[0])[:_MOST_PAIRS]
    number = {machine.name: index for index, machine in enumerate(cluster.machines)}
    return PairTraffic(
        a=[number[ends[0]] for _, ends, _ in heaviest],
        b=[number[ends[1]] for _, ends, _ in heaviest],
        job=[jobs.index(job) for _, _, job in heaviest],
        bytes=[size for size, _, _ in heaviest],
        left_out=len(pairs) - len(heaviest),
    )
