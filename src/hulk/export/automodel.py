"""NeMo Automodel: a recipe's YAML, and scripts that start it. For version 0.7."""

from __future__ import annotations

from typing import Any

from hulk.domain.gpu import Precision
from hulk.domain.job import Optimizer
from hulk.domain.options import GPIPE, Recompute, Sharding, Sync
from hulk.domain.switches import PLAIN
from hulk.export.architecture import architecture_of
from hulk.export.files import Files, as_json, as_yaml
from hulk.export.grid import Grid, check_context, check_options, grid_of, precision_of, shard_sizes, steps_of
from hulk.export.scene import Scene, refuse
from hulk.export.start import start_files
from hulk.export.torchtitan import modules_of

NAME = "automodel"
OFFERS = {
    "schedule": (PLAIN, GPIPE),
    "chunks": (1,),
    "recompute": (Recompute.NONE, Recompute.OPERATIONS, Recompute.FULL),
    "sync": (Sync.RING,),
    "sharding": (Sharding.NONE, Sharding.PARAMETERS),
    "expert": (1,),
    "host_state": (False,),
}
"""What its recipes can say of a plan's options."""
MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen3_moe")
"""Models whose parts have the names below, which all of Llama's kin share in transformers."""
_NAMES = ("model.embed_tokens", "model.layers.", ("model.norm", "lm_head"))
_HEAD = (
    "# A plan as a recipe of NeMo Automodel 0.7. The dataset is made up: put your own here. Written by `hulk export`.\n"
)


def export(scene: Scene) -> Files:
    """The recipe, the model's config, and scripts that start the recipe."""
    grid = grid_of(NAME, scene)
    check_options(NAME, scene, OFFERS)
    check_context(NAME, grid)
    kind = scene.job.model.config.get("model_type")
    if kind not in MODEL_TYPES:
        raise refuse(
            NAME, f"{scene.job.model.name} is of the type {kind}; stages are known for {', '.join(MODEL_TYPES)}"
        )
    if scene.job.optimizer is not Optimizer.ADAMW:
        raise refuse(NAME, f"job {scene.job.name!r} trains with {scene.job.optimizer}; it takes adamw here")
    precision = precision_of(scene)
    if precision not in (Precision.BF16, Precision.FP32, Precision.TF32):
        raise refuse(NAME, f"job {scene.job.name!r} trains in {precision}; it takes bf16 or fp32 here")
    recipe = {
        "recipe": "TrainFinetuneRecipeForNextTokenPrediction",
        "step_scheduler": {
            "global_batch_size": scene.job.global_batch,
            "local_batch_size": grid.options.microbatch_size * (grid.microbatches if grid.stages > 1 else 1),
            # Without a word it ends after ten times through its data, and saves after each, however few they are.
            "num_epochs": None,
            "save_checkpoint_every_epoch": False,
            "max_steps": steps_of(scene),
        },
        "dist_env": {"backend": "nccl", "timeout_minutes": 30},
        "seed": scene.settings.seed,
        "model": {
            "_target_": "nemo_automodel.NeMoAutoModelForCausalLM.from_config",
            "config": {
                "_target_": "transformers.AutoConfig.from_pretrained",
                "pretrained_model_name_or_path": "./model",
            },
            "torch_dtype": "bfloat16" if precision is Precision.BF16 else "float32",
        },
        "distributed": _distributed(scene, grid, precision),
        "loss_fn": {"_target_": "nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy"},
        "dataset": _dataset(scene),
        "dataloader": {"_target_": "torchdata.stateful_dataloader.StatefulDataLoader"},
        "optimizer": {
            "_target_": "torch.optim.AdamW",
            "lr": scene.settings.rate,
            "weight_decay": scene.settings.decay,
        },
    }
    program = ["-m", "nemo_automodel.cli.app", "recipe.yaml", '"$@"']
    config = {"max_position_embeddings": scene.job.model.sequence, **scene.job.model.config}
    return {
        "recipe.yaml": as_yaml(recipe, head=_HEAD),
        "model/config.json": as_json(config),
        **start_files(scene, grid.nodes(), program),
    }


def _dataset(scene: Scene) -> dict[str, Any]:
    """Made-up sequences, the same on all ranks, as many as a step takes: every step is once through them. One sentence
    fills a sequence, since it leaves out those that do not end exactly with one."""
    length = scene.job.model.sequence
    return {
        "_target_": "nemo_automodel.components.datasets.llm.mock_packed.build_packed_dataset",
        "num_blocks": scene.job.global_batch,
        "block_size": length,
        "mean_len": length - 1,  # and what ends it
        "std_len": 0,
        "max_sentence_len": length,
        "vocab_size": architecture_of(scene).vocab,
        "tokenizer": None,  # otherwise it looks for one beside the model's config
    }


def _distributed(scene: Scene, grid: Grid, precision: Precision) -> dict[str, Any]:
    copies, _ = shard_sizes(NAME, scene, grid)
    again = {Recompute.NONE: False, Recompute.OPERATIONS: "selective", Recompute.FULL: True}
    made: dict[str, Any] = {
        "strategy": "fsdp2",
        "dp_size": grid.replicas,
        "dp_replicate_size": copies,
        "tp_size": grid.tensor,
        "pp_size": grid.stages,
        "cp_size": grid.context,
        "ep_size": 1,
        "sequence_parallel": grid.options.sequence_parallel,
        "activation_checkpointing": again[grid.options.recompute],
    }
    if precision is Precision.BF16:
        made["mp_policy"] = {"param_dtype": "bfloat16", "reduce_dtype": "float32", "output_dtype": "bfloat16"}
    if grid.stages > 1:
        made["pipeline"] = {
            "pp_schedule": "gpipe" if grid.options.schedule == GPIPE else "1f1b",
            "pp_microbatch_size": grid.options.microbatch_size,
            "pp_batch_size": grid.options.microbatch_size * grid.microbatches,
            "pp_seq_len": scene.job.model.sequence,
            # Every stage rotates for itself.
            "module_fqns_per_model_part": [
                [*modules, "model.rotary_emb"] for modules in modules_of(scene, grid, _NAMES)
            ],
        }
    return made
