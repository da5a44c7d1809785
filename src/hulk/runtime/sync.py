"""Adding up gradients, bucket by bucket, while the last backward passes still run.

A thread, the same one from the first step to the last, goes through the buckets in the order all ranks share and takes
each as soon as the last backward has passed its layers here. On GPUs the exchange comes after the passes: NCCL
operations of several groups that run at once could wait for each other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import torch
import torch.distributed as dist

from hulk.runtime import clock as clock_kinds
from hulk.runtime.buckets import LARGEST, Bucket, Piece, Route, routes, spread_among
from hulk.runtime.clock import StageClock
from hulk.runtime.entries import SLICES, SYNC, Key, Place
from hulk.runtime.exchange import Exchange, connect, wait_for
from hulk.runtime.messages import Message, Messages
from hulk.runtime.seats import Seat
from hulk.runtime.shards import RowPiece, Shards
from hulk.runtime.slices import local, local_offset
from hulk.runtime.store import Store

Pieces = Sequence[Piece | RowPiece]
AHEAD = 4 * LARGEST
"""Elements of the receives that are posted ahead, unless two buckets alone have more."""


class Cargo(Protocol):
    """What buckets carry."""

    def load(self, pieces: Pieces, *, weights: bool) -> torch.Tensor:
        """This rank's pieces one after the other: gradients, or the weights themselves."""

    def unload(self, pieces: Pieces, buffer: torch.Tensor, *, weights: bool) -> None:
        """Put pieces back."""


class TensorCargo:
    """Gradients and weights of a stage's parameters. Both travel in fp32, which loses nothing of either."""

    def __init__(self, store: Store, *, ranks: int, slot: int) -> None:
        """Of a stage's `ranks` slices, the one in `slot`."""
        self._store, self._ranks, self._slot = store, ranks, slot

    def _view(self, piece: Piece | RowPiece, *, weights: bool) -> torch.Tensor:
        name = piece.entry.name
        if isinstance(piece, RowPiece):
            first, last = piece.rows
            return local(self._store.gradient(name)).narrow(0, first - self._store.first_row(name), last - first)
        tensor = local(self._store.working[name].detach() if weights else self._store.gradient(name))
        if piece.span is None or piece.entry.dim is None:
            return tensor
        offset = local_offset(piece.entry, self._ranks, self._slot, piece.span)
        return tensor.narrow(piece.entry.dim, offset, piece.span[1] - piece.span[0])

    def load(self, pieces: Pieces, *, weights: bool) -> torch.Tensor:
        """A copy of the pieces."""
        return torch.cat([self._view(piece, weights=weights).reshape(-1).float() for piece in pieces])

    def unload(self, pieces: Pieces, buffer: torch.Tensor, *, weights: bool) -> None:
        """Copy the pieces back."""
        at = 0
        for piece in pieces:
            view = self._view(piece, weights=weights)
            view.copy_(buffer[at : at + piece.elements].view(view.shape))
            at += piece.elements


class GradientSync:
    """One rank's part in all sums of a step."""

    def __init__(
        self,
        buckets: Sequence[Bucket],
        cargo: Cargo,
        *,
        shards: Shards,
        seat: Seat,
        regions: Mapping[int, str],
        groups: Mapping[Key, dist.ProcessGroup],
        clock: StageClock,
        messages: Messages,
    ) -> None:
        """Find this rank's buckets; `regions` is by rank."""
        self._cargo, self._groups, self._clock, self._messages = cargo, groups, clock, messages
        self._on_gpu = clock.device.type != "cpu"
        self._seat, self._shards, seating = seat, shards, shards.seating
        place = (seat.pipeline, seat.stage)
        slices = seating.ranks(*place)
        self._slices = groups.get((SLICES, slices))
        self._lead = slices[0]
        self._mine: list[tuple[Bucket, Route]] = []
        self._spread: list[Bucket] = []
        self._numbers: list[int] = []
        for number, bucket in enumerate(buckets):
            if seat.rank in bucket.ranks:
                self._numbers.append(number)
                self._mine.append((bucket, routes(bucket, seating.plan.options.sync, regions)[seat.rank]))
            if bucket.whole and place in bucket.holders and self._slices is not None:
                self._spread.append(bucket)
        if not self._on_gpu:
            everyone = [
                ranks
                for bucket in buckets
                if seating.plan.options.shard_optimizer and bucket.unsplit
                for ranks in spread_among(bucket, shards)
                if len(ranks) > 1
            ]
            ways = [routes(bucket, seating.plan.options.sync, regions) for bucket in buckets]
            connect(ways, everyone, rank=seat.rank, groups=groups)
        self._missing: list[set[str]] = []
        self._ready: list[threading.Event] = []
        self._thread = ThreadPoolExecutor(1, "gradient sync") if not self._on_gpu and self._mine else None
        self._sums: Future[None] | None = None
        self._left: dict[str, int] = {}
        self._leaving: list[Message] = []

    def begin(self, passes: Callable[[str], int]) -> None:
        """A step begins, in which a parameter gets its gradient in so many backward passes."""
        names = [{piece.entry.name for piece in bucket.pieces} for bucket, _ in self._mine]
        self._left = {name: passes(name) for wanted in names for name in wanted}
        self._missing, self._ready = names, [threading.Event() for _ in names]
        if self._thread is not None:
            self._sums = self._thread.submit(self._run)

    def passed(self, name: str) -> None:
        """A backward pass is done with a parameter."""
        left = self._left.get(name)
        if left is None:
            return
        self._left[name] = left - 1
        if left == 1:
            for missing, ready in zip(self._missing, self._ready, strict=True):
                missing.discard(name)
                if not missing:
                    ready.set()

    def finish(self) -> None:
        """All passes are done: wait until every sum is there."""
        start = time.time()
        for ready in self._ready:
            ready.set()
        if self._sums is not None:
            self._sums.result()
            self._sums = None
        elif self._mine:
            self._run()
        for bucket in self._spread:
            self._hand_out(bucket, weights=False)
        self._clock.sync += time.time() - start

    def close(self) -> None:
        """The last step is done: end the thread when all has left."""
        self._wait_for_leaving()
        if self._thread is not None:
            self._thread.shutdown(wait=True)

    def share_weights(self, owners: Mapping[str, Place]) -> None:
        """Updated weights from each parameter's owner to its other holders in this rank's group."""
        start = time.time()
        for (bucket, _), exchange in zip(self._mine, self._exchanges(), strict=True):
            near = next(ranks for ranks in spread_among(bucket, self._shards) if self._seat.rank in ranks)
            if len(near) < 2 or not bucket.unsplit:
                continue
            owned = {
                bucket.rank_of(place): [piece for piece in bucket.unsplit if owners[piece.entry.name] == place]
                for place in bucket.holders
            }
            pieces = {rank: own for rank, own in owned.items() if own}
            parts = {rank: self._cargo.load(own, weights=True) for rank, own in pieces.items()}
            if self._on_gpu:
                for rank, part in parts.items():
                    dist.broadcast(part, src=rank, group=self._groups[SYNC, near])
            else:
                exchange.share(parts, near)
                self._leaving += exchange.sent
            for rank, part in parts.items():
                self._cargo.unload(pieces[rank], part, weights=True)
        for bucket in self._spread:
            self._hand_out(bucket, weights=True)
        self._clock.sync += time.time() - start

    def _hand_out(self, bucket: Bucket, *, weights: bool) -> None:
        """What the lead has, to all ranks of the stage."""
        buffer = self._cargo.load(bucket.pieces, weights=weights)
        dist.broadcast(buffer, src=self._lead, group=self._slices)
        self._cargo.unload(bucket.pieces, buffer, weights=weights)

    def _run(self) -> None:
        self._wait_for_leaving()
        exchanges, posted = [] if self._on_gpu else self._exchanges(), 0
        for index, ((bucket, route), ready) in enumerate(zip(self._mine, self._ready, strict=True)):
            posted = self._post_ahead(exchanges, index, posted)
            ready.wait()
            start = time.time()
            buffer = self._cargo.load(bucket.pieces, weights=False)
            if exchanges:
                buffer = exchanges[index].run(buffer)
                self._leaving += exchanges[index].sent
            else:
                self._add_up(buffer, route)
            self._cargo.unload(bucket.pieces, buffer, weights=False)
            self._clock.add(clock_kinds.SYNC, start, time.time(), layers=bucket.layers)

    def _wait_for_leaving(self) -> None:
        """Copies of what the step before sent are held until it has left."""
        wait_for(self._leaving)
        self._leaving = []

    def _post_ahead(self, exchanges: Sequence[Exchange], index: int, posted: int) -> int:
        """Post the receives of the next bucket, and of as many after it as there is room for: a sender waits for word
        of them, which over a long link is late by its latency. Returns how many are posted by then."""
        waiting = sum(bucket.elements for bucket, _ in self._mine[index:posted])
        for (bucket, _), exchange in zip(self._mine[posted:], exchanges[posted:], strict=False):
            if posted > index + 1 and waiting + bucket.elements > AHEAD:
                break
            exchange.post()
            waiting, posted = waiting + bucket.elements, posted + 1
        return posted

    def _exchanges(self) -> list[Exchange]:
        """All ranks of a bucket number it alike: by its place among all buckets."""
        return [
            Exchange(
                route,
                bucket.elements,
                index=number,
                rank=self._seat.rank,
                groups=self._groups,
                messages=self._messages,
            )
            for (bucket, route), number in zip(self._mine, self._numbers, strict=True)
        ]

    def _add_up(self, buffer: torch.Tensor, route: Route) -> None:
        """With the collectives of NCCL, which need no word from the receiver."""
        inside = route.inside
        if inside is not None:
            dist.reduce(buffer, dst=inside[0], group=self._groups[SYNC, inside])
        if route.between is not None:
            dist.all_reduce(buffer, group=self._groups[SYNC, route.between])
        if inside is not None:
            dist.broadcast(buffer, src=inside[0], group=self._groups[SYNC, inside])
