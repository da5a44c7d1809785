"""Megatron-LM: arguments for `pretrain_gpt.py`, with the pipeline's layout, and scripts that start it."""

from __future__ import annotations

from hulk.cost.again import one_count
from hulk.domain.architecture import Architecture, Family, HeadNorm, Norm, Position
from hulk.domain.gpu import Precision
from hulk.domain.job import Attention, Optimizer
from hulk.domain.options import Recompute, Sharding, Sync, Within
from hulk.domain.switches import PLAIN
from hulk.export.architecture import activation_of, architecture_of
from hulk.export.files import File, Files
from hulk.export.grid import Grid, check_experts, check_options, grid_of, precision_of, steps_of
from hulk.export.rotation import LINEAR, LLAMA, rotation_of
from hulk.export.rotation import PLAIN as PLAIN_ROTATION
from hulk.export.scene import Scene, refuse
from hulk.export.start import in_order, start_files

NAME = "megatron"
OFFERS = {
    "schedule": (PLAIN,),
    "recompute": (Recompute.NONE, Recompute.ATTENTION, Recompute.FULL),
    "sync": (Sync.RING,),
    "sharding": (Sharding.NONE, Sharding.OPTIMIZER),
    "shard_within": (Within.EVERYWHERE,),
}
"""What its arguments can say of a plan's options."""
ARGUMENTS = "arguments.txt"

_RECOMPUTE = {
    Recompute.NONE: [],
    Recompute.ATTENTION: ["--recompute-granularity", "selective"],
    Recompute.FULL: ["--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", "1"],
}
_SOME = ["--recompute-granularity", "full", "--recompute-method", "block", "--recompute-num-layers"]
_PRECISION = {
    Precision.FP32: [],
    Precision.TF32: [],
    Precision.FP16: ["--fp16"],
    Precision.BF16: ["--bf16"],
    Precision.FP8: ["--bf16", "--fp8-format", "hybrid"],
}
_OPTIMIZERS = {
    Optimizer.ADAMW: ["--optimizer", "adam"],
    Optimizer.SGD: ["--optimizer", "sgd", "--sgd-momentum", "0.0"],
    Optimizer.MOMENTUM: ["--optimizer", "sgd", "--sgd-momentum", "0.9"],
}
_LLAMA_SCALING = {
    "factor": 0.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192.0,
}
"""What `--use-rope-scaling` is, but for its factor."""
# Further arguments replace those of the file; without any there is made-up data, so that a first try needs none.
_BEFORE = f"""\
mapfile -t arguments < {ARGUMENTS}
[ $# -gt 0 ] || set -- --mock-data --tokenizer-type NullTokenizer
"""


def export(scene: Scene) -> Files:
    """The arguments, one a line, and scripts that start `pretrain_gpt.py` of $MEGATRON with them."""
    grid = grid_of(NAME, scene)
    check_options(NAME, scene, OFFERS, counts=True)
    check_experts(NAME, scene, grid)
    nodes = grid.nodes()
    near = not in_order(nodes) and in_order(grid.nodes(stages_near=True))
    if near:
        if grid.options.expert > 1:
            raise refuse(NAME, "experts are split, and stages beside each other; it takes replicas beside each other")
        nodes = grid.nodes(stages_near=True)
    arguments = [*_parallel(scene, grid), *(["--use-tp-pp-dp-mapping"] if near else []), *_model(scene), *_run(scene)]
    program = ['"${MEGATRON:-Megatron-LM}/pretrain_gpt.py"', '"${arguments[@]}"', '"$@"']
    return {
        ARGUMENTS: File("".join(f"{argument}\n" for argument in arguments)),
        **start_files(scene, nodes, program, before=_BEFORE),
    }


def layout_of(scene: Scene, grid: Grid) -> str:
    """The pipeline as `--pipeline-model-parallel-layout` has it: "Et*5|t*9|t*2L"."""
    parts = []
    for blocks, embedding, head in grid.blocks(scene):
        middle = "" if not blocks else "t" if len(blocks) == 1 else f"t*{len(blocks)}"
        parts.append(("E" if embedding else "") + middle + ("L" if head else ""))
    return "|".join(parts)


def _parallel(scene: Scene, grid: Grid) -> list[str]:
    options = grid.options
    made = ["--tensor-model-parallel-size", str(grid.tensor), "--pipeline-model-parallel-size", str(grid.stages)]
    if grid.stages > 1:  # the layout has the parts of all rounds, and so says how many chunks there are
        made += ["--pipeline-model-parallel-layout", layout_of(scene, grid)]
    if grid.context > 1:
        made += ["--context-parallel-size", str(grid.context)]
    if options.expert > 1:
        made += ["--expert-model-parallel-size", str(options.expert), "--moe-token-dispatcher-type", "alltoall"]
    made += ["--micro-batch-size", str(options.microbatch_size), "--global-batch-size", str(scene.job.global_batch)]
    made += _recompute(scene)
    if options.sequence_parallel:
        made.append("--sequence-parallel")
    if options.shard_optimizer:
        made += ["--use-distributed-optimizer", "--overlap-param-gather"]
    if options.host_state:
        made += ["--optimizer-cpu-offload", "--optimizer-offload-fraction", "1.0", "--use-precision-aware-optimizer"]
    if grid.replicas > 1:
        made.append("--overlap-grad-reduce")
    return made


def _recompute(scene: Scene) -> list[str]:
    """What is computed again; of some blocks of a stage, as many on each, or all where it has fewer."""
    plan = scene.plan
    if not plan.counts_blocks:
        return _RECOMPUTE[plan.options.recompute]
    if plan.options.recompute is not Recompute.FULL:
        raise refuse(NAME, f"the plan has `recompute: {plan.options.recompute}` for some blocks; it takes all or none")
    count = one_count(plan, scene.job.model)
    if count is None:
        said = ", ".join("all" if stage.recomputed is None else str(stage.recomputed) for stage in plan.stages)
        raise refuse(NAME, f"stages compute {said} of their blocks again; it takes one number for all")
    return [*_SOME, str(count)] if count else _RECOMPUTE[Recompute.NONE]


def _model(scene: Scene) -> list[str]:
    shape = architecture_of(scene)
    why = _unlike(shape, activation_of(scene))
    if why is not None:
        raise refuse(NAME, f"{scene.job.model.name} has {why}, which its GPT model has not")
    sequence = scene.job.model.sequence
    made = ["--num-layers", shape.layers, "--hidden-size", shape.hidden, "--ffn-hidden-size", shape.ffn]
    made += ["--num-attention-heads", shape.heads, "--kv-channels", shape.head_dim]
    if shape.kv_heads != shape.heads:
        made += ["--group-query-attention", "--num-query-groups", shape.kv_heads]
    made += ["--seq-length", sequence, "--max-position-embeddings", max(sequence, shape.max_sequence or 0)]
    made += ["--vocab-size", shape.vocab, "--make-vocab-size-divisible-by", 128]
    if shape.position is Position.ROTARY:
        made += ["--position-embedding-type", "rope", *_rotation(scene)]
        if shape.rotary and shape.rotary != shape.head_dim:
            made += ["--rotary-percent", shape.rotary / shape.head_dim]
    else:
        made += ["--position-embedding-type", "learned_absolute" if shape.position is Position.LEARNED else "none"]
    made += ["--normalization", "RMSNorm" if shape.norm is Norm.RMS else "LayerNorm"]
    made += ["--swiglu"] if shape.gated else []
    made += [] if shape.ffn_bias else ["--disable-bias-linear"]
    made += ["--add-qkv-bias"] if shape.qkv_bias and not shape.ffn_bias else []
    made += [] if shape.tied else ["--untie-embeddings-and-output-weights"]
    made += ["--qk-layernorm"] if shape.head_norm is HeadNorm.SCALED else []
    made += ["--attention-dropout", shape.attention_dropout, "--hidden-dropout", shape.hidden_dropout]
    if shape.experts:
        made += ["--num-experts", shape.experts, "--moe-router-topk", shape.experts_per_token]
        made += ["--moe-ffn-hidden-size", shape.ffn]
    return [str(each) for each in made]


def _rotation(scene: Scene) -> list[object]:
    """How positions are rotated: its scaling of Llama 3 has numbers of its own but for the factor."""
    rotation, name = rotation_of(scene), scene.job.model.name
    if rotation.base != int(rotation.base):
        raise refuse(NAME, f"{name} rotates positions with the base {rotation.base:g}; it takes whole numbers")
    made: list[object] = ["--rotary-base", int(rotation.base)]
    factor = rotation.numbers.get("factor", 1.0)
    if rotation.kind == PLAIN_ROTATION:
        return made
    if rotation.kind == LINEAR and factor == int(factor):
        return [*made, "--rotary-seq-len-interpolation-factor", int(factor)]
    if rotation.kind == LLAMA and {**rotation.numbers, "factor": 0.0} == _LLAMA_SCALING:
        return [*made, "--use-rope-scaling", "--rope-scaling-factor", factor]
    raise refuse(
        NAME, f"{name} scales its rotations ({rotation.words}); it takes Llama 3's of 8,192 tokens, or a whole factor"
    )


def _unlike(shape: Architecture, activation: str) -> str | None:
    """What of a model Megatron-LM's arguments cannot say; None: all can be said."""
    gate = {"silu", "swish"} if shape.gated else {"gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh"}
    reasons = {
        "an encoder": shape.family is not Family.DECODER,
        f"positions of the kind {shape.position}": shape.position
        not in (Position.LEARNED, Position.ROTARY, Position.NONE),
        f"the activation {activation}": activation not in gate,
        "norms after the residual": not shape.norm_first or shape.outer_norm,
        "attention beside its feed-forward": shape.parallel,
        "a token table of another width": shape.embedding != shape.hidden,
        "a norm of its embedding": shape.embedding_norm,
        "blocks that differ": bool(shape.dense_blocks or shape.unrotated_blocks),
        "a feed-forward beside its experts": bool(shape.shared_ffn),
        "limits on scores or logits": shape.score_cap or shape.logit_cap or shape.sinks,
        "latent attention": bool(shape.kv_rank),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _run(scene: Scene) -> list[str]:
    job, settings = scene.job, scene.settings
    if job.optimizer not in _OPTIMIZERS:
        raise refuse(NAME, f"job {job.name!r} trains with {job.optimizer}; it has {', '.join(_OPTIMIZERS)}")
    made = [*_PRECISION[precision_of(scene)], *_OPTIMIZERS[job.optimizer]]
    if job.attention is not Attention.FUSED:
        made += ["--attention-backend", "unfused"]
    made += ["--train-iters", str(steps_of(scene)), "--lr", str(settings.rate), "--weight-decay", str(settings.decay)]
    return [*made, "--lr-decay-style", "constant", "--seed", str(max(1, settings.seed))]
