"""Who gets which machines: many random deals, the better ones improved further (`hulk.search.assignment.anneal`), and
joined with the best groups of others (`hulk.search.assignment.archive`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product

import numpy as np
from numpy.typing import NDArray

from hulk.domain.options import options_of
from hulk.search.assignment.anneal import improve
from hulk.search.assignment.archive import combine, empty_archive, remember
from hulk.search.assignment.moves import deal_out
from hulk.search.budget import Budget, Pace
from hulk.search.cooling import cool
from hulk.search.deals import Deal, empty_deal, keep_pins, total_cost
from hulk.search.heat import Heat
from hulk.search.job_space import JobSpace
from hulk.search.layouts import LAYOUT, shape
from hulk.search.learned import nothing_learned
from hulk.search.recipes import frugal_recipe
from hulk.search.results import OPEN, RUNS
from hulk.search.skeleton import Chain, Skeleton
from hulk.search.state import State
from hulk.search.tables import pack
from hulk.search.workspace import make_workspace
from hulk.search.written import read

_HEAT = Heat(0.01, 3e-4)
# Deals that begin a race of usual length, and at most. The fewer, the longer each is improved; in a longer race more of
# them get that far.
_RACING, _MOST_RACING = 16, 64
_ANSWERS = 4
_MUCH_WORSE = 1.6  # times the cost of the best deal
# Pipelines over many regions that are tried for a job no region holds, how much more memory than their state it takes,
# how often machines are drawn for each, and how many of the deals found so take part in the race.
_DRAWS = 10
_MOST_WIDE, _SPARE, _WIDE = 6, (1.15, 1.25, 1.35, 1.5, 1.65), 5
# How many numbers of pipelines are tried apart, and the share of the moves and of the time for that.
_NUMBERS, _FOR_WIDE = 3, 0.5
# Of the time until the deadline, at most, for drawing deals before the race begins, and those over many regions.
_DRAWING, _DRAWING_WIDE = 0.07, 0.25
_COMBINATIONS = 300  # tries, a few milliseconds
_TRUST = 0.8  # of the moves that go by good deals; the others draw an owner evenly
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class GroupSearch:
    """A race of deals: every start gets a few moves; the better half goes on with twice as many, until few are left.
    `report` hears of a deal whenever one has been looked at. `apart`: for a job that no region holds, each number of
    pipelines is tried apart from the others first."""

    def __init__(
        self,
        spaces: Sequence[JobSpace],
        rng: np.random.Generator,
        *,
        budget: Budget | None = None,
        report: Callable[[Deal], None] | None = None,
        apart: bool = True,
    ) -> None:
        self.spaces = list(spaces)
        self.rng = rng
        self.budget = budget or Budget()
        self.packed = pack(spaces)
        self.archive = empty_archive(self.packed)
        # A job whose state is more than all its machines hold would only keep them from the others.
        self.bar(np.flatnonzero(self.packed.need > self.packed.allowed @ self.packed.room))
        self.work = make_workspace(self.packed)
        self.learned = nothing_learned(self.packed)
        self._report = report
        self._is_apart = apart

    def go_by(self, apart: Floats) -> None:
        """Let the last kind of tour go by these distances [P, P] between places."""
        self.packed = self.packed._replace(tours=np.concatenate([self.packed.tours[:-1], apart[None]]))

    def leave_unused(self, slack: float) -> None:
        """From now on leave this share of the time until every deadline unused."""
        longest = [space.job.longest_step * (1 - slack) for space in self.spaces]
        self.packed = self.packed._replace(longest=np.array(longest))

    def deals(self, *, moves: int, deadline: float, starts: Sequence[Deal] = (), length: float = 1.0) -> list[Deal]:
        """The best deals found, best first, with so many moves in all, or by the deadline on the monotonic clock.
        `starts`: deals to begin with; groups that are open are looked at first; others are drawn besides, more in a
        race that goes on `length` times as long as usual."""
        begin = time.monotonic()
        given = [self._looked(deal) for deal in starts]
        wide = self.wide(begin + _DRAWING_WIDE * (deadline - begin))
        if wide and self._is_apart:
            share = int(_FOR_WIDE * moves)
            wide = self._apart(wide, moves=share, deadline=begin + _FOR_WIDE * (deadline - begin))
            moves, begin = moves - share, time.monotonic()
        drawn = [deal.copy() for deal in wide[:_WIDE]]
        racing = min(_MOST_RACING, max(1, round(length)) * _RACING)
        while len(given) + len(drawn) < racing:
            if (given or drawn) and time.monotonic() - begin > _DRAWING * (deadline - begin):
                self.budget.hurried = True
                break
            drawn.append(self.drawn())
        pace, count = Pace(moves, time.monotonic(), deadline), len(given) + len(drawn)
        answers = max(1, _ANSWERS * count // _MOST_RACING)
        rounds = (count // answers).bit_length()
        each = max(1, moves // (rounds * count))
        left_behind = wide
        for turn in range(rounds):
            before = [*given, *drawn]
            given, drawn = self._survivors(given, drawn, max(answers, count >> turn))
            left_behind += [deal for deal in before if not _is_among(deal, (*given, *drawn))]
            self._learn([*given, *drawn] if turn else given)
            until = pace.begin + (deadline - pace.begin) * (turn + 1) / rounds
            left = len(given) + len(drawn)
            for deals in (given, drawn):
                for i, deal in enumerate(deals):
                    now = time.monotonic()
                    deals[i] = self._improved(deal, each << turn, now + (until - now) / left, pace)
                    left -= 1
        return self._answers(sorted([*given, *drawn, *left_behind], key=self.cost))

    def _answers(self, ranked: Sequence[Deal]) -> list[Deal]:
        """The best few, and the best of each other number of pipelines."""
        few = list(ranked[:_ANSWERS])
        return few + [deal for deal in self._of_each_number(ranked) if not _is_among(deal, few)]

    def _pipelines(self, job: int, deal: Deal) -> int:
        """How many pipelines a job has in a deal; 0 where it waits."""
        if deal.status[job] != RUNS:
            return 0
        shape(self.packed, self.work, job, deal.owner, deal.recipes[job, :LAYOUT])
        return int(self.work.pipelines[0])

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
        allowed, pins = self.packed.allowed.copy(), self.packed.pins.copy()
        allowed[jobs] = False
        pins[np.isin(pins[:, 1], jobs), 1] = -1
        self.packed = self.packed._replace(allowed=allowed, pins=pins)
        self.archive.size[jobs] = 0

    def without_waiting(self, deals: Sequence[Deal], *, moves: int, deadline: float) -> list[Deal]:
        """Deals whose best leaves jobs waiting, raced on without those jobs: while there is hope they draw machines
        to them that the others could use."""
        waiting = np.flatnonzero(deals[0].waits)
        if not np.isin(deals[0].owner, waiting).any():
            return list(deals)
        before = self.packed
        self.bar(waiting)
        starts = [deal.copy() for deal in deals]
        for deal in starts:
            deal.owner[np.isin(deal.owner, waiting)] = -1
            deal.status[waiting] = OPEN
        found = self.deals(moves=moves, deadline=deadline, starts=starts)
        self.packed = self.packed._replace(allowed=before.allowed, pins=before.pins)
        return found

    def _survivors(self, given: list[Deal], drawn: list[Deal], count: int) -> tuple[list[Deal], list[Deal]]:
        """The best so many of both, at least a quarter of them drawn: what is given begins ahead but may end behind.
        Among them the best of each number of pipelines, for the same reason."""
        given, drawn = sorted(given, key=self.cost), sorted(drawn, key=self.cost)
        ranked = sorted([*given, *drawn], key=self.cost)
        firsts = self._of_each_number(ranked)[:count]
        best = [*firsts, *(deal for deal in ranked if not _is_among(deal, firsts))][:count]
        kept = sum(_is_among(deal, best) for deal in drawn)
        if kept < min(len(drawn), count // 4):
            kept = min(len(drawn), count // 4)
            return given[: count - kept], drawn[:kept]
        return [deal for deal in given if _is_among(deal, best)], [deal for deal in drawn if _is_among(deal, best)]

    def _of_each_number(self, ranked: Sequence[Deal]) -> list[Deal]:
        """For each number of pipelines of a job that no region holds the first deal that has so many, where it is not
        much worse than the first of all: another number is hardly ever come by in small steps."""
        job, found = self.wide_job(), dict[int, Deal]()
        if job is None:
            return []
        for deal in ranked:
            if self.cost(deal) < _MUCH_WORSE * self.cost(ranked[0]):
                found.setdefault(self._pipelines(job, deal), deal)
        return list(found.values())

    def cost(self, deal: Deal) -> float:
        """The default objective of a deal."""
        return float(total_cost(self.packed, deal))

    def state(self, deal: Deal) -> State:
        """A deal as skeletons."""
        skeletons = [self._made(job, deal) for job in range(len(self.spaces))]
        return State.of(skeletons, deal.seconds)

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
                deal.recipes[job], deal.status[job] = known[job], OPEN
        deal.owner[:] = owner
        return self._looked(deal)

    def _looked(self, deal: Deal) -> Deal:
        """A deal, with a look at the groups whose times are open."""
        best = deal.copy()
        if (deal.status == OPEN).any():
            self._improve(deal.copy(), best, 1, _HEAT)
            self.budget.tried += 1
        return best

    def drawn(self) -> Deal:
        """A random deal."""
        deal = empty_deal(self.packed)
        deal_out(self.packed, deal, self.draw_seed())
        return self.judged(deal.owner)

    def wide(self, until: float = float("inf")) -> list[Deal]:
        """Deals in which a job that no region holds takes what one, two or more pipelines over many regions need, the
        others what is left: the best for each number of pipelines, best first, of those drawn `until` then on the
        monotonic clock. None where every job fits a region."""
        job = self.wide_job()
        if job is None:
            return []
        found: dict[int, Deal] = {}
        for spare, pipelines in product(_SPARE * _DRAWS, range(1, _MOST_WIDE + 1)):
            if time.monotonic() > until:
                self.budget.hurried = True
                break
            with self._having(job, pipelines):
                deal = self._drawn_wide(job, pipelines, spare)
            if deal.status[job] == RUNS:
                found[pipelines] = min(found.get(pipelines, deal), deal, key=self.cost)
        return sorted(found.values(), key=self.cost)

    def _drawn_wide(self, job: int, pipelines: int, spare: float) -> Deal:
        """A random deal in which the job has the machines for so many pipelines."""
        packed, deal = self.packed, empty_deal(self.packed)
        deal.owner[self._holding(job, pipelines, spare)] = job
        deal_out(packed, deal, self.draw_seed())
        frugal_recipe(packed, job, int(packed.gpus[deal.owner == job].sum()), pipelines, deal.recipes[job])
        return self.judged(deal.owner, deal.recipes)

    def _apart(self, wide: Sequence[Deal], *, moves: int, deadline: float) -> list[Deal]:
        """The best few of these deals, each improved without a change to how many pipelines the job has that no region
        holds: which number is best shows only when machines are dealt out for it."""
        job, few = self.wide_job(), list(wide[:_NUMBERS])
        assert job is not None
        pace = Pace(moves, time.monotonic(), deadline)
        for i, deal in enumerate(few):
            few[i] = deal.copy()
            now = time.monotonic()
            until = now + (deadline - now) / (len(few) - i)
            with self._having(job, self._pipelines(job, deal)):
                improve = partial(self._improve, deal, few[i])
                cool(improve, _HEAT, moves // len(few), until, self.budget, pace=pace)
        return [*few, *wide[_NUMBERS:]]

    @contextmanager
    def _having(self, job: int, pipelines: int) -> Iterator[None]:
        """Meanwhile deals give a job so many pipelines and no others."""
        before = self.packed
        asked = before.pipelines.copy()
        asked[job] = pipelines
        self.packed = before._replace(pipelines=asked)
        try:
            yield
        finally:
            self.packed = before

    def wide_job(self) -> int | None:
        """The job that needs most memory, where that is more than any region has."""
        packed, job = self.packed, int(np.argmax(self.packed.need))
        regions = np.bincount(packed.region_of_machine, weights=packed.room)
        return job if packed.need[job] > regions.max() and packed.allowed[job].any() else None

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

    def _improved(self, deal: Deal, moves: int, deadline: float, pace: Pace) -> Deal:
        """Annealed, and joined with groups of others."""
        best = deal.copy()
        cool(lambda part, heat: self._improve(deal, best, part, heat), _HEAT, moves, deadline, self.budget, pace=pace)
        return self.combined(best)

    def annealed(self, deal: Deal, moves: int, deadline: float) -> Deal:
        """What so many moves make of a deal, or as many as there is time for by the deadline on the monotonic clock."""
        return self._improved(deal.copy(), moves, deadline, Pace(moves, time.monotonic(), deadline))

    def combined(self, deal: Deal) -> Deal:
        """A deal made better in place by groups that this search has seen in others."""
        if combine(self.packed, self.archive, deal, _COMBINATIONS, self.draw_seed()) and self._report:
            self._report(deal)
        return deal

    def _improve(self, deal: Deal, best: Deal, moves: int, heat: Heat) -> None:
        improve(self.packed, self.work, deal, best, self.learned, moves, heat, self.draw_seed())
        remember(self.packed, self.archive, deal)
        remember(self.packed, self.archive, best)
        if self._report:
            self._report(best)

    def draw_seed(self) -> int:
        """A seed for compiled code."""
        return int(self.rng.integers(2**31))

    def skeleton(self, job: int, chains: tuple[Chain, ...], recipe: Ints) -> Skeleton:
        """A job's pipelines and a recipe's options."""
        return Skeleton(chains, options_of(self.spaces[job].scope, recipe[LAYOUT:].tolist()))

    def _made(self, job: int, deal: Deal) -> Skeleton | None:
        """What a job's recipe makes of its machines."""
        if deal.status[job] != RUNS:
            return None
        work, recipe = self.work, deal.recipes[job]
        shape(self.packed, work, job, deal.owner, recipe[:LAYOUT])
        return self.skeleton(job, read(work.machine, work.ranks, work.starts, int(work.pipelines[0])), recipe)


def _is_among(deal: Deal, others: Sequence[Deal]) -> bool:
    """Whether it is one of them: the very one, not one that is equal."""
    return any(deal is other for other in others)
