"""A part of a layer and what it costs; parts add up to layers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from hulk.domain.model import Layer, LayerKind, Matmul


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The cost of one operation or of several, per sample. The fields mean what they mean in `Layer`.

    Activations are counted where they are used: an operation counts as held the inputs (or outputs) that its own
    backward pass reads, and the first of several readers of one tensor counts it for all of them. The sum over a block
    is then what autograd keeps, each tensor once.
    """

    params_split: int = 0
    params_whole: int = 0
    matmuls: tuple[Matmul, ...] = ()
    moved_split: float = 0.0
    moved_whole: float = 0.0
    scores: float = 0.0
    held_split: float = 0.0
    held_whole: float = 0.0
    mask_bytes: float = 0.0
    kernels: int = 0
    score_masks: float = 0.0
    logits: float = 0.0
    spared_split: float = 0.0
    spared_whole: float = 0.0
    spared_held_split: float = 0.0
    spared_held_whole: float = 0.0
    spared_kernels: int = 0
    held_single: float = 0.0
    keys: float = 0.0
    experts: int = 0
    expert_params: int = 0
    visits: float = 0.0
    expert_kernels: int = 0

    def __add__(self, other: Part) -> Part:
        """Both parts, one after the other."""
        return Part(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(Part)})

    def layer(
        self,
        name: str,
        kind: LayerKind,
        *,
        shape: str,
        output: float,
        reductions: int,
        head_width: int = 0,
        tied: int = 0,
        moment: Moment | None = None,
    ) -> Layer:
        """This part as a layer of a model. `moment`: what its backward pass needs besides."""
        moment = moment or Moment()
        return Layer(
            name=name,
            kind=kind,
            shape=shape,
            params_split=self.params_split,
            params_whole=self.params_whole,
            tied=tied,
            matmuls=self.matmuls,
            moved_split=self.moved_split,
            moved_whole=self.moved_whole,
            scores=self.scores,
            held_split=self.held_split,
            held_whole=self.held_whole,
            mask_bytes=self.mask_bytes,
            output=output,
            reductions=reductions,
            kernels=self.kernels,
            head_width=head_width,
            score_masks=self.score_masks,
            logits=self.logits,
            spared_split=self.spared_split,
            spared_whole=self.spared_whole,
            spared_held_split=self.spared_held_split,
            spared_held_whole=self.spared_held_whole,
            spared_kernels=self.spared_kernels,
            held_single=self.held_single,
            held_once=moment.held_once,
            keys=self.keys,
            experts=self.experts,
            expert_params=self.expert_params,
            visits=self.visits,
            expert_kernels=self.expert_kernels,
            moment_split=moment.split,
            moment_whole=moment.whole,
            moment_once=max((m.inner * m.columns for m in self.matmuls if m.weight), default=0),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What a layer's backward pass needs for a moment, and what it keeps once a microbatch; as in `Layer`."""

    split: float = 0.0
    whole: float = 0.0
    held_once: float = 0.0


NOTHING = Part()


def total(parts: Iterable[Part]) -> Part:
    """The parts one after the other."""
    return sum(parts, NOTHING)
