"""What must move when a job's plan changes, and how long that takes: the one home of these formulas.

State is weights and optimizer state (gradients are made anew every step). A machine needs the state of a layer once,
however many replicas of the layer it holds; of a stage on several machines, that of the slices it has. What it does not
hold already comes from a machine that does, and from a checkpoint where no machine that is left and can be reached
does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import lcm

import numpy as np

from hulk.cost.arrays import Floats
from hulk.cost.memory import GRADIENT_BYTES, optimizer_bytes, weight_bytes
from hulk.domain.cluster import Cluster, pair
from hulk.domain.job import Job
from hulk.domain.plan import JobPlan, Stage, layer_holders

_MOST_SOURCES = 64  # holders looked at for one target: with more, the nearest regions' are as good as all


@dataclass(frozen=True, slots=True)
class Move:
    """Bytes of weights and optimizer state of some layers that `target` needs. Without a `source` they survive on no
    machine that reaches it, and come from a checkpoint."""

    source: str | None
    target: str
    bytes: float
    layers: tuple[int, ...]


def layer_state_bytes(job: Job, layer: int) -> tuple[float, float]:
    """Bytes of a layer's weights and of its optimizer state, over all tensor parallel ranks."""
    params = job.model.layers[layer].params
    weights = weight_bytes(job.precision) - GRADIENT_BYTES
    return float(params * weights), float(params * optimizer_bytes(job.precision, job.optimizer))


def plan_moves(
    job: Job, old: JobPlan | None, new: JobPlan, cluster: Cluster, lost: Collection[str] = ()
) -> tuple[Move, ...]:
    """What moves for a job to go on by a new plan, one entry for each (source, target). `cluster` has all machines of
    both plans but those lost. A job without an old plan starts from nothing, so nothing moves."""
    if old is None:
        return ()
    ledger = _Ledger(cluster, frozenset(lost))
    for batch in _batches(job, old, new):
        ledger.add(batch)
    return tuple(
        Move(source, target, size, tuple(sorted(ledger.layers[source, target])))
        for (source, target), size in ledger.bytes.items()
    )


@dataclass(frozen=True)
class Overlap:
    """What a job's new plan needs of what its old plan has: `needs` [targets] bytes that each machine of the new plan
    needs, `held` [targets, holders] how many of them each machine of the old plan that is left holds. A holder in a
    target's place is sent the difference."""

    targets: tuple[str, ...]
    holders: tuple[str, ...]
    needs: Floats
    held: Floats


def overlap(job: Job, old: JobPlan, new: JobPlan, lost: Collection[str] = ()) -> Overlap:
    """By how much the machines of two plans could stand in for each other."""
    targets, holders = ({name: i for i, name in enumerate(plan.machines)} for plan in (new, old))
    needs, held = np.zeros(len(targets)), np.zeros((len(targets), len(holders)))
    for batch in _batches(job, old, new):
        rows = [np.array([*dict.fromkeys(targets[name] for name in piece.machines)]) for piece in batch.need]
        columns = [np.array([*dict.fromkeys(holders[name] for name in piece.machines)]) for piece in batch.have]
        for piece, own in zip(batch.need, rows, strict=True):
            needs[own] += batch.bytes_of(piece.end - piece.begin)
        for i, j, part in _common(batch.need, batch.have):
            held[np.ix_(rows[i], columns[j])] += batch.bytes_of(part)
    left = [i for name, i in holders.items() if name not in lost]
    return Overlap(tuple(targets), tuple(name for name in holders if name not in lost), needs, held[:, left])


def shards_held(job: Job, old: JobPlan, new: JobPlan, lost: Collection[str] = ()) -> Floats:
    """[pipelines, positions] bytes of sharded optimizer state that each pipeline of the new plan would have already if
    it stood at that position: where a pipeline stands decides which shard it holds."""
    count = len(new.pipelines)
    found = np.zeros((count, count))
    for layers, before, after in _runs(old, new):
        fine = _slices(before, after)
        unit = fine * len(before.stages) * count
        size = sum(layer_state_bytes(job, i)[1] for i in layers)
        places: list[dict[str, list[int]]] = [{} for _ in range(fine)]
        for number, here in enumerate(places):
            for i, stage in enumerate(after.stages):
                for name in after.having(stage, number, fine):
                    here.setdefault(name, []).append(i)
        have, need = _pieces(before, fine, unit), _pieces(after, fine, unit)
        for i, j, part in _common(need, have):
            number, position = divmod(i, count)
            for name in dict.fromkeys(have[j].machines):
                if name not in lost and name in places[number]:
                    found[places[number][name], position] += size * part / unit
    return found


def move_seconds(moves: Iterable[Move], cluster: Cluster, beside: Iterable[Move] = ()) -> float:
    """Seconds until the last of `moves` has arrived, all at once, with those in `beside` on the same network.

    The most of: bytes between two machines over the bandwidth of one flow, bytes out of (into) a machine over its
    card, bytes between two regions over their trunk. A checkpoint is limited by the target's card, and by what its
    region reads from storage where the cluster says how much that is.
    """
    own = list(moves)
    load: Counter[tuple[object, ...]] = Counter()
    for move in chain(own, beside):
        for key, _ in _ways(move, cluster):
            load[key] += move.bytes  # type: ignore[assignment]  # a Counter of floats
    latency = max((cluster.link(m.source, m.target).latency for m in own if m.source is not None), default=0.0)
    return max((load[key] / rate for move in own for key, rate in _ways(move, cluster)), default=0.0) + latency


def _ways(move: Move, cluster: Cluster) -> Iterator[tuple[tuple[object, ...], float]]:
    """What a move passes through, with its bytes/s."""
    target = cluster.machine(move.target)
    yield ("in", target.name), target.network
    if move.source is None:
        if target.region in cluster.storage:
            yield ("storage", target.region), cluster.storage[target.region]
        return
    source = cluster.machine(move.source)
    link = cluster.link(source.name, target.name)
    yield ("out", source.name), source.network
    yield ("flow", source.name, target.name), max(link.bandwidth, 1.0)
    if link.trunk:
        yield ("trunk", *pair(source.region, target.region)), link.trunk


@dataclass(frozen=True, slots=True)
class _Piece:
    """From `begin` to `end`, in units of a whole cut evenly, and the machines that hold or need it."""

    begin: int
    end: int
    machines: Sequence[str]


@dataclass(frozen=True, slots=True)
class _Batch:
    """Bytes of some layers, cut into `unit` parts: who has which, who needs which. Pieces are in order and complete."""

    layers: range
    size: float
    unit: int
    have: Sequence[_Piece]
    need: Sequence[_Piece]

    def bytes_of(self, parts: int) -> float:
        """Bytes of so many parts."""
        return self.size * parts / self.unit


def _batches(job: Job, old: JobPlan, new: JobPlan) -> Iterator[_Batch]:
    """Weights and optimizer state of every run of layers."""
    for layers, before, after in _runs(old, new):
        weights, state = (sum(kind) for kind in zip(*(layer_state_bytes(job, i) for i in layers), strict=True))
        fine = _slices(before, after)
        unit = fine * len(before.stages) * len(after.stages)
        if weights > 0:
            have, need = (_pieces(holders, fine, fine, whole=True) for holders in (before, after))
            yield _Batch(layers, weights, fine, have, need)
        if state > 0:
            yield _Batch(layers, state, unit, _pieces(before, fine, unit), _pieces(after, fine, unit))


@dataclass(frozen=True, slots=True)
class _Holders:
    """The stages of a plan that hold some layers, one of each replica."""

    plan: JobPlan
    stages: Sequence[Stage]

    def having(self, stage: Stage, number: int, fine: int) -> tuple[str, ...]:
        """The machines of a stage that have one of so many fine slices."""
        slices = self.plan.slices(stage)
        return stage.machines[number * slices // fine :: slices]


def _slices(*holders: _Holders) -> int:
    """In how many slices layers are thought, so that each is on one machine or on another of every stage."""
    return lcm(*(its.plan.slices(stage) for its in holders for stage in its.stages))


def _pieces(holders: _Holders, fine: int, unit: int, *, whole: bool = False) -> list[_Piece]:
    """Who has which part of layers, slice by slice: every holder all of a slice, or, of optimizer state that is
    sharded, each its own part. `whole`: of what is never sharded."""
    size, count = unit // fine, len(holders.stages)
    found = []
    for number in range(fine):
        own = [holders.having(stage, number, fine) for stage in holders.stages]
        if whole or not holders.plan.options.shard_optimizer:
            found.append(_Piece(number * size, (number + 1) * size, [name for names in own for name in names]))
            continue
        part = size // count
        found += [_Piece(number * size + i * part, number * size + (i + 1) * part, its) for i, its in enumerate(own)]
    return found


def _common(need: Sequence[_Piece], have: Sequence[_Piece]) -> Iterator[tuple[int, int, int]]:
    """Pieces of both, by their numbers, that have parts in common, with how many."""
    i = j = 0
    while i < len(need) and j < len(have):
        part = min(need[i].end, have[j].end) - max(need[i].begin, have[j].begin)
        if part > 0:
            yield i, j, part
        if need[i].end <= have[j].end:
            i += 1
        else:
            j += 1


def _runs(old: JobPlan, new: JobPlan) -> Iterator[tuple[range, _Holders, _Holders]]:
    """Runs of layers that neither plan cuts, with the stage that holds them in each replica of each plan."""
    count = len(old.pipelines)
    for layers, stages in layer_holders((*old.pipelines, *new.pipelines)):
        yield layers, _Holders(old, stages[:count]), _Holders(new, stages[count:])


class _Ledger:
    """Bytes by (source, target), each source chosen so that it is done soonest."""

    def __init__(self, cluster: Cluster, lost: frozenset[str]) -> None:
        self.cluster = cluster
        self.lost = lost
        self.bytes: dict[tuple[str | None, str], float] = {}
        self.layers: dict[tuple[str | None, str], set[int]] = {}
        self.sent: Counter[str] = Counter()

    def add(self, batch: _Batch) -> None:
        """What each machine needs of these bytes and does not have."""
        for i, j, part in _common(batch.need, batch.have):
            holders, count = batch.have[j].machines, batch.bytes_of(part)
            for target in dict.fromkeys(batch.need[i].machines):
                if target in holders and target not in self.lost:
                    continue
                source = self._source(holders, target, count)
                key = (source, target)
                self.bytes[key] = self.bytes.get(key, 0.0) + count
                self.layers.setdefault(key, set()).update(batch.layers)
                if source is not None:
                    self.sent[source] += count  # type: ignore[assignment]  # a Counter of floats

    def _source(self, holders: Sequence[str], target: str, count: float) -> str | None:
        """The holder that would be done first, what it sends already counted."""
        region = self.cluster.machine(target).region
        alive = [name for name in dict.fromkeys(holders) if name not in self.lost]
        alive.sort(key=lambda name: self.cluster.machine(name).region != region)
        best, soonest = None, float("inf")
        for name in alive[:_MOST_SOURCES]:
            link = self.cluster.link(name, target)
            if link.blocked:
                continue
            card = min(self.cluster.machine(name).network, link.bandwidth)
            done = (self.sent[name] + count) / card + link.latency
            if done < soonest:
                best, soonest = name, done
        return best
