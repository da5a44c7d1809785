"""A stage of the plan for torch.distributed.pipelining.

One rank of a stage, its lead, exchanges tensors with other stages; where tensor parallel gives a stage more ranks, the
lead hands what it received to them. So stages of any number of ranks can follow one another, and one flow carries what
crosses a link.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining._backward import stage_backward_weight
from torch.distributed.pipelining.schedules import RECV_F, _Action, _PipelineScheduleRuntime

from hulk.domain.options import Recompute
from hulk.runtime import sequence
from hulk.runtime.again import around_block
from hulk.runtime.clock import BACKWARD, FORWARD, WEIGHTS, StageClock
from hulk.runtime.messages import Message, Messages
from hulk.runtime.models import LayerModule, Local, Tensors
from hulk.runtime.parts import TOKENS, Parts

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class StageModule(nn.Module):
    """Consecutive layers of a model.

    recompute  what of the blocks' activations is thrown away and computed again
    count      of how many blocks, from the first on; None: of all
    compiled   whether torch.compile makes kernels of the blocks
    parts      the ranks that share sequences with this one; None: it has all tokens
    loss       of the last stage: what it makes of logits and labels, and gives instead of the logits. torch's schedule
               holds what a stage gives until its backward pass is done
    """

    def __init__(
        self,
        layers: Sequence[LayerModule],
        *,
        recompute: Recompute,
        count: int | None = None,
        compiled: bool = False,
        loss: Loss | None,
        parts: Parts | None = None,
    ) -> None:
        super().__init__()
        self.parts = parts
        self.layers = nn.ModuleList(layers)
        self.loss = loss
        blocks = [layer for layer in layers if layer.again]
        for block in blocks[:count]:
            block.around = around_block(recompute)
        for block in blocks[len(blocks[:count]) :]:
            block.keep()
        if compiled:
            compile_blocks(blocks)

    def forward(
        self, *tensors: torch.Tensor, decoder_ids: torch.Tensor | None = None, labels: torch.Tensor | None = None
    ) -> Any:
        """What crosses into the stage to what leaves it."""
        local: Local = {"decoder_ids": decoder_ids}
        parts = self.parts
        flowing: Tensors = tensors if parts is None else tuple(map(parts.mine, tensors))
        divided: DeviceMesh | None = None  # among whom what flows is divided along the sequence
        for layer in self.layers:
            assert isinstance(layer, LayerModule)
            flowing, divided = _as_needed(flowing, divided, layer.spread), layer.spread
            layer.prepare(flowing, local)
            flowing = layer(flowing, local)
        flowing = _as_needed(flowing, divided, None)
        if self.loss is not None:
            assert labels is not None
            return self.loss(flowing[0], labels if parts is None else parts.taken(labels, TOKENS))
        return tuple(t.contiguous() for t in (flowing if parts is None else map(parts.whole, flowing)))


def compile_blocks(blocks: Sequence[LayerModule]) -> None:
    """Have torch.compile make kernels of each block's passes. What wraps a block (recomputation, hooks) stays outside:
    one compiled function serves all blocks that are alike."""
    # Blocks that are not alike are compiled one by one; past the limit torch would run them as they are, silently.
    dynamo: Any = torch._dynamo
    dynamo.config.recompile_limit = max(dynamo.config.recompile_limit, 2 * len(blocks))
    for block in blocks:
        block.run = torch.compile(block.run, dynamic=False)  # type: ignore[method-assign]


def _as_needed(flowing: Tensors, divided: DeviceMesh | None, wanted: DeviceMesh | None) -> Tensors:
    """What flows between layers, divided along the sequence or whole."""
    if divided is None and wanted is not None:
        return tuple(sequence.mine(tensor, wanted) for tensor in flowing)
    if divided is not None and wanted is None:
        return tuple(sequence.whole(tensor, divided) for tensor in flowing)
    return flowing


@dataclass(frozen=True)
class Part:
    """A stage's layers, and what crosses into it and leaves it, as tensors without content. `weights_made` is called
    after a pass that makes gradients of weights apart from backward: torch says nothing of it to parameters."""

    module: nn.Module
    inputs: tuple[torch.Tensor, ...]
    outputs: tuple[torch.Tensor, ...]
    weights_made: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class StagePlace:
    """Where a stage stands: the `index`-th of its pipeline's, which go `chunks` times round so many `slots`. The group
    of all slots' leads, and that of the ranks of this one; None where it would have one member, or this rank is not in
    it."""

    index: int
    slots: int
    chunks: int
    leads: dist.ProcessGroup | None
    slices: dist.ProcessGroup | None


class PlanStage(PipelineStage):
    """A pipelining stage that may have several ranks, and that writes down when it computes.

    Shapes are given beforehand, so no rank has to try a pass to find them out.
    """

    def __init__(
        self, part: Part, place: StagePlace, *, device: torch.device, clock: StageClock, messages: Messages
    ) -> None:
        index, slots, slices = place.index, place.slots, place.slices
        stages = slots * place.chunks
        group = place.leads if place.leads is not None else slices
        # torch refuses a group with more ranks than stages; the slices' group may be one, and is never sent through.
        most = max(stages, dist.get_world_size(group))
        super().__init__(
            part.module, index, most, device, input_args=part.inputs, output_args=part.outputs, group=group
        )
        self.num_stages = stages
        self._slices = slices
        self._leads = slices is None or dist.get_rank(slices) == 0
        self._lead_rank = 0 if slices is None else dist.get_global_rank(slices, 0)
        self._clock, self._messages, self._slots = clock, messages, slots
        self._weights_made = part.weights_made
        self.early = False  # whether receives are posted ahead; `schedule` decides
        self._coming: dict[tuple[str, int], list[Message]] = {}
        self._leaving: list[Message] = []
        # torch takes the slot's number for its rank among all slots' leads, which is true of every slice here.
        self.group_rank, self.group_size = index % slots, slots
        self.stage_index_to_group_rank = {i: i % slots for i in range(stages)}

    def _warmup_forward_vote(self, has_backward: bool, received_acc: torch.Tensor | None = None) -> torch.Tensor:
        """All stages know their shapes: there is nothing to vote on."""
        return torch.ones(1, dtype=torch.int32)

    def _warmup_backward_result(self, received_result: torch.Tensor | None = None) -> torch.Tensor:
        """See `_warmup_forward_vote`."""
        return torch.ones(1, dtype=torch.int32)

    def _post_metadata_inference_cleanup(self) -> None:
        """No pass was tried, so gradients stay where they are."""

    def _get_recv_ops(self, recv_infos: Any) -> list[dist.P2POp]:
        return super()._get_recv_ops(recv_infos) if self._leads else []

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        """Receives of a forward pass; none where they are posted here."""
        return self._ahead(FORWARD, fwd_chunk_id, super().get_fwd_recv_ops(fwd_chunk_id))

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        """Receives of a backward pass; none where they are posted here."""
        return self._ahead(BACKWARD, bwd_chunk_id, super().get_bwd_recv_ops(bwd_chunk_id))

    def _ahead(self, kind: str, chunk: int, ops: list[dist.P2POp]) -> list[dist.P2POp]:
        if not self.early:
            return ops
        if (kind, chunk) not in self._coming:
            self._coming[kind, chunk] = [self._messages.receive(op.tensor, op.peer, op.group) for op in ops]
        return []

    def settle(self) -> None:
        """All passes of a step are done: wait until their messages have left."""
        for message in self._leaving:
            message.wait()
        self._leaving = []

    def _arrive(self, kind: str, chunk: int) -> None:
        for message in self._coming.pop((kind, chunk), ()):
            message.wait()

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        """Messages of a forward pass; none where they are sent here."""
        if not self._leads:
            return []
        self._clock.sends(fwd_chunk_id, (self.stage_index + 1) % self._slots)
        return self._leave(super().get_fwd_send_ops(fwd_chunk_id))

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        """Messages of a backward pass; none where they are sent here."""
        if self._leads and not self.is_first:
            self._clock.sends(bwd_chunk_id, (self.stage_index - 1) % self._slots)
        ops = super().get_bwd_send_ops(bwd_chunk_id)
        return self._leave(ops) if self._leads else []

    def _leave(self, ops: list[dist.P2POp]) -> list[dist.P2POp]:
        if not self.early:
            return ops
        self._leaving += [self._messages.send(op.tensor, op.peer, op.group) for op in ops]
        return []

    def _share(self, infos: Any) -> None:
        """Hand what the lead received to the stage's other ranks."""
        if self._slices is not None:
            for info in infos:
                if info.buffer is not None:
                    dist.broadcast(info.buffer.detach(), src=self._lead_rank, group=self._slices)

    def _retrieve_recv_activations(self, fwd_chunk_id: int) -> Any:
        self._share(self.args_recv_info[fwd_chunk_id])
        return super()._retrieve_recv_activations(fwd_chunk_id)

    def _retrieve_recv_grads(self, bwd_chunk_id: int) -> Any:
        self._share(self.grad_recv_info[bwd_chunk_id])
        return super()._retrieve_recv_grads(bwd_chunk_id)

    def forward_one_chunk(
        self, fwd_chunk_id: int, args: Any, kwargs: Any = None, save_forward_output: bool = True
    ) -> Any:
        """A forward pass, timed."""
        self._arrive(FORWARD, fwd_chunk_id)
        source = None if self.is_first else (self.stage_index - 1) % self._slots
        with self._clock.computes(FORWARD, fwd_chunk_id, source):
            return super().forward_one_chunk(fwd_chunk_id, args, kwargs, save_forward_output)

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Any = None, full_backward: bool = True, last_backward: bool = False
    ) -> None:
        """A backward pass, or its gradients of inputs alone, timed."""
        self._arrive(BACKWARD, bwd_chunk_id)
        source = None if self.is_last else (self.stage_index + 1) % self._slots
        with self._clock.computes(BACKWARD, bwd_chunk_id, source):
            super().backward_one_chunk(bwd_chunk_id, loss, full_backward, last_backward)

    def backward_maybe_with_nosync(self, backward_type: Any, bwd_kwargs: Any, last_backward: bool = False) -> Any:
        """torch's own, but that what one group of weights needs stays for the others: layers may share parameters."""
        if backward_type != "weight":
            return super().backward_maybe_with_nosync(backward_type, bwd_kwargs, last_backward)
        return stage_backward_weight(self.submod.parameters(), bwd_kwargs["param_groups"], retain_graph=True), None

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        """A pass for gradients of weights alone, timed. The first stage does all of its backward pass then."""
        with self._clock.computes(WEIGHTS, bwd_chunk_id, None):
            super().backward_weight_one_chunk(bwd_chunk_id, last_backward)
            if not self.is_first:
                self._weights_made()


class PlanSchedule:
    """The plan's schedule of this rank's stages, run by torch. The loss is that of the whole global batch in parts, so
    nothing is divided.

    `table` has the actions of each slot of the pipeline. `early`: every receive is posted when the step begins, or when
    the passes of the step before are done (`expect`). gloo's sender waits for word that its receiver is ready, which
    over a long link would cost each message a latency more. NCCL would wait for the receives first, so there torch
    chooses the order.
    """

    def __init__(
        self, stages: Sequence[PlanStage], table: list[list[str]], microbatches: int, loss: Any, *, early: bool
    ) -> None:
        self._stages = {stage.stage_index: stage for stage in stages}
        for stage in stages:
            stage.early = early
        make: Any = _PipelineScheduleRuntime
        self._runtime: _PipelineScheduleRuntime = make(list(stages), microbatches, loss_fn=loss, scale_grads=False)
        coming = [_receives(s, table) for s in range(len(table))]
        count = len(table) * len(stages)
        rows = [[*coming[s], *_with_sends(row, count)] for s, row in enumerate(table)] if early else table
        actions = {s: [_Action.from_str(action) for action in row] for s, row in enumerate(rows)}
        self._runtime._prepare_schedule_with_comms(actions, format="compute_comms" if early else "compute_only")
        self._coming = [_Action.from_str(action) for action in coming[stages[0].group_rank]] if early else []

    def step(self, *given: Any, **options: Any) -> None:
        """All passes of a step; then wait until their messages have left."""
        self._runtime.step(*given, return_outputs=False, **options)
        for stage in self._stages.values():
            stage.settle()

    def expect(self) -> None:
        """Post the receives of the next step, when all passes of this one are done."""
        for action in self._coming:
            stage, microbatch = self._stages[action.stage_index], action.microbatch_index
            assert microbatch is not None
            if action.computation_type == RECV_F:
                stage.get_fwd_recv_ops(microbatch)
            else:
                stage.get_bwd_recv_ops(microbatch)


_ACTION = re.compile(r"(\d+)([A-Z])(\d+)")


def _passes(row: list[str]) -> Iterator[tuple[int, str, int]]:
    """A slot's actions as stage, kind, microbatch."""
    for action in row:
        match = _ACTION.fullmatch(action)
        assert match is not None
        yield int(match[1]), match[2], int(match[3])


def _receives(slot: int, table: list[list[str]]) -> list[str]:
    """What a slot receives, from one neighbour after the other, in the order in which they send it: between two ranks
    messages come in that order."""
    slots, found = len(table), []
    last = max(stage for row in table for stage, _, _ in _passes(row))
    for other in dict.fromkeys(((slot - 1) % slots, (slot + 1) % slots)):
        for stage, kind, m in _passes(table[other]):
            if kind == "F" and stage < last and (stage + 1) % slots == slot:
                found.append(f"{stage + 1}RECV_F{m}")
            elif kind in "BI" and stage > 0 and (stage - 1) % slots == slot:
                found.append(f"{stage - 1}RECV_B{m}")
    return found


def _with_sends(row: list[str], stages: int) -> Iterator[str]:
    """A slot's actions, each with what it sends after it."""
    for action, (stage, kind, m) in zip(row, _passes(row), strict=True):
        yield action
        if kind == "F" and stage + 1 < stages:
            yield f"{stage}SEND_F{m}"
        elif kind in "BI" and stage > 0:
            yield f"{stage}SEND_B{m}"
