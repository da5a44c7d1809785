"""accelerate with FSDP, for plans that are plain data parallel: a config, and what starts each machine with it."""

from __future__ import annotations

from typing import Any

from hulk.domain.gpu import Precision
from hulk.domain.options import Recompute, Sharding, Sync, Within
from hulk.export.files import Files, as_yaml, script
from hulk.export.grid import Grid, check_options, grid_of, precision_of, shard_sizes
from hulk.export.scene import Scene, refuse
from hulk.export.shell import HEAD, file_name, host_name, word
from hulk.export.start import Node, environment

NAME = "accelerate"
OFFERS = {
    "recompute": (Recompute.NONE, Recompute.FULL),
    "sync": (Sync.RING,),
    "sharding": (Sharding.NONE, Sharding.GRADIENTS, Sharding.PARAMETERS),
    "shard_within": (Within.EVERYWHERE, Within.MACHINE),
    "context": (1,),
    "expert": (1,),
    "host_state": (False,),
}
"""What its config can say of a plan's options."""
_CONFIG = "accelerate.yaml"
_MIXED = {Precision.FP32: "no", Precision.TF32: "no", Precision.FP16: "fp16", Precision.BF16: "bf16"}


def export(scene: Scene) -> Files:
    """A config for all, and a script for each machine."""
    grid = grid_of(NAME, scene)
    check_options(NAME, scene, OFFERS)
    if grid.stages > 1:
        raise refuse(NAME, f"the plan has pipelines of {grid.stages} stages; it takes plain data parallel")
    if grid.tensor > 1:
        raise refuse(NAME, f"the plan has tensor parallel {grid.tensor}; it takes plain data parallel")
    if precision_of(scene) not in _MIXED:
        raise refuse(NAME, f"job {scene.job.name!r} trains in {precision_of(scene)}; it takes {', '.join(_MIXED)}")
    if grid.options.shard_within is Within.MACHINE and grid.options.sharding is not Sharding.NONE:
        shard_sizes(NAME, scene, grid)
    nodes = grid.nodes()
    other = next((node for node in nodes if len(node.ranks) != len(nodes[0].ranks)), None)
    if other is not None:
        first = nodes[0]
        raise refuse(
            NAME,
            f"{first.machine} and {other.machine} train with {len(first.ranks)} and {len(other.ranks)} GPUs; "
            "it takes one number for all",
        )
    files: Files = {_CONFIG: as_yaml(_config(scene, grid, nodes))}
    for number, node in enumerate(nodes):
        gpus = ",".join(map(str, node.gpus or ()))
        files[f"machines/{file_name(node.machine)}.sh"] = script(
            f"{HEAD}# Starts a training program of yours on machine {number + 1} of {len(nodes)}: "
            "machines/NAME.sh train.py ARGUMENTS. Written by `hulk export`.\n"
            f"set -euo pipefail\n{environment(scene.host(node.machine).interface)}"
            '[ $# -gt 0 ] || { echo "usage: $0 PROGRAM ARGUMENTS" >&2; exit 2; }\n'
            'here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)\n'
            f'exec accelerate launch --config_file "$here"/../{_CONFIG} --machine_rank {number} --gpu_ids {word(gpus)} '
            f'--gradient_accumulation_steps {grid.microbatches} "$@"\n'
        )
    return files


def _config(scene: Scene, grid: Grid, nodes: list[Node]) -> dict[str, Any]:
    """What the configs of all machines share. How many batches are added up is an argument of `accelerate launch`; the
    sequences of a batch are the program's to say."""
    size = sum(len(node.ranks) for node in nodes)
    made: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "FSDP" if grid.options.sharding is not Sharding.NONE else "MULTI_GPU",
        "mixed_precision": _MIXED[precision_of(scene)],
        "num_machines": len(nodes),
        "num_processes": size,
        "main_process_ip": host_name(scene.host(nodes[0].machine).address),
        "main_process_port": scene.port,
        "rdzv_backend": "static",
        "same_network": False,
        "use_cpu": False,
    }
    if grid.options.sharding is not Sharding.NONE:
        hybrid = grid.options.shard_within is Within.MACHINE and len(nodes) > 1
        whole = grid.options.sharding is Sharding.PARAMETERS
        strategy = (
            ("HYBRID_SHARD" if hybrid else "FULL_SHARD")
            if whole
            else ("HYBRID_SHARD_ZERO2" if hybrid else "SHARD_GRAD_OP")
        )
        made["fsdp_config"] = {
            "fsdp_version": 1,
            "fsdp_sharding_strategy": strategy,
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_backward_prefetch": "BACKWARD_PRE",
            "fsdp_activation_checkpointing": grid.options.recompute is Recompute.FULL,
            "fsdp_state_dict_type": "SHARDED_STATE_DICT",
            "fsdp_use_orig_params": True,
        }
    return made
