"""Who gets which machines: many random deals, the better ones improved further, in `hulk.search.dealing`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hulk.domain.plan import Recompute, Sync
from hulk.search import recipes
from hulk.search.anneal import State
from hulk.search.dealing import Deal, deal_out, empty_deal, improve
from hulk.search.evaluate import JobSpace
from hulk.search.packed import pack
from hulk.search.skeleton import Settings, Skeleton, Slot

_HOT, _COLD = 0.02, 3e-4
_STARTS = 16
_ANSWERS = 3
_CHUNK = 64
Ints = NDArray[np.int64]


class GroupSearch:
    """A race of deals: every start gets a few moves; the better half goes on with twice as many, until one is left."""

    def __init__(self, spaces: Sequence[JobSpace], rng: np.random.Generator) -> None:
        self.spaces = list(spaces)
        self.rng = rng
        self.packed = pack(spaces)
        self.bench = recipes.make_bench(self.packed)
        self._report: Callable[[float], None] | None = None
        self.served = np.zeros((len(spaces), recipes.BUCKETS, recipes.COLUMNS), np.int64)

    def deals(
        self,
        *,
        moves: int,
        deadline: float,
        stop: Callable[[], bool],
        starts: Sequence[Ints] = (),
        report: Callable[[float], None] | None = None,
    ) -> list[Deal]:
        """The best deals found, best first, with so many moves in all, or by the deadline on the monotonic clock.
        `starts`: owners of all machines to begin with, besides those drawn. `report` hears the cost of a deal after
        every few moves."""
        self._report = report
        found = [self.judged(owner) for owner in starts]
        while len(found) < _STARTS:
            found.append(self._drawn())
        begin = time.monotonic()
        rounds, last = _STARTS.bit_length(), found
        each = max(1, moves // (rounds * _STARTS))
        for turn in range(rounds):
            found = sorted(found, key=self.cost)[: max(1, _STARTS >> turn)]
            until = begin + (deadline - begin) * (turn + 1) / rounds
            for i, deal in enumerate(found):
                now = time.monotonic()
                found[i] = self._improved(deal, each << turn, now + (until - now) / (len(found) - i), stop)
            if len(found) > 1:
                last = list(found)
        return sorted([*found, *last], key=self.cost)[:_ANSWERS]

    def cost(self, deal: Deal) -> float:
        """The default objective of a deal."""
        packed = self.packed
        return float(np.where(deal.seconds >= 0, packed.weight * deal.seconds, packed.waiting).sum())

    def state(self, deal: Deal) -> State:
        """A deal as skeletons."""
        skeletons = [self._skeleton(job, deal) for job in range(len(self.spaces))]
        return State.of(skeletons, [float(s) if s >= 0 else None for s in deal.seconds])

    def judged(self, owner: Ints) -> Deal:
        """A deal with a first recipe for every job, drawn; `owner`: each machine's job, or −1."""
        deal = empty_deal(self.packed)
        deal.owner[:] = owner
        return self._improved(deal, 1, time.monotonic(), lambda: False)

    def _drawn(self) -> Deal:
        deal = empty_deal(self.packed)
        deal_out(self.packed, deal, self._seed())
        return self.judged(deal.owner)

    def _improved(self, deal: Deal, moves: int, deadline: float, stop: Callable[[], bool]) -> Deal:
        """Annealed in pieces, so that the clock is seen: it cools by moves or by time, whichever is further on."""
        best = Deal(deal.owner.copy(), deal.recipes.copy(), deal.seconds.copy())
        begin, made, done = time.monotonic(), 0, 0.0
        while made < moves and not stop():
            part = min(_CHUNK, moves - made)
            ahead = max((made + part) / moves, done)
            hot, cold = (_HOT * (_COLD / _HOT) ** x for x in (done, ahead))
            improve(self.packed, self.bench, deal, best, self.served, part, hot, cold, self._seed())
            made += part
            if self._report:
                self._report(self.cost(best))
            now = time.monotonic()
            if now >= deadline:
                break
            done = max(made / moves, (now - begin) / (deadline - begin))
        return best

    def _seed(self) -> int:
        return int(self.rng.integers(2**31))

    def _skeleton(self, job: int, deal: Deal) -> Skeleton | None:
        if deal.seconds[job] < 0:
            return None
        recipe = deal.recipes[job]
        recipes.shape(self.packed, self.bench, job, deal.owner, recipe)
        count = int(self.bench.pipelines[0])
        starts = self.bench.starts[: count + 1].tolist()
        slots = [
            Slot(machine, ranks)
            for machine, ranks in zip(
                self.bench.machine[: starts[-1]].tolist(), self.bench.ranks[: starts[-1]].tolist(), strict=True
            )
        ]
        variant = int(recipe[recipes.VARIANT])
        settings = Settings(
            microbatch=int(self.packed.sizes[job, variant // 2]),
            extra=int(recipe[recipes.EXTRA]),
            gpipe=bool(recipe[recipes.GPIPE]),
            recompute=Recompute.FULL if variant % 2 else Recompute.NONE,
            sync=Sync.BY_REGION if recipe[recipes.BY_REGION] else Sync.RING,
            shard_optimizer=bool(recipe[recipes.SHARD]),
        )
        chains = tuple(tuple(slots[a:b]) for a, b in pairwise(starts))
        return Skeleton(chains, settings)
