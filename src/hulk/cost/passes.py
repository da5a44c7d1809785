"""How long passes of layers take on each kind of stage, as sums over the layers before: what a job's tables begin
with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hulk.cost.again import again
from hulk.cost.arrays import Floats
from hulk.cost.axes import experts_elsewhere
from hulk.cost.collectives import Operation, collective_time
from hulk.cost.compute import ComputeModel, LayerTime, TimeOrigin
from hulk.cost.engine import Engine
from hulk.cost.kinds import StageKind
from hulk.cost.own import own_times
from hulk.cost.roofline import Conditions
from hulk.domain.job import Job
from hulk.domain.model import Layer
from hulk.domain.options import Options, Sharding


class Times(NamedTuple):
    """Prefix sums of seconds per kind of stage, [K, L + 1]; fields as in `Tables`. `origins`: how many layers' times
    are measured, for each kind."""

    forward: Floats
    backward: Floats
    weights: Floats
    kept_seconds: Floats
    origins: list[dict[TimeOrigin, int]]


def times_on(kinds: Sequence[StageKind], job: Job, options: Options, compute: ComputeModel, engine: Engine) -> Times:
    """What passes of a job's layers take on these kinds of stage."""
    shapes = dict[str, int]()
    which = [shapes.setdefault(layer.shape, len(shapes)) for layer in job.model.layers]
    counts = np.bincount(which).tolist()
    firsts = tuple(job.model.layers[which.index(number)] for number in range(len(shapes)))
    parts = [(layer, again(layer, options.recompute), layer.weights_share) for layer in firsts]
    # Forward, backward, computed again, of weights; and forward and backward where nothing is computed again.
    seconds = np.zeros((len(kinds), len(shapes), 6))
    origins: list[dict[TimeOrigin, int]] = []
    for k, kind in enumerate(kinds):
        found: dict[TimeOrigin, int] = {}
        how = _conditions(job, kind, options, engine)
        times = compute.times_of(job.model, firsts, kind.gpu, how)
        for number, (asked, (layer, part, of_weights)) in enumerate(zip(times, parts, strict=True)):
            time = own_times(asked, layer, kind.gpu, how, again=part is not None) if engine.lean else asked
            share = 0.0 if part is None else 1.0
            if part is not None and part is not layer:
                share = compute.share_of(part, job.model, layer, kind.gpu, how)
            taken, repeated = _with_shards((time, share * time.forward), layer, job, kind, options, engine)
            once = taken
            if part is not None:
                alone = own_times(asked, layer, kind.gpu, how, again=False) if engine.lean else asked
                once, _ = _with_shards((alone, 0.0), layer, job, kind, options, engine)
            of_pass = taken.forward, taken.backward, repeated, of_weights * time.backward
            seconds[k, number] = *of_pass, once.forward, once.backward
            found[time.origin] = found.get(time.origin, 0) + counts[number]
        origins.append(found)
    of_layers = seconds[:, which]
    forward, both, weights = (_sums(of_layers[..., columns]) for columns in ([0], [1, 2], [3]))
    kept = np.zeros((0, len(which) + 1))
    if options.recompute in engine.counts:
        kept = np.concatenate([_sums(of_layers[..., [column]]) for column in (4, 5)])
    return Times(forward, both, weights, kept, origins)


def _sums(values: Floats) -> Floats:
    """[K, L + 1] sums of values [K, L, N] over the layers before, added one after the other; row by row in memory, as a
    search has them: compiled code would be compiled once more for any other order."""
    kinds, layers, each = values.shape
    sums = np.zeros((kinds, layers + 1))
    sums[:, 1:] = np.cumsum(values.reshape(kinds, -1), axis=1)[:, each - 1 :: each]
    return sums


def _with_shards(
    taken: tuple[LayerTime, float], layer: Layer, job: Job, kind: StageKind, options: Options, engine: Engine
) -> tuple[LayerTime, float]:
    """A layer's passes, and what is computed again, where the GPUs that share a sequence split its parameters or
    gradients too: they gather and scatter these meanwhile. Replicas wait for each other on top
    (`hulk.cost.sharding`)."""
    sharding = options.sharding
    if options.context == 1 or not engine.shards_context or sharding in (Sharding.NONE, Sharding.OPTIMIZER):
        return taken
    size = (layer.params_split - experts_elsewhere(layer, options.expert)) / (kind.tensor(options) or 1)
    size += layer.params_whole
    gather, scatter = (
        collective_time(operation, size * each, kind.gpu, options.context, between=kind.sharers(options))
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


def _conditions(job: Job, kind: StageKind, options: Options, engine: Engine) -> Conditions:
    ranks = kind.tensor(options) or 1
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
        slices=kind.slices(options),
        sharers=kind.sharers(options),
    )
