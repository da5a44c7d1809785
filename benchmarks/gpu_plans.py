"""Plans that `hulk plan` makes for one GPU, drawn by a seed, as rows that `gpu_runs.py --measure` runs.

    python benchmarks/gpu_plans.py --out FILE [--seed N] [--count N]

Models, sequences, batches and precisions are drawn; only the plan decides microbatches and recomputation. Every other
plan is one that fills most of the GPU. None of the runs may run out of memory.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from common import Report, parser
from gpu_cases import JOB, Row, write_files
from hulk.cost.compute import ComputeModel
from hulk.cost.engine import HEADROOM, HULK
from hulk.cost.price import price_job
from hulk.cost.report import JobPrice
from hulk.io.cluster_file import load_cluster
from hulk.io.jobs_file import load_jobs
from hulk.io.plan_file import dump_plan
from hulk.io.profiles import bundled_profiles
from hulk.planner import plan_jobs
from hulk.search.budget import Effort
from hulk.search.request import Request

GPU = "h200"
ENGINE = replace(HULK, headroom=HEADROOM)
EVALUATIONS = 500
"""Far more than one GPU has shapes."""
LONGEST_STEP = 5.0
"""Seconds: what takes longer is drawn again, so that many can be tried."""
FULL = 0.8
"""Share of the GPU's memory that every other plan takes at least, by its price; what takes less is drawn again."""


def gpt2(width: int, layers: int, heads: int) -> dict[str, Any]:
    """A config of GPT-2's kind."""
    return {
        "model_type": "gpt2", "n_embd": width, "n_layer": layers, "n_head": heads, "n_positions": 1024,
        "vocab_size": 50257, "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1,
    }  # fmt: skip


def neo(width: int, layers: int, heads: int) -> dict[str, Any]:
    """A config of GPT-Neo's kind."""
    return {
        "model_type": "gpt_neo", "hidden_size": width, "num_layers": layers, "num_heads": heads,
        "max_position_embeddings": 2048, "attention_types": [[["global", "local"], layers // 2]], "window_size": 256,
        "vocab_size": 50257,
    }  # fmt: skip


def opt(width: int, layers: int, heads: int) -> dict[str, Any]:
    """A config of OPT's kind."""
    return {
        "model_type": "opt", "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads,
        "ffn_dim": 4 * width, "vocab_size": 50272, "max_position_embeddings": 2048, "dropout": 0.1,
    }  # fmt: skip


def llama(width: int, layers: int, heads: int, groups: int, inner: int, vocabulary: int = 32000) -> dict[str, Any]:
    """A config of Llama's kind."""
    return {
        "model_type": "llama", "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": groups, "intermediate_size": inner, "vocab_size": vocabulary,
        "tie_word_embeddings": False,
    }  # fmt: skip


def bert(kind: str, width: int, layers: int, heads: int) -> dict[str, Any]:
    """A config of BERT's or RoBERTa's kind."""
    roberta = kind == "roberta"
    return {
        "model_type": kind, "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads,
        "intermediate_size": 4 * width, "vocab_size": 50265 if roberta else 30522,
        "max_position_embeddings": 514 if roberta else 512, "type_vocab_size": 1 if roberta else 2,
    }  # fmt: skip


def t5(width: int, layers: int, heads: int, inner: int) -> dict[str, Any]:
    """A config of T5's kind."""
    return {
        "model_type": "t5", "d_model": width, "num_layers": layers, "num_heads": heads, "d_kv": 64, "d_ff": inner,
        "vocab_size": 32128, "relative_attention_num_buckets": 32, "dropout_rate": 0.1,
    }  # fmt: skip


BATCHES = [4, 8, 16, 24, 32, 48, 64, 96, 128]
"""Samples of a step; fp32 is slow, and takes the smaller ones."""
MOST_ALIKE = 2
"""Plans for the same model."""
MODELS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "gpt2": (gpt2(768, 12, 12), (512, 1024)),
    "gpt2-medium": (gpt2(1024, 24, 16), (1024,)),
    "gpt2-large": (gpt2(1280, 36, 20), (1024,)),
    "gpt2-xl": (gpt2(1600, 48, 25), (1024,)),
    "gpt-neo-1.3b": (neo(2048, 24, 16), (1024, 2048)),
    "gpt-neo-2.7b": (neo(2560, 32, 20), (1024, 2048)),
    "opt-1.3b": (opt(2048, 24, 32), (1024, 2048)),
    "opt-2.7b": (opt(2560, 32, 32), (2048,)),
    "tinyllama": (llama(2048, 22, 32, 4, 5632), (2048, 4096)),
    "llama of 8 layers": (llama(4096, 8, 32, 32, 11008), (2048, 4096)),
    "llama of 6 layers, large vocabulary": (llama(4096, 6, 32, 8, 14336, 128256), (4096, 8192)),
    "llama of 16 layers": (llama(4096, 16, 32, 32, 11008), (2048, 4096)),
    "llama of 24 layers": (llama(4096, 24, 32, 8, 14336), (2048, 4096)),
    "llama of 30 layers": (llama(4096, 30, 32, 8, 14336), (2048, 8192)),
    "opt-6.7b of 20 layers": (opt(4096, 20, 32), (1024, 2048)),
    "gpt-neo of 3072": (neo(3072, 36, 24), (1024, 2048)),
    "t5 of 2048": (t5(2048, 16, 32, 8192), (512, 1024)),
    "bert-large": (bert("bert", 1024, 24, 16), (512,)),
    "roberta-large": (bert("roberta", 1024, 24, 16), (512,)),
    "t5-base": (t5(768, 12, 12, 3072), (512, 1024)),
    "t5-large": (t5(1024, 24, 16, 4096), (512, 1024)),
}
"""Configs and the sequences they are drawn with."""


def drawn(rng: random.Random) -> Row:
    """A job to plan."""
    name = rng.choice(sorted(MODELS))
    config, sequences = MODELS[name]
    precision = rng.choice(["bf16", "fp32"])
    sequence, batch = rng.choice(sequences), rng.choice(BATCHES if precision == "bf16" else BATCHES[:5])
    row: Row = {
        "name": f"plan: {name} {precision} seq {sequence} batch {batch}", "gpu": GPU, "model": name, "config": config,
        "sequence": sequence, "precision": precision, "optimizer": "adamw", "attention": "fused",
        "microbatch": batch, "microbatches": 1, "recompute": "none",
    }  # fmt: skip
    if config["model_type"] == "t5":
        row["target_sequence"] = rng.choice([114, 256, sequence])
    return row


def planned(row: Row, compute: ComputeModel, *, full: bool) -> tuple[Row | None, str]:
    """The row with the plan that `hulk plan` makes; None where it makes none or one that is not wanted, and why."""
    with tempfile.TemporaryDirectory() as folder:
        write_files(row, Path(folder))
        jobs, cluster = load_jobs(Path(folder) / "jobs.yaml"), load_cluster(str(Path(folder) / "cluster.yaml"))
    found = plan_jobs(Request(cluster, tuple(jobs), compute, ENGINE), Effort(evaluations=EVALUATIONS)).plan
    if JOB not in found.jobs:
        return None, "no plan fits"
    own = found.jobs[JOB]
    price = price_job(jobs[0], own, cluster, compute=compute)
    assert isinstance(price, JobPrice)
    if price.step > LONGEST_STEP:
        return None, "its steps are long"
    memory = price.pipelines[0][0].memory
    if full and memory.used < FULL * memory.capacity:
        return None, "it leaves much of the GPU free"
    made = row | {
        "plan": json.loads(dump_plan(found, cluster=cluster)),
        "microbatch": own.options.microbatch_size,
        "microbatches": own.pipelines[0].microbatches,
        "recompute": str(own.options.recompute),
        "steps": 4 if price.step > 1.0 else 5,
    }
    told = f"microbatch {own.options.microbatch_size}, {own.options.recompute}"
    return made, f"{memory.used / 2**30:.1f} GiB, {price.step:.2f} s, {told}"


def main() -> int:
    """Command line."""
    arguments = parser(__doc__)
    arguments.add_argument("--out", type=Path, required=True, help="file to write the rows to")
    arguments.add_argument("--seed", type=int, default=7)
    arguments.add_argument("--count", type=int, default=20)
    given = arguments.parse_args()
    rng, made, compute = random.Random(given.seed), [], ComputeModel(bundled_profiles())
    report = Report("gpu_plans")
    while len(made) < given.count:
        row, names = drawn(rng), [other["model"] for other in made]
        if row["name"] in {other["name"] for other in made} or names.count(row["model"]) == MOST_ALIKE:
            continue
        found, words = planned(row, compute, full=len(made) % 2 == 1)
        report.note(f"{row['name']}: {words}")
        print(f"{row['name']}: {words}", file=sys.stderr, flush=True)
        if found is not None:
            made.append(found)
    given.out.write_text("".join(json.dumps(row) + "\n" for row in made), encoding="utf-8")
    report.figure("plans", len(made))
    return report.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
