"""The targets' own parsers on exported files, by a Python that has them:

    parsers.py FOLDER OUT TARGET…      reads FOLDER/TARGET of each

Each is read by a fork of one process that has imported torch and transformers, which most of them need. OUT/TARGET.json
has what was read, OUT/TARGET.txt what was said; the exit code says how many parsers refused.
"""

from __future__ import annotations

import gc
import json
import os
import re
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn


def megatron(folder: Path) -> dict[str, Any]:
    from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout

    arguments = (folder / "arguments.txt").read_text().splitlines()

    def value(name: str) -> str:
        return arguments[arguments.index(name) + 1]

    stages = int(value("--pipeline-model-parallel-size"))
    layout = PipelineParallelLayerLayout(value("--pipeline-model-parallel-layout"), stages)
    layout.validate_layer_layout(num_layers=int(value("--num-layers")), mtp_num_layers=0)
    parts = [[kind.name for part in stage for kind in part] for stage in layout.layout]
    return {"layout": parts, "rotation": value("--rotary-base")}


def torchtitan(folder: Path) -> dict[str, Any]:
    sys.path.insert(0, str(folder))
    from torchtitan.config import ConfigManager
    from torchtitan.distributed.parallel_dims import ParallelDims

    config = ConfigManager().parse_args(["--module", "hulk_plan", "--config", "plan"])
    parallelism = config.parallelism
    parts = parallelism.module_fqns_per_model_part
    world = (
        parallelism.data_parallel_replicate_degree
        * parallelism.data_parallel_shard_degree
        * parallelism.context_parallel_degree
        * parallelism.tensor_parallel_degree
        * parallelism.pipeline_parallel_degree
    )
    ParallelDims(
        dp_shard=parallelism.data_parallel_shard_degree,
        dp_replicate=parallelism.data_parallel_replicate_degree,
        cp=parallelism.context_parallel_degree,
        tp=parallelism.tensor_parallel_degree,
        pp=parallelism.pipeline_parallel_degree,
        ep=1,
        world_size=world,
    )
    ropes = {(layer.attention.rope.theta, layer.attention.rope.scaling) for layer in config.model_spec.model.layers}
    return {
        "world": world,
        "rotation": sorted(ropes),
        "parts": [len(part) for part in parts],
        "schedule": parallelism.pipeline_parallel_schedule,
        "layers": len(config.model_spec.model.layers),
        "batch": [config.training.local_batch_size, config.training.global_batch_size],
    }


def automodel(folder: Path) -> dict[str, Any]:
    """The recipe as `setup` of Automodel's own program reads it, up to where it needs GPUs."""
    # Its kernels are written for another triton than the one that torch wants here; none of them runs.
    import triton

    triton.autotune = lambda *_, **__: lambda kernel: kernel
    from nemo_automodel.cli.utils import resolve_recipe_name
    from nemo_automodel.components.config.loader import load_yaml_config
    from nemo_automodel.recipes._dist_utils import parse_distributed_section
    from nemo_automodel.recipes._typed_config import RecipeConfig
    from nemo_automodel.recipes.llm import train_ft

    os.chdir(folder)  # the model's config is named from there, as by the scripts
    raw = load_yaml_config("recipe.yaml")
    _all_read(raw.to_dict(), [train_ft, sys.modules[RecipeConfig.__module__]])
    recipe = RecipeConfig(raw)
    sizes = parse_distributed_section(raw.distributed.to_dict())
    assert recipe.model._target_ == train_ft.NeMoAutoModelForCausalLM.from_config
    assert recipe.loss_fn.build() is not None
    assert recipe.optimizer is not None and recipe.checkpoint is not None
    _, tokenizer = train_ft._build_tokenizer(recipe.model, recipe.dataset)
    wrapper = train_ft._build_pp_collate_wrapper(recipe.model, sizes["pp_size"] > 1)
    replicas, local = sizes["dp_size"], recipe.get("step_scheduler.local_batch_size")
    data = recipe.dataloader.build(
        dp_rank=0, dp_world_size=replicas, pp_enabled=True, tokenizer=tokenizer, collate_wrapper=wrapper
    )
    steps = recipe.step_scheduler.build(data, replicas, local)
    assert sizes["pipeline_config"].pp_batch_size == local
    # As many steps as were asked for are made of whole batches, of the model's tokens and the same on all ranks.
    assert steps.num_epochs * steps.epoch_len >= steps.max_steps, (steps.num_epochs, steps.epoch_len)
    assert len(data.dataset) >= recipe.step_scheduler.global_batch_size and len(data) >= steps.grad_acc_steps
    tokens = data.dataset[0]["input_ids"]
    assert tokens == recipe.dataloader.dataset_config.build(tokenizer=None)[0]["input_ids"]
    shape = recipe.model.config.instantiate()
    assert 0 < min(tokens) <= max(tokens) < shape.vocab_size
    return {
        "recipe": resolve_recipe_name(recipe.recipe),
        "sizes": [sizes[name] for name in ("dp_size", "dp_replicate_size", "cp_size", "tp_size", "pp_size")],
        "parts": [len(part) for part in sizes["pipeline_config"].module_fqns_per_model_part],
        "layers": shape.num_hidden_layers,
        "rotation": [shape.rope_parameters[name] for name in ("rope_theta", "rope_type")],
        "seed": [recipe.get("seed"), recipe.dataloader.seed],
        "batch": [local, recipe.step_scheduler.global_batch_size, steps.grad_acc_steps, len(tokens)],
        "steps": steps.max_steps,
        "tokenizer": tokenizer,
    }


def _all_read(recipe: dict[str, Any], modules: list[Any]) -> None:
    """Sections that no line of its program asks for would be passed over without a word."""
    source = "".join(Path(module.__file__).read_text() for module in modules)
    asked = set(re.findall(r'(?:cfg|config|_raw)(?:\.get\("|\.|\[")(\w+)', source))
    # Functions that are handed the whole recipe find out what it is, and make the mesh.
    left = set(recipe) - asked - {"recipe", "distributed"}
    assert not left, left


def deepspeed(folder: Path) -> dict[str, Any]:
    from deepspeed.launcher.runner import fetch_hostfile, parse_inclusion_exclusion
    from deepspeed.runtime.config import DeepSpeedConfig

    pool = fetch_hostfile(str(folder / "hostfile"))
    start = (folder / "start.sh").read_text().replace("\\\n", " ").split()
    active = parse_inclusion_exclusion(pool, start[start.index("--include") + 1], "")
    sys.path.insert(0, str(folder))
    import deepspeed.runtime.config as module
    import partition

    # The config asks a running job how many replicas there are; here it is told.
    module.dist.get_rank = lambda *_: 0
    topology = partition.topology()

    class Grid:
        def get_data_parallel_world_size(self) -> int:
            return partition.REPLICAS

    config = DeepSpeedConfig(str(folder / "deepspeed.json"), mpu=Grid())
    return {
        "gpus": {host: list(slots) for host, slots in active.items()},
        "world": topology.world_size(),
        "batch": [config.train_batch_size, config.train_micro_batch_size_per_gpu, config.gradient_accumulation_steps],
        "zero": config.zero_optimization_stage,
        "starts": partition.STARTS,
    }


def accelerate(folder: Path) -> dict[str, Any]:
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.constants import FSDP_SHARDING_STRATEGY

    found = {}
    for path in sorted((folder / "machines").glob("*.sh")):
        line = path.read_text().splitlines()[-1].replace('"$here"', str(path.parent))
        start = [word for word in line.split()[3:] if word != '"$@"'] + ["train.py"]
        # What `accelerate launch` makes of the arguments and the config together.
        asked, _, _ = _validate_launch_command(launch_command_parser().parse_args(start))
        assert asked.training_script == "train.py"
        strategy = asked.fsdp_sharding_strategy
        assert strategy is None or strategy in FSDP_SHARDING_STRATEGY, strategy
        found[path.stem] = [asked.machine_rank, asked.num_machines, asked.num_processes, strategy, asked.gpu_ids]
    return found


def skypilot(folder: Path) -> dict[str, Any]:
    import sky
    from sky.utils import dag_utils

    dag = dag_utils.load_job_group_from_yaml_str((folder / "group.yaml").read_text())
    del sky
    return {
        task.name: [task.num_nodes, [[str(each.cloud), each.region, each.accelerators] for each in task.resources]]
        for task in dag.tasks
    }


def jobset(folder: Path) -> dict[str, Any]:
    import kubernetes_validate
    import yaml
    from jobset_schema import problems
    from kubeflow_trainer_api.models.jobset_v1alpha2_job_set import JobsetV1alpha2JobSet

    found = {}
    for document in yaml.safe_load_all((folder / "jobset.yaml").read_text()):
        if document["kind"] != "JobSet":
            kubernetes_validate.validate(document, "1.31", strict=True)
            continue
        # The model leaves out what it does not know, and takes any text for a choice: so what comes back is compared.
        again = JobsetV1alpha2JobSet.from_dict(document).to_dict()
        assert again == document, (again, document)
        assert problems(document) == []
        for group in document["spec"]["replicatedJobs"]:
            job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, **group["template"]}
            kubernetes_validate.validate(job, "1.31", strict=True)
            found[group["name"]] = group["template"]["spec"]["completions"]
    return found


def _read(target: str, folder: Path, out: Path) -> NoReturn:
    """In a fork: one target's files."""
    code = 1
    try:
        said = os.open(out / f"{target}.txt", os.O_WRONLY | os.O_CREAT)
        os.dup2(said, 1)
        os.dup2(said, 2)
        found = globals()[target](folder / target)
        (out / f"{target}.json").write_text(json.dumps(found))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    folder, out, *targets = sys.argv[1:]
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    gc.disable()
    import torch.distributed.pipelining  # noqa: F401
    import transformers

    transformers.AutoConfig  # noqa: B018  imported when it is named
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "threads do not live on in forked processes"
    gc.freeze()
    refused = 0
    for target in targets:
        child = os.fork()
        if child == 0:
            _read(target, Path(folder).absolute(), Path(out).absolute())
        refused += os.waitpid(child, 0)[1] != 0
    sys.exit(refused)


if __name__ == "__main__":
    main()
