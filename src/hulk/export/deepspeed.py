"""DeepSpeed: hostfile, config, the layers of each stage, and the command that starts a program with them."""

from __future__ import annotations

from typing import Any

from hulk.domain.gpu import Precision
from hulk.domain.job import Optimizer
from hulk.domain.options import Recompute, Sharding, Sync, Within
from hulk.domain.switches import PLAIN
from hulk.errors import InputError
from hulk.export.files import File, Files, as_json, script
from hulk.export.grid import Grid, check_options, grid_of, precision_of
from hulk.export.scene import Scene, refuse
from hulk.export.shell import HEAD, command, host_name, word
from hulk.export.start import in_order

NAME = "deepspeed"
OFFERS = {
    "schedule": (PLAIN,),
    "chunks": (1,),
    "recompute": (Recompute.NONE, Recompute.FULL),
    "sync": (Sync.RING,),
    "shard_within": (Within.EVERYWHERE,),
    "context": (1,),
    "expert": (1,),
    "host_state": (False,),
}
"""What its config can say of a plan's options. A pipeline takes a sharded optimizer and no more."""
_STAGES = {Sharding.NONE: 0, Sharding.OPTIMIZER: 1, Sharding.GRADIENTS: 2, Sharding.PARAMETERS: 3}
_OPTIMIZERS: dict[Optimizer, tuple[str, dict[str, Any]]] = {
    Optimizer.ADAMW: ("AdamW", {}),
    Optimizer.ADAM: ("Adam", {"adam_w_mode": False}),
    Optimizer.SGD: ("SGD", {}),
    Optimizer.MOMENTUM: ("SGD", {"momentum": 0.9}),
}

_PARTITION = '''\
"""The layers of each stage of a plan, for DeepSpeed's pipelines. Written by `hulk export`.

    from partition import PlannedPipelineModule, topology
    model = PlannedPipelineModule(layers=..., topology=topology(), loss_fn=...)

`layers` are the model's own: the embedding, every block, the head, in that order.
"""

from deepspeed.pipe import PipelineModule
from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology

STARTS = {starts}
"""The first layer of each stage, and the number of layers."""
STAGES, REPLICAS, TENSOR = {stages}, {replicas}, {tensor}
RECOMPUTE = {again}
"""Layers between two that are kept: 0 keeps all, 1 computes everything again."""


def topology():
    """Who is who: ranks go stage by stage, in each replica by replica, in each GPU by GPU."""
    return PipeModelDataParallelTopology(num_pp=STAGES, num_mp=TENSOR, num_dp=REPLICAS)


class PlannedPipelineModule(PipelineModule):
    """A pipeline that is cut as the plan says."""

    def __init__(self, layers, **options):
        if len(layers) != STARTS[-1]:
            raise ValueError(f"the plan is for {{STARTS[-1]}} layers, and here are {{len(layers)}}")
        options.setdefault("activation_checkpoint_interval", RECOMPUTE)
        super().__init__(layers=layers, **options)

    def _partition_layers(self, method="planned"):
        stage = self._topo.get_coord(self.global_rank).pipe
        self.parts = list(STARTS)
        self._set_bounds(start=STARTS[stage], stop=STARTS[stage + 1])
'''


def export(scene: Scene) -> Files:
    """The hostfile, the config, the partition, and a script that starts a program with `deepspeed`."""
    grid = grid_of(NAME, scene)
    check_options(NAME, scene, OFFERS)
    if grid.stages > 1 and _STAGES[grid.options.sharding] > 1:
        raise refuse(NAME, f"the plan has `sharding: {grid.options.sharding}`; its pipelines take none or optimizer")
    nodes = grid.nodes()
    if not in_order(nodes):
        raise refuse(
            NAME, "a machine has several stages of several pipelines; its launcher numbers GPUs machine by machine"
        )
    hosts = [host_name(scene.host(node.machine).login) for node in nodes]
    if len(set(hosts)) < len(hosts):
        raise InputError("two machines have the same address in the hosts file", hint="DeepSpeed needs one for each")
    lines = "".join(
        f"{host} slots={scene.cluster.machine(node.machine).gpus}\n" for host, node in zip(hosts, nodes, strict=True)
    )
    gpus = "@".join(
        f"{host}:{','.join(map(str, sorted(node.gpus or ())))}" for host, node in zip(hosts, nodes, strict=True)
    )
    words = [
        *('"${DEEPSPEED:-deepspeed}"', "--hostfile", "hostfile", "--include", word(gpus)),
        *("--master_addr", word(host_name(scene.host(nodes[0].machine).address)), "--master_port", str(scene.port)),
        *('"$@"', "--deepspeed", "--deepspeed_config", "deepspeed.json"),
    ]
    start = (
        f"{HEAD}# Starts a training program of yours with the plan: ./start.sh train.py ARGUMENTS. Written by "
        '`hulk export`.\nset -euo pipefail\ncd -- "$(dirname -- "${BASH_SOURCE[0]}")"\n'
        'export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"\n'
        f'[ $# -gt 0 ] || {{ echo "usage: start.sh PROGRAM ARGUMENTS" >&2; exit 2; }}\nexec {command(words)}\n'
    )
    return {
        "hostfile": File(lines),
        "deepspeed.json": as_json(_config(scene, grid)),
        "partition.py": File(_partition(grid)),
        "start.sh": script(start),
    }


def _partition(grid: Grid) -> str:
    starts = [*(stage.first for stage in grid.rows[0]), grid.rows[0][-1].last + 1]
    again = int(grid.options.recompute is Recompute.FULL)
    return _PARTITION.format(starts=starts, stages=grid.stages, replicas=grid.replicas, tensor=grid.tensor, again=again)


def _config(scene: Scene, grid: Grid) -> dict[str, Any]:
    job, settings, precision = scene.job, scene.settings, precision_of(scene)
    if job.optimizer not in _OPTIMIZERS:
        raise refuse(NAME, f"job {job.name!r} trains with {job.optimizer}; it has {', '.join(_OPTIMIZERS)}")
    if precision is Precision.FP8:
        raise refuse(NAME, f"job {job.name!r} trains in fp8; it has bf16, fp16 and fp32")
    kind, more = _OPTIMIZERS[job.optimizer]
    return {
        "train_batch_size": job.global_batch,
        "train_micro_batch_size_per_gpu": grid.options.microbatch_size,
        "gradient_accumulation_steps": grid.microbatches,
        "optimizer": {"type": kind, "params": {"lr": settings.rate, "weight_decay": settings.decay, **more}},
        "bf16": {"enabled": precision is Precision.BF16},
        "fp16": {"enabled": precision is Precision.FP16},
        "zero_optimization": {"stage": _STAGES[grid.options.sharding]},
        "steps_per_print": 1,
    }
