"""A layer of the plan as a module: what every model's layers share.

A layer takes the tensors that cross between layers and gives the next ones: (token ids) into the first, (hidden)
between blocks, (encoder's output, hidden) in a decoder behind an encoder, (logits) out of the head.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from hulk.runtime.again import Around
from hulk.runtime.models.lean import KEPT, PARTS, project, writes_scores
from hulk.runtime.parts import Parts
from hulk.runtime.sequence import join, length

Tensors = tuple[torch.Tensor, ...]
Local = dict[str, Any]
"""What layers of one stage share during one forward pass (masks, position biases); it never crosses a link."""


class Style(StrEnum):
    """How tensor parallel divides one submodule."""

    COLUMNS = "columns"
    """A product divided over its outputs; the next one is divided over its inputs."""
    FUSED = "fused"
    """The same for queries, keys and values in one product: every rank gets its part of each of the three."""
    ROWS = "rows"
    """A product divided over its inputs; the ranks' results are added up."""
    VOCABULARY = "vocabulary"
    """An embedding divided over its rows; the ranks' results are added up."""
    HEADS = "heads"
    """An embedding divided over its columns, one a head."""
    LOGITS = "logits"
    """A product divided over its outputs, which every rank then gathers."""


Styles = Mapping[str, Style]
"""By submodule path how tensor parallel divides it; what is not named is on every rank."""


class LayerModule(nn.Module):
    """One layer. Its submodules are transformers' own, taken from a model on the meta device.

    styles   how tensor parallel divides its submodules
    again    whether it is a block: recomputation throws its activations away, and sequence parallelism divides them
    unused   names of buffers in its submodules that it does without
    early    paths of submodules that `prepare` calls
    gathers  paths of submodules that need the whole sequence; of others, a block does so itself with `gathered`
    around   how it is called so that recomputation throws its activations away; None: they stay
    spread   the ranks over which its activations are divided along the sequence; None: they are whole
    parts    the ranks that share sequences with this one, each with some of the tokens; None: it has all of them
    """

    styles: ClassVar[Styles] = {}
    again: ClassVar[bool] = False
    unused: ClassVar[tuple[str, ...]] = ()
    early: ClassVar[tuple[str, ...]] = ()
    gathers: ClassVar[tuple[str, ...]] = ()
    around: Around | None = None
    spread: DeviceMesh | None = None
    parts: Parts | None = None

    def prepare(self, tensors: Tensors, local: Local) -> None:
        """Put into `local` what this layer needs and another layer of the stage may have made already. Runs outside of
        recomputation."""

    def divide(self, ranks: int) -> None:
        """Turn counts of heads into those of one of `ranks` slices."""

    def spread_over(self, mesh: DeviceMesh) -> None:
        """Have activations divided along the sequence among ranks."""
        self.spread = mesh
        for path in self.gathers:
            self.get_submodule(path).register_forward_pre_hook(self._gather, prepend=True, with_kwargs=True)

    def _gather(self, module: nn.Module, given: Any, named: Any) -> Any:
        """The first thing that a submodule is given, whole."""
        del module
        if given:
            return (self.gathered(given[0]), *given[1:]), named
        first = next(iter(named))
        return given, {**named, first: self.gathered(named[first])}

    def gathered(self, tensor: torch.Tensor) -> torch.Tensor:
        """The whole of what may be divided along the sequence, for products that tensor parallel divides."""
        return tensor if self.spread is None else join(tensor, self.spread)

    def length(self, tensor: torch.Tensor) -> int:
        """Tokens of the whole of a tensor (samples, tokens, width)."""
        return length(tensor, self.spread)

    def keep(self) -> None:
        """Have nothing thrown away, whatever other layers do; attention alone is thrown away by the model itself."""
        self.around = None
        for module in self.modules():
            setattr(module, KEPT, True)

    def share_with(self, parts: Parts) -> None:
        """Have some tokens of each sequence; its attention gathers the keys and values of the others."""
        self.parts = parts
        for module in self.modules():
            setattr(module, PARTS, parts)

    def positions(self, length: int, like: torch.Tensor, offset: int = 0) -> torch.Tensor:
        """Position numbers of the `length` tokens of a batch that are here, without padding: (1, length)."""
        here = torch.arange(length, device=like.device) if self.parts is None else self.parts.numbers(length, like)
        return (here + offset)[None]

    def mask(self, length: int, like: torch.Tensor, window: int | None = None) -> torch.Tensor:
        """What is added to the scores so that no position sees a later one, nor any but itself and the `window` - 1
        before it: (1, 1, length, tokens of the sequence)."""
        here = self.positions(length, like).T
        keys = torch.arange(length * (1 if self.parts is None else self.parts.count), device=like.device)
        seen = keys <= here if window is None else (keys <= here) & (keys > here - window)
        floor = torch.finfo(like.dtype).min
        return torch.zeros(seen.shape, dtype=like.dtype, device=like.device).masked_fill(~seen, floor)[None, None]

    def run(self, tensors: Tensors, local: Local) -> Tensors:
        """The layer's forward pass."""
        raise NotImplementedError

    def forward(self, tensors: Tensors, local: Local) -> Tensors:
        """`run`, so that hooks of torch see the call."""
        if self.around is None:
            return self.run(tensors, local)
        result: Tensors = self.around(self.run, tensors, local, draws=self.training)
        return result


@dataclass(frozen=True)
class Build:
    """How a kind of model is made of layers.

    model_class  the name of transformers' class, loss head included
    layers       the layers of such a model, in the plan's order
    """

    model_class: str
    layers: Callable[[Any], list[LayerModule]]


def causal_mask(length: int, like: torch.Tensor) -> torch.Tensor:
    """What is added to the scores so that no position sees a later one: (1, 1, length, length)."""
    floor = torch.finfo(like.dtype).min
    return torch.full((length, length), floor, dtype=like.dtype, device=like.device).triu(1)[None, None]


class CausalBlock(LayerModule):
    """A decoder's block, as transformers calls it: hidden states and a mask, which fused attention does without."""

    again = True

    def __init__(self, block: Any, config: Any) -> None:
        super().__init__()
        self.block, self.config = block, config

    def prepare(self, tensors: Tensors, local: Local) -> None:
        """The causal mask."""
        if "mask" not in local:
            eager = writes_scores(self.config._attn_implementation)
            local["mask"] = self.mask(self.length(tensors[-1]), tensors[-1]) if eager else None

    def run(self, tensors: Tensors, local: Local) -> Tensors:
        """Hidden states to hidden states."""
        return (self.block(tensors[0], attention_mask=local["mask"]),)


class NormHead(LayerModule):
    """Final norm and output projection."""

    styles: ClassVar[Styles] = {"lm_head": Style.LOGITS}

    def __init__(self, norm: nn.Module, lm_head: nn.Linear) -> None:
        super().__init__()
        self.norm, self.lm_head = norm, lm_head

    def run(self, tensors: Tensors, local: Local) -> Tensors:
        """Hidden states to logits."""
        return (project(self.lm_head, self.norm(tensors[0])),)
