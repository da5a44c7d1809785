"""The layers of each stage of a plan, for DeepSpeed's pipelines. Written by `hulk export`.

    from partition import PlannedPipelineModule, topology
    model = PlannedPipelineModule(layers=..., topology=topology(), loss_fn=...)

`layers` are the model's own: the embedding, every block, the head, in that order.
"""

from deepspeed.pipe import PipelineModule
from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology

STARTS = [0, 9, 18, 27, 34]
"""The first layer of each stage, and the number of layers."""
STAGES, REPLICAS, TENSOR = 4, 8, 1
RECOMPUTE = 1
"""Layers between two that are kept: 0 keeps all, 1 computes everything again."""


def topology():
    """Who is who: ranks go stage by stage, in each replica by replica, in each GPU by GPU."""
    return PipeModelDataParallelTopology(num_pp=STAGES, num_mp=TENSOR, num_dp=REPLICAS)


class PlannedPipelineModule(PipelineModule):
    """A pipeline that is cut as the plan says."""

    def __init__(self, layers, **options):
        if len(layers) != STARTS[-1]:
            raise ValueError(f"the plan is for {STARTS[-1]} layers, and here are {len(layers)}")
        options.setdefault("activation_checkpoint_interval", RECOMPUTE)
        super().__init__(layers=layers, **options)

    def _partition_layers(self, method="planned"):
        stage = self._topo.get_coord(self.global_rank).pipe
        self.parts = list(STARTS)
        self._set_bounds(start=STARTS[stage], stop=STARTS[stage + 1])
