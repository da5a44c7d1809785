"""Adding up one bucket between CPUs, in messages whose receives are posted long before they come.

gloo's sender waits for word that its receiver is ready, and its collectives give that word piece by piece: over a long
link every piece then costs a latency more. Here the receives of a bucket's first phase are posted while the bucket
before it is under way, and those of later phases before the first. A sum then takes what the price counts:

    pair    latency + size / bandwidth: both send everything at once
    ring    2 (n − 1) × (latency + size / n / bandwidth)
    chain   inside a region, in pieces: towards its first rank and, when the sum is complete, back

A rank has its sum when the last part of it has come. What it sends may still be leaving then: the next bucket does not
wait for that, which goes over another link as a rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, pairwise

import torch
import torch.distributed as dist

from hulk.runtime.buckets import Route
from hulk.runtime.entries import SYNC, Key, Ranks
from hulk.runtime.messages import Message, Messages

Groups = Mapping[Key, dist.ProcessGroup]

_TO_FIRST, _BETWEEN, _GATHER, _BACK, _WEIGHTS, _PHASES = range(6)


class Exchange:
    """One rank's part in the sum of one bucket of `elements` fp32 numbers; `index` tells buckets apart. `sent` is what
    may still be leaving when the sum is there; somebody has to wait for it."""

    def __init__(
        self, route: Route, elements: int, *, index: int, rank: int, groups: Groups, messages: Messages
    ) -> None:
        self._route, self._elements, self._rank, self._tag = route, elements, rank, (1 + index) * _PHASES
        self._groups, self._messages = groups, messages
        self._chain: list[Message] = []
        self._ring: list[Message] = []
        self.sent: list[Message] = []

    def post(self) -> None:
        """Post the receives that come first."""
        inside, between = self._route.inside, self._route.between
        if inside is not None:
            at = inside.index(self._rank)
            if at + 1 < len(inside):
                sizes = [len(part) for part in self._pieces(torch.empty(self._elements))]
                self._chain = [self._receive(size, inside[at + 1], inside, _TO_FIRST) for size in sizes]
        if between is not None:
            others, part = len(between) - 1, self._part(between)
            before = between[between.index(self._rank) - 1]
            self._ring = [self._receive(part, before, between, _BETWEEN) for _ in range(others)]

    def run(self, buffer: torch.Tensor) -> torch.Tensor:
        """The sum; `buffer` is this rank's part, and nobody else's to change."""
        inside, between = self._route.inside, self._route.between
        back = [] if inside is None else self._expect_back(buffer, inside)
        if inside is not None:
            self._towards_first(buffer, inside)
        if between is not None:
            if len(between) == 2:
                buffer = self._swap(buffer, between)
            else:
                self._go_round(buffer, between)
        if inside is not None:
            self._spread(buffer, inside, back)
        self._chain, self._ring = [], []
        return buffer

    def share(self, parts: Mapping[int, torch.Tensor], ranks: Ranks) -> None:
        """Send this rank's part to all others of `ranks`, and fill in theirs; `parts` is by rank."""
        coming = [self._post(into, source, ranks, _WEIGHTS) for source, into in parts.items() if source != self._rank]
        mine = parts.get(self._rank)
        others = [] if mine is None else [rank for rank in ranks if rank != self._rank]
        for rank in others:
            assert mine is not None
            self._send(mine, rank, ranks, _WEIGHTS)
        wait_for(coming)

    def _part(self, ranks: Ranks) -> int:
        """Numbers in one message between regions: everything where there are two ranks, else an n-th."""
        return self._elements if len(ranks) == 2 else -(-self._elements // len(ranks))

    def _receive(self, size: int, source: int, ranks: Ranks, phase: int) -> Message:
        return self._post(torch.empty(size), source, ranks, phase)

    def _post(self, into: torch.Tensor, source: int, ranks: Ranks, phase: int) -> Message:
        return self._messages.receive(into, source, self._groups[SYNC, ranks], tag=self._tag + phase)

    def _send(self, tensor: torch.Tensor, target: int, ranks: Ranks, phase: int) -> None:
        self.sent.append(self._messages.send(tensor, target, self._groups[SYNC, ranks], tag=self._tag + phase))

    def _pieces(self, buffer: torch.Tensor) -> Sequence[torch.Tensor]:
        # Imported where it is needed: it brings the compiler along.
        from hulk.cost.compiled import plain
        from hulk.cost.sync import chain_pieces

        return buffer.chunk(plain(chain_pieces)(4.0 * self._elements))

    def _towards_first(self, buffer: torch.Tensor, ranks: Ranks) -> None:
        at = ranks.index(self._rank)
        for i, piece in enumerate(self._pieces(buffer)):
            if at + 1 < len(ranks):
                coming = self._chain[i]
                coming.wait()
                piece.add_(coming.tensor)
            if at > 0:
                self._send(piece, ranks[at - 1], ranks, _TO_FIRST)

    def _expect_back(self, buffer: torch.Tensor, ranks: Ranks) -> list[Message]:
        """The sum comes straight into the buffer: it comes only after what was there has left."""
        at = ranks.index(self._rank)
        if at == 0:
            return []
        return [self._post(piece, ranks[at - 1], ranks, _BACK) for piece in self._pieces(buffer)]

    def _spread(self, buffer: torch.Tensor, ranks: Ranks, back: Sequence[Message]) -> None:
        at = ranks.index(self._rank)
        for i, piece in enumerate(self._pieces(buffer)):
            if at > 0:
                back[i].wait()
            if at + 1 < len(ranks):
                self._send(piece, ranks[at + 1], ranks, _BACK)

    def _swap(self, buffer: torch.Tensor, ranks: Ranks) -> torch.Tensor:
        """Two ranks that send each other everything move as many bytes as a ring of two, in one trip instead of two.
        The sum is made of what came: the other part is still leaving."""
        peer = ranks[0] if self._rank == ranks[1] else ranks[1]
        self._send(buffer, peer, ranks, _BETWEEN)
        coming = self._ring[0]
        coming.wait()
        return coming.tensor.add_(buffer)

    def _go_round(self, buffer: torch.Tensor, ranks: Ranks) -> None:
        n, me, part = len(ranks), ranks.index(self._rank), self._part(ranks)
        whole = part * n == self._elements
        padded = buffer if whole else torch.cat([buffer, buffer.new_zeros(part * n - self._elements)])
        parts = padded.view(n, part)
        before, after = ranks[me - 1], ranks[(me + 1) % n]
        gathered = [self._post(parts[(me - r) % n], before, ranks, _GATHER) for r in range(n - 1)]
        for r, coming in enumerate(self._ring):
            self._send(parts[(me - r) % n], after, ranks, _BETWEEN)
            coming.wait()
            parts[(me - r - 1) % n] += coming.tensor
        for r, coming in enumerate(gathered):
            self._send(parts[(me + 1 - r) % n], after, ranks, _GATHER)
            coming.wait()
        if not whole:
            buffer.copy_(padded[: self._elements])


def connect(routes: Iterable[Mapping[int, Route]], everyone: Iterable[Ranks], *, rank: int, groups: Groups) -> None:
    """Make this rank's connections, all ranks in one order.

    gloo connects two ranks when they first talk, and a receive that is posted waits until its sender connects too:
    ranks that post ahead could wait for one another in a circle. `everyone`: groups in which all talk to all.
    """
    talks: set[tuple[Ranks, Ranks]] = set()
    for route in (route for by_rank in routes for route in by_rank.values()):
        if route.inside is not None:
            talks |= {(route.inside, pair) for pair in pairwise(route.inside)}
        if route.between is not None:
            talks |= {(route.between, pair) for pair in pairwise((*route.between, route.between[0]))}
    talks |= {(ranks, pair) for ranks in everyone for pair in combinations(ranks, 2)}
    pairs = {(ranks, min(pair), max(pair)) for ranks, pair in talks}
    for ranks, a, b in sorted(pair for pair in pairs if rank in pair[1:]):
        group = groups[SYNC, ranks]
        if rank == a:
            dist.send(torch.zeros(1), dst=b, group=group)
        else:
            dist.recv(torch.zeros(1), src=a, group=group)


def wait_for(messages: Iterable[Message]) -> None:
    """Until all of them have left, or have come."""
    for message in messages:
        message.wait()
