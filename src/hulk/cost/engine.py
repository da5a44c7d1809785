"""What the engine that runs a plan does with it: facts that change a step's time and memory, in one value.

`HULK` is what `hulk run` does, and the default. The others describe engines that people train with, so that a plan can
be priced for them; docs/accuracy.md compares those prices with measured and published runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from hulk.cost.axes import Keys
from hulk.domain.gpu import GpuType, Precision
from hulk.domain.options import COLUMN, SPACE, Recompute, Schedule, Sharding, Within
from hulk.errors import InputError, nearest

MIB = 2.0**20
GIB = 2.0**30


class WholeBackward(Collection[Schedule]):
    """All schedules but those that split backward."""

    def __contains__(self, value: object) -> bool:
        return isinstance(value, Schedule) and not value.splits_backward

    def __iter__(self) -> Iterator[Schedule]:
        return filter(self.__contains__, SPACE[COLUMN["schedule"]].values)

    def __len__(self) -> int:
        return sum(1 for _ in self)


WHOLE_BACKWARD = WholeBackward()


@dataclass(frozen=True)
class Engine:
    """An engine's behaviour.

    offers           for options of a plan, by name, the values that it can do; all where none are given
    searched         the same for those that a search goes through, where they are fewer
    counts           kinds of recomputation that can be of some of a stage's blocks, from its first on; of others, all
    one_count        whether that is then one number for all stages, or all blocks of those that have fewer
    spans            whether a search tries stages on several machines
    blocking_above   bytes one rank sends above which a transfer blocks sender and receiver until it is through; smaller
                     ones, and all with infinity, overlap with compute
    message_overhead seconds a transfer costs besides the wire (launches, metadata, the host's part)
    pass_overhead    seconds a pass costs besides its layers (the schedule's own work on the host)
    step_overhead    seconds a step costs besides its passes and its update (the host waits for the loss and the
                     gradients' norm, and reads the next batch)
    flow_per_rank    whether each tensor parallel rank sends its slice of an activation in a flow of its own, so that as
                     many flows share the way; otherwise one flow carries it all
    overlap_shards   whether gathers and scatters of what is sharded go on while layers compute; otherwise passes take
                     their time as well
    overlap_sync     whether a set of layers starts to sync once the last backward has passed it, not only after the
                     whole stage is done
    fused_kernels    whether memory-bound operations are joined into few kernels, by hand or by a compiler
    power_limited    whether GPUs are taken to run at the clock they keep for hours, not for a short measurement
    keys             how keys and values reach GPUs that share a sequence
    shards_context   whether these split what is sharded, too, as replicas do
    hidden_exchange  share of tensor parallel's all-reduces that is hidden behind products
    update_copies    bytes that an update of 16-bit weights moves for each parameter besides the optimizer's own
    gradient_held    bytes of a parameter's gradient while microbatches are added up, by precision; 4 where not given
    logit_bytes      bytes of a logit held from the loss to its backward pass, and for a moment on top. None: the logits
                     and their softmax in fp32, and as much again
    wire_gradient    bytes of a gradient element on its way between replicas; None: as many as the precision has
    bucket           bytes that gradients are added up in at a time, where sums overlap with backward as soon as it has
                     made them. None: all that a set of layers has, at once
    hop_overhead     seconds that each message of a sum costs besides latency and wire
    swaps            whether two holders send each other all of it at once, in one trip; otherwise they do a ring, two
    shares_once      whether parameters that layers share are added up once, among all stages of all replicas that hold
                     them; otherwise by replicas like all others, and then within each pipeline
    sends_weights    whether a sharded optimizer's owners send the weights they updated to all other holders, after sums
                     that everyone has; otherwise sums leave out what others own, and the two cost as much as one sum
    rolls            whether a stage goes on with the next step as soon as it is done itself, not when all are: a step
                     then takes the time between the ends of steps
    dropout          whether it drops out as the model's config says; `hulk run` does so only when asked
    lean             whether memory is that of Hulk's own runtime, temporaries and all, as `hulk.cost.memory` has it
    slack            bytes that the allocator holds beyond the activations' own, as a share of these
    headroom         share of a GPU's memory that a plan leaves free
    reserve          bytes of a GPU that are gone before the first tensor (context, libraries, communication buffers)
    reserve_of       the same, where it was measured for a GPU type
    ring_share_of    share of the bandwidth between machines that an all-reduce reaches, where it was measured for a GPU
                     type; 1 otherwise
    """

    name: str
    offers: Mapping[str, Collection[Any]] = field(default_factory=dict)
    searched: Mapping[str, Collection[Any]] = field(default_factory=dict)
    counts: Collection[Recompute] = ()
    one_count: bool = False
    spans: bool = True
    blocking_above: float = float("inf")
    message_overhead: float = 0.0
    pass_overhead: float = 0.0
    step_overhead: float = 0.0
    flow_per_rank: bool = False
    fused_kernels: bool = False
    keys: Keys = Keys.KEPT
    shards_context: bool = False
    hidden_exchange: float = 0.0
    update_copies: float = 0.0
    power_limited: bool = False
    gradient_held: Mapping[Precision, int] = field(default_factory=dict)
    logit_bytes: tuple[float, float] | None = None
    overlap_shards: bool = True
    overlap_sync: bool = True
    wire_gradient: int | None = 4
    bucket: float | None = None
    hop_overhead: float = 0.0
    swaps: bool = False
    shares_once: bool = False
    sends_weights: bool = False
    rolls: bool = False
    dropout: bool = True
    lean: bool = False
    slack: float = 0.0
    headroom: float = 0.0
    reserve: float = 1.5 * GIB
    reserve_of: Mapping[str, float] = field(default_factory=dict)
    ring_share_of: Mapping[str, float] = field(default_factory=dict)

    @property
    def tried(self) -> Mapping[str, Collection[Any]]:
        """For options of a plan, by name, the values that a search goes through; all where none are given."""
        return {**self.offers, **self.searched}

    def wire_bytes(self, precision: Precision) -> int:
        """Bytes of a gradient element on its way between replicas."""
        return precision.bytes if self.wire_gradient is None else self.wire_gradient

    def reserved(self, gpu: GpuType) -> float:
        """Bytes of one such GPU that no tensor can have."""
        return self.reserve_of.get(gpu.family, self.reserve)

    def gradient_bytes(self, precision: Precision) -> int:
        """Bytes of a parameter's gradient while microbatches are added up."""
        return self.gradient_held.get(precision, 4)

    def capacity(self, gpu: GpuType, memory: float) -> float:
        """Bytes of one such GPU, which has `memory`, that a plan may fill with tensors."""
        return memory * (1.0 - self.headroom) - self.reserved(gpu)

    def ring_share(self, gpu: GpuType) -> float:
        """Share of the bandwidth between such machines that an all-reduce reaches."""
        return self.ring_share_of.get(gpu.family, 1.0)


# A CUDA context with the kernels of PyTorch, cuBLAS and NCCL and a few communicators' buffers take 1 to 1.5 GiB.
# On an H200 the context and what lies outside of torch's allocator took 0.5 GiB, the workspaces of cuBLAS and cuDNN and
# the allocator's rounding 0.25 to 0.3, and what it held beyond that up to a per cent of the activations.
_OWN_RESERVE = {"h200": 0.85 * GIB}
_OWN_SLACK = 0.01
HEADROOM = 0.03
"""Share of a GPU's memory that `hulk plan` and `hulk replan` leave free unless asked for another: memory may be that
much more than predicted (docs/accuracy.md)."""
# `hulk run`. Overheads are what Python, torch's schedule and gloo's copies cost the host, measured on two cores. It can
# do all that a plan can say but split experts and leave state to the host. A search goes through what pays between
# regions; more is for those who ask for it. Weights are gathered ahead, and on GPUs torch spreads gradients meanwhile;
# neither was measured, so neither is counted on.
HULK = Engine(
    name="hulk",
    offers={"expert": (1,), "host_state": (False,)},
    searched={
        "schedule": WHOLE_BACKWARD,
        "chunks": (1,),
        "context": (1,),
        "recompute": (Recompute.NONE, Recompute.FULL),
        "sharding": (Sharding.NONE, Sharding.OPTIMIZER),
        "shard_within": (Within.EVERYWHERE,),
        "sequence_parallel": (False,),
    },
    counts=(Recompute.ATTENTION, Recompute.OPERATIONS, Recompute.FULL),
    spans=False,
    message_overhead=3e-4,
    pass_overhead=6e-4,
    hop_overhead=3e-4,
    bucket=64 * MIB,
    swaps=True,
    shares_once=True,
    sends_weights=True,
    rolls=True,
    dropout=False,
    overlap_shards=False,
    lean=True,
    slack=_OWN_SLACK,
    reserve_of=_OWN_RESERVE,
)

# Megatron-DeepSpeed as in the Sailor artifact (SOSP '25). Its pipeline engine cuts activations into a slice per tensor
# parallel rank, sends each with its metadata in the compute stream, and gathers them at the receiver; it reduces
# gradients after all microbatches. 4 MiB is NCCL's buffer (NCCL_BUFFSIZE): what fits is sent without waiting for the
# receiver. It interleaves no stages: DeepSpeed trains by one schedule, 1F1B (deepspeed/runtime/pipe/schedule.py,
# TrainSchedule). Fitted once for all runs: 2 ms a message. Fitted per GPU type: the reserve, which there includes what
# fused kernels, NCCL and other ranks' contexts take, since the peak was read from nvidia-smi; and, for the GH200
# nodes with a card per GPU, the share of those cards that NCCL's all-reduce reaches.
MEGATRON_DEEPSPEED = Engine(
    name="megatron-deepspeed",
    offers={
        "schedule": WHOLE_BACKWARD,
        "recompute": (Recompute.NONE, Recompute.FULL),
        "sharding": (Sharding.NONE, Sharding.OPTIMIZER),
        "shard_within": (Within.EVERYWHERE,),
        "chunks": (1,),
        "host_state": (False,),
        "context": (1,),
        "expert": (1,),
        "sequence_parallel": (False,),
    },
    blocking_above=4 * MIB,
    message_overhead=2e-3,
    flow_per_rank=True,
    overlap_sync=False,
    reserve=2.95e9,
    reserve_of={"gh200-96": 4.65e9},
    ring_share_of={"gh200-96": 0.45},
)

# Megatron-LM and Megatron-Core. Its kernels join scale, mask and softmax, bias and gelu, bias, dropout and residual
# (NVIDIA/Megatron-LM, megatron/core/fusions). Gradients are kept and summed in the weights' precision for fp16, in fp32
# for bf16 (its table of bytes a parameter). A 16-bit update clears the gradients (2 bytes a parameter), copies them to
# fp32 (6), unscales and checks them (8), takes their norm (4) and clips them (8), and copies the weights back (6). The
# vocabulary-parallel loss holds the softmax in fp32, and for a moment the logits or their gradient in 16 bits. Keys and
# values go round from GPU to GPU (`cp_comm_type`, p2p unless asked for another); the distributed optimizer splits its
# state over replicas and over those that share a sequence (its guides context_parallel.md and dist_optimizer.md).
# It interleaves stages (--num-layers-per-virtual-pipeline-stage) and has no zero-bubble schedule; a fork of it has one
# (sail-sg/zero-bubble-pipeline-parallelism). The host can hold the optimizer's state (--optimizer-cpu-offload). The
# first blocks of every stage are computed again, as many on each (--recompute-method block, --recompute-num-layers).
MEGATRON = Engine(
    name="megatron",
    offers={
        "schedule": WHOLE_BACKWARD,
        "recompute": (Recompute.NONE, Recompute.ATTENTION, Recompute.FULL),
        "sharding": (Sharding.NONE, Sharding.OPTIMIZER),
    },
    counts=(Recompute.FULL,),
    one_count=True,
    keys=Keys.AROUND,
    shards_context=True,
    message_overhead=50e-6,
    step_overhead=20e-3,
    flow_per_rank=True,
    fused_kernels=True,
    power_limited=True,
    update_copies=34.0,
    gradient_held={Precision.FP16: 2},
    wire_gradient=None,
    bucket=80e6,
    logit_bytes=(4.0, 2.0),
    reserve=1.0 * GIB,
)

# torchtitan (pytorch/torchtitan): plain modules joined by torch.compile, gradients summed in the precision of
# `mixed_precision_reduce`, fp32 by default. PyTorch's cross entropy keeps the logarithm of the softmax in fp32; its
# backward pass makes the gradient of that, and of the logits, beside it. Its schedules are those of
# torch.distributed.pipelining, interleaved and zero-bubble ones too (pipeline_parallel_schedule). torch's context
# parallelism gathers keys and values, backward once more, unless asked to send them round
# (torch.distributed.tensor.experimental._attention, `rotate_method`); FSDP splits over replicas and over those that
# share a sequence (torchtitan, `dp_shard_cp`).
TORCHTITAN = Engine(
    name="torchtitan",
    offers={"recompute": (Recompute.NONE, Recompute.OPERATIONS, Recompute.FULL), "host_state": (False,)},
    keys=Keys.AGAIN,
    shards_context=True,
    message_overhead=50e-6,
    fused_kernels=True,
    power_limited=True,
    flow_per_rank=True,
    bucket=80e6,
    logit_bytes=(4.0, 8.0),
    reserve=1.0 * GIB,
)

ENGINES: Mapping[str, Engine] = MappingProxyType(
    {engine.name: engine for engine in (HULK, MEGATRON, MEGATRON_DEEPSPEED, TORCHTITAN)}
)
"""The bundled engines by name."""


def engine_named(name: str) -> Engine:
    """The bundled engine of that name; InputError with the nearest known one otherwise."""
    if name not in ENGINES:
        raise InputError(f"unknown engine {name!r}", hint=nearest(name, ENGINES) or f"known: {', '.join(ENGINES)}")
    return ENGINES[name]
