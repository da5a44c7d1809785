"""Bytes of a GPU's memory: the one home of memory formulas.

State per parameter, in bytes (Megatron-LM's table of its optimizers: fp32 16, bf16 with fp32 gradients 18):

    precision     weights   gradients (accumulated in fp32)   optimizer
    fp32, tf32       4            4                            state
    bf16, fp16       2            4                            4 (fp32 copy of the weights) + state

where the optimizer's own state is 8 for Adam and AdamW (two moments), 4 for momentum, 0 for plain SGD, and for
Adafactor a row and a column per matrix, counted as 0.

Activations per microbatch and layer come from `hulk.domain.model.Layer.held_*`; a stage keeps as many microbatches as
its schedule lets forwards run ahead of backwards.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hulk.cost.again import again, counted_results, kept_results
from hulk.cost.axes import Keys, of_one_gpu
from hulk.cost.engine import HULK, Engine
from hulk.cost.layers.operations import MASK_ELEMENTS
from hulk.domain.gpu import Precision
from hulk.domain.job import Job, Optimizer
from hulk.domain.model import Layer, LayerKind, Split
from hulk.domain.options import Options, Recompute, Sharding

GRADIENT_BYTES = 4
_STATE_BYTES = {
    Optimizer.ADAM: 8,
    Optimizer.ADAMW: 8,
    Optimizer.MOMENTUM: 4,
    Optimizer.SGD: 0,
    Optimizer.ADAFACTOR: 0,
}
# The loss works in fp32 whatever the precision, and its backward pass makes as many copies of the logits as it keeps.
_LOSS_COPIES = 2
LOSS_CHUNK = 32 * 2**20
"""Elements of the logits that Hulk's own loss has in fp32 at a time, twice."""
PADDED = 64
"""Hulk's own head pads its weight to a multiple of this in 16 bits, in a copy."""
HOLE = 0.5
"""Where the vocabulary is no such multiple, torch's allocator may come to hold more than tensors take: up to this share
of the logits on an H200 (GPT-2 with many samples and microbatches), often nothing. A plan must leave room for it."""


def weight_bytes(precision: Precision, gradient: int = GRADIENT_BYTES) -> int:
    """Bytes of weights and accumulated gradients per parameter."""
    return precision.bytes + gradient


def optimizer_bytes(precision: Precision, optimizer: Optimizer) -> int:
    """Bytes of optimizer state per parameter, the fp32 copy of half-precision weights included."""
    master = 0 if precision.bytes == 4 else 4
    return master + _STATE_BYTES[optimizer]


@dataclass(frozen=True, slots=True)
class LayerMemory:
    """Bytes for one microbatch: kept from forward to backward, and needed for a moment on top. Split is over ranks."""

    held_split: float
    held_whole: float
    peak_split: float
    peak_whole: float


def layer_memory(layer: Layer, input_elements: float, job: Job, options: Options, engine: Engine = HULK) -> LayerMemory:
    """What a layer keeps. `input_elements` per sample come from the layer before.

    What is computed again is not kept, but its backward needs it for a moment. Where ranks split along the sequence,
    nothing is whole; where GPUs share a sequence, each has its part; where parameters are sharded, those of a layer and
    of the next one are there for a moment, and so is a layer's gradient where gradients are.
    """
    layer = of_one_gpu(layer, context=options.context, expert=options.expert)
    memory = _activations(layer, input_elements / options.context, job, options, engine)
    if options.sequence_parallel and not (engine.lean and layer.kind is not LayerKind.BLOCK):
        held, peak = memory.held_split + memory.held_whole, memory.peak_split + memory.peak_whole
        memory = LayerMemory(held, 0.0, peak, 0.0)
        if engine.lean:
            memory = _gathered(memory, layer, job, options)
    if options.context > 1:
        memory = _with_keys(memory, layer, job, options, engine)
    passing = _passing_bytes(job, options, engine)
    if not passing:
        return memory
    return replace(
        memory,
        peak_split=memory.peak_split + layer.params_split * passing,
        peak_whole=memory.peak_whole + layer.params_whole * passing,
    )


def _with_keys(memory: LayerMemory, layer: Layer, job: Job, options: Options, engine: Engine) -> LayerMemory:
    """Keys and values of the other parts of a sequence: of all of them at once, or of one while another is on its way.
    They are held for backward, or there for a moment."""
    all_of_them = layer.keys * job.precision.bytes * options.microbatch_size
    if engine.keys is Keys.AROUND:
        return replace(memory, peak_split=memory.peak_split + 2.0 * all_of_them / options.context)
    others = all_of_them * (1.0 - 1.0 / options.context)
    if engine.keys is Keys.KEPT and options.recompute is Recompute.NONE:
        return replace(memory, held_split=memory.held_split + others)
    return replace(memory, peak_split=memory.peak_split + others)


def _gathered(memory: LayerMemory, layer: Layer, job: Job, options: Options) -> LayerMemory:
    """Hulk's own runtime keeps the whole of what it has gathered for products over columns, where it would keep a part
    of it; what is computed again is gathered again."""
    inputs = [m for m in layer.matmuls if m.weight and m.split is Split.COLUMNS]
    whole = sum(m.rows * m.inner for m in inputs) * job.precision.bytes * options.microbatch_size
    if options.recompute in (Recompute.OPERATIONS, Recompute.FULL):
        return replace(memory, peak_whole=memory.peak_whole + whole)
    return replace(memory, held_whole=memory.held_whole + whole, held_split=max(memory.held_split - whole, 0.0))


def _passing_bytes(job: Job, options: Options, engine: Engine) -> float:
    """Bytes a parameter of a layer that stand in memory while its passes run, beside what its holder keeps. Hulk's own
    runtime, torch's FSDP, copies weights out of what it has gathered, and a gradient into what it sends."""
    own = job.precision.bytes if engine.lean else 0
    weights, gradient = 2.0 * job.precision.bytes + own, float(engine.wire_bytes(job.precision)) + own
    match options.sharding:
        case Sharding.PARAMETERS:
            return weights + gradient
        case Sharding.GRADIENTS:
            return gradient
        case _:
            return 0.0


@dataclass(frozen=True, slots=True)
class State:
    """Bytes that a holder keeps for each of its parameters."""

    weights: float
    gradients: float
    optimizer: float


def state_of(job: Job, options: Options, engine: Engine, holders: int) -> State:
    """What each of so many holders of the same layers keeps; those that share a sequence are one holder, or, in some
    engines, split it once more among them."""
    holders *= options.context if engine.shards_context else 1
    order = list(Sharding)
    level = order.index(options.sharding)

    def share(what: Sharding) -> int:
        return holders if level >= order.index(what) else 1

    return State(
        weights=weight_bytes(job.precision, 0) / share(Sharding.PARAMETERS),
        gradients=engine.gradient_bytes(job.precision) / share(Sharding.GRADIENTS),
        optimizer=0.0
        if options.host_state
        else (optimizer_bytes(job.precision, job.optimizer) + _part_bytes(job, options, engine))
        / share(Sharding.OPTIMIZER),
    )


def _part_bytes(job: Job, options: Options, engine: Engine) -> float:
    """Bytes a parameter of the part that a holder updates, where that is none of its weights: Hulk's own runtime
    gathers weights of parts in fp32, which 16-bit weights have as their fp32 copy in any case."""
    apart = engine.lean and options.sharding is Sharding.GRADIENTS and job.precision.bytes == GRADIENT_BYTES
    return float(GRADIENT_BYTES) if apart else 0.0


def shared_out(job: Job, options: Options, engine: Engine) -> tuple[float, float]:
    """Bytes a parameter that every holder keeps however many there are, and bytes that they split among them; what is
    not sharded at all, the optimizer's state too, counts among the latter, for one holder."""
    alone, crowd = (state_of(job, options, engine, holders) for holders in (1, 2))
    pairs = ((alone.weights, crowd.weights), (alone.gradients, crowd.gradients))
    # Floats also where there is nothing: compiled code would be compiled once more for a whole number.
    kept = sum((one for one, of_two in pairs if one == of_two), 0.0)
    split = sum((one for one, of_two in pairs if one != of_two), 0.0)
    return kept, split + alone.optimizer


def _activations(layer: Layer, input_elements: float, job: Job, options: Options, engine: Engine) -> LayerMemory:
    size, microbatch = job.precision.bytes, options.microbatch_size
    if engine.fused_kernels:
        layer = replace(
            layer,
            held_split=layer.held_split - layer.spared_held_split,
            held_whole=layer.held_whole - layer.spared_held_whole,
        )
    scores = 0.0
    if job.attention.writes_scores:
        scores = layer.scores * size + layer.score_masks * (1.0 - MASK_ELEMENTS * size)
    held_split = (layer.held_split * size + scores) * microbatch
    held_whole = (layer.held_whole * size + layer.mask_bytes) * microbatch
    if engine.lean:
        plain = LayerMemory(held_split, held_whole, scores * microbatch, 0.0)
        return _scaled(_own(layer, input_elements, job, options, plain), engine.slack)
    if layer.kind is LayerKind.HEAD:
        if engine.logit_bytes is not None:
            held, moment = (bytes_each * layer.logits * microbatch for bytes_each in engine.logit_bytes)
            return LayerMemory(held, held_whole, moment, 0.0)
        # Logits and softmax in fp32; backward needs two more copies for a moment, recomputation or not.
        held_split = layer.held_split * 4.0 * microbatch
        return LayerMemory(held_split, held_whole, held_split / _LOSS_COPIES * 2.0, 0.0)
    if again(layer, options.recompute) is None:
        return LayerMemory(held_split, held_whole, 0.0, 0.0)
    if options.recompute is Recompute.ATTENTION:
        return LayerMemory(held_split - scores * microbatch, held_whole, scores * microbatch, 0.0)
    kept_split, kept_whole = (0.0, 0.0) if options.recompute is Recompute.FULL else kept_results(layer)
    split = min(kept_split * size * microbatch, held_split)
    whole = (input_elements + kept_whole) * size * microbatch
    return LayerMemory(split, whole, held_split - split, max(held_whole - whole, 0.0))


def _own(layer: Layer, input_elements: float, job: Job, options: Options, plain: LayerMemory) -> LayerMemory:
    """What `hulk.runtime` keeps: logits once, in their own format, and the temporaries of backward. `plain`: what an
    engine keeps that computes nothing again, and for a moment its scores."""
    size, microbatch = job.precision.bytes, options.microbatch_size
    held_split, held_whole = plain.held_split, plain.held_whole
    weight = layer.moment_once * size
    moment_split, moment_whole = layer.moment_split * size * microbatch, layer.moment_whole * size * microbatch
    if layer.kind is LayerKind.HEAD:
        logits = held_split / _LOSS_COPIES  # the layer counts them as its loss holds them elsewhere
        columns = layer.matmuls[-1].columns
        padded = weight if size == 2 and columns % PADDED else 0.0
        hole = HOLE * logits if columns % PADDED else 0.0
        chunk = 2.0 * 4.0 * min(logits / size, LOSS_CHUNK)
        return LayerMemory(logits + padded, held_whole, hole + max(chunk, weight), moment_whole)
    single = 0.0
    if size == 4 and not job.attention.writes_scores:
        single = layer.held_single * size * microbatch
    if layer.kind is LayerKind.EMBEDDING:  # what it gives is counted by the layer that takes it, or as sent
        held_whole = max(held_whole - layer.output * size * microbatch, 0.0)
    once = layer.held_once * size
    recompute = options.recompute if layer.kind is LayerKind.BLOCK else Recompute.NONE
    if recompute in (Recompute.NONE, Recompute.ATTENTION):
        again = single + plain.peak_split if recompute is Recompute.ATTENTION else 0.0
        held = held_split + single - again
        return LayerMemory(held + once, held_whole, moment_split + weight + again, moment_whole)
    kept_split, kept_whole = (0.0, 0.0) if recompute is Recompute.FULL else counted_results(layer)
    split, whole = kept_split * size * microbatch, (input_elements + kept_whole) * size * microbatch
    again = max(held_split + single - split, 0.0)
    return LayerMemory(split + once, whole, again + moment_split + weight, max(held_whole - whole, 0.0) + moment_whole)


def _scaled(memory: LayerMemory, slack: float) -> LayerMemory:
    times = 1.0 + slack
    return LayerMemory(
        memory.held_split * times, memory.held_whole * times, memory.peak_split * times, memory.peak_whole * times
    )
