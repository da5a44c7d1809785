"""The best plan whose pipelines are all alike, with what only such plans can have: gradients, parameters or experts
that holders split, state split within regions or machines; or with orders of passes that are tried for such plans alone
(`Choice.regular`: interleaved stages, backward split).

Alike are pipelines of as many stages on as many GPUs, cut at the same layers, with as many microbatches. On which
machines they are may differ. There are few enough of them for a plain walk over all: numbers of pipelines, GPUs of each
stage and rounds (`_Form`), cuts, schedules, machines, values of the other options, orders of the pipelines. Two bounds
rule out nearly all: GPUs that are at work all the time, for all machines and cuts at once; and a pipeline alone, which
adds up and updates nothing, as the price has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from itertools import combinations, product
from typing import NamedTuple

import numpy as np

from hulk.cost.arrays import Encoded, Floats, Ints, Tables
from hulk.cost.step import seconds_of
from hulk.domain.options import COLUMN, SPACE, Options, Schedule, ScheduleKind, Shape, Sharding, Sync, Within, normal
from hulk.domain.plan import rounds_problem
from hulk.search.exact.bounds import all_work
from hulk.search.exact.case import Case
from hulk.search.exact.listing import Lister
from hulk.search.exact.mode import Mode, whole_weights
from hulk.search.exact.plans import Known, to_beat
from hulk.search.exact.size import too_many_plans
from hulk.search.job_space import JobSpace
from hulk.search.skeleton import Skeleton, Slot, held_by, to_job_plan
from hulk.search.uniform import written_alike

_OPEN = ("schedule", "sync", "sharding", "shard_within", "chunks")  # options that are decided with the pipelines
_SPLIT = (Sharding.GRADIENTS, Sharding.PARAMETERS)
_MOST_PRICED = 2_000_000  # plans in one mode on one set of machines
_MOST_AT_ONCE = 20_000_000  # chains × cuts

Machines = tuple[int, ...]
"""A pipeline's machines, by their numbers in the set, in the order of its stages."""
Links = tuple[tuple[int, ...], ...]
"""For each machine those that the next stage may be on."""


class _Form(NamedTuple):
    """What pipelines that are alike have in common besides their cut."""

    replicas: int
    share: int  # microbatches of each
    ranks: tuple[int, ...]  # GPUs of each stage
    chunks: int  # rounds over these stages

    @property
    def pieces(self) -> int:
        """Into which a pipeline cuts the layers."""
        return len(self.ranks) * self.chunks

    @property
    def shape(self) -> Shape:
        """As far as options go by it."""
        return Shape(self.replicas, self.replicas * len(self.ranks), max(self.ranks))


def alike_modes(space: JobSpace) -> list[Mode]:
    """The modes that such plans are looked for in; none where the engine has nothing that they alone can have."""
    possible = {choice.name: choice.possible(space.scope, fine=True) for choice in SPACE if choice.name not in _OPEN}
    more = {choice.name: choice.possible(space.scope, regular=True) for choice in SPACE if choice.name in _OPEN}
    is_special = any(_is_special(replace(space.plainest, **{name: each})) for name in more for each in more[name])
    named = [dict(zip(possible, each, strict=True)) for each in product(*possible.values())]
    listed = [replace(space.plainest, **values) for values in named]
    return [Mode.of(space, options) for options in listed if is_special or _is_special(options)]


def _is_special(options: Options) -> bool:
    """Whether options say something that pipelines which are listed one by one never have."""
    splits = options.sharding in _SPLIT or options.shard_within is not Within.EVERYWHERE or options.expert > 1
    return splits or options != options.in_turn


def solve_alike(mode: Mode, case: Case, _: Lister, seconds: float) -> Known | None:
    """The best such plan that is faster than `seconds`. InputError where there are too many to look at."""
    if all_work(case) >= to_beat(seconds):
        return None
    search = _Search(mode, case, seconds)
    for form in _forms(mode, case):
        search.go_through(form)
    return search.best


def _forms(mode: Mode, case: Case) -> Iterator[_Form]:
    """All that the machines' GPUs are enough for."""
    gpus, layers = int(case.offer.gpus.sum()), mode.layers
    degrees = [degree for degree in mode.space.degrees if degree % mode.options.context == 0]
    rounds = [n for n in SPACE[COLUMN["chunks"]].possible(mode.space.scope, regular=True) if n <= layers]
    for replicas in (n for n in range(1, min(case.total, gpus) + 1) if case.total % n == 0):
        for ranks, chunks in product(_all_ranks(degrees, gpus // replicas, layers), rounds):
            form = _Form(replicas, case.total // replicas, ranks, chunks)
            plain = replace(mode.options, chunks=chunks)
            goes_round = rounds_problem(len(ranks), chunks, form.share) is None
            if form.pieces <= layers and goes_round and normal(plain, form.shape) == plain:
                yield form


def _all_ranks(degrees: Sequence[int], gpus: int, most: int) -> Iterator[tuple[int, ...]]:
    """Ranks of up to `most` stages, one or more, that have at most so many GPUs together."""
    for degree in degrees:
        if degree <= gpus and most > 0:
            yield (degree,)
            yield from ((degree, *rest) for rest in _all_ranks(degrees, gpus - degree, most - 1))


@cache
def _cuts(layers: int, pieces: int) -> Ints:
    """[cuts, pieces] layers of each piece."""
    inside = list(combinations(range(1, layers), pieces - 1))
    ends = np.array([(0, *each, layers) for each in inside], np.int64)
    return np.diff(ends, axis=1)


@lru_cache(maxsize=1024)
def _chains(gpus: tuple[int, ...], ranks: tuple[int, ...], links: Links) -> list[Machines]:
    """All ways to put stages of so many GPUs on machines that have so many, beside each other only where there is a
    link."""
    return list(_on_machines(gpus, ranks, links, range(len(gpus))))


def _on_machines(gpus: Sequence[int], ranks: Sequence[int], links: Links, first: Sequence[int]) -> Iterator[Machines]:
    """The same with the first stage on one of the machines `first`."""
    if not ranks:
        yield ()
        return
    for i in first:
        if gpus[i] >= ranks[0]:
            left = [count - ranks[0] if j == i else count for j, count in enumerate(gpus)]
            yield from ((i, *rest) for rest in _on_machines(left, ranks[1:], links, links[i]))


def _orders(team: Sequence[Machines]) -> Iterator[tuple[Machines, ...]]:
    """All orders that can be told apart."""
    if not team:
        yield ()
    for first in dict.fromkeys(team):
        rest = list(team)
        rest.remove(first)
        yield from ((first, *others) for others in _orders(rest))


def _bare(mode: Mode) -> Tables:
    """Tables with memory and network cards without end, with nothing to add up and nothing to update."""
    tables = mode.wide_tables
    return tables._replace(
        capacity=mode.open_tables.capacity,
        update=np.zeros_like(tables.update),
        join=np.zeros_like(tables.join),
        tied=np.zeros_like(tables.tied),
        shared=0.0,
    )


class _Search:
    """A walk over all such plans in one mode, with the best so far."""

    def __init__(self, mode: Mode, case: Case, seconds: float) -> None:
        self.best: Known | None = None
        self._mode, self._space = mode, mode.space
        self._limit = to_beat(seconds)
        self._priced = 0
        self._gpus = case.offer.gpus.tolist()
        self._twin = case.offer.twin.tolist()
        firsts = [case.offer.local.tolist().index(i) for i in range(len(self._gpus))]
        self._machine = case.offer.machine[firsts].tolist()
        self._place = case.offer.place[firsts]
        self._bare = _bare(mode)
        listed = SPACE[COLUMN["schedule"]].possible(self._space.scope, regular=True)
        self._kinds = sorted({schedule.kind for schedule in listed} - {ScheduleKind.GPIPE})

    def go_through(self, form: _Form) -> None:
        """Look at all plans of a form."""
        chains = _chains(tuple(self._gpus), form.ranks, self._links(form))
        cuts = _cuts(self._mode.layers, form.pieces)
        if len(chains) * len(cuts) > _MOST_AT_ONCE:
            raise too_many_plans(self._space.job)
        if not chains:
            return
        least = self._work(form, np.array(chains), cuts)
        if least.min() >= self._limit:
            return
        ways = [(each, self._options(form, each)) for each in self._schedules(form)]
        for c in np.flatnonzero(least.min(axis=0) < self._limit):
            for schedule, options in ways:
                quick = [chains[i] for i in np.flatnonzero(least[:, c] < self._limit)]
                self._go_on(form, quick, cuts[c], schedule, options)

    def _links(self, form: _Form) -> Links:
        """The links that are quick enough for the smallest messages."""
        tables = self._mode.tables
        wire = form.share * tables.cut[:-1].min(initial=np.inf) / tables.ceiling
        least = (2 * tables.latency + wire)[np.ix_(self._place, self._place)]
        np.fill_diagonal(least, 0.0)
        return tuple(tuple(np.flatnonzero(row < self._limit).tolist()) for row in least)

    def _schedules(self, form: _Form) -> list[Schedule]:
        """With every number of extra forwards, up to what amounts to GPipe."""
        if len(form.ranks) == 1:
            return [Schedule()]
        return [Schedule(kind, extra) for kind in self._kinds for extra in range(form.share)]

    def _work(self, form: _Form, chains: Ints, cuts: Ints) -> Floats:
        """[chains, cuts] seconds that some GPUs of a chain are at work, at least; inf where a layer must not be."""
        tables, stages = self._mode.tables, len(form.ranks)
        after = np.cumsum(cuts, axis=1)
        least, head = np.zeros((2, len(chains), len(cuts)))
        for s, ranks in enumerate(form.ranks):
            place = self._place[chains[:, s]]
            kind = self._space.kind_table[place, ranks]
            forward, both = tables.forward[kind], tables.forward[kind] + tables.backward[kind]
            work = np.zeros_like(head)
            for piece in range(s, form.pieces, stages):
                end, begin = after[:, piece], after[:, piece] - cuts[:, piece]
                work += both[:, end] - both[:, begin]
                if tables.held_until.shape[0] > 0:
                    work[tables.held_until[place][:, begin] < end - 1] = np.inf
            least = np.maximum(least, head + form.share * work)
            if not tables.rules.rolls:  # the first microbatch must come through the stages before
                head = head + forward[:, after[:, s]] - forward[:, after[:, s] - cuts[:, s]]
        return least

    def _go_on(
        self, form: _Form, chains: Sequence[Machines], counts: Ints, schedule: Schedule, options: Sequence[Options]
    ) -> None:
        """Look at all plans of these chains, cut like this."""
        if not options:
            return
        quick = [chain for chain in chains if self._alone(form, chain, counts, schedule) < self._limit]
        for team in self._teams(form, quick, (), self._gpus):
            for own in options:
                for order in _orders(team):
                    if own.sync is Sync.BY_REGION or order[0] == team[0]:  # a ring may start anywhere
                        self._price(form, order, counts, own)

    def _options(self, form: _Form, schedule: Schedule) -> list[Options]:
        """All with which plans of this form are others than those that are listed one by one."""
        split = [each for each in SPACE[COLUMN["sharding"]].possible(self._space.scope) if each in _SPLIT]
        within = SPACE[COLUMN["shard_within"]].possible(self._space.scope)
        made = (
            replace(
                self._mode.options, chunks=form.chunks, schedule=schedule, sync=sync, sharding=each, shard_within=near
            )
            for sync, each, near in product(Sync, (*whole_weights(self._space), *split), within)
        )
        return [options for options in dict.fromkeys(normal(each, form.shape) for each in made) if _is_special(options)]

    def _alone(self, form: _Form, chain: Machines, counts: Ints, schedule: Schedule) -> float:
        """Seconds of a step with this pipeline, at least; inf where it cannot be."""
        options = replace(self._mode.options, chunks=form.chunks, schedule=schedule, expert=1)
        seconds = float(seconds_of(self._bare, self._written(form, [chain], counts, options)[1]))
        return seconds if seconds >= 0 else np.inf

    def _teams(
        self, form: _Form, chains: Sequence[Machines], team: tuple[Machines, ...], gpus: Sequence[int]
    ) -> Iterator[tuple[Machines, ...]]:
        """All ways to have as many of the chains side by side as the form says, sorted. Of machines that are alike,
        those named first are used first."""
        if len(team) == form.replicas:
            yield team
            return
        for at, chain in enumerate(chains):
            left = list(gpus)
            for i, ranks in zip(chain, form.ranks, strict=True):
                left[i] -= ranks
            flat = [i for each in (*team, chain) for i in each]
            in_turn = all(self._twin[i] < 0 or self._twin[i] in flat[:n] for n, i in enumerate(flat))
            if min(left) >= 0 and in_turn:
                yield from self._teams(form, chains[at:], (*team, chain), left)

    def _price(self, form: _Form, order: Sequence[Machines], counts: Ints, options: Options) -> None:
        """Keep a plan where it is the fastest so far."""
        skeleton, encoded = self._written(form, order, counts, options)
        seconds = float(seconds_of(self._space.tables(options), encoded))
        if 0 <= seconds < self._limit:
            names = tuple(machine.name for machine in self._space.cluster.machines)
            made = to_job_plan(skeleton, names, held_by(encoded, self._space.job), encoded.microbatches.tolist())
            self.best, self._limit = Known(seconds, made, exact=True), to_beat(seconds)

    def _written(
        self, form: _Form, chains: Sequence[Machines], counts: Ints, options: Options
    ) -> tuple[Skeleton, Encoded]:
        """A plan to be priced, of which there may not be too many."""
        self._priced += 1
        if self._priced > _MOST_PRICED:
            raise too_many_plans(self._space.job)
        slots = (tuple(Slot(self._machine[i], t) for i, t in zip(chain, form.ranks, strict=True)) for chain in chains)
        skeleton = Skeleton(tuple(slots), options)
        return skeleton, written_alike(self._space, skeleton, counts, form.share)
