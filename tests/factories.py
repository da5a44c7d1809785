"""Small clusters, models, jobs and plans for tests, with round numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

from hulk.cost.compute import LayerTime, TimeOrigin
from hulk.cost.roofline import Conditions
from hulk.domain.cluster import Cluster, Link, Machine, Region, pair
from hulk.domain.gpu import GpuType, Precision
from hulk.domain.job import Attention, Job
from hulk.domain.model import Layer, LayerKind, Model

GPU = GpuType(
    name="test-gpu",
    memory=10e9,
    memory_bandwidth=1e12,
    rates={Precision.FP32: 10e12, Precision.BF16: 100e12},
    link_bandwidth=100e9,
    link_kind="nvlink",
    price=1.0 / 3600,
)


def layer(
    name: str = "block",
    *,
    kind: LayerKind = LayerKind.BLOCK,
    params: int = 1_000_000,
    tied: int = 0,
    output: float = 1000.0,
    held: float = 1000.0,
) -> Layer:
    """A layer with nothing in it but what the test says."""
    return Layer(
        name=name,
        kind=kind,
        shape=name,
        params_split=params,
        params_whole=0,
        tied=tied,
        matmuls=(),
        moved_split=0.0,
        moved_whole=0.0,
        scores=0.0,
        held_split=held,
        held_whole=0.0,
        mask_bytes=0.0,
        output=output,
        reductions=0,
        kernels=1,
    )


def model(layers: int = 4, **kwargs: object) -> Model:
    """Equal layers."""
    made = tuple(layer(f"block {i}", **kwargs) for i in range(layers))  # type: ignore[arg-type]
    return Model(name="toy", family="decoder", sequence=10, layers=made)


def job(layers: int = 4, *, global_batch: int = 8, the_model: Model | None = None, **kwargs: object) -> Job:
    """An fp32 job on the toy model."""
    return Job(
        name="toy",
        model=the_model or model(layers),
        global_batch=global_batch,
        precision=Precision.FP32,
        attention=Attention.FUSED,
        **kwargs,  # type: ignore[arg-type]
    )


def cluster(
    machines: dict[str, str],
    links: dict[tuple[str, str], Link] | None = None,
    *,
    default: Link | None = None,
    gpus: int = 8,
    network: float = 1e9,
    egress: float = 0.0,
) -> Cluster:
    """Machines by name → region; links by pair of regions, `default` elsewhere."""
    regions = tuple(dict.fromkeys(machines.values()))
    fallback = default or Link(latency=0.0, bandwidth=1e9)
    region_links = {pair(a, b): fallback for a in regions for b in regions}
    region_links.update({pair(*key): link for key, link in (links or {}).items()})
    return Cluster(
        name="toys",
        regions=tuple(Region(name, egress=egress) for name in regions),
        machines=tuple(
            Machine(name, region, GPU, gpus, GPU.memory, network, GPU.price * gpus) for name, region in machines.items()
        ),
        region_links=region_links,
    )


@dataclass
class FixedTimes:
    """A compute model in which a layer takes the same time everywhere, or what the test says for a machine's GPU."""

    forward: float = 1.0
    backward: float = 2.0
    by_layer: dict[str, tuple[float, float]] = field(default_factory=dict)

    def layer_times(self, model: Model, layer: Layer, gpu: GpuType, how: Conditions) -> LayerTime:
        """Seconds, whatever the rest."""
        del model, gpu, how
        forward, backward = self.by_layer.get(layer.name, (self.forward, self.backward))
        return LayerTime(forward, backward, TimeOrigin.MEASURED)

    def times_of(self, model: Model, layers: tuple[Layer, ...], gpu: GpuType, how: Conditions) -> tuple[LayerTime, ...]:
        """The same of several layers."""
        return tuple(self.layer_times(model, layer, gpu, how) for layer in layers)
