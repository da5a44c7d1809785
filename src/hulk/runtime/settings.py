"""What a run is asked to do, beside the plan. Each option is declared here and nowhere else: `hulk.runtime.options`
makes those of `hulk run` and of a worker out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hulk.errors import InputError


class Compute(StrEnum):
    """What a stage does with its layers."""

    REAL = "real"
    """It computes them."""
    EMULATED = "emulated"
    """It waits as long as the plan's GPU would take; tensors of the real size cross the network."""


@dataclass(frozen=True)
class RunFiles:
    """Where the plan came from, as the workers read it again."""

    plan: str
    cluster: str
    jobs: str

    def argv(self, job: str) -> list[str]:
        """The worker's arguments that name them."""
        return ["--plan", self.plan, "--cluster", self.cluster, "--jobs", self.jobs, "--job", job]


class Settings(BaseModel):
    """Options of a run. A field's docstring is the option's help; an alias is the option's name where that is another
    than the field's."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True, use_attribute_docstrings=True
    )

    data: Path | None = None
    """text file, or folder of them, to train on"""
    tokenizer: Path | None = None
    """tokenizer.json; without it, bytes are the tokens"""
    steps: Annotated[int, Field(ge=1)] = 10
    """optimizer steps of the whole training"""
    seed: Annotated[int, Field(ge=0, le=2**31)] = 0
    """seed of weights, data order and masks"""
    rate: Annotated[float, Field(alias="lr", ge=0)] = 1e-3
    """learning rate"""
    decay: Annotated[float, Field(alias="weight_decay", ge=0)] = 0.01
    """weight decay"""
    dropout: bool = False
    """use the model's dropout; off, a run repeats exactly"""
    precision: Literal["fp32", "bf16"] | None = None
    """fp32 or bf16, instead of the job's"""
    compiled: Annotated[bool, Field(alias="compile")] = False
    """have torch.compile make kernels of the blocks; the first step waits for it"""
    compute: Compute = Compute.REAL
    """real, or emulated: wait as long as the plan's GPUs would take"""
    weights: Path | None = None
    """safetensors file or folder to start from"""
    checkpoints: Annotated[Path | None, Field(alias="checkpoint_dir")] = None
    """write checkpoints to this folder"""
    every: Annotated[int, Field(ge=0)] = 0
    """steps between checkpoints; 0: only at the end"""
    # The newest, one more should it be damaged, and one from before something went wrong.
    keep: Annotated[int, Field(ge=0)] = 3
    """how many checkpoints stay, the newest; 0: all"""
    resume: Path | None = None
    """the checkpoint to go on from"""
    timeout: Annotated[float, Field(ge=5)] = 20.0
    """seconds without a sign of life before a machine is given up"""
    patience: Annotated[float, Field(gt=0)] = 60.0
    """seconds one exchange between ranks may take"""
    trace_steps: Annotated[int, Field(ge=0)] = 0
    """of how many of the last steps every pass and message is written down"""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Settings:
        """Settings of values by field, which may be texts; InputError that names every option with a value it cannot
        have."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            problems = error.errors(include_url=False)
        words = [
            f"{option_of(str(problem['loc'][0]))} {problem['input']}: "
            f"{problem['msg'].replace('Input should be', 'must be')}"
            for problem in problems
        ]
        raise InputError("; ".join(words))


def option_of(field: str) -> str:
    """The option that gives a field its value."""
    known = Settings.model_fields.get(field)
    return f"--{((known and known.alias) or field).replace('_', '-')}"
