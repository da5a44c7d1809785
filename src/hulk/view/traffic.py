"""What a plan's jobs send over which links in a step, and what each link costs them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from hulk.cost.compute import ComputeModel
from hulk.cost.prepared import Prepared, prepare
from hulk.cost.price import LARGE, closed_form
from hulk.cost.report import Infeasible
from hulk.cost.traffic import Fabric, Traffic, sums_of
from hulk.domain.cluster import Cluster, Link, Origin, pair
from hulk.view.document import LinkTraffic, PairTraffic, TrafficView

_MOST_PAIRS = 3000  # pairs of machines that are listed
_MOST_LOOKED_AT = 16  # links of a job whose cost is looked at, those with most bytes
_NO_TIME = Link(latency=0.0, bandwidth=1e14, latency_origin=Origin.MEASURED, bandwidth_origin=Origin.MEASURED)

Ends = tuple[str, str]


@dataclass
class _Amounts:
    """Bytes of one job between two machines, both directions."""

    messages: float = 0.0
    sums: float = 0.0


def traffic_view(
    prepared: Sequence[Prepared], cluster: Cluster, jobs: Sequence[str], compute: ComputeModel
) -> TrafficView:
    """What moves in a step of these jobs; `jobs` are the names of all jobs, in the document's order."""
    region = {machine.name: machine.region for machine in cluster.machines}
    links: list[LinkTraffic] = []
    pairs: list[tuple[float, Ends, str]] = []
    for one in prepared:
        name = one.job.name
        by_regions: dict[Ends, _Amounts] = defaultdict(_Amounts)
        for (a, b), amounts in between_machines(one).items():
            pairs.append((amounts.messages + amounts.sums, (a, b), name))
            whole = by_regions[pair(region[a], region[b])]
            whole.messages += amounts.messages
            whole.sums += amounts.sums
        heaviest = sorted(by_regions, key=lambda ends: -by_regions[ends].messages - by_regions[ends].sums)
        costs = _costs(one, heaviest[:_MOST_LOOKED_AT], compute)
        links += [
            LinkTraffic(
                job=name,
                a=ends[0],
                b=ends[1],
                messages=by_regions[ends].messages,
                sums=by_regions[ends].sums,
                cost=costs.get(ends),
            )
            for ends in heaviest
        ]
    return TrafficView(links=links, pairs=_columns(pairs, cluster, jobs))


def between_machines(prepared: Prepared) -> Mapping[Ends, _Amounts]:
    """A job's bytes by pairs of different machines, keys made by `pair`."""
    fabric = Fabric(prepared.cluster)
    traffic = Traffic(prepared, fabric)
    found: dict[Ends, _Amounts] = defaultdict(_Amounts)
    machines, row = [stage.machine for stage in prepared.stages], 0
    for pipeline in prepared.plan.pipelines:
        rows = range(row, row + len(pipeline.stages))
        for a, b in pairwise(rows):
            if machines[a] != machines[b]:
                size = traffic.message(a, b).size + traffic.message(b, a).size
                found[pair(machines[a], machines[b])].messages += pipeline.microbatches * size
        row += len(pipeline.stages)
    used = dict.fromkeys(machines)
    sender = {fabric.sending(name): name for name in used}
    receiver = {fabric.receiving(name): name for name in used}
    for part in sums_of(prepared, traffic):
        for branch in (branch for phase in part.phases for branch in phase):
            for hop in branch.hops:
                if hop.route.resources:  # a way inside a machine shares nothing, and is no link
                    ends = pair(sender[hop.route.resources[0]], receiver[hop.route.resources[1]])
                    found[ends].sums += hop.size
    return found


def _costs(prepared: Prepared, links: Sequence[Ends], compute: ComputeModel) -> dict[Ends, float]:
    """By link between two regions, the share of the step that would be saved if it took no time: by the closed forms
    that a search goes by, which look at many plans in the time of one that is played."""
    if len(prepared.stages) > LARGE:
        return {}
    before = closed_form(prepared, prepared.book.tables)
    found = {}
    for ends in links:
        free = _without_time(prepared.cluster, ends)
        after = prepare(prepared.job, prepared.plan, free, compute=compute, engine=prepared.engine)
        if not isinstance(after, Infeasible):
            found[ends] = max(0.0, 1.0 - closed_form(after, after.book.tables) / before)
    return found


def _without_time(cluster: Cluster, ends: Ends) -> Cluster:
    """The cluster where the link between two regions, or inside one, takes no time, and those of single machines that
    belong to it neither."""
    region = {machine.name: machine.region for machine in cluster.machines}
    own = {
        key: link
        for key, link in cluster.machine_links.items()
        if link.blocked or pair(*(region[name] for name in key)) != ends
    }
    return replace(cluster, region_links={**cluster.region_links, ends: _NO_TIME}, machine_links=own)


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
