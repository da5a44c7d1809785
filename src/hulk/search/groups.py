"""Who gets which machines: many random deals, the better ones improved further, in `hulk.search.dealing`, and joined
with the best groups of others, in `hulk.search.pool`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hulk.domain.options import options_of
from hulk.search import recipes
from hulk.search.dealing import Deal, deal_out, empty_deal, improve, keep_pins, total_cost
from hulk.search.evaluate import JobSpace
from hulk.search.layouts import LAYOUT, shape
from hulk.search.packed import pack
from hulk.search.pool import combine, empty_pool, remember
from hulk.search.skeleton import Skeleton, Slot
from hulk.search.state import State
from hulk.search.workspace import make_workspace

_HOT, _COLD = 0.01, 3e-4
# Deals that begin a race of usual length, and at most. The fewer, the longer each is improved; in a longer race more of
# them get that far.
_RACING, _MOST_RACING = 16, 64
_ANSWERS = 4
# Pipelines over many regions that are tried for a job no region holds, how much more memory than their state it takes,
# how often machines are drawn for each, and how many of the deals found so take part in the race.
_DRAWS = 10
_MOST_WIDE, _SPARE, _WIDE = 6, (1.15, 1.25, 1.35, 1.5, 1.65), 5
_DRAWING = 0.07  # of the time until the deadline, at most, before the race begins
_CHUNK = 64
_COMBINATIONS = 300  # tries, a few milliseconds
_TRUST = 0.8  # of the moves that go by good deals; the others draw an owner evenly
_BEHIND = 0.1  # of a race's time that it may be behind its moves before the clock shares out what is left
Ints = NDArray[np.int64]


class _Pace:
    """Whether a race's moves are done by its deadline. While they will be, moves alone end every start, so that a busy
    machine finds what an idle one does; when they will not, each start has its share of the time that is left."""

    def __init__(self, moves: int, begin: float, deadline: float) -> None:
        self.moves = moves
        self.begin = begin
        self.deadline = deadline
        self._made = 0
        self._fastest = 0.0

    def note(self, moves: int, seconds: float) -> None:
        """So many moves took so long."""
        self._made += moves
        self._fastest = min(self._fastest or seconds / moves, seconds / moves)

    def is_kept(self, now: float) -> bool:
        """A few slow moves count for nothing: the fastest so far tell what the machine can do, and what was lost since
        the beginning may be caught up."""
        window = self.deadline - self.begin
        due = min(1.0, self._made / self.moves + _BEHIND) * window
        return self._fastest * self.moves <= window and now - self.begin <= due


class GroupSearch:
    """A race of deals: every start gets a few moves; the better half goes on with twice as many, until few are left."""

    def __init__(self, spaces: Sequence[JobSpace], rng: np.random.Generator) -> None:
        self.spaces = list(spaces)
        self.rng = rng
        self.packed = pack(spaces)
        self.pool = empty_pool(self.packed)
        # A job whose state is more than all its machines hold would only keep them from the others.
        self.bar(np.flatnonzero(self.packed.need > self.packed.allowed @ self.packed.room))
        self.work = make_workspace(self.packed)
        self.report: Callable[[Deal], None] | None = None
        """Hears of a deal whenever one has been looked at."""
        self.tried = 0
        self.hurried = False
        """Whether the clock has ended any part of the search before its moves did."""
        self.learned = recipes.nothing_learned(self.packed)

    def deals(
        self,
        *,
        moves: int,
        deadline: float,
        stop: Callable[[], bool],
        starts: Sequence[Deal] = (),
        length: float = 1.0,
    ) -> list[Deal]:
        """The best deals found, best first, with so many moves in all, or by the deadline on the monotonic clock.
        `starts`: deals to begin with; groups whose times are open are looked at first; others are drawn besides, more
        in a race that goes on `length` times as long as usual."""
        begin = time.monotonic()
        given = [self._looked(deal) for deal in starts]
        drawn = self.wide()[:_WIDE]
        racing = min(_MOST_RACING, max(1, round(length)) * _RACING)
        while len(given) + len(drawn) < racing:
            if (given or drawn) and time.monotonic() - begin > _DRAWING * (deadline - begin):
                self.hurried = True
                break
            drawn.append(self.drawn())
        begin, count = time.monotonic(), len(given) + len(drawn)
        answers = max(1, _ANSWERS * count // _MOST_RACING)
        rounds = (count // answers).bit_length()
        each = max(1, moves // (rounds * count))
        pace = _Pace(moves, begin, deadline)
        left_behind: list[Deal] = []
        for turn in range(rounds):
            before = [*given, *drawn]
            given, drawn = self._survivors(given, drawn, max(answers, count >> turn))
            left_behind += [deal for deal in before if not any(deal is other for other in (*given, *drawn))]
            self._learn([*given, *drawn] if turn else given)
            until = begin + (deadline - begin) * (turn + 1) / rounds
            left = len(given) + len(drawn)
            for deals in (given, drawn):
                for i, deal in enumerate(deals):
                    now = time.monotonic()
                    deals[i] = self._improved(deal, each << turn, now + (until - now) / left, stop, pace)
                    left -= 1
        return sorted([*given, *drawn, *left_behind], key=self.cost)[:_ANSWERS]

    def _learn(self, deals: Sequence[Deal]) -> None:
        """Let moves go by who has what in these deals: the more of them agree, the likelier it is right."""
        takers, homes = self.learned.takers, self.learned.homes
        takers[:] = homes[:] = 0
        if not deals:
            return
        for deal in deals:
            np.add.at(takers, (self.packed.place, deal.owner), 1.0)  # owner −1, nobody, is the last column
        homes[:] = takers[:, :-1].T
        shares = takers / takers.sum(axis=1, keepdims=True)
        np.cumsum(_TRUST * shares + (1 - _TRUST) / shares.shape[1], axis=1, out=takers)
        np.cumsum(homes, axis=1, out=homes)

    def bar(self, jobs: Ints) -> None:
        """No machines for these jobs from now on, and none that they must use."""
        self.packed.allowed[jobs] = False
        self.packed.pins[np.isin(self.packed.pins[:, 1], jobs), 1] = -1
        self.pool.size[jobs] = 0

    def without_waiting(
        self, deals: Sequence[Deal], *, moves: int, deadline: float, stop: Callable[[], bool]
    ) -> list[Deal]:
        """Deals whose best leaves jobs waiting, raced on without those jobs: while there is hope they draw machines
        to them that the others could use."""
        waiting = np.flatnonzero(deals[0].seconds < 0)
        held = np.isin(deals[0].owner, waiting)
        if not held.any():
            return list(deals)
        allowed, pins = self.packed.allowed.copy(), self.packed.pins.copy()
        self.bar(waiting)
        starts = [
            Deal(np.where(np.isin(deal.owner, waiting), -1, deal.owner), deal.recipes, deal.seconds.copy())
            for deal in deals
        ]
        for deal in starts:
            deal.seconds[waiting] = np.nan
        found = self.deals(moves=moves, deadline=deadline, stop=stop, starts=starts)
        self.packed.allowed[:], self.packed.pins[:] = allowed, pins
        return found

    def _survivors(self, given: list[Deal], drawn: list[Deal], count: int) -> tuple[list[Deal], list[Deal]]:
        """The best so many of both, at least a quarter of them drawn: what is given begins ahead but may end behind."""
        given, drawn = sorted(given, key=self.cost), sorted(drawn, key=self.cost)
        best = sorted([*given, *drawn], key=self.cost)[:count]
        kept = sum(any(deal is other for other in best) for deal in drawn)
        kept = max(kept, min(len(drawn), count // 4), count - len(given))
        return given[: count - kept], drawn[:kept]

    def cost(self, deal: Deal) -> float:
        """The default objective of a deal."""
        return float(total_cost(self.packed, deal))

    def state(self, deal: Deal) -> State:
        """A deal as skeletons."""
        skeletons = [self._made(job, deal) for job in range(len(self.spaces))]
        return State.of(skeletons, [float(s) if s >= 0 else None for s in deal.seconds])

    def judged(self, owner: Ints, known: Ints | None = None) -> Deal:
        """A deal with a first recipe for every job, drawn, or one of those `known` [J, COLUMNS] where that is better;
        `owner`: each machine's job, or −1."""
        deal = empty_deal(self.packed)
        deal.owner[:] = owner
        keep_pins(self.packed, deal.owner)
        if known is not None:
            deal.recipes[:] = known
        return self._looked(deal)

    def regrouped(self, before: Deal, owner: Ints, known: Ints) -> Deal:
        """A deal in which only some groups are others than before, looked at anew: `owner` each machine's job, or −1;
        `known` [J, COLUMNS] a recipe to try for each group that has changed."""
        deal = before.copy()
        keep_pins(self.packed, owner)
        differ = owner != before.owner
        for job in np.union1d(owner[differ], before.owner[differ]):
            if job >= 0:
                deal.recipes[job], deal.seconds[job] = known[job], np.nan
        deal.owner[:] = owner
        return self._looked(deal)

    def _looked(self, deal: Deal) -> Deal:
        """A deal, with a look at the groups whose times are open."""
        best = deal.copy()
        if np.isnan(deal.seconds).any():
            self._improve(deal.copy(), best, 1, _HOT, _COLD)
        return best

    def drawn(self) -> Deal:
        """A random deal."""
        deal = empty_deal(self.packed)
        deal_out(self.packed, deal, self.draw_seed())
        return self.judged(deal.owner)

    def wide(self) -> list[Deal]:
        """Deals in which a job that no region holds takes what one, two or more pipelines over many regions need, the
        others what is left; the best for each number of pipelines, best first. None where every job fits a region."""
        packed, job = self.packed, int(np.argmax(self.packed.need))
        regions = np.bincount(packed.region_of_machine, weights=packed.room)
        if packed.need[job] <= regions.max() or not packed.allowed[job].any():
            return []
        found = []
        for pipelines in range(1, _MOST_WIDE + 1):
            deals = []
            for spare in _SPARE * _DRAWS:
                deal = empty_deal(packed)
                deal.owner[self._holding(job, pipelines, spare)] = job
                deal_out(packed, deal, self.draw_seed())
                deals.append(self.judged(deal.owner))
            found.append(min(deals, key=self.cost))
        return sorted(found, key=self.cost)

    def _holding(self, job: int, pipelines: int, spare: float) -> Ints:
        """The machines a job may use with the most memory a GPU, or nearly so, enough of them for so many pipelines,
        which share the optimizer's state, and for `spare` times what they need besides."""
        packed = self.packed
        state, optimizer = packed.scalars[job, 0, 0], packed.scalars[job, 0, 1]
        need = packed.need[job] * (pipelines * state + optimizer) / (state + optimizer)
        memory = packed.room / packed.gpus * np.exp(0.2 * self.rng.standard_normal(len(packed.gpus)))
        order = np.argsort(-np.where(packed.allowed[job], memory, -1.0))[: int(packed.allowed[job].sum())]
        enough = int(np.searchsorted(np.cumsum(packed.room[order]), spare * need)) + 1
        return order[:enough]

    def _improved(self, deal: Deal, moves: int, share: float, stop: Callable[[], bool], pace: _Pace) -> Deal:
        """Annealed in pieces, so that the clock is seen: it cools by moves, or by the time until its `share` is used up
        if that is further on and the race's pace is not kept."""
        best = deal.copy()
        begin = now = time.monotonic()
        made, done = 0, 0.0
        while made < moves and not stop():
            part = min(_CHUNK, moves - made)
            ahead = max((made + part) / moves, done)
            hot, cold = (_HOT * (_COLD / _HOT) ** x for x in (done, ahead))
            self._improve(deal, best, part, hot, cold)
            made += part
            before, now = now, time.monotonic()
            pace.note(part, now - before)
            done = made / moves
            if made < moves and not pace.is_kept(now):
                self.hurried = True
                if now >= share:
                    break
                done = max(done, (now - begin) / (share - begin))
        self.hurried |= made < moves
        return self.combined(best)

    def combined(self, deal: Deal) -> Deal:
        """A deal made better in place by groups that this search has seen in others."""
        if combine(self.packed, self.pool, deal, _COMBINATIONS, self.draw_seed()) and self.report:
            self.report(deal)
        return deal

    def _improve(self, deal: Deal, best: Deal, moves: int, hot: float, cold: float) -> None:
        improve(self.packed, self.work, deal, best, self.learned, moves, hot, cold, self.draw_seed())
        self.tried += moves
        remember(self.packed, self.pool, deal)
        remember(self.packed, self.pool, best)
        if self.report:
            self.report(best)

    def draw_seed(self) -> int:
        """A seed for compiled code."""
        return int(self.rng.integers(2**31))

    def skeleton(self, job: int, machine: Ints, ranks: Ints, starts: Ints, recipe: Ints) -> Skeleton:
        """A job's pipelines, in arrays with one entry a slot, and a recipe's options."""
        firsts = starts.tolist()
        slots = [Slot(*pair) for pair in zip(machine[: firsts[-1]].tolist(), ranks[: firsts[-1]].tolist(), strict=True)]
        options = options_of(self.spaces[job].job, recipe[LAYOUT:].tolist())
        return Skeleton(tuple(tuple(slots[a:b]) for a, b in pairwise(firsts)), options)

    def _made(self, job: int, deal: Deal) -> Skeleton | None:
        """What a job's recipe makes of its machines."""
        if not deal.seconds[job] >= 0:  # nan: nothing was looked at
            return None
        work, recipe = self.work, deal.recipes[job]
        shape(self.packed, work, job, deal.owner, recipe[:LAYOUT])
        return self.skeleton(job, work.machine, work.ranks, work.starts[: int(work.pipelines[0]) + 1], recipe)
