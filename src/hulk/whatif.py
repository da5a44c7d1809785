"""What would help most: the same plan, priced with one thing better. Every number is a real price, cuts made anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf

from hulk.cost.compute import ComputeModel
from hulk.cost.engine import HULK, Engine
from hulk.cost.prepared import Prepared, prepare
from hulk.cost.price import price_job, step_of
from hulk.cost.report import JobPrice
from hulk.domain.cluster import Cluster, Link, Machine, pair, restrict
from hulk.domain.gpu import GpuType
from hulk.domain.job import Job
from hulk.domain.joined import joined, taken_apart
from hulk.domain.options import Recompute
from hulk.domain.plan import JobPlan, Plan
from hulk.search.job_space import JobSpace, Places
from hulk.search.objective import job_cost
from hulk.search.skeleton import skeleton_of

FASTER_LINK = 10e9 / 8
"""bytes/s of the link that is tried between two regions: what a leased line does."""
_CARDS = tuple(gbit * 1e9 / 8 for gbit in (10, 25, 50, 100, 200, 400))
_LEAST_GAIN = 0.01
_MOST_JOBS = 8
_MOST_LINKS = 8
_MOST_PLAYED = 6  # twice as many as are told
_MEMORY_FACTORS = {2: "twice", 4: "four times"}
_MOST_NAMES = 3


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One improvement: in words, and the job's seconds a step without and with it."""

    text: str
    job: str
    before_s: float
    after_s: float

    @property
    def gain(self) -> float:
        """The share of the step that it saves."""
        return 1 - self.after_s / self.before_s


@dataclass(frozen=True)
class _Variant:
    """A changed plan or cluster, in words."""

    words: str
    plan: JobPlan
    cluster: Cluster


@dataclass(frozen=True)
class _Case:
    """One job's plan on its own machines, with its price and its durations."""

    job: Job
    plan: JobPlan
    cluster: Cluster
    compute: ComputeModel
    engine: Engine
    price: JobPrice
    prepared: Prepared

    def best(self, plan: JobPlan, cluster: Cluster) -> tuple[JobPlan, float] | None:
        """The better of the cuts as they are and new ones; None where neither fits."""
        found = recut(self.job, plan, cluster, compute=self.compute, engine=self.engine)
        if sum(p.microbatches for p in plan.pipelines) * plan.options.microbatch_size != self.job.global_batch:
            return found
        same = step_of(self.job, plan, cluster, compute=self.compute, engine=self.engine)
        if same is not None and (found is None or same < found[1]):
            return plan, same
        return found

    def quick(self, plan: JobPlan, cluster: Cluster) -> float:
        """Seconds of a step by the search's closed forms, with cuts made anew; infinite where nothing fits."""
        cut = _cut_anew(self.job, plan, restrict(cluster, plan.machines), compute=self.compute, engine=self.engine)
        return inf if cut is None else cut[1]


def recut(
    job: Job, plan: JobPlan, cluster: Cluster, *, compute: ComputeModel, engine: Engine
) -> tuple[JobPlan, float] | None:
    """The same slots with the layers cut and the batch shared anew, and its seconds a step; None where nothing fits."""
    own = restrict(cluster, plan.machines)
    again = _cut_anew(job, plan, own, compute=compute, engine=engine)
    seconds = step_of(job, again[0], own, compute=compute, engine=engine) if again else None
    return None if again is None or seconds is None else (again[0], seconds)


def _cut_anew(
    job: Job, plan: JobPlan, own: Cluster, *, compute: ComputeModel, engine: Engine
) -> tuple[JobPlan, float] | None:
    """The same with its seconds by the closed forms, on a cluster of the plan's own machines."""
    own = joined(own, [plan])
    space = JobSpace(job, own, Places.of(own), compute=compute, engine=engine)
    skeleton = skeleton_of(plan, own)
    if any(slot.ranks not in space.degrees for chain in skeleton.chains for slot in chain):
        return None
    if not space.result(skeleton).runs:
        return None
    made, seconds = space.plan(skeleton)
    return taken_apart(made, own), seconds


def suggest(
    plan: Plan,
    cluster: Cluster,
    jobs: Iterable[Job],
    *,
    compute: ComputeModel,
    engine: Engine = HULK,
    most: int = 3,
    gpus: Iterable[GpuType] = (),
) -> tuple[WhatIf, ...]:
    """The `most` best single improvements of each job, those that help the objective most first.

    Only the jobs with the greatest part of the objective are looked at. GPU types to try are those of the cluster, then
    `gpus`. A what-if changes one job's price alone: what a better link does for another job is told there.
    """
    cases = []
    for job in jobs:
        if (own := plan.jobs.get(job.name)) is None:
            continue
        near = restrict(cluster, own.machines)
        price = price_job(job, own, near, compute=compute, engine=engine)
        prepared = prepare(job, own, near, compute=compute, engine=engine)
        if isinstance(price, JobPrice) and isinstance(prepared, Prepared):
            cases.append(_Case(job, own, near, compute, engine, price, prepared))
    cases.sort(key=lambda case: -job_cost(case.job, case.price.step))
    here = {machine.gpu.name: machine.gpu for machine in cluster.machines}
    types = ([*here.values()], [*gpus])
    found: list[tuple[float, WhatIf]] = []
    for case in cases[:_MOST_JOBS]:
        ranked = sorted(_improvements(case, types), key=lambda item: -item.gain)
        found += [(job_cost(case.job, w.before_s) - job_cost(case.job, w.after_s), w) for w in ranked[:most]]
    return tuple(whatif for _, whatif in sorted(found, key=lambda item: -item[0]))


def _improvements(case: _Case, types: Sequence[Sequence[GpuType]]) -> Iterator[WhatIf]:
    """All improvements of one job that are worth a line."""
    name = case.job.name
    before = step_of(case.job, case.plan, case.cluster, compute=case.compute, engine=case.engine) or case.price.step
    again = case.best(case.plan, case.cluster)
    if again is not None and again[1] < before * (1 - _LEAST_GAIN):
        words = "the same machines with the layers cut and the batch shared anew" + _less_again(case.plan, again[0])
        yield _whatif(words, name, before, again[1])
    # What follows is cut anew too: its gain is what it adds to that.
    before = min(before, again[1] if again else before)
    variants = [*_links(case), *_cards(case), *_faster_gpus(case, types), *_fewer_replicas(case)]
    if len(variants) > _MOST_PLAYED:  # playing takes a while for long pipelines: a quick look says which are worth it
        variants = sorted(variants, key=lambda each: case.quick(each.plan, each.cluster))[:_MOST_PLAYED]
    for variant in variants:
        found = case.best(variant.plan, variant.cluster)
        if found is not None and found[1] < before * (1 - _LEAST_GAIN):
            yield _whatif(variant.words, name, before, found[1])
    more_memory = _more_memory(case, before)
    if more_memory is not None:
        yield more_memory


def _less_again(before: JobPlan, after: JobPlan) -> str:
    """What another plan of the same machines does not compute again, in words."""
    if after.options.recompute is not before.options.recompute:
        return ", and nothing recomputed"
    return ", and only some blocks recomputed" if after.counts_blocks and not before.counts_blocks else ""


def _whatif(words: str, job: str, before: float, after: float) -> WhatIf:
    return WhatIf(f"{words}: −{1 - after / before:.0%}".replace("%", " %"), job, before, after)


def _links(case: _Case) -> Iterator[_Variant]:
    """A faster link, and one of half the latency, between two regions that the plan uses, or inside one."""
    for a, b in _used_links(case)[:_MOST_LINKS]:
        where = f"inside {a}" if a == b else f"{a}–{b}"
        link = case.cluster.region_link(a, b)
        faster = _with_links(case.cluster, a, b, _faster)
        if faster != case.cluster:
            yield _Variant(f"a {_gbits(FASTER_LINK)} link {where}", case.plan, faster)
        if not link.blocked and link.latency > 0:
            nearer = _with_links(case.cluster, a, b, lambda own: replace(own, latency=own.latency / 2))
            yield _Variant(f"half the latency {where}", case.plan, nearer)


def _faster(link: Link) -> Link:
    """At least the faster link's bandwidth for a flow, and for all flows where they share a trunk."""
    trunk = None if link.trunk is None else max(link.trunk, FASTER_LINK)
    return replace(link, bandwidth=max(link.bandwidth, FASTER_LINK), trunk=trunk)


def _with_links(cluster: Cluster, a: str, b: str, change: Callable[[Link], Link]) -> Cluster:
    """The cluster with every link between two regions changed, except the blocked ones."""
    ends = pair(a, b)

    def changed(link: Link) -> Link:
        return link if link.blocked else change(link)

    regions = dict(cluster.region_links)
    regions[ends] = changed(regions[ends])
    machines = {
        key: changed(link) if pair(cluster.machine(key[0]).region, cluster.machine(key[1]).region) == ends else link
        for key, link in cluster.machine_links.items()
    }
    return replace(cluster, region_links=regions, machine_links=machines)


def _used_links(case: _Case) -> list[tuple[str, str]]:
    """Pairs of regions over which the plan sends activations or gradients, the slowest first."""
    pairs: dict[tuple[str, str], float] = {}
    machine = case.cluster.machine

    def use(a: str, b: str, size: float) -> None:
        if a != b:
            link = case.cluster.link(a, b)
            key = pair(machine(a).region, machine(b).region)
            pairs[key] = max(pairs.get(key, 0.0), link.latency + size / max(link.bandwidth, 1.0))

    for pipeline in case.plan.pipelines:
        for one, two in pairwise(pipeline.stages):
            use(one.machine, two.machine, float(case.prepared.book.tables.cut[one.last]))
    stages = case.prepared.stages
    for stage in stages:
        for other in stage.machines[1:]:
            use(stage.machine, other, float(case.prepared.book.tables.cut[stage.last]))
    for share in case.prepared.shares:
        for a, b, _ in share.hops():
            use(stages[a].machine, stages[b].machine, share.size)
    return sorted(pairs, key=lambda key: -pairs[key])


def _cards(case: _Case) -> Iterator[_Variant]:
    """A faster card in each end of the slowest way, and in the machine with the slowest card."""
    hops = [hop for pipeline in case.price.pipelines for hop in pairwise(pipeline) if hop[0].machine != hop[1].machine]
    names: dict[str, None] = {}
    if hops:
        names |= dict.fromkeys(stage.machine for stage in max(hops, key=lambda hop: hop[0].send_wire))
    hosts = [case.cluster.machine(name) for name in case.plan.machines]
    if len(hosts) > 1:
        names[min(hosts, key=lambda host: host.network).name] = None
    together = {name: stage.machines for stage in case.plan.stages for name in stage.machines}
    for team in dict.fromkeys(together[name] for name in names):  # machines that hold stages together get it together
        host = case.cluster.machine(team[0])
        card = next((rate for rate in _CARDS if rate >= 2 * host.card), None)
        if card is not None:
            what = "a {} network card" if host.cards == 1 else f"{host.cards} network cards of {{}}"
            where = f"{'each of ' if len(team) > 1 else ''}{_some(team)}"
            words = f"{what.format(_gbits(card))} in {where} instead of {_gbits(host.card)}"
            better = [replace(each, network=card * each.cards) for each in map(case.cluster.machine, team)]
            yield _Variant(words, case.plan, _with_machines(case.cluster, better))


def _more_memory(case: _Case, before: float) -> WhatIf | None:
    """The same machines with so much memory that nothing is computed twice; None where there is no need or no gain."""
    if case.plan.options.recompute is Recompute.NONE:
        return None
    plan = replace(case.plan.uncounted, options=replace(case.plan.options, recompute=Recompute.NONE))
    for factor, how_much in _MEMORY_FACTORS.items():
        machines = tuple(replace(m, memory=m.memory * factor) for m in case.cluster.machines)
        cluster = replace(case.cluster, machines=machines)
        found = case.best(plan, cluster)
        if found is None or found[1] >= before * (1 - _LEAST_GAIN):
            continue
        price = price_job(case.job, found[0], cluster, compute=case.compute, engine=case.engine)
        assert isinstance(price, JobPrice)
        stages = [stage for pipeline in price.pipelines for stage in pipeline]
        room = {m.name: m.memory * (1.0 - case.engine.headroom) for m in case.cluster.machines}
        short = dict.fromkeys(s.machine for s in stages if s.memory.used > room[s.machine])
        words = f"{how_much} the GPU memory on {_some(short)}" if short else "recomputation off"
        return _whatif(f"{words}, so that nothing is computed twice", case.job.name, before, found[1])
    return None


def _faster_gpus(case: _Case, types: Sequence[Sequence[GpuType]]) -> Iterator[_Variant]:
    """The next faster class of GPU (of the first list that has one), as many of them, in the machine of the busiest
    stage, or in all of its machines."""
    stages = [stage for pipeline in case.price.pipelines for stage in pipeline]
    busiest = max(stages, key=lambda stage: stage.busy)
    host = case.cluster.machine(busiest.machine)
    precision = case.job.precision
    for kinds in types:
        faster = [kind for kind in kinds if kind.rate(precision) >= 1.5 * host.gpu.rate(precision)]
        fitting = [kind for kind in faster if kind.memory >= host.memory]
        if not fitting:
            continue
        kind = min(fitting, key=lambda kind: kind.rate(precision))
        words = f"{host.gpus}×{kind.name} instead of {host.gpus}×{host.gpu.name} in {busiest.where}"
        hosts = [case.cluster.machine(name) for name in (busiest.machine, *busiest.beside)]
        better = [replace(each, gpu=kind, memory=kind.memory, price=kind.price * each.gpus) for each in hosts]
        yield _Variant(words, case.plan, _with_machines(case.cluster, better))
        return


def _fewer_replicas(case: _Case) -> Iterator[_Variant]:
    """The plan without the replica that does least, its share given to the others."""
    if len(case.plan.pipelines) < 2:
        return
    slowest = min(case.plan.pipelines, key=lambda pipeline: pipeline.microbatches)
    where = _some(dict.fromkeys(stage.machine for stage in slowest.stages))
    left = tuple(pipeline for pipeline in case.plan.pipelines if pipeline is not slowest)
    yield _Variant(f"without the slowest replica ({where})", replace(case.plan, pipelines=left), case.cluster)


def _with_machines(cluster: Cluster, machines: Iterable[Machine]) -> Cluster:
    changed = {machine.name: machine for machine in machines}
    return replace(cluster, machines=tuple(changed.get(machine.name, machine) for machine in cluster.machines))


def _some(names: Iterable[str]) -> str:
    """The first few names, and how many more there are."""
    given = list(names)
    more = f" and {len(given) - _MOST_NAMES} more" if len(given) > _MOST_NAMES else ""
    return ", ".join(given[:_MOST_NAMES]) + more


def _gbits(rate: float) -> str:
    """Bytes/s as networks are sold, without digits that say nothing: "10 Gbit/s"."""
    return f"{rate * 8 / 1e9:g} Gbit/s"
