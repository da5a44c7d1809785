"""torchtitan: a module with a function that returns its config, and scripts that start it. For version 0.3.0."""

from __future__ import annotations

from typing import Any

from hulk.domain.architecture import Architecture
from hulk.domain.gpu import Precision
from hulk.domain.job import Optimizer
from hulk.domain.options import GPIPE, Options, Recompute, Schedule, ScheduleKind, Sharding, Sync
from hulk.domain.switches import PLAIN
from hulk.export.architecture import architecture_of
from hulk.export.files import File, Files
from hulk.export.grid import Grid, check_context, check_options, grid_of, precision_of, shard_sizes, steps_of
from hulk.export.rotation import LLAMA, rotation_of
from hulk.export.rotation import PLAIN as PLAIN_ROTATION
from hulk.export.scene import Scene, refuse
from hulk.export.start import start_files

NAME = "torchtitan"
SPLIT_BACKWARD = Schedule(ScheduleKind.ZERO_BUBBLE)
OFFERS = {
    "schedule": (PLAIN, GPIPE, SPLIT_BACKWARD),
    "recompute": (Recompute.NONE, Recompute.OPERATIONS, Recompute.FULL),
    "sync": (Sync.RING,),
    "sharding": (Sharding.NONE, Sharding.GRADIENTS, Sharding.PARAMETERS),
    "expert": (1,),
    "host_state": (False,),
}
"""What its config can say of a plan's options."""
MODULE = "hulk_plan"
# Schedules of torch.distributed.pipelining, by the plan's and whether a stage has several chunks. Those with several
# deal the parts of the model round the stages, as the plan does.
_SCHEDULES = {
    (PLAIN, False): "1F1B",
    (GPIPE, False): "GPipe",
    (PLAIN, True): "Interleaved1F1B",
    (SPLIT_BACKWARD, True): "InterleavedZeroBubble",
}

# Llama models that it brings along: hidden, layers, heads, key-value heads, feed-forward, vocabulary, tied.
_FLAVORS = {
    (2048, 16, 32, 8, 8192, 128256, True): "1B",
    (3072, 28, 24, 8, 8192, 128256, True): "3B",
    (4096, 32, 32, 8, 14336, 128256, False): "8B",
    (8192, 80, 64, 8, 28672, 128256, False): "70B",
    (16384, 126, 128, 8, 53248, 128256, False): "405B",
}
_AGAIN = {Recompute.NONE: "None", Recompute.OPERATIONS: "SelectiveAC.Config()", Recompute.FULL: "FullAC.Config()"}

_MODULE = '''\
"""A plan as a config of torchtitan {version}: --module {module} --config plan. Written by `hulk export`.

Everything that is not of the plan (data, tokenizer, checkpoints) is torchtitan's default for this model; change it
here, or on the command line.
"""

from dataclasses import replace

from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.components.optimizer import default_adamw
from torchtitan.config import DebugConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC
from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader
from torchtitan.models.common.config_utils import decoder_vocab_size
from torchtitan.models.llama3 import model_registry
from torchtitan.trainer import Trainer

PARALLELISM = {parallelism}

TRAINING = {training}

ROTATION = {rotation}


def plan() -> Trainer.Config:
    """The config."""
    model_spec = model_registry({flavor!r})
    for layer in model_spec.model.layers:
        layer.attention.rope = replace(layer.attention.rope, **ROTATION)
    return Trainer.Config(
        model_spec=model_spec,
        loss=ChunkedLossWrapper.Config(
            loss_fn=CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(model_spec)),
        ),
        hf_assets_path={assets!r},
        optimizer=default_adamw(lr={rate!r}),
        dataloader=HuggingFaceTextDataLoader.Config(dataset="c4"),
        parallelism=ParallelismConfig(**PARALLELISM),
        training=TrainingConfig(**TRAINING),
        activation_checkpoint={again},
        debug=DebugConfig(seed={seed}),
    )
'''


def export(scene: Scene) -> Files:
    """The module, and scripts that start `torchtitan.train` with it."""
    grid = grid_of(NAME, scene)
    check_options(NAME, scene, OFFERS)
    check_context(NAME, grid)
    shape = architecture_of(scene)
    if shape.tied and grid.stages > 1:
        raise refuse(NAME, f"{scene.job.model.name} shares its token table with its head; it takes one stage then")
    if scene.job.optimizer is not Optimizer.ADAMW:
        raise refuse(NAME, f"job {scene.job.name!r} trains with {scene.job.optimizer}; it has adamw")
    precision = precision_of(scene)
    if precision not in (Precision.BF16, Precision.FP32, Precision.TF32):
        raise refuse(NAME, f"job {scene.job.name!r} trains in {precision}; it takes bf16 or fp32 here")
    text = _MODULE.format(
        version="0.3.0",
        module=MODULE,
        parallelism=_literal(_parallelism(scene, grid)),
        training=_literal(_training(scene, grid, precision)),
        rotation=_literal(_rotation(scene)),
        flavor=_flavor(scene, shape),
        assets="./assets/hf",
        rate=scene.settings.rate,
        again=_AGAIN[grid.options.recompute],
        seed=scene.settings.seed,
    )
    program = ["-m", "torchtitan.train", "--module", MODULE, "--config", "plan", '"$@"']
    before = 'export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"\n'
    return {f"{MODULE}.py": File(text), **start_files(scene, grid.nodes(), program, before=before)}


def _flavor(scene: Scene, shape: Architecture) -> str:
    key = (shape.hidden, shape.layers, shape.heads, shape.kv_heads, shape.ffn, shape.vocab, shape.tied)
    is_llama = scene.job.model.config.get("model_type") == "llama"
    if not is_llama or key not in _FLAVORS:
        known = ", ".join(f"Llama 3 {flavor}" for flavor in _FLAVORS.values())
        raise refuse(NAME, f"{scene.job.model.name} is none of the models it brings along ({known})")
    return _FLAVORS[key]


def _rotation(scene: Scene) -> dict[str, Any]:
    """How positions are rotated; the models that it brings along all do so as Llama 3.1 does."""
    rotation = rotation_of(scene)
    if rotation.kind == PLAIN_ROTATION:
        return {"theta": rotation.base, "scaling": "none"}
    if rotation.kind != LLAMA:
        raise refuse(NAME, f"{scene.job.model.name} scales its rotations ({rotation.words}); it takes Llama 3's")
    numbers = dict(rotation.numbers)
    return {
        "theta": rotation.base,
        "scaling": "llama",
        "scaling_factor": numbers.pop("factor"),
        "original_max_position_embeddings": int(numbers.pop("original_max_position_embeddings")),
        **numbers,
    }


def modules_of(scene: Scene, grid: Grid, names: tuple[str, str, tuple[str, ...]]) -> list[list[str]]:
    """The modules of each stage: `names` of the embedding, of a block before its number, and of what ends the model."""
    embedding, block, end = names
    return [
        [*([embedding] if first else []), *(f"{block}{number}" for number in blocks), *(end if last else ())]
        for blocks, first, last in grid.blocks(scene)
    ]


def _parallelism(scene: Scene, grid: Grid) -> dict[str, Any]:
    copies, shards = shard_sizes(NAME, scene, grid)
    made: dict[str, Any] = {
        "data_parallel_replicate_degree": copies,
        "data_parallel_shard_degree": shards,
        "tensor_parallel_degree": grid.tensor,
        "pipeline_parallel_degree": grid.stages,
    }
    if grid.context > 1:
        made["context_parallel_degree"] = grid.context
    if grid.tensor > 1:
        made["enable_sequence_parallel"] = grid.options.sequence_parallel
    if shards * grid.context > 1:
        keep = grid.options.sharding is Sharding.GRADIENTS
        made["fsdp_reshard_after_forward"] = "never" if keep else "always"
    if grid.stages > 1:
        made["pipeline_parallel_schedule"] = _schedule(grid.options)
        made["pipeline_parallel_microbatch_size"] = grid.options.microbatch_size
        names = ("tok_embeddings", "layers.", ("norm", "lm_head"))
        made["module_fqns_per_model_part"] = modules_of(scene, grid, names)
    return made


def _schedule(options: Options) -> str:
    key = options.schedule, options.chunks > 1
    if key not in _SCHEDULES:
        plan = f"the plan has `schedule: {options.schedule}` and `chunks: {options.chunks}`"
        raise refuse(NAME, f"{plan}; it splits backward with several chunks alone, and GPipe takes one")
    return _SCHEDULES[key]


def _training(scene: Scene, grid: Grid, precision: Precision) -> dict[str, Any]:
    size = grid.options.microbatch_size
    return {
        "local_batch_size": size * grid.microbatches if grid.stages > 1 else size,
        "global_batch_size": scene.job.global_batch,
        "seq_len": scene.job.model.sequence,
        "steps": steps_of(scene),
        "mixed_precision_param": "bfloat16" if precision is Precision.BF16 else "float32",
        # It captures no graphs of pipelines.
        **({"disable_cuda_graphs": True} if grid.stages > 1 else {}),
    }


def _literal(values: dict[str, Any]) -> str:
    """A dictionary as Python has it, an entry a line."""
    lines = [f"    {name!r}: {_value(value)},\n" for name, value in values.items()]
    return "{\n" + "".join(lines) + "}"


def _value(value: Any) -> str:
    if not isinstance(value, list):
        return repr(value)
    return "[\n" + "".join(f"        {row!r},\n" for row in value) + "    ]"
