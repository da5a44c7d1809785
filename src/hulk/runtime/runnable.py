"""What cannot be run, found before anything starts. Works without torch."""

from __future__ import annotations

from importlib.util import find_spec

from hulk.domain.gpu import Precision
from hulk.domain.job import Job, Optimizer
from hulk.domain.options import Recompute, Sharding
from hulk.domain.plan import JobPlan
from hulk.errors import InputError
from hulk.runtime.settings import Compute, Settings
from hulk.runtime.text import check_file, kind_of, text_files

MODEL_TYPES = ("bert", "gpt2", "gpt_neo", "llama", "opt", "roberta", "t5")
"""Hugging Face's names of the models that `hulk.runtime.models` can build."""

_EXPERTS = ("mixtral", "qwen2_moe", "qwen3_moe", "gpt_oss", "llama4_text", "deepseek_v3")
_REASONS = {
    "xlnet": "its blocks need the memory of earlier segments and two streams, which a pipeline of stages cannot carry",
    **dict.fromkeys(_EXPERTS, "its experts would have to be spread over ranks, which plans do not say how to do"),
}


def check_engine() -> None:
    """InputError where the libraries that run plans are not installed."""
    missing = [name for name in ("torch", "transformers", "safetensors") if find_spec(name) is None]
    if missing:
        raise InputError(f"running a plan needs {', '.join(missing)}", hint='pip install "hulk[train]"')


def check_options(settings: Settings, *, resume: bool, overwrite: bool) -> None:
    """InputError where options contradict each other or one would have no effect."""
    keeps = "keep" in settings.model_fields_set
    asked = {"--resume": resume, "--overwrite": overwrite, "--every": settings.every > 0, "--keep": keeps}
    if settings.checkpoints is None:
        useless = [option for option, given in asked.items() if given]
        if useless:
            raise InputError(f"{', '.join(useless)} without a folder of checkpoints", hint="--checkpoint-dir FOLDER")
    if resume and overwrite:
        raise InputError("--resume goes on from checkpoints that --overwrite would remove", hint="one of the two")
    if resume and settings.weights is not None:
        raise InputError("--resume takes its weights from a checkpoint, not from --weights", hint="one of the two")
    if settings.compute is Compute.EMULATED and settings.checkpoints is not None:
        raise InputError(
            "an emulated run computes nothing, so there is nothing to save", hint="leave out --checkpoint-dir"
        )
    if settings.compute is Compute.EMULATED and settings.compiled:
        raise InputError("an emulated run computes nothing, so there is nothing to compile", hint="leave out --compile")


def check_inputs(settings: Settings) -> None:
    """InputError where a file that a run reads is none. Nothing is read here that has no end."""
    if settings.data is not None:
        text_files(settings.data, tokenized=settings.tokenizer is not None)
    if settings.tokenizer is not None:
        check_file(settings.tokenizer)
    if settings.weights is not None:
        kind_of(settings.weights)


def check_runnable(job: Job, plan: JobPlan, settings: Settings) -> None:
    """InputError with the reason where a job cannot be run by this plan with these settings."""
    where = f"job {job.name!r}"
    _check_orders(plan, settings, where)
    if plan.options.expert > 1:
        raise InputError(
            "experts cannot be split over GPUs in a run here",
            where=where,
            hint="a plan with `expert: 1`; `hulk export` has other engines",
        )
    if settings.compute is Compute.EMULATED:
        if plan.options.sharding in (Sharding.GRADIENTS, Sharding.PARAMETERS) and len(plan.pipelines) > 1:
            raise InputError(
                "an emulated run has no layers whose parameters or gradients it could gather and spread",
                where=where,
                hint="a plan with sharding none or optimizer, or --compute real",
            )
        return
    model_type = str(job.model.config.get("model_type", "unknown"))
    larger = job.model.config.get("text_config") is not None
    if larger or model_type not in MODEL_TYPES:
        reason = _REASONS.get(model_type, "there is no way to build its layers one by one here")
        reason = "it is the text part of a larger model, which cannot be built alone here" if larger else reason
        raise InputError(
            f"{job.model.name} ({model_type}) cannot be run: {reason}",
            where=where,
            hint=f"models that run: {', '.join(MODEL_TYPES)}; or --compute emulated",
        )
    if settings.data is None:
        raise InputError("no data to train on", where=where, hint="--data FILE_OR_FOLDER")
    if settings.precision is None and job.precision is Precision.FP8:
        raise InputError(
            "products in fp8 need scales that follow the numbers, which are not there",
            where=where,
            hint="--precision bf16, or --precision fp32",
        )
    if settings.precision is None and job.precision is Precision.FP16:
        raise InputError(
            "fp16 needs loss scaling, which is not there", where=where, hint="--precision bf16, or --precision fp32"
        )
    if job.optimizer is Optimizer.ADAFACTOR:
        raise InputError(
            "adafactor keeps statistics of whole matrices, which slices and replicas do not have",
            where=where,
            hint="optimizers that run: adamw, adam, sgd, momentum",
        )
    if plan.options.schedule.splits_backward and model_type == "t5":
        raise InputError(
            f"`schedule: {plan.options.schedule}` with T5: its blocks share the biases of scores, whose gradients "
            "torch does not get right where backward is split",
            where=where,
            hint="a plan with schedule 1f1b",
        )
    if plan.options.context > 1 and plan.options.sharding in (Sharding.GRADIENTS, Sharding.PARAMETERS):
        raise InputError(
            "GPUs that share sequences cannot have their gradients or parameters sharded as well",
            where=where,
            hint="a plan with `context: 1`, or with sharding none or optimizer",
        )
    if settings.compiled:
        _check_compiled(plan, where)
    _check_widths(job, plan, where)
    if plan.options.sequence_parallel:
        _check_lengths(job, plan, where)


def _check_orders(plan: JobPlan, settings: Settings, where: str) -> None:
    """What does not go together with interleaved stages, or with gradients of weights apart from backward."""
    options = plan.options
    split, rounds = options.schedule.splits_backward, options.chunks > 1
    fsdp = options.sharding in (Sharding.GRADIENTS, Sharding.PARAMETERS) and len(plan.pipelines) > 1
    if (split or rounds) and fsdp:
        what = f"`schedule: {options.schedule}`" if split else f"`chunks: {options.chunks}`"
        raise InputError(
            f"{what} with `sharding: {options.sharding}`: layers that are gathered ahead must follow one another",
            where=where,
            hint="a plan with sharding none or optimizer, or with schedule 1f1b and one chunk a stage",
        )
    if split and settings.compute is Compute.EMULATED:
        raise InputError(
            f"`schedule: {options.schedule}` in an emulated run: it waits for whole backward passes alone",
            where=where,
            hint="a plan with schedule 1f1b, or --compute real",
        )
    if split and options.recompute is Recompute.OPERATIONS:
        raise InputError(
            f"`schedule: {options.schedule}` with `recompute: operations`: what is kept is given away by the first of "
            "two passes that need it",
            where=where,
            hint="a plan with recompute none, attention or full, or with schedule 1f1b",
        )


def _check_compiled(plan: JobPlan, where: str) -> None:
    """What does not go together with compiled blocks: whatever looks at a block's single operations."""
    options = plan.options
    unseen = {
        f"`schedule: {options.schedule}`": options.schedule.splits_backward,
        f"`recompute: {options.recompute}`": options.recompute is Recompute.OPERATIONS,
    }
    for what, is_asked in unseen.items():
        if is_asked:
            raise InputError(
                f"{what} with --compile: it tells a block's operations apart, which a compiled block hides",
                where=where,
                hint="leave out --compile, or a plan with schedule 1f1b and recompute none, attention or full",
            )


def _check_widths(job: Job, plan: JobPlan, where: str) -> None:
    """Tensor parallel divides the feed-forward evenly; `hulk.domain.check` has checked the heads."""
    config = job.model.config
    names = ("n_inner", "ffn_dim", "intermediate_size", "d_ff")
    width = next((int(str(config[name])) for name in names if config.get(name)), 0)
    for p, pipeline in enumerate(plan.pipelines, start=1):
        for s, stage in enumerate(pipeline.stages, start=1):
            if width % plan.tensor(stage):
                raise InputError(
                    f"{plan.tensor(stage)} GPUs cannot share a feed-forward of {width} evenly",
                    where=f"{where}, pipeline {p}, stage {s}",
                )


def _check_lengths(job: Job, plan: JobPlan, where: str) -> None:
    """Sequence parallelism divides sequences evenly."""
    lengths = [job.model.sequence]
    if job.model.config.get("model_type") == "t5":
        lengths.append(round(job.model.layers[-1].output / int(str(job.model.config["d_model"]))))
    for p, pipeline in enumerate(plan.pipelines, start=1):
        for s, stage in enumerate(pipeline.stages, start=1):
            for length in lengths:
                if length % stage.ranks:
                    raise InputError(
                        f"{stage.ranks} GPUs cannot share a sequence of {length} tokens evenly",
                        where=f"{where}, pipeline {p}, stage {s}",
                        hint="a plan without sequence parallelism, or another sequence length",
                    )
