"""What the engine that runs a plan does with it: facts that change a step's time and memory, in one value.

`HULK` is the engine of this project as a plan is made for it, and the default. `TORCH` is what `hulk run` does, message
by message: what a run is predicted with. `MEGATRON_DEEPSPEED` describes the one that ran the measured
training runs in the benchmarks; it shows how another engine's facts are written down.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hulk.domain.gpu import GpuType

MIB = 2.0**20
GIB = 2.0**30


@dataclass(frozen=True)
class Engine:
    """An engine's behaviour.

    blocking_above   bytes one rank sends above which a transfer blocks sender and receiver until it is through; smaller
                     ones, and all with infinity, overlap with compute
    message_overhead seconds a transfer costs besides the wire (launches, metadata, the host's part)
    pass_overhead    seconds a pass costs besides its layers (the schedule's own work on the host)
    flow_per_rank    whether each tensor parallel rank sends its slice of an activation in a flow of its own, so that as
                     many flows share the way; otherwise one flow carries it all
    overlap_sync     whether a set of layers starts to sync once the last backward has passed it, not only after the
                     whole stage is done
    bucket           bytes that gradients are added up in at a time; sums and the succession of steps are then played
                     through, as `hulk.cost.sums` says. None: by the closed forms of `hulk.cost.step`
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
    blocking_above: float = float("inf")
    message_overhead: float = 0.0
    pass_overhead: float = 0.0
    flow_per_rank: bool = False
    overlap_sync: bool = True
    bucket: float | None = None
    dropout: bool = True
    lean: bool = False
    slack: float = 0.0
    headroom: float = 0.0
    reserve: float = 1.5 * GIB
    reserve_of: Mapping[str, float] = field(default_factory=dict)
    ring_share_of: Mapping[str, float] = field(default_factory=dict)

    def reserved(self, gpu: GpuType) -> float:
        """Bytes of one such GPU that no tensor can have."""
        return self.reserve_of.get(gpu.name, self.reserve)

    def capacity(self, gpu: GpuType, memory: float) -> float:
        """Bytes of one such GPU, which has `memory`, that a plan may fill with tensors."""
        return memory * (1.0 - self.headroom) - self.reserved(gpu)

    def ring_share(self, gpu: GpuType) -> float:
        """Share of the bandwidth between such machines that an all-reduce reaches."""
        return self.ring_share_of.get(gpu.name, 1.0)


# A CUDA context with the kernels of PyTorch, cuBLAS and NCCL and a few communicators' buffers take 1 to 1.5 GiB.
# On an H200 the context and what lies outside of torch's allocator took 0.5 GiB, the workspaces of cuBLAS and cuDNN and
# the allocator's rounding 0.25 to 0.3, and what it held beyond that up to a per cent of the activations.
_OWN_RESERVE = {"h200": 0.85 * GIB}
_OWN_SLACK = 0.01
HEADROOM = 0.03
"""Share of a GPU's memory that `hulk plan` and `hulk replan` leave free unless asked for another: memory may be that
much more than predicted (docs/accuracy.md)."""
HULK = Engine(
    name="hulk",
    message_overhead=50e-6,
    dropout=False,
    lean=True,
    slack=_OWN_SLACK,
    reserve_of=_OWN_RESERVE,
)

# `hulk run` over gloo: what Python, torch's schedule and gloo's copies cost the host, measured on two cores.
TORCH = Engine(
    name="torch",
    message_overhead=3e-4,
    pass_overhead=6e-4,
    bucket=64 * MIB,
    dropout=False,
    lean=True,
    slack=_OWN_SLACK,
    reserve_of=_OWN_RESERVE,
)

# Megatron-DeepSpeed as in the Sailor artifact (SOSP '25). Its pipeline engine cuts activations into a slice per tensor
# parallel rank, sends each with its metadata in the compute stream, and gathers them at the receiver; it reduces
# gradients after all microbatches. 4 MiB is NCCL's buffer (NCCL_BUFFSIZE): what fits is sent without waiting for the
# receiver. Fitted once for all runs: 2 ms a message. Fitted per GPU type: the reserve, which there includes what
# fused kernels, NCCL and other ranks' contexts take, since the peak was read from nvidia-smi; and, for the GH200
# nodes with a card per GPU, the share of those cards that NCCL's all-reduce reaches.
MEGATRON_DEEPSPEED = Engine(
    name="megatron-deepspeed",
    blocking_above=4 * MIB,
    message_overhead=2e-3,
    flow_per_rank=True,
    overlap_sync=False,
    reserve=2.95e9,
    reserve_of={"gh200-96": 4.65e9},
    ring_share_of={"gh200-96": 0.45},
)
