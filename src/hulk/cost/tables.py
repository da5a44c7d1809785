"""From names to numbers: a job, a cluster and a plan become the tables and arrays that the compiled step reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np

from hulk.cost.again import again
from hulk.cost.arrays import Encoded, Floats, Ints, Rules, Tables
from hulk.cost.axes import experts_elsewhere
from hulk.cost.collectives import Operation, collective_time
from hulk.cost.compute import ComputeModel, LayerTime, TimeOrigin, update_time
from hulk.cost.engine import Engine
from hulk.cost.memory import LayerMemory, layer_memory, shared_out
from hulk.cost.own import own_times, settling_seconds
from hulk.cost.roofline import Conditions
from hulk.domain.cluster import Cluster, Link, Machine
from hulk.domain.gpu import GpuType
from hulk.domain.job import Job
from hulk.domain.model import Layer
from hulk.domain.options import Options, Sharding, codes_of
from hulk.domain.plan import JobPlan


class Links(NamedTuple):
    """What lies between machines, each pair of rows, and what messages share there. Fields as in `Tables`."""

    latency: Floats
    bandwidth: Floats
    ceiling: Floats
    card: Floats
    trunk: Ints
    trunk_rate: Floats


@dataclass(frozen=True, slots=True)
class StageKind:
    """Stages of one kind take the same time for the same layers."""

    gpu: GpuType
    ranks: int

    def tensor(self, options: Options) -> int:
        """Its tensor parallel degree; 0: so many GPUs cannot share sequences as the options say."""
        return 0 if self.ranks % options.context else self.ranks // options.context


@dataclass(frozen=True)
class Book:
    """Tables with the names they were made from: `machines` and `kinds` give rows their meaning."""

    tables: Tables
    machines: Mapping[str, int]
    kinds: Mapping[tuple[str, int], int]
    origins: Mapping[tuple[str, int], Mapping[TimeOrigin, int]]


@dataclass(frozen=True)
class Hosts:
    """Machines with what lies between them: made once, for any number of books."""

    machines: Sequence[Machine]
    links: Links

    @classmethod
    def of(cls, cluster: Cluster, names: Sequence[str]) -> Hosts:
        """Those of these names."""
        return cls([cluster.machine(name) for name in names], make_links(cluster, names))


def make_book(
    job: Job,
    hosts: Hosts,
    *,
    ranks: Sequence[int],
    options: Options,
    compute: ComputeModel,
    engine: Engine,
) -> Book:
    """Tables for a job on these machines, with every GPU type among them at each of these numbers of GPUs of a
    stage."""
    machines, links = hosts.machines, hosts.links
    types = {host.gpu.name: host.gpu for host in machines}
    kinds = [StageKind(gpu, t) for gpu in types.values() for t in sorted(set(ranks))]
    layers = job.model.layers if engine.dropout else job.model.own_layers
    inputs = [0.0, *(layer.output for layer in layers[:-1])]
    memory = _memories(layers, inputs, job, options, engine)
    forward, backward, weights, origins = _pass_times(job, kinds, options, compute, engine)
    elsewhere = [experts_elsewhere(layer, options.expert) for layer in layers]
    gathers = [_gather_line(kind, options, engine) for kind in kinds]
    kept, split = shared_out(job, options, engine)
    regions = {name: i for i, name in enumerate(dict.fromkeys(host.region for host in machines))}
    tables = Tables(
        forward=forward,
        backward=backward,
        weights=weights,
        update=np.array([_update_seconds(job, kind, options, engine) for kind in kinds]),
        join=np.array([_join_seconds(job, kind, options, engine) for kind in kinds]),
        split=_prefix([layer.params_split - other for layer, other in zip(layers, elsewhere, strict=True)]),
        elsewhere=_prefix(elsewhere),
        whole=_prefix([layer.params_whole for layer in layers]),
        tied=_prefix([float(layer.tied) for layer in layers]),
        held_split=_prefix([m.held_split for m in memory]),
        held_whole=_prefix([m.held_whole for m in memory]),
        peak_split=np.array([m.peak_split for m in memory]),
        peak_whole=np.array([m.peak_whole for m in memory]),
        held_until=_held_until(job, hosts.machines),
        alike_until=_ends_of_runs([(m.peak_split, m.peak_whole) for m in memory]),
        cut=np.array([layer.output * options.microbatch_size * job.precision.bytes for layer in layers], float),
        gather_fixed=np.array([g[0] for g in gathers]),
        gather_rate=np.array([g[1] for g in gathers]),
        **links._asdict(),
        local=np.array([host.gpu.link_bandwidth for host in machines]),
        ring_share=np.array([engine.ring_share(host.gpu) for host in machines]),
        region=np.array([regions[host.region] for host in machines]),
        capacity=np.array([engine.capacity(host.gpu, host.memory) for host in machines]),
        state_bytes=kept,
        sharded_bytes=split,
        gradient_bytes=float(engine.gradient_bytes(job.precision)),
        wire_bytes=float(engine.wire_bytes(job.precision)),
        weight_bytes=float(job.precision.bytes),
        shared=_shared_once(layers),
        context=float(options.context),
        rules=_rules(engine),
        any_blocked=bool(np.isinf(links.latency).any()),
    )
    return Book(
        tables=tables,
        machines={host.name: i for i, host in enumerate(machines)},
        kinds={(kind.gpu.name, kind.ranks): i for i, kind in enumerate(kinds)},
        origins={(kind.gpu.name, kind.ranks): found for kind, found in zip(kinds, origins, strict=True)},
    )


def _memories(
    layers: Sequence[Layer], inputs: Sequence[float], job: Job, options: Options, engine: Engine
) -> list[LayerMemory]:
    """What each layer keeps; most are alike."""
    known: dict[tuple[object, ...], LayerMemory] = {}
    result = []
    for layer, size in zip(layers, inputs, strict=True):
        key = (layer.shape, layer.params, layer.held_split, layer.held_whole, layer.output, size)
        if key not in known:
            known[key] = layer_memory(layer, size, job, options, engine)
        result.append(known[key])
    return result


def _rules(engine: Engine) -> Rules:
    return Rules(
        bucket=inf if engine.bucket is None else engine.bucket,
        blocking_above=engine.blocking_above,
        message_overhead=engine.message_overhead,
        pass_overhead=engine.pass_overhead,
        step_overhead=engine.step_overhead,
        hop_overhead=engine.hop_overhead,
        flow_per_rank=engine.flow_per_rank,
        overlap_shards=engine.overlap_shards,
        overlap_sync=engine.overlap_sync,
        swaps=engine.swaps,
        shares_once=engine.shares_once,
        sends_weights=engine.sends_weights,
        rolls=engine.rolls,
    )


def _shared_once(layers: Sequence[Layer]) -> float:
    """Parameters that layers share with the first: each of those layers has all of them."""
    return max((float(layer.tied) for layer in layers), default=0.0)


def _gather_line(kind: StageKind, options: Options, engine: Engine) -> tuple[float, float]:
    """Putting an activation together from its slices, as a line over its size: (seconds, seconds a byte). Ranks that
    split along the sequence keep their slices, and those that share one their part of it; Hulk's own runtime gathers
    these for whoever sends, and hands all of it to all who receive."""
    if options.sequence_parallel:
        return 0.0, 0.0
    small, large = 1e6, 2e6
    parts, ranks, times = options.context, kind.tensor(options), 1.0
    if engine.lean and parts > 1:
        parts, ranks, times = 1, kind.ranks, 2.0
    a, b = (times * collective_time(Operation.ALL_GATHER, size / parts, kind.gpu, ranks) for size in (small, large))
    slope = (b - a) / (large - small)
    return a - slope * small, slope


def _prefix(values: Sequence[float]) -> Floats:
    return np.concatenate([[0.0], np.cumsum(np.array(values, float))])


def _ends_of_runs(values: Sequence[object]) -> Ints:
    """For each entry, where the run of equal entries it is in ends."""
    ends = np.full(len(values), len(values), np.int64)
    for i in range(len(values) - 2, -1, -1):
        ends[i] = ends[i + 1] if values[i] == values[i + 1] else i + 1
    return ends


def _held_until(job: Job, machines: Sequence[Machine]) -> Ints:
    """`Tables.held_until` by the job's rules."""
    count = len(job.model.layers)
    if not job.place:
        return np.zeros((0, count), np.int64)
    rows: dict[str, list[int]] = {}
    for region in dict.fromkeys(machine.region for machine in machines):
        row = rows[region] = [-1] * count
        for layer in reversed(range(count)):
            if job.may_hold(layer, region):
                row[layer] = row[layer + 1] if layer + 1 < count and row[layer + 1] >= 0 else layer
    return np.array([rows[machine.region] for machine in machines], np.int64).reshape(-1, count)


def _pass_times(
    job: Job,
    kinds: Sequence[StageKind],
    options: Options,
    compute: ComputeModel,
    engine: Engine,
) -> tuple[Floats, Floats, Floats, list[dict[TimeOrigin, int]]]:
    """Prefix sums of forward and backward seconds per kind of stage, of the part of backward that makes gradients of
    weights, and how many layers' times are measured."""
    layers = job.model.layers
    forward = np.zeros((len(kinds), len(layers) + 1))
    backward, weights = np.zeros_like(forward), np.zeros_like(forward)
    origins: list[dict[TimeOrigin, int]] = []
    for k, kind in enumerate(kinds):
        found: dict[TimeOrigin, int] = {}
        by_shape: dict[str, tuple[LayerTime, float, float]] = {}
        how = _conditions(job, kind.tensor(options) or 1, options, engine)
        for i, layer in enumerate(layers):
            if layer.shape not in by_shape:
                time = compute.layer_times(job.model, layer, kind.gpu, how)
                part = again(layer, options.recompute)
                if engine.lean:
                    time = own_times(time, layer, kind.gpu, how, again=part is not None)
                share = 0.0 if part is None else 1.0
                if part is not None and part is not layer:
                    share = compute.share_of(part, job.model, layer, kind.gpu, how)
                of_weights = layer.weights_share * time.backward
                time, repeated = _with_shards((time, share * time.forward), layer, job, kind, options, engine)
                by_shape[layer.shape] = time, repeated, of_weights
            time, repeated, of_weights = by_shape[layer.shape]
            forward[k, i + 1] = forward[k, i] + time.forward
            backward[k, i + 1] = backward[k, i] + time.backward + repeated
            weights[k, i + 1] = weights[k, i] + of_weights
            found[time.origin] = found.get(time.origin, 0) + 1
        origins.append(found)
    return forward, backward, weights, origins


def _with_shards(
    taken: tuple[LayerTime, float], layer: Layer, job: Job, kind: StageKind, options: Options, engine: Engine
) -> tuple[LayerTime, float]:
    """A layer's passes, and what is computed again, where the GPUs that share a sequence split its parameters or
    gradients too: they gather and scatter these inside of their machine meanwhile. Replicas wait for each other on top
    (`hulk.cost.sharding`)."""
    sharding = options.sharding
    if options.context == 1 or not engine.shards_context or sharding in (Sharding.NONE, Sharding.OPTIMIZER):
        return taken
    size = (layer.params_split - experts_elsewhere(layer, options.expert)) / (kind.tensor(options) or 1)
    size += layer.params_whole
    gather, scatter = (
        collective_time(operation, size * each, kind.gpu, options.context)
        for operation, each in (
            (Operation.ALL_GATHER, job.precision.bytes if sharding is Sharding.PARAMETERS else 0),
            (Operation.REDUCE_SCATTER, engine.wire_bytes(job.precision)),
        )
    )
    time, repeated = taken
    forward, backward, both = time.forward, time.backward + repeated, gather + scatter
    if engine.overlap_shards:
        return LayerTime(max(forward, gather), max(backward, both), time.origin), 0.0
    return LayerTime(forward + gather, backward + both, time.origin), 0.0


def _conditions(job: Job, ranks: int, options: Options, engine: Engine) -> Conditions:
    return Conditions(
        precision=job.precision,
        attention=job.attention,
        microbatch=options.microbatch_size,
        tensor_parallel=ranks,
        sequence_parallel=options.sequence_parallel and ranks > 1,
        context=options.context,
        expert=options.expert,
        keys=engine.keys,
        fused=engine.fused_kernels,
        hidden=engine.hidden_exchange,
        power_limited=engine.power_limited,
    )


def _update_seconds(job: Job, kind: StageKind, options: Options, engine: Engine) -> float:
    """Seconds a parameter."""
    parts = options.context if engine.shards_context and options.shard_optimizer else 1
    seconds = update_time(1.0 / parts, kind.gpu, job.precision, job.optimizer, copies=engine.update_copies)
    return seconds + settling_seconds(1.0, kind.gpu, job.precision) if engine.lean else seconds


def _join_seconds(job: Job, kind: StageKind, options: Options, engine: Engine) -> float:
    """Seconds a parameter: an all-reduce among the GPUs that share a sequence, of what each has of a stage's gradients,
    after the last backward. Its latency is nothing beside it."""
    small, large = 1e9, 2e9
    a, b = (collective_time(Operation.ALL_REDUCE, size, kind.gpu, options.context) for size in (small, large))
    return engine.wire_bytes(job.precision) * (b - a) / (large - small)


def make_links(cluster: Cluster, machines: Sequence[str]) -> Links:
    """Latency, bandwidth of one flow, and the ceiling of all flows together, between machines. On the diagonal: between
    a machine and another one of its place. A flow goes through one card at each end."""
    hosts = [cluster.machine(name) for name in machines]
    card, network = (np.array([getattr(host, name) for host in hosts], float) for name in ("card", "network"))
    latency = between(cluster, hosts, lambda link, *_: link.latency)
    bandwidth = np.minimum(between(cluster, hosts, lambda link, *_: link.bandwidth), np.minimum.outer(card, card))
    ceiling = np.minimum(
        np.minimum.outer(network, network), between(cluster, hosts, lambda link, *_: link.trunk or inf)
    )
    # A link between two machines may name a trunk of its own: links that name the same number share it.
    trunks = dict[tuple[str, str, float], int]()

    def trunk_of(link: Link, a: str, b: str) -> int:
        return trunks.setdefault((a, b, link.trunk), len(trunks)) if link.trunk else -1

    trunk = between(cluster, hosts, trunk_of).astype(np.int64)
    rates = np.array([rate for _, _, rate in trunks], float)
    return Links(latency, np.maximum(bandwidth, 1.0), ceiling, network, trunk, rates)


def between(cluster: Cluster, machines: Sequence[Machine], fact: Callable[[Link, str, str], float]) -> Floats:
    """[M, M] a fact of the links from machines to machines, given with their regions; on the diagonal, to another one
    of the region. Regions are asked once, and then the pairs that have links of their own: no matrix of machines is
    gone through in Python."""
    regions = list(dict.fromkeys(machine.region for machine in machines))
    known = np.array([[fact(cluster.region_link(a, b), a, b) for b in regions] for a in regions], float)
    row = {region: i for i, region in enumerate(regions)}
    rows = np.array([row[machine.region] for machine in machines], np.int64)
    found: Floats = known[np.ix_(rows, rows)]
    place = {machine.name: i for i, machine in enumerate(machines)}
    for (a, b), link in cluster.machine_links.items():
        if a in place and b in place:
            i, j = place[a], place[b]
            found[i, j] = fact(link, machines[i].region, machines[j].region)
            found[j, i] = fact(link, machines[j].region, machines[i].region)
    return found


def without_sharing(tables: Tables) -> Tables:
    """The same with network cards and trunks that carry any number of messages at once, each at its own rate."""
    return tables._replace(card=np.full_like(tables.card, inf), trunk_rate=np.full_like(tables.trunk_rate, inf))


def encode(plan: JobPlan, cluster: Cluster, book: Book) -> Encoded:
    """A job's plan in the numbers of a book made for its machines and numbers of GPUs of a stage."""
    stages = plan.stages
    gpus = [cluster.machine(stage.machine).gpu.name for stage in stages]
    rows = np.array([book.machines[stage.machine] for stage in stages])
    return Encoded(
        starts=np.cumsum([0, *(len(pipeline.stages) for pipeline in plan.pipelines)]),
        machine=rows,
        place=rows,
        kind=np.array([book.kinds[gpu, stage.ranks] for gpu, stage in zip(gpus, stages, strict=True)]),
        ranks=np.array([stage.ranks for stage in stages]),
        first=np.array([stage.first for stage in stages]),
        last=np.array([stage.last for stage in stages]),
        microbatches=np.array([pipeline.microbatches for pipeline in plan.pipelines]),
        warmup=np.array(
            [
                plan.options.schedule.warmup(s % slots, slots, pipeline.microbatches, len(pipeline.stages) // slots)
                for pipeline in plan.pipelines
                for slots in [len(pipeline.slots(plan.options.chunks))]
                for s in range(len(pipeline.stages))
            ]
        ),
        options=np.array(codes_of(plan.options)),
    )
