"""Tiny models, clusters and plans that run on two cores in seconds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from hulk.domain.options import Options, Recompute, Schedule, Sharding, Sync, Within
from hulk.domain.plan import JobPlan, Part, Pipeline, Plan, Stage

CLUSTER = """
name: tiny
regions:
  rome: {at: [41.9, 12.5]}
  oslo: {at: [59.9, 10.8]}
machines:
  - {name: rome, count: 3, region: rome, gpu: rtx-3090, gpus: 4, network: 10 Gbit/s}
  - {name: oslo, count: 3, region: oslo, gpu: v100-32, gpus: 4, network: 10 Gbit/s}
links:
  - {between: [rome, oslo], latency: 30 ms, bandwidth: 0.5 Gbit/s}
"""

_SMALL = {"vocab_size": 259}
CONFIGS: dict[str, dict[str, object]] = {
    "gpt2": {"model_type": "gpt2", "n_embd": 32, "n_layer": 4, "n_head": 4, "n_positions": 32, **_SMALL},
    "opt": {
        "model_type": "opt", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 64,
        "max_position_embeddings": 32, "word_embed_proj_dim": 16, "do_layer_norm_before": False, **_SMALL,
    },
    "gpt_neo": {
        "model_type": "gpt_neo", "hidden_size": 32, "num_layers": 2, "num_heads": 4, "max_position_embeddings": 32,
        "attention_types": [[["global", "local"], 1]], "window_size": 4, **_SMALL,
    },
    "llama": {
        "model_type": "llama", "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 48, **_SMALL,
    },
    "bert": {
        "model_type": "bert", "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
        "intermediate_size": 64, "max_position_embeddings": 32, "type_vocab_size": 2, **_SMALL,
    },
    "roberta": {
        "model_type": "roberta", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 64, "max_position_embeddings": 34, "type_vocab_size": 1, **_SMALL,
    },
    "t5": {
        "model_type": "t5", "d_model": 32, "num_layers": 2, "num_heads": 4, "d_kv": 8, "d_ff": 64,
        "relative_attention_num_buckets": 8, **_SMALL,
    },
    "xlnet": {"model_type": "xlnet", "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64, **_SMALL},
    "mixtral": {
        "model_type": "mixtral", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 48, "num_local_experts": 4, **_SMALL,
    },
}  # fmt: skip
SEQUENCE, TARGET, BATCH = 16, 8, 12


@dataclass(frozen=True)
class Case:
    """A model and a plan: `pipelines` as (microbatches, [(machine, GPUs, last layer), …]); "a+b" is the same GPUs of
    both machines. `counts`: how many blocks of each stage are computed again, of all pipelines; none: all blocks of all
    stages."""

    name: str
    model: str
    pipelines: tuple[tuple[int, tuple[tuple[str, tuple[int, ...], int], ...]], ...]
    size: int = 1
    schedule: str = "1f1b"
    recompute: bool | str = False
    counts: tuple[int | None, ...] = ()
    by_region: bool = False
    shard: bool | str = False
    within: str = "everywhere"
    sequence_parallel: bool = False
    chunks: int = 1
    context: int = 1
    expert: int = 1
    optimizer: str = "adamw"
    attention: str = "fused"

    @property
    def plan(self) -> JobPlan:
        pipelines, counts = [], iter(self.counts)
        for microbatches, stages in self.pipelines:
            first, made = 0, []
            for machine, gpus, last in stages:
                name, *others = machine.split("+")
                beside = tuple(Part(other, gpus) for other in others)
                made.append(Stage(name, gpus, first, last, beside, next(counts, None)))
                first = last + 1
            pipelines.append(Pipeline(tuple(made), microbatches))
        return JobPlan(
            tuple(pipelines),
            Options(
                microbatch_size=self.size,
                schedule=Schedule.parse(self.schedule),
                recompute=Recompute({False: "none", True: "full"}.get(self.recompute, self.recompute)),
                sync=Sync.BY_REGION if self.by_region else Sync.RING,
                sharding=Sharding({False: "none", True: "optimizer"}.get(self.shard, self.shard)),
                shard_within=Within(self.within),
                sequence_parallel=self.sequence_parallel,
                chunks=self.chunks,
                context=self.context,
                expert=self.expert,
            ),
        )


def write_case(case: Case, folder: Path) -> list[str]:
    """The files of a case; returns --plan, --cluster, --jobs and --job with their values."""
    from hulk.io.plan_file import save_plan

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIGS[case.model]))
    (folder / "cluster.yaml").write_text(CLUSTER)
    entry = {
        "name": "tiny", "model": "./config.json", "sequence": SEQUENCE, "global_batch": BATCH, "precision": "fp32",
        "optimizer": case.optimizer, "attention": case.attention,
    }  # fmt: skip
    if case.model == "t5":
        entry["target_sequence"] = TARGET
    (folder / "jobs.yaml").write_text(json.dumps({"jobs": [entry]}))
    save_plan(Plan({"tiny": case.plan}), folder / "plan.json", cluster="tiny")
    names = {"--plan": "plan.json", "--cluster": "cluster.yaml", "--jobs": "jobs.yaml"}
    return [part for option, name in names.items() for part in (option, str(folder / name))] + ["--job", "tiny"]


def write_text(path: Path) -> Path:
    """A text with some order in it, so that there is something to learn."""
    words = ["region", "machine", "stage", "layer", "gradient", "link", "batch"]
    path.write_text(" ".join(words[(i * i + i // 3) % 7] for i in range(2000)))
    return path
