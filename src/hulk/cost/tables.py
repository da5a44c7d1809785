"""From names to numbers: a job, a cluster and a plan become the tables and arrays that the compiled step reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

import numpy as np

from hulk.cost.arrays import Encoded, Floats, Ints, Rules, Tables
from hulk.cost.axes import experts_elsewhere
from hulk.cost.compute import ComputeModel, TimeOrigin, host_update_time, update_time
from hulk.cost.engine import Engine
from hulk.cost.kinds import Key, StageKind, gather_line, join_seconds, kind_of
from hulk.cost.memory import LayerMemory, layer_memory, shared_out
from hulk.cost.own import settling_seconds
from hulk.cost.passes import times_on
from hulk.domain.cluster import Cluster, Link, Machine
from hulk.domain.job import Job
from hulk.domain.model import Layer
from hulk.domain.options import Options, Recompute, codes_of
from hulk.domain.plan import JobPlan, Stage


class Links(NamedTuple):
    """What lies between machines, each pair of rows, and what messages share there. Fields as in `Tables`."""

    latency: Floats
    bandwidth: Floats
    ceiling: Floats
    card: Floats
    trunk: Ints
    trunk_rate: Floats


@dataclass(frozen=True)
class Book:
    """Tables with the names they were made from: `machines` and `kinds` give rows their meaning. `blocks` [L + 1]: how
    many of them are before each layer."""

    tables: Tables
    blocks: Ints
    machines: Mapping[str, int]
    kinds: Mapping[Key, int]
    origins: Mapping[Key, Mapping[TimeOrigin, int]]


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
    types = {(host.gpu.name, host.span): host.gpu for host in machines}
    kinds = [
        StageKind(gpu, t, span, engine.ring_share(gpu)) for (_, span), gpu in types.items() for t in sorted(set(ranks))
    ]
    layers = job.model.layers if engine.dropout else job.model.own_layers
    inputs = [0.0, *(layer.output for layer in layers[:-1])]
    memory = _memories(layers, inputs, job, options, engine)
    plain = memory
    if options.recompute in engine.counts:
        plain = _memories(layers, inputs, job, replace(options, recompute=Recompute.NONE), engine)
    forward, backward, weights, kept_seconds, origins = times_on(kinds, job, options, compute, engine)
    elsewhere = [experts_elsewhere(layer, options.expert) for layer in layers]
    gathers = [gather_line(kind, options, engine) for kind in kinds]
    kept, split = shared_out(job, options, engine)
    regions = {name: i for i, name in enumerate(dict.fromkeys(host.region for host in machines))}
    tables = Tables(
        forward=forward,
        backward=backward,
        weights=weights,
        update=np.array([_update_seconds(job, kind, options, engine) for kind in kinds]),
        join=np.array([join_seconds(job, kind, options, engine) for kind in kinds]),
        split=_prefix([layer.params_split - other for layer, other in zip(layers, elsewhere, strict=True)]),
        elsewhere=_prefix(elsewhere),
        whole=_prefix([layer.params_whole for layer in layers]),
        tied=_prefix([float(layer.tied) for layer in layers]),
        held_split=_prefix([m.held_split for m in memory]),
        held_whole=_prefix([m.held_whole for m in memory]),
        peak_split=np.array([m.peak_split for m in memory]),
        peak_whole=np.array([m.peak_whole for m in memory]),
        held_until=_held_until(job, hosts.machines),
        kept=np.concatenate([kept_seconds, _kept_bytes(plain)])[: None if plain is not memory else 0],
        alike_until=_ends_of_runs(
            [(m.peak_split, m.peak_whole, p.peak_split, p.peak_whole) for m, p in zip(memory, plain, strict=True)]
        ),
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
        kinds={kind.key: i for i, kind in enumerate(kinds)},
        blocks=np.array(job.model.blocks_before),
        origins={kind.key: found for kind, found in zip(kinds, origins, strict=True)},
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


def _kept_bytes(memory: Sequence[LayerMemory]) -> Floats:
    """The last rows of `Tables.kept`, of layers that keep all."""
    held = [_prefix([getattr(m, name) for m in memory]) for name in ("held_split", "held_whole")]
    peaks = [[*(getattr(m, name) for m in memory), 0.0] for name in ("peak_split", "peak_whole")]
    return np.array([*held, *peaks])


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


def _update_seconds(job: Job, kind: StageKind, options: Options, engine: Engine) -> float:
    """Seconds a parameter."""
    parts = options.context if engine.shards_context and options.shard_optimizer else 1
    if options.host_state:
        return host_update_time(1.0 / parts, kind.gpu, job.precision, engine.gradient_bytes(job.precision))
    seconds = update_time(1.0 / parts, kind.gpu, job.precision, job.optimizer, copies=engine.update_copies)
    return seconds + settling_seconds(1.0, kind.gpu, job.precision) if engine.lean else seconds


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
    hosts = [cluster.machine(stage.machine) for stage in stages]
    rows = np.array([book.machines[stage.machine] for stage in stages])
    some = len(book.tables.kept) > 0
    return Encoded(
        starts=np.cumsum([0, *(len(pipeline.stages) for pipeline in plan.pipelines)]),
        machine=rows,
        place=rows,
        kind=np.array([book.kinds[kind_of(host, stage.ranks)] for host, stage in zip(hosts, stages, strict=True)]),
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
        kept=np.array([kept_layers(stage, book.blocks) if some else 0 for stage in stages], np.int64),
    )


def kept_layers(stage: Stage, blocks: Ints) -> int:
    """How many layers at a stage's end come after the last block that is computed again; 0 where all blocks are.
    `blocks`: of a book."""
    if stage.recomputed is None or stage.recomputed >= blocks[stage.last + 1] - blocks[stage.first]:
        return 0
    return stage.last + 1 - int(np.searchsorted(blocks[: stage.last + 2], blocks[stage.first] + stage.recomputed))
