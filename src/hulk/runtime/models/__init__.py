"""Models that can be run: from the Hugging Face config a plan was made from to layers on the meta device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import torch

from hulk.domain.job import Job
from hulk.domain.options import Recompute
from hulk.errors import InputError
from hulk.runtime.models.base import Build, LayerModule, Local, Style, Tensors
from hulk.runtime.models.bert import bert_layers, roberta_layers
from hulk.runtime.models.gpt import gpt2_layers, gpt_neo_layers
from hulk.runtime.models.lean import EAGER, FUSED, FUSED_AGAIN, WEIGHED, WEIGHED_AGAIN, lighten, register
from hulk.runtime.models.llama import llama_layers
from hulk.runtime.models.opt import opt_layers
from hulk.runtime.models.t5 import t5_layers

__all__ = ["BUILDS", "Blueprint", "LayerModule", "Local", "Style", "Tensors", "draw"]

BUILDS: Mapping[str, Build] = MappingProxyType(
    {
        "bert": Build("BertForMaskedLM", bert_layers),
        "gpt2": Build("GPT2LMHeadModel", gpt2_layers),
        "gpt_neo": Build("GPTNeoForCausalLM", gpt_neo_layers),
        "llama": Build("LlamaForCausalLM", llama_layers),
        "opt": Build("OPTForCausalLM", opt_layers),
        "roberta": Build("RobertaForMaskedLM", roberta_layers),
        "t5": Build("T5ForConditionalGeneration", t5_layers),
    }
)
"""By `model_type`."""


@dataclass(frozen=True)
class Blueprint:
    """A whole model on the meta device: its layers in the plan's order, with no weights anywhere.

    model     transformers' model the layers were taken from
    sequence  tokens of a sample; `target` those an encoder-decoder writes (0 otherwise)
    """

    model: Any
    layers: tuple[LayerModule, ...]
    model_type: str
    sequence: int
    target: int
    hidden: int
    vocabulary: int

    @cached_property
    def names(self) -> dict[int, str]:
        """Hugging Face's name of every parameter, by its id; a shared one has the name of its first use."""
        return {id(parameter): name for name, parameter in self.model.named_parameters()}

    def boundary(self, layer: int) -> tuple[tuple[int, int], ...]:
        """(tokens, width) of the tensors that leave a layer for the next one."""
        if not self.target:
            return ((self.sequence, self.hidden),)
        carried = (self.sequence, self.hidden), (self.target, self.hidden)
        return carried if layer > self.model.config.num_layers else carried[:1]


def draw(job: Job, recompute: Recompute = Recompute.NONE, context: int = 1) -> Blueprint:
    """The blueprint of a job's model. Its config must be of a type in `BUILDS`. Of what is recomputed, attention alone
    is a part of the model. `context`: ranks that share a sequence."""
    import transformers

    fields = dict(job.model.config)
    model_type = str(fields.pop("model_type"))
    build = BUILDS[model_type]
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        config = transformers.AutoConfig.for_model(model_type, **fields)
        config._attn_implementation = EAGER  # every class has it
        with torch.device("meta"):
            model = getattr(transformers, build.model_class)(config)
    except (TypeError, ValueError) as error:
        raise InputError(f"transformers cannot build {job.model.name}: {error}", where=f"job {job.name!r}") from None
    register()
    if recompute is Recompute.ATTENTION:
        config._attn_implementation = WEIGHED_AGAIN if job.attention.writes_scores else FUSED_AGAIN
    elif not job.attention.writes_scores:
        config._attn_implementation = FUSED
    elif context > 1:
        config._attn_implementation = WEIGHED
    lighten(model)
    layers = build.layers(model)
    if len(layers) != len(job.model.layers):
        raise InputError(
            f"{job.model.name} has {len(job.model.layers)} layers in the plan, but {len(layers)} as a model to run",
            where=f"job {job.name!r}",
        )
    hidden = int(config.hidden_size)
    head = job.model.layers[-1]
    target = round(head.output / hidden) if model_type == "t5" else 0
    return Blueprint(model, tuple(layers), model_type, job.model.sequence, target, hidden, int(config.vocab_size))
