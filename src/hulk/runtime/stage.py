"""A stage of the plan for torch.distributed.pipelining.

One rank of a stage, its lead, exchanges tensors with other stages; where tensor parallel gives a stage more ranks, the
lead hands what it received to them. So stages of any number of ranks can follow one another, and one flow carries what
crosses a link.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _Action, _PipelineScheduleRuntime

from hulk.domain.options import Recompute
from hulk.runtime import sequence
from hulk.runtime.again import around_block
from hulk.runtime.clock import BACKWARD, FORWARD, StageClock
from hulk.runtime.messages import Message, Messages
from hulk.runtime.models import LayerModule, Local, Tensors

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class StageModule(nn.Module):
    """Consecutive layers of a model.

    recompute  what of the layers' activations is thrown away and computed again
    loss       of the last stage: what it makes of logits and labels, and gives instead of the logits. torch's schedule
               holds what a stage gives until its backward pass is done
    """

    def __init__(self, layers: Sequence[LayerModule], *, recompute: Recompute, loss: Loss | None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.loss = loss
        for layer in layers:
            layer.around = around_block(recompute) if layer.again else None

    def forward(
        self, *tensors: torch.Tensor, decoder_ids: torch.Tensor | None = None, labels: torch.Tensor | None = None
    ) -> Any:
        """What crosses into the stage to what leaves it."""
        local: Local = {"decoder_ids": decoder_ids}
        flowing: Tensors = tensors
        divided: DeviceMesh | None = None  # among whom what flows is divided along the sequence
        for layer in self.layers:
            assert isinstance(layer, LayerModule)
            flowing, divided = _as_needed(flowing, divided, layer.spread), layer.spread
            layer.prepare(flowing, local)
            flowing = layer(flowing, local)
        flowing = _as_needed(flowing, divided, None)
        if self.loss is not None:
            assert labels is not None
            return self.loss(flowing[0], labels)
        return tuple(t.contiguous() for t in flowing)


def _as_needed(flowing: Tensors, divided: DeviceMesh | None, wanted: DeviceMesh | None) -> Tensors:
    """What flows between layers, divided along the sequence or whole."""
    if divided is None and wanted is not None:
        return tuple(sequence.mine(tensor, wanted) for tensor in flowing)
    if divided is not None and wanted is None:
        return tuple(sequence.whole(tensor, divided) for tensor in flowing)
    return flowing


@dataclass(frozen=True)
class StagePlace:
    """Where a stage stands: the `index`-th of its pipeline's `stages`. The group of all stages' leads, and that of the
    ranks of this one; None where it would have one member, or this rank is not in it."""

    index: int
    stages: int
    leads: dist.ProcessGroup | None
    slices: dist.ProcessGroup | None


class PlanStage(PipelineStage):
    """A pipelining stage that may have several ranks, and that writes down when it computes.

    Shapes are given beforehand, so no rank has to try a pass to find them out.
    """

    def __init__(
        self,
        module: nn.Module,
        place: StagePlace,
        *,
        device: torch.device,
        inputs: tuple[torch.Tensor, ...],
        outputs: tuple[torch.Tensor, ...],
        clock: StageClock,
        messages: Messages,
    ) -> None:
        index, stages, slices = place.index, place.stages, place.slices
        group = place.leads if place.leads is not None else slices
        # torch refuses a group with more ranks than stages; the slices' group may be one, and is never sent through.
        most = max(stages, dist.get_world_size(group))
        super().__init__(module, index, most, device, input_args=inputs, output_args=outputs, group=group)
        self.num_stages = stages
        self._slices = slices
        self._leads = slices is None or dist.get_rank(slices) == 0
        self._lead_rank = 0 if slices is None else dist.get_global_rank(slices, 0)
        self._clock, self._messages = clock, messages
        self.early = False  # whether receives are posted ahead; `schedule` decides
        self._coming: dict[tuple[str, int], list[Message]] = {}
        self._leaving: list[Message] = []
        # torch takes the stage's number for its rank among all stages' leads, which is true of every slice here.
        self.group_rank, self.group_size = index, stages
        self.stage_index_to_group_rank = {i: i for i in range(stages)}

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

    def expect(self, microbatches: int) -> None:
        """Post the receives of the next step, when all passes of this one are done."""
        if self.early:
            for chunk in range(microbatches):
                self.get_fwd_recv_ops(chunk)
            for chunk in range(microbatches):
                self.get_bwd_recv_ops(chunk)

    def _arrive(self, kind: str, chunk: int) -> None:
        for message in self._coming.pop((kind, chunk), ()):
            message.wait()

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        """Messages of a forward pass; none where they are sent here."""
        if not self._leads:
            return []
        self._clock.sends(fwd_chunk_id, self.stage_index + 1)
        return self._leave(super().get_fwd_send_ops(fwd_chunk_id))

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        """Messages of a backward pass; none where they are sent here."""
        if self._leads and not self.is_first:
            self._clock.sends(bwd_chunk_id, self.stage_index - 1)
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
        with self._clock.computes(FORWARD, fwd_chunk_id, None if self.is_first else self.stage_index - 1):
            return super().forward_one_chunk(fwd_chunk_id, args, kwargs, save_forward_output)

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Any = None, full_backward: bool = True, last_backward: bool = False
    ) -> None:
        """A backward pass, timed."""
        self._arrive(BACKWARD, bwd_chunk_id)
        with self._clock.computes(BACKWARD, bwd_chunk_id, None if self.is_last else self.stage_index + 1):
            super().backward_one_chunk(bwd_chunk_id, loss, full_backward, last_backward)


def schedule(
    stage: PlanStage, table: list[list[str]], microbatches: int, loss: Any, *, early: bool
) -> _PipelineScheduleRuntime:
    """The plan's schedule, run by torch. The loss is that of the whole global batch in parts, so nothing is divided.

    `early`: every receive is posted when the step begins, or when the passes of the step before are done (`expect`).
    gloo's sender waits for word that its receiver is ready, which over a long link would cost each message a latency
    more. NCCL would wait for the receives first, so there torch chooses the order.
    """
    stage.early = early
    make: Any = _PipelineScheduleRuntime
    runtime: _PipelineScheduleRuntime = make([stage], microbatches, loss_fn=loss, scale_grads=False)
    rows = [_with_messages(row, s, len(table)) for s, row in enumerate(table)] if early else table
    actions = {s: [_Action.from_str(action) for action in row] for s, row in enumerate(rows)}
    runtime._prepare_schedule_with_comms(actions, format="compute_comms" if early else "compute_only")
    return runtime


def _with_messages(row: list[str], stage: int, stages: int) -> list[str]:
    """A stage's actions with its messages: all receives first, each send after its pass."""
    forwards = [action.split("F")[1] for action in row if "F" in action]
    receives = [f"{stage}RECV_F{m}" for m in forwards] if stage > 0 else []
    receives += [f"{stage}RECV_B{m}" for m in forwards] if stage + 1 < stages else []
    result = receives
    for action in row:
        result.append(action)
        kind, last = ("F", stages - 1) if "F" in action else ("B", 0)
        if stage != last:
            result.append(f"{stage}SEND_{kind}{action.split(kind)[1]}")
    return result
