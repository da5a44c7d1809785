"""A job's step in arrays of numbers, for compiled functions: what layers, machines and links are like, a plan for them,
and how long its parts take. `hulk.cost.tables` makes the first two; nothing here knows names.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hulk.cost.compiled import inner, lean, maker, plain
from hulk.domain.options import COLUMN, SPACE, Sharding, Sync, Within

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

FITS, TOO_BIG, BLOCKED, UNLIKE, SCATTERED = 0, 1, 2, 3, 4
SCHEDULE, CHUNKS, SYNC = (COLUMN[name] for name in ("schedule", "chunks", "sync"))
SHARD, WITHIN = COLUMN["sharding"], COLUMN["shard_within"]
GRADIENTS, PARAMETERS = (SPACE[SHARD].code_of(each) for each in (Sharding.GRADIENTS, Sharding.PARAMETERS))
EVERYWHERE, IN_REGION = (SPACE[WITHIN].code_of(each) for each in (Within.EVERYWHERE, Within.REGION))
EXPERT = COLUMN["expert"]
RING, BY_REGION = SPACE[SYNC].code_of(Sync.RING), SPACE[SYNC].code_of(Sync.BY_REGION)


class Rules(NamedTuple):
    """What an engine does, as `hulk.cost.engine` has it, for compiled functions."""

    bucket: float  # bytes on the wire that are summed at a time, as soon as backward has made them
    blocking_above: float
    message_overhead: float
    pass_overhead: float
    step_overhead: float
    hop_overhead: float
    flow_per_rank: bool
    overlap_shards: bool
    overlap_sync: bool
    swaps: bool
    shares_once: bool
    sends_weights: bool
    rolls: bool


class Tables(NamedTuple):
    """A job on some machines at one microbatch size. L layers, M places (machines, or machines that are alike), K kinds
    of stage (GPU type × GPUs of the stage).

    Prefix arrays have L + 1 entries: the sum over layers a..b is p[b + 1] − p[a]. Seconds, bytes, bytes/s, dollars.
    """

    forward: Floats  # [K, L + 1] prefix, seconds of one microbatch
    backward: Floats  # [K, L + 1] prefix, recomputation included
    weights: Floats  # [K, L + 1] prefix, the part of backward that makes gradients of weights
    update: Floats  # [K] seconds a parameter
    join: Floats  # [K] seconds a parameter to add up gradients over the GPUs of a stage that share sequences
    split: Floats  # [L + 1] prefix, parameters divided by tensor parallel, without experts that others near have
    elsewhere: Floats  # [L + 1] prefix, parameters of experts that others near have, divided by tensor parallel too
    whole: Floats  # [L + 1] prefix, parameters on every rank
    tied: Floats  # [L + 1] prefix, parameters shared with the first layer
    held_split: Floats  # [L + 1] prefix, bytes kept of one microbatch
    held_whole: Floats  # [L + 1] prefix
    peak_split: Floats  # [L] bytes needed for a moment
    peak_whole: Floats  # [L]
    kept: Floats  # [2 K + 4, L + 1] what layers take and keep that are not computed again: prefix sums of forward [K],
    # backward [K], held_split and held_whole, then peak_split and peak_whole; no rows where the engine cannot do so
    alike_until: Ints  # [L] the first layer after l with other peaks: blocks are alike, so a range is a few steps
    held_until: Ints  # [M, L] the last layer up to which a place may hold all from l on; −1: not even that one; no rows
    # where every place may hold every layer
    cut: Floats  # [L] bytes sent on after layer l
    gather_fixed: Floats  # [K] seconds to put slices together at a receiver of this kind
    gather_rate: Floats  # [K] seconds a byte
    latency: Floats  # [M, M] one way, between two machines of these places; inf: blocked
    bandwidth: Floats  # [M, M] one flow
    ceiling: Floats  # [M, M] all flows: all cards of the two and the trunk
    card: Floats  # [M] bytes/s of all cards of a machine together, each direction
    trunk: Ints  # [M, M] which trunk is on the way, in this direction; −1: none
    trunk_rate: Floats  # [K] bytes/s that all flows on a trunk share
    local: Floats  # [M] bytes/s between GPUs of one machine
    ring_share: Floats  # [M] share of its bandwidth that a ring between machines reaches there
    region: Ints  # [M]
    capacity: Floats  # [M] bytes of one GPU that tensors can have
    state_bytes: float  # of a parameter: what every holder keeps
    sharded_bytes: float  # of a parameter: what the holders split among them, or keep too where nothing is sharded
    gradient_bytes: float  # of a parameter, where gradients are added up over microbatches
    wire_bytes: float  # of a parameter's gradient on its way to other replicas
    weight_bytes: float  # of a parameter, as passes use it
    shared: float  # parameters that layers share, counted once
    context: float  # GPUs of a stage that share a sequence
    rules: Rules
    any_blocked: bool  # whether any latency is inf


class Encoded(NamedTuple):
    """A job's plan in numbers: N stages of all pipelines one after the other, P pipelines. With several chunks a stage,
    the stages of a pipeline go round its GPUs (`hulk.cost.orders`)."""

    starts: Ints  # [P + 1] first stage of each pipeline
    machine: Ints  # [N] which machine; the same number is the same machine
    place: Ints  # [N] its row in the tables
    kind: Ints  # [N]
    ranks: Ints  # [N] its GPUs
    first: Ints  # [N]
    last: Ints  # [N]
    microbatches: Ints  # [P]
    warmup: Ints  # [N] forwards before the first backward
    options: Ints  # [F] as `hulk.domain.options.codes_of` has them
    kept: Ints  # [N] layers at a stage's end that are not computed again although `recompute` says so


class Durations(NamedTuple):
    """What a step is made of. Per stage [N]; `latency`, `send_*` and `blocking` belong to the link to the next stage;
    parameters, memory and update are those of a stage's GPUs, which may hold other stages too.

    Gradient sets, as `hulk.cost.sync` cuts them: set i is the layers set_first[i]..set_last[i]; it takes set_seconds[i]
    to add up. `sets` says how many there are.
    """

    forward: Floats
    backward: Floats
    weights: Floats  # gradients of weights, where they are passes of their own: then not in `backward`
    latency: Floats
    send_forward: Floats
    send_backward: Floats
    rate: Floats  # bytes/s that a message has at most, nobody else being on the way
    blocking: Bools
    params: Floats  # of one rank
    held: Floats  # bytes of activations at the peak, all microbatches in flight
    peak: Floats  # bytes needed for a moment on top
    memory: Floats  # bytes of one rank in all
    update: Floats
    set_first: Ints
    set_last: Ints
    set_size: Floats  # bytes on the wire
    set_seconds: Floats
    set_wait: Floats  # the part of it that is latency
    tie_seconds: Floats  # adding up shared parameters with the pipeline's first stage; at 0: once for all who have them


@maker
def durations_for(stages: int) -> Durations:
    """Room for the durations of a plan of that many stages."""
    per_stage, per_set = np.zeros((12, stages)), np.zeros((3, stages))
    # Taken row by row: arrays that come of unpacking are of another type, for which all code would be compiled again.
    bounds = np.zeros((2, stages), np.int64)
    return Durations(
        forward=per_stage[0],
        backward=per_stage[1],
        latency=per_stage[2],
        send_forward=per_stage[3],
        send_backward=per_stage[4],
        rate=per_stage[5],
        blocking=np.zeros(stages, np.bool_),
        params=per_stage[6],
        held=per_stage[7],
        peak=per_stage[8],
        memory=per_stage[9],
        update=per_stage[10],
        weights=per_stage[11],
        set_first=bounds[0],
        set_last=bounds[1],
        set_size=per_set[0],
        set_seconds=per_set[1],
        set_wait=per_set[2],
        tie_seconds=np.zeros(stages),
    )


empty_durations = plain(durations_for)
"""The same for Python."""


@lean
def spared_seconds(every: Floats, kept: Floats, a: int, b: int, after: int) -> float:
    """Seconds that layers a..b take less since those from `after` on are not computed again. From prefix sums [L + 1]
    over layers that all are, and that none are."""
    c = max(a, after)
    if c > b:
        return 0.0
    spared: float = every[b + 1] - every[c] - (kept[b + 1] - kept[c])
    return spared


@inner
def transfer_seconds(tables: Tables, plan: Encoded, n: int, m: int, size: float, flows: int) -> tuple[float, float]:
    """(latency, seconds on the wire) of `size` bytes from stage n to stage m: bandwidth is the least of the flows', the
    two network cards' and the trunk's; inside a machine, that of the GPUs' own link. Latency inf: they cannot talk."""
    a, b = plan.place[n], plan.place[m]
    if plan.machine[n] == plan.machine[m]:
        return 0.0, size / tables.local[a]
    rate = min(tables.bandwidth[a, b] * flows, tables.ceiling[a, b])
    return tables.latency[a, b], size / rate
