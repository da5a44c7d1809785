"""Which cluster a plan was made for: the facts that its price rests on, and what of them is different elsewhere."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from itertools import combinations_with_replacement, pairwise
from typing import Annotated

from pydantic import FailFast, Field

from hulk.domain.cluster import Cluster, Link, Machine, pair
from hulk.domain.gpu import GpuType
from hulk.domain.plan import Plan, machines_used
from hulk.io.fields import Entry, Flag, Name, whole
from hulk.units import Dimension, written

_MOST_NAMED = 4

Fact = Annotated[str, Field(max_length=100)]


class MachineFacts(Entry):
    """What machines that are alike had when the plan was made."""

    names: Annotated[list[Name], FailFast(), Field(min_length=1)]
    """The machines."""
    region: Name
    """Where they were."""
    gpu: Fact
    """Their GPU type."""
    gpus: Annotated[int, whole(1, 10**6)]
    """GPUs of one machine."""
    memory: Fact
    """Memory of one GPU."""
    network: Fact
    """What the network card did, per direction."""
    price: Fact
    """Price of one machine."""
    figures: Annotated[str, Field(max_length=400)] = ""
    """What the GPU did, where its type is the cluster's own: a name of the catalogue says it by itself."""


class LinkFacts(Entry):
    """What connected two regions, or the machines of one, between which the plan's stages talk."""

    between: Annotated[list[Name], Field(min_length=2, max_length=2)]
    """The two regions; the same twice for the machines inside one."""
    latency: Fact = ""
    """One way."""
    bandwidth: Fact = ""
    """Of one flow."""
    blocked: Flag = False
    """Machines there could not talk, but for those that have a link of their own."""


class MadeFor(Entry):
    """The part of its cluster that a plan uses, as it was when the plan was made."""

    fingerprint: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    """Digest of everything known of these machines and of all links between them."""
    machines: Annotated[list[MachineFacts], FailFast()] = Field(default_factory=list)
    """The machines that train, those that are alike together."""
    links: Annotated[list[LinkFacts], FailFast()] = Field(default_factory=list)
    """The links between regions where neighbouring stages are, and inside those with stages on several machines."""


def made_for(plan: Plan, cluster: Cluster) -> MadeFor:
    """The facts of the machines that the plan uses. The same cluster file always gives the same ones."""
    used = machines_used(plan.jobs.values())
    names = [machine.name for machine in cluster.machines if machine.name in used]
    alike: dict[tuple[object, ...], list[str]] = {}
    for name in names:
        alike.setdefault(_alike(cluster.machine(name)), []).append(name)
    machines = [_machine(cluster.machine(same[0])).model_copy(update={"names": same}) for same in alike.values()]
    links = [_link(pair, cluster.region_link(*pair)) for pair in sorted(_neighbours(plan, cluster))]
    return MadeFor(fingerprint=_fingerprint(names, cluster), machines=machines, links=links)


def differences(facts: MadeFor | None, name: str | None, cluster: Cluster) -> str | None:
    """What is different here from the cluster that a plan was made for, in words; None where nothing is.

    `name` is that cluster's, None where the plan does not say it; old plans come without facts.
    """
    found = [] if facts is None else [*_machine_differences(facts, cluster), *_link_differences(facts, cluster)]
    names = [] if facts is None else [machine for group in facts.machines for machine in group.names]
    if facts is not None and not found and _fingerprint(names, cluster) != facts.fingerprint:
        found = ["links between its machines are not what they were"]
    if name is not None and name != cluster.name:
        same = " (its machines and links are the same)" if facts is not None and not found else ""
        found.insert(0, f"it was made for cluster {name!r}, and this is {cluster.name!r}{same}")
    if len(found) > _MOST_NAMED:
        found[_MOST_NAMED - 1 :] = [f"{len(found) - _MOST_NAMED + 1} more differences"]
    return "; ".join(found) or None


def _alike(machine: Machine) -> tuple[object, ...]:
    return machine.region, machine.gpu.name, machine.gpus, machine.memory, machine.network, machine.cards, machine.price


def _machine(machine: Machine) -> MachineFacts:
    return MachineFacts(
        names=[machine.name],
        region=machine.region,
        gpu=machine.gpu.name,
        gpus=machine.gpus,
        memory=written(machine.memory, Dimension.SIZE),
        network=_written_cards(machine),
        price=written(machine.price, Dimension.HOURLY),
        figures="" if machine.gpu.own is None else _figures(machine.gpu),
    )


def _figures(gpu: GpuType) -> str:
    """What a price depends on, of a GPU type that no catalogue has."""
    rates = ", ".join(f"{name} {rate / 1e12:.4g}" for name, rate in sorted(gpu.rates.items()))
    memory, link = (f"{rate / 1e9:.4g} GB/s" for rate in (gpu.memory_bandwidth, gpu.link_bandwidth))
    like = "" if gpu.family == gpu.name else f"like {gpu.family}, "
    kind = f", capability {gpu.capability}" if gpu.capability else ""
    return f"{like}TFLOP/s {rates}, memory {memory}, {gpu.link_kind} {link}{kind}"


def _written_cards(machine: Machine) -> str:
    each = written(machine.card, Dimension.BANDWIDTH)
    return each if machine.cards == 1 else f"{machine.cards} x {each}"


def _link(between: tuple[str, str], link: Link) -> LinkFacts:
    if link.blocked:
        return LinkFacts(between=list(between), blocked=True)
    latency, bandwidth = written(link.latency, Dimension.TIME), written(link.bandwidth, Dimension.BANDWIDTH)
    return LinkFacts(between=list(between), latency=latency, bandwidth=bandwidth)


def _neighbours(plan: Plan, cluster: Cluster) -> set[tuple[str, str]]:
    """The pairs of regions that stages beside each other are in, and machines that hold a stage together."""
    ends = [
        (a.machine, b.machine)
        for job in plan.jobs.values()
        for pipeline in job.pipelines
        for a, b in pairwise(pipeline.stages)
    ]
    ends += [its for job in plan.jobs.values() for stage in job.stages for its in pairwise(stage.machines)]
    return {pair(cluster.machine(a).region, cluster.machine(b).region) for a, b in ends if a != b}


def _machine_differences(facts: MadeFor, cluster: Cluster) -> Iterator[str]:
    for group in facts.machines:
        for name in group.names:
            if not cluster.has_machine(name):
                yield f"there is no {name} here, which had {_cards(group)}"
                continue
            here = _machine(cluster.machine(name))
            if (group.gpu, group.gpus, group.memory) != (here.gpu, here.gpus, here.memory):
                yield f"{name} had {_cards(group)}, here it has {_cards(here)}"
            elif group.figures != here.figures:
                yield f"the {here.gpu} of {name} was {group.figures}; here it is {here.figures}"
            elif group.region != here.region:
                yield f"{name} was in {group.region}, here it is in {here.region}"
            elif group.network != here.network:
                yield f"the network card of {name} did {group.network}, here it does {here.network}"
            elif group.price != here.price:
                yield f"{name} cost {group.price}, here it costs {here.price}"


def _link_differences(facts: MadeFor, cluster: Cluster) -> Iterator[str]:
    known = {region.name for region in cluster.regions}
    for link in facts.links:
        a, b = link.between
        if a in known and b in known:
            here = _link((a, b), cluster.region_link(a, b))
            if _way(here) != _way(link):
                ends = f"between {a} and {b}" if a != b else f"inside {a}"
                yield f"the link {ends} was {_way(link)}, here it is {_way(here)}"


def _cards(facts: MachineFacts) -> str:
    return f"{facts.gpus} × {facts.gpu} of {facts.memory}"


def _way(facts: LinkFacts) -> str:
    return "blocked" if facts.blocked else f"{facts.latency} at {facts.bandwidth}"


def _fingerprint(names: Iterable[str], cluster: Cluster) -> str:
    """A digest of all that is known of these machines (those that are here) and of the links between them."""
    machines = {name: cluster.machine(name) for name in sorted(names) if cluster.has_machine(name)}
    at = [machine.region for machine in machines.values()]
    regions = sorted(set(at))
    ways = [(a, b) for a, b in combinations_with_replacement(regions, 2) if a != b or at.count(a) > 1]
    exceptions = {ends: link for ends, link in cluster.machine_links.items() if machines.keys() >= set(ends)}
    known = {name: _machine(machine) for name, machine in machines.items()}
    facts = [
        {name: machine.model_dump(exclude={"names"}, exclude_defaults=True) for name, machine in known.items()},
        {name: f"{cluster.region(name).egress:.6g}" for name in regions},
        {" ".join(way): _everything(cluster.region_link(*way)) for way in ways},
        {" ".join(ends): _everything(link) for ends, link in sorted(exceptions.items())},
    ]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def _everything(link: Link) -> str:
    numbers = (link.latency, link.bandwidth, link.trunk, link.egress)
    return " ".join("-" if number is None else f"{number:.6g}" for number in numbers)
