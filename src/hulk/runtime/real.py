"""A rank's work with layers that compute."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from hulk.domain.options import Sharding
from hulk.domain.plan import Stage
from hulk.runtime import checkpoint
from hulk.runtime.context import Context
from hulk.runtime.data import Samples, read_tokens
from hulk.runtime.entries import ALL, PARTS, SHARDS, SLICES
from hulk.runtime.loss import summed_loss
from hulk.runtime.models import LayerModule, draw
from hulk.runtime.optimizers import make_optimizer
from hulk.runtime.parts import Parts
from hulk.runtime.resume import compare, facts_of
from hulk.runtime.sharded import Meshes, Sharder
from hulk.runtime.slices import Home, furnish, list_entries, local
from hulk.runtime.stage import Part, StageModule
from hulk.runtime.state import CheckpointWeights, Held, read_state, write_part
from hulk.runtime.store import Store
from hulk.runtime.sync import TensorCargo
from hulk.runtime.weights import FileWeights, SeededWeights, Weights, parameters_of
from hulk.runtime.work import CheckpointError, OthersFailedError, Work


class RealWork(Work):
    """Layers that compute."""

    def __init__(self, context: Context) -> None:
        settings, seat = context.settings, context.seat
        assert settings.data is not None
        self._blueprint = draw(context.job, context.plan.options.recompute, context.plan.options.context)
        self._facts = facts_of(context.job, settings)
        super().__init__(context, list_entries(self._blueprint))
        self._samples = Samples(
            read_tokens(settings.data, settings.tokenizer),
            self._blueprint,
            seed=settings.seed,
            where=str(settings.data),
        )
        self._last = context.layers[-1] == len(self._blueprint.layers) - 1
        torch.manual_seed(settings.seed * 7919 + seat.pipeline * 101 + seat.stage + 65537 * seat.part)  # dropout only
        self._held, self._sharder = self._shares()
        rows = self._held.rows
        group = self.wiring.groups.get((PARTS, context.sharers))
        self._parts = None if group is None else Parts(group, len(context.sharers), seat.part)
        layers, working, whole = furnish(
            self._blueprint,
            context.layers,
            self.entries,
            self._weights(),
            Home(context.device, self._held.slices, context.plan.options.sequence_parallel, self._parts),
            working=lambda name: None if name in rows else context.wire,
            split=None if self._sharder is None else self._sharder.split,
        )
        modules = self._modules(layers)
        if self._sharder is not None:
            working = {name: parameter for name, parameter in working.items() if name not in rows}
        sharded = context.plan.options.shard_optimizer
        self._store = Store(
            working,
            whole,
            mine=lambda name: (
                seat.part == 0 and (not sharded or self._is_split(name) or self.owners[name] == context.place)
            ),
            parts={} if self._sharder is None else self._sharder.parts,
            rows=rows,
        )
        del whole
        self._optimizer = self._make_optimizer()
        self.sync = self._sync(TensorCargo(self._store, ranks=len(context.slices), slot=seat.slot))
        self._partial = self._find_partial(layers)
        self._store.watch(self._passed)
        parts = [
            Part(module, self._shapes(part.first - 1), self._shapes(part.last), partial(self._weights_made, part))
            for module, (_, part) in zip(modules, context.parts, strict=True)
        ]
        self._schedule = self._schedule_of(parts, _as_it_is, early=context.device.type == "cpu")

    def _modules(self, layers: Sequence[LayerModule]) -> list[nn.Module]:
        """The layers of each stage that this rank holds."""
        context, found, left = self.context, list[nn.Module](), list(layers)
        for _, part in context.parts:
            own, left = left[: len(part.layers)], left[len(part.layers) :]
            last = self._last and not left
            made = StageModule(
                own,
                recompute=context.plan.options.recompute,
                compiled=context.settings.compiled,
                loss=self._loss if last else None,
                parts=self._parts,
                count=part.recomputed,
            )
            made.train(context.settings.dropout)
            found.append(made if self._sharder is None else self._sharder.enclose(made))
        return found

    def _passed(self, name: str) -> None:
        """A backward pass is done with a parameter. What is only a part of a gradient waits for the other parts."""
        if self._parts is None and name not in self._partial:
            self.sync.passed(name)

    def _weights_made(self, part: Stage) -> None:
        """A stage has made gradients of its weights apart from backward."""
        for entry in self.entries:
            if entry.name in self._store.working and any(part.first <= layer <= part.last for layer in entry.layers):
                self._store.added(entry.name, self._passed)

    def _shares(self) -> tuple[Held, Sharder | None]:
        """What this rank has of parameters, and what splits its stage's layers with those near it."""
        context, shards, blueprint = self.context, self.context.shards, self._blueprint
        place, slot, layers = context.place, context.seat.slot, context.layers
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
        for index, layer in zip(self.context.layers, layers, strict=True):
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

    def _join_parts(self, parts: Parts) -> None:
        """Add up the gradients of the parts of a sequence."""
        for name in self._store.working:
            dist.reduce(local(self._store.gradient(name)), dst=self.context.sharers[0], group=parts.group)

    def share_weights(self) -> None:
        """See `Work`. Then those with the other parts of a sequence get what those with the first one have."""
        super().share_weights()
        if self._parts is not None:
            start = time.time()
            for parameter in self._store.working.values():
                dist.broadcast(local(parameter.detach()), src=self.context.sharers[0], group=self._parts.group)
            self.clock.sync += time.time() - start

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

    def _make_optimizer(self) -> torch.optim.Optimizer | None:
        """None where this rank updates nothing."""
        context, settings = self.context, self.context.settings
        mine = self._store.masters
        if not mine and context.seat.part > 0:
            return None
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
        held = context.layers
        args: tuple[torch.Tensor, ...] = ()
        extra: dict[str, Any] = {}
        labels: torch.Tensor | None = None
        between = len(self._blueprint.model.encoder.block) + 1 if self._blueprint.target else None
        decodes = between in held
        if held[0] == 0 or self._last or decodes:
            batch = self._samples.batch(first, count)
            if held[0] == 0:
                args = (batch.ids.to(context.device),)
            if decodes and batch.decoder_ids is not None:
                extra = {"decoder_ids": batch.decoder_ids.to(context.device)}
            if self._last:
                labels = batch.labels.to(context.device)
                extra["labels"] = labels
        losses: list[torch.Tensor] | None = [] if self._last else None
        self.sync.begin(self._passes_of)
        self._schedule.step(*args, target=labels, losses=losses, **extra)
        if step + 1 < context.settings.steps:  # a receive without a message would be in the way of what comes later
            self._schedule.expect()
        if self._partial:
            self._join_slices()
        if self._parts is not None:
            self._join_parts(self._parts)
        self.sync.finish()
        if losses is None:
            return None
        total = torch.stack([loss.detach() for loss in losses]).double().sum()
        if self._parts is not None:
            dist.all_reduce(total, group=self._parts.group)
        return float(total) if context.seat.leads else None

    def update(self) -> None:
        """See `Work`."""
        if self._optimizer is not None:
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
            if self._optimizer is not None:
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
