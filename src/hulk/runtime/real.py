"""A rank's work with layers that compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from hulk.domain.options import Sharding
from hulk.runtime import checkpoint
from hulk.runtime.context import Context
from hulk.runtime.data import Samples, read_tokens
from hulk.runtime.entries import ALL, SHARDS, SLICES
from hulk.runtime.loss import summed_loss
from hulk.runtime.models import LayerModule, draw
from hulk.runtime.optimizers import make_optimizer
from hulk.runtime.resume import compare, facts_of
from hulk.runtime.sharded import Meshes, Sharder
from hulk.runtime.slices import Home, furnish, list_entries, local
from hulk.runtime.stage import StageModule, schedule
from hulk.runtime.state import CheckpointWeights, Held, read_state, write_part
from hulk.runtime.store import Store
from hulk.runtime.sync import TensorCargo
from hulk.runtime.weights import FileWeights, SeededWeights, Weights, parameters_of
from hulk.runtime.work import CheckpointError, OthersFailedError, Work


class RealWork(Work):
    """Layers that compute."""

    def __init__(self, context: Context) -> None:
        settings, seat, stage = context.settings, context.seat, context.stage
        assert settings.data is not None
        self._blueprint = draw(context.job, context.plan.options.recompute)
        self._facts = facts_of(context.job, settings)
        super().__init__(context, list_entries(self._blueprint))
        self._samples = Samples(
            read_tokens(settings.data, settings.tokenizer),
            self._blueprint,
            seed=settings.seed,
            where=str(settings.data),
        )
        self._last = stage.last == len(self._blueprint.layers) - 1
        torch.manual_seed(settings.seed * 7919 + seat.pipeline * 101 + seat.stage)  # dropout only
        self._held, self._sharder = self._shares()
        rows = self._held.rows
        layers, working, whole = furnish(
            self._blueprint,
            stage.layers,
            self.entries,
            self._weights(),
            Home(context.device, self._held.slices, context.plan.options.sequence_parallel),
            working=lambda name: None if name in rows else context.wire,
            split=None if self._sharder is None else self._sharder.split,
        )
        module: nn.Module = StageModule(
            layers, recompute=context.plan.options.recompute, loss=self._loss if self._last else None
        )
        module.train(settings.dropout)
        if self._sharder is not None:
            module = self._sharder.enclose(module)
            working = {name: parameter for name, parameter in working.items() if name not in rows}
        sharded = context.plan.options.shard_optimizer
        self._store = Store(
            working,
            whole,
            mine=lambda name: not sharded or self._is_split(name) or self.owners[name] == context.place,
            parts={} if self._sharder is None else self._sharder.parts,
            rows=rows,
        )
        del whole
        self._optimizer = self._make_optimizer()
        self.sync = self._sync(TensorCargo(self._store, ranks=len(context.slices), slot=seat.slot))
        self._partial = self._find_partial(layers)
        self._store.watch(lambda name: None if name in self._partial else self.sync.passed(name))
        self._plan_stage = self._stage(module, self._shapes(stage.first - 1), self._shapes(stage.last))
        self._schedule = schedule(
            self._plan_stage,
            self._timetable(),
            context.microbatches,
            _as_it_is,
            early=context.device.type == "cpu",
        )

    def _shares(self) -> tuple[Held, Sharder | None]:
        """What this rank has of parameters, and what splits its stage's layers with those near it."""
        context, shards, blueprint = self.context, self.context.shards, self._blueprint
        place, slot, layers = context.place, context.seat.slot, context.stage.layers
        near = shards.near(place)
        group = self.wiring.groups.get((SHARDS, shards.members(place, slot)))
        ranks = [context.seating.ranks(*other) for other in near]
        meshes = Meshes(ranks, group, self.wiring.groups.get((SLICES, context.slices)), context.device)
        if meshes.shards is None:
            return Held(meshes.slices, {}, None, near), None
        here = [entry for entry in self.entries if shards.is_split(entry) and set(entry.layers) & set(layers)]
        rows = {entry.name: shards.rows(entry, place, slot) for entry in here}
        shared = {entry.name for entry in here if len(set(entry.layers) & set(layers)) > 1}
        early = {
            blueprint.names[id(parameter)]
            for layer in map(blueprint.layers.__getitem__, layers)
            for path in layer.early
            for parameter in layer.get_submodule(path).parameters()
        }
        sharder = Sharder(
            meshes.shards,
            apart=[name for name in rows if name in shared | early],
            working=context.wire,
            parameters=context.plan.options.sharding is Sharding.PARAMETERS,
        )
        return Held(meshes.slices, rows, group, near), sharder

    def _find_partial(self, layers: Sequence[LayerModule]) -> list[str]:
        """Parameters of which each slice of a stage has a part of the gradient: those that every slice has, where what
        they are used on is divided along the sequence."""
        names = self._blueprint.names
        whole = {entry.name for entry in self.entries if entry.dim is None}
        found: dict[str, None] = {}
        for index, layer in zip(self.context.stage.layers, layers, strict=True):
            for path, _, parameter in parameters_of(self._blueprint.layers[index]) if layer.spread else ():
                if path not in layer.styles and names[id(parameter)] in whole:
                    found[names[id(parameter)]] = None
        return list(found)

    def _join_slices(self) -> None:
        """Add up the gradients of which each slice has a part."""
        parts = [local(self._store.gradient(name)) for name in self._partial]
        buffer = torch.cat([part.reshape(-1) for part in parts])
        dist.all_reduce(buffer, group=self.wiring.groups[SLICES, self.context.slices])
        at = 0
        for part in parts:
            part.copy_(buffer[at : at + part.numel()].view(part.shape))
            at += part.numel()

    def _is_split(self, name: str) -> bool:
        return self.context.shards.is_split(next(entry for entry in self.entries if entry.name == name))

    def _weights(self) -> Weights:
        settings = self.context.settings
        if settings.resume is not None:
            head = checkpoint.read_head(settings.resume)
            compare(head.facts, self._facts, where=settings.resume)
            self.done = head.step
            return CheckpointWeights(settings.resume)
        if settings.weights is not None:
            return FileWeights(self._blueprint, settings.weights)
        return SeededWeights(self._blueprint, settings.seed)

    def _make_optimizer(self) -> torch.optim.Optimizer:
        context, settings = self.context, self.context.settings
        mine = self._store.masters
        made = make_optimizer(context.job.optimizer, list(mine.values()), rate=settings.rate, decay=settings.decay)
        if settings.resume is not None:
            read_state(settings.resume, self.entries, mine, made, held=self._held)
        return made

    def _shapes(self, layer: int) -> tuple[torch.Tensor, ...]:
        """What leaves a layer, as tensors without content: ids before the first layer, the loss behind the last."""
        size = self.context.plan.options.microbatch_size
        if layer < 0:
            return (torch.empty(size, self._blueprint.sequence, dtype=torch.long, device="meta"),)
        if layer == len(self._blueprint.layers) - 1:
            return (torch.empty((), device="meta", requires_grad=True),)
        return tuple(
            torch.empty(size, *shape, dtype=self.context.wire, device="meta", requires_grad=True)
            for shape in self._blueprint.boundary(layer)
        )

    def _loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """A microbatch's part of the mean over all positions that the global batch predicts."""
        everything = self.context.job.global_batch * self._samples.predicted
        return summed_loss(logits, labels) / everything

    def passes(self, step: int) -> float | None:
        """See `Work`."""
        context = self.context
        first = step * context.job.global_batch + context.first_sample
        count = context.microbatches * context.plan.options.microbatch_size
        stage = context.stage
        args: tuple[torch.Tensor, ...] = ()
        extra: dict[str, Any] = {}
        labels: torch.Tensor | None = None
        between = len(self._blueprint.model.encoder.block) + 1 if self._blueprint.target else None
        decodes = between is not None and stage.first <= between <= stage.last
        if stage.first == 0 or self._last or decodes:
            batch = self._samples.batch(first, count)
            if stage.first == 0:
                args = (batch.ids.to(context.device),)
            if decodes and batch.decoder_ids is not None:
                extra = {"decoder_ids": batch.decoder_ids.to(context.device)}
            if self._last:
                labels = batch.labels.to(context.device)
                extra["labels"] = labels
        losses: list[torch.Tensor] | None = [] if self._last else None
        self.sync.begin(context.microbatches)
        self._schedule.step(*args, target=labels, losses=losses, return_outputs=False, **extra)
        self._plan_stage.settle()
        if step + 1 < context.settings.steps:  # a receive without a message would be in the way of what comes later
            self._plan_stage.expect(context.microbatches)
        if self._partial:
            self._join_slices()
        self.sync.finish()
        if losses is None or not context.seat.leads:
            return None
        return float(torch.stack([loss.detach() for loss in losses]).double().sum())

    def update(self) -> None:
        """See `Work`."""
        self._optimizer.step()
        self._store.settle()
        if self._sharder is not None:
            self._sharder.forget()

    def save(self, step: int) -> str | None:
        """See `Work`. The ranks agree on whether all went well; only then does rank 0 give the checkpoint its name."""
        context = self.context
        folder = context.settings.checkpoints
        assert folder is not None
        everyone = self.wiring.groups.get((ALL, tuple(range(context.seating.size))))
        problem = ""
        try:
            if context.seat.rank == 0:
                checkpoint.make_unfinished(folder, step)
        except OSError as error:
            problem = str(error)
        self._agree(everyone, problem, step)
        try:
            write_part(
                checkpoint.unfinished(folder, step),
                self.entries,
                self._store.masters,
                self._optimizer,
                writers=context.shards.writers(self.entries),
                seat=context.seat,
                held=self._held,
                sharded=context.plan.options.shard_optimizer,
            )
        except OSError as error:
            problem = str(error)
        self._agree(everyone, problem, step)
        path: str | None = None
        try:
            if context.seat.rank == 0:
                path = str(checkpoint.finish(folder, step, self._facts))
                checkpoint.prune(folder, keep=context.settings.keep, newest=step)
        except OSError as error:
            problem = str(error)
        self._agree(everyone, problem, step)
        return path

    def _agree(self, everyone: dist.ProcessGroup | None, problem: str, step: int) -> None:
        """Wait for all ranks; CheckpointError or OthersFailedError where one has a problem."""
        problems = torch.tensor([int(bool(problem))], device=self.context.device)
        if everyone is not None:
            dist.all_reduce(problems, group=everyone)
        if int(problems[0]):
            folder = self.context.settings.checkpoints
            assert folder is not None
            if self.context.seat.rank == 0:
                checkpoint.discard(folder, step)
            if problem:
                raise CheckpointError(f"cannot write the checkpoint of step {step} to {folder}: {problem}")
            raise OthersFailedError


def _as_it_is(loss: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The loss that the last stage has computed."""
    del labels
    return loss
