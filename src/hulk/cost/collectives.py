"""How long a collective operation takes among the GPUs of one machine, or of several machines.

A ring moves f(t) · n bytes through each GPU's link for n bytes of data among t GPUs, with f = 2 (t-1)/t for an
all-reduce and (t-1)/t for an all-gather or a reduce-scatter (n: the whole tensor) and for an all-to-all (n: what each
GPU has), so

    seconds = latency + f(t) · n / bandwidth                    (NVIDIA nccl-tests, PERFORMANCE.md, "bus bandwidth")

Latency and bandwidth are fitted on measured all-reduces where there are some (hulk/data/profiles/collectives.json, from
the SOSP '25 Sailor artifact; `benchmarks/fit_roofline.py --collectives` prints the table), or as reported for the usual
machine with such cards (`REPORTED_RINGS`), else they follow from the card's link. Where the switch adds up (NVLink
SHARP), the "bus bandwidth" of an all-reduce can exceed the link's.

Over q machines with p GPUs of each it is done in two levels (the 2D-torus all-reduce of Mikami et al., "Massively
Distributed SGD", 2018): inside of each machine all GPUs add up and split the sum, each does a ring with the GPUs of the
same place on the other machines, with a p-th of the bytes and through its share of the network cards (its rail), and
the machines put the results together. An all-gather is the second half of that, a reduce-scatter the first.

    seconds = latency + f(p) · n / bandwidth + f(q) · n / (p · rail) + r (q-1) · latency between machines

with r = 2 trips around for an all-reduce and 1 for the others. Since f(p) + f(q) / p = f(p q), rails as fast as the
links inside give the one-machine formula. Reported of all-reduces over two machines: eight H20 each, 0.47 ms for 67 MB,
1.11 for 134 MB, 3.22 for 537 MB (NVIDIA/nccl issue 1244; by this formula, with eight cards of 400 Gbit/s, 0.48, 0.90
and 3.37); eight A100 each with four cards of 200 Gbit/s, a bus bandwidth of 86 GB/s (issue 1048; by this formula 106).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from hulk.domain.gpu import GpuType


class Operation(StrEnum):
    """The collective operations that tensor and data parallel training use; all-to-all inside of a machine alone."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"


@dataclass(frozen=True, slots=True)
class Ring:
    """What a ring of GPUs reaches: `latency` in seconds an operation, `bandwidth` in bytes/s through one GPU's link."""

    latency: float
    bandwidth: float


@dataclass(frozen=True, slots=True)
class Between:
    """What lies between the `machines` of GPUs that work together: `latency` in seconds one way, and a GPU's share of
    the network cards, `rail`, in bytes/s."""

    machines: int
    latency: float
    rail: float


Rings = Mapping[str, Mapping[int, Ring]]
"""By GPU type name and number of GPUs."""

# Pairs of RTX 3090 had an NVLink bridge; larger groups of them went through PCIe and two sockets. Pairs on a GH200
# board have a third of the links that four have. The V100's fits are loose (its small messages were noisy).
MEASURED_RINGS: Rings = MappingProxyType(
    {
        "a100-40": {2: Ring(82e-6, 187e9), 4: Ring(91e-6, 208e9)},
        "gh200-96": {2: Ring(45e-6, 109e9), 4: Ring(61e-6, 334e9)},
        "rtx-2080ti": {2: Ring(49e-6, 4.06e9), 4: Ring(70e-6, 4.96e9), 8: Ring(109e-6, 5.31e9)},
        "rtx-3090": {2: Ring(56e-6, 43.6e9), 4: Ring(272e-6, 9.31e9), 8: Ring(20e-6, 1.32e9)},
        "titan-rtx": {2: Ring(37e-6, 4.07e9), 4: Ring(45e-6, 4.96e9), 8: Ring(49e-6, 5.28e9)},
        "v100-16": {2: Ring(80e-6, 61.1e9), 4: Ring(221e-6, 81.2e9)},
    }
)
# What is reported of nccl-tests on the usual machines, large messages; the latency is such that messages of 16 to 64 MB
# are met too.
# V100 in a hybrid cube mesh of eight (DGX-1): six links of 25 GB/s each, of which GPUs 0 and 1 share one, and four have
#   four among them (Li et al., "Evaluating Modern GPU Interconnect", TPDS 2020, figure 1); a ring reaches 0.87 of them.
# A100 on NVSwitch: pairs 208 GB/s (NVIDIA/nccl-tests issue 178), eight 230 to 235 (issues 100, 149).
# H100, H200: 370 by ring, 480 for eight where the switch adds up (an NCCL author in nccl-tests issue 212; H200 475:
#   issue 272). H800: 215 for eight (NVIDIA/nccl issue 1374).
# B200: twice the H100's links, NVLink 5; taken to reach the same share of them.
_HOPPER = {2: Ring(60e-6, 330e9), 4: Ring(60e-6, 370e9), 8: Ring(60e-6, 480e9)}
REPORTED_RINGS: Rings = MappingProxyType(
    {
        "v100-16": {8: Ring(60e-6, 130e9)},
        "v100-32": {2: Ring(60e-6, 22e9), 4: Ring(60e-6, 85e9), 8: Ring(60e-6, 130e9)},
        "a100-40": {8: Ring(60e-6, 230e9)},
        "a100-80": {2: Ring(60e-6, 208e9), 4: Ring(60e-6, 220e9), 8: Ring(60e-6, 230e9)},
        "h100": _HOPPER,
        "h200": _HOPPER,
        "h800": {2: Ring(60e-6, 160e9), 4: Ring(60e-6, 165e9), 8: Ring(60e-6, 215e9)},
        "b200": {2: Ring(60e-6, 660e9), 4: Ring(60e-6, 740e9), 8: Ring(60e-6, 960e9)},
    }
)
KNOWN_RINGS: Rings = MappingProxyType(
    {
        name: MappingProxyType(dict(REPORTED_RINGS.get(name, {})) | dict(MEASURED_RINGS.get(name, {})))
        for name in (*MEASURED_RINGS, *REPORTED_RINGS)
    }
)
"""As measured where measured, else as reported."""
# Cards on the same boards as another one.
_SAME_BOARD = MappingProxyType({"a100-80": "a100-40", "v100-32": "v100-16", "gh200-144": "gh200-96"})

# Share of the link's peak that a ring reaches: the median of the measured groups, by link kind.
LINK_EFFICIENCY: Mapping[str, float] = MappingProxyType({"nvlink": 0.58, "pcie": 0.40})
LINK_LATENCY = 60e-6
"""Seconds; the median of the measured latencies."""


def ring(gpu: GpuType, gpus: int, *, rings: Rings = KNOWN_RINGS) -> Ring:
    """What `gpus` cards of this type reach together: as known (at the nearest group size), else from the link."""
    measured = rings.get(gpu.linked) or rings.get(_SAME_BOARD.get(gpu.linked, ""))
    if measured:
        nearest = min(measured, key=lambda size: (abs(size - gpus), -size))
        return measured[nearest]
    efficiency = LINK_EFFICIENCY.get(gpu.link_kind, LINK_EFFICIENCY["pcie"])
    return Ring(LINK_LATENCY, gpu.link_bandwidth * efficiency)


def collective_time(
    operation: Operation,
    size: float,
    gpu: GpuType,
    gpus: int,
    *,
    between: Between | None = None,
    rings: Rings = KNOWN_RINGS,
) -> float:
    """Seconds of one operation on `size` bytes (see the module) among `gpus` GPUs of one machine, or as many of each of
    several; 0 for one GPU."""
    if gpus <= 1 or size <= 0:
        return 0.0
    trips = 2.0 if operation is Operation.ALL_REDUCE else 1.0
    machines = 1 if between is None else between.machines
    inside = gpus // machines
    reached = ring(gpu, inside, rings=rings)
    seconds = reached.latency + trips * (inside - 1) / inside * size / reached.bandwidth
    if between is not None:
        seconds += trips * (machines - 1) * (between.latency + size / (gpus * between.rail))
    return seconds
