"""What a run is asked to do, beside the plan: values, and the worker's command line made of them."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path


class Compute(StrEnum):
    """What a stage does with its layers."""

    REAL = "real"
    """It computes them."""
    EMULATED = "emulated"
    """It waits as long as the plan's GPU would take; tensors of the real size cross the network."""


KEEP = 3
"""How many checkpoints stay: the newest, one more should it be damaged, and one from before something went wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Options of a run.

    data            text file, or folder of them; bytes are the tokens unless a tokenizer is given (None: emulated only)
    tokenizer       file of the `tokenizers` library (tokenizer.json)
    steps           how many optimizer steps the whole training has; a resumed run does those that are left
    seed            of weights, data order and masks
    rate, decay     the optimizer's learning rate and weight decay
    dropout         whether dropout is on; off, a run repeats exactly
    precision       instead of the job's: fp32 or bf16
    weights         safetensors file or folder to start from, with Hugging Face's names; None: from the seed
    checkpoints     folder to write checkpoints to, every `every` steps and at the end (None: none)
    keep            how many checkpoints stay, the newest ones (0: all)
    resume          the checkpoint to go on from
    timeout         seconds without a sign of life after which a machine is given up
    patience        seconds one exchange between ranks may take
    trace_steps     of how many of the last steps every pass and message is written down
    """

    data: Path | None = None
    tokenizer: Path | None = None
    steps: int = 10
    seed: int = 0
    rate: float = 1e-3
    decay: float = 0.01
    dropout: bool = False
    precision: str | None = None
    compute: Compute = Compute.REAL
    weights: Path | None = None
    checkpoints: Path | None = None
    every: int = 0
    keep: int = KEEP
    resume: Path | None = None
    timeout: float = 20.0
    patience: float = 60.0
    trace_steps: int = 0

    def argv(self) -> list[str]:
        """The settings as arguments that `parse` reads back."""
        result: list[str] = []
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None or value is False:
                continue
            result.append(f"--{field.name.replace('_', '-')}")
            if value is not True:
                result.append(str(value))
        return result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `Settings`."""
    parser.add_argument("--data", type=Path, help="text file, or folder of them")
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json; without it, bytes are tokens")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate")
    parser.add_argument("--decay", type=float, default=0.01, help="weight decay")
    parser.add_argument("--dropout", action="store_true")
    parser.add_argument("--precision", choices=("fp32", "bf16"))
    parser.add_argument("--compute", type=Compute, choices=list(Compute), default=Compute.REAL)
    parser.add_argument("--weights", type=Path, help="safetensors file or folder to start from")
    parser.add_argument("--checkpoints", type=Path, help="folder to write checkpoints to")
    parser.add_argument("--every", type=int, default=0, help="steps between checkpoints; 0: only at the end")
    parser.add_argument("--keep", type=int, default=KEEP, help="checkpoints that stay; 0: all")
    parser.add_argument("--resume", type=Path, help="the checkpoint to go on from")
    parser.add_argument("--timeout", type=float, default=20.0, help="seconds of silence before a machine is given up")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds one exchange between ranks may take")
    parser.add_argument("--trace-steps", type=int, default=0)


def from_arguments(arguments: argparse.Namespace) -> Settings:
    """The settings in parsed arguments."""
    return Settings(**{field.name: getattr(arguments, field.name) for field in fields(Settings)})
