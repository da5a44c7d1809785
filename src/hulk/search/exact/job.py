"""The exact optimum of small cases: the oracle for the search, and `--exact` where it is small enough.

The space, for all jobs together:

- every machine serves one job or stays idle;
- a job's slots: any number of GPUs of a machine in slots of any allowed tensor parallel degrees, which may differ
  within a machine (`JobSpace.degrees`); GPUs may stay idle;
- its pipelines: every way to put slots into pipelines, in every order of the stages, at most as many pipelines as
  microbatches; the pipelines in every order that the gradient sync can tell apart;
- every cut of the layers, every share of the microbatches;
- every value of every option (`hulk.domain.options.SPACE`), 1F1B with any number of extra forwards among them, up to
  what amounts to GPipe; the optimizer's state always sharded for engines for which that never costs.

The answer is optimal up to a part in 10⁷ of a job's seconds. Per (job, set of machines) a branch and bound starts
from the search's own seed: `chains` lists all pipelines with their cuts that bounds on time and memory do not
rule out, `teams` puts them side by side. Which sets of machines are worth solving follows from bounds: the
best assignment by what is known so far is found by a program over subsets of machines; where it rests on a bound,
that pair of job and set is solved; where it rests on solved pairs alone, it is the optimum. A job on more machines is
never slower (it may leave them idle), so a solved pair also bounds the sets inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf

import numpy as np
from numpy.typing import NDArray

from hulk.cost.arrays import Encoded, Tables
from hulk.cost.compute import ComputeModel
from hulk.cost.engine import HULK, Engine
from hulk.cost.tables import empty_durations, without_sharing
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.options import SPACE, Options, Schedule, Sync, codes_of
from hulk.domain.plan import JobPlan, Plan
from hulk.errors import InputError
from hulk.search.evaluate import JobSpace, Places
from hulk.search.exact.chains import (
    Bounds,
    Floats,
    Ints,
    Pool,
    Slots,
    best_alone,
    empty_pool,
    list_chains,
    most_microbatches,
    time_chains,
)
from hulk.search.exact.teams import Found, capacities, combine, digits_of, first_bytes, last_bytes
from hulk.search.objective import Objective, time_cost
from hulk.search.seeds import arrange
from hulk.search.skeleton import Skeleton, Slot, to_job_plan
from hulk.search.waiting import why_waiting

# What is small enough: machines, GPUs, layers, microbatches; and the chains kept and steps done for one job on one set.
MOST_MACHINES, MOST_GPUS, MOST_LAYERS, MOST_BATCH = 8, 16, 10, 64
MOST_PIPELINES = 1e10
_MOST_CHAINS = 1_000_000
_MOST_STEPS = 1_000_000_000
_STRICTLY = 1 - 1e-7  # how much faster a plan must be to be looked at
_WIDER = 1.15
_NO_TIMES = np.zeros((0, 0))
_SOLVED = ("schedule", "sync")  # options that the solver goes through by itself

Cost = tuple[float, float, int]
"""Weight of the jobs that wait, cost of the others, how many of these costs are bounds only. Waiting is always worse,
and of equal costs the surer one is taken."""


def solve_exactly(
    cluster: Cluster,
    jobs: Sequence[Job],
    *,
    compute: ComputeModel,
    engine: Engine = HULK,
    objective: Objective = Objective(),  # noqa: B008  frozen
    keep_from: Mapping[str, frozenset[str]] | None = None,
) -> tuple[Plan, dict[str, float | None]]:
    """The optimal plan and every job's seconds a step (None: it waits, or no plan meets its deadline). `keep_from`
    names, for a job, machines it must not use. InputError where the case is too large or money counts."""
    if objective.needs_money:
        raise InputError("the exact solver knows the default objective only", hint="leave out the money limits")
    places = Places.of(cluster)
    without = keep_from or {}
    spaces = [
        JobSpace(job, cluster, places, compute=compute, engine=engine, without=without.get(job.name, frozenset()))
        for job in jobs
    ]
    _refuse_large(cluster, spaces)
    return _Assignment(cluster, spaces).solve()


def count_pipelines(gpus: Sequence[int], degrees: Sequence[int], layers: int) -> float:
    """How many pipelines with cuts there are on machines with so many GPUs: the size of the space, from above."""
    options = sum(1 for count in gpus for t in degrees if t <= count)
    total, ways = 0.0, 1.0
    for stages in range(1, min(layers, sum(gpus)) + 1):
        ways *= options
        cuts = 1.0
        for i in range(stages - 1):
            cuts = cuts * (layers - 1 - i) / (i + 1)
        total += ways * cuts
    return total


def _refuse_large(cluster: Cluster, spaces: Sequence[JobSpace]) -> None:
    sizes = [(len(cluster.machines), MOST_MACHINES, "machines"), (cluster.gpu_count, MOST_GPUS, "GPUs")]
    for space in spaces:
        sizes.append((len(space.job.model.layers), MOST_LAYERS, f"layers in {space.job.name!r}"))
        sizes.append((space.job.global_batch, MOST_BATCH, f"sequences in the global batch of {space.job.name!r}"))
    for size, most, what in sizes:
        if size > most:
            raise InputError(f"too large to be solved exactly: {size} {what}, at most {most}", hint="plan without it")
    gpus = [machine.gpus for machine in cluster.machines]
    for space in spaces:
        pipelines = count_pipelines(gpus, space.degrees, len(space.job.model.layers))
        if pipelines > MOST_PIPELINES:
            raise InputError(
                f"too large to be solved exactly: about {pipelines:.0e} possible pipelines for {space.job.name!r}, at "
                f"most {MOST_PIPELINES:.0e}",
                hint="plan without it",
            )


@dataclass(frozen=True)
class _Answer:
    """A job on the machines of a set: its best plan, or, where `plan` is None, a bound (inf: no plan fits)."""

    seconds: float
    plan: JobPlan | None
    exact: bool


class _Assignment:
    """Which machines serve which job. Sets of machines are bit masks."""

    def __init__(self, cluster: Cluster, spaces: Sequence[JobSpace]) -> None:
        self.cluster = cluster
        self.spaces = spaces
        self.everything = (1 << len(cluster.machines)) - 1
        self.solvers = [_JobSolver(space) for space in spaces]
        self.known = [self._first_bounds(solver) for solver in self.solvers]

    def _first_bounds(self, solver: _JobSolver) -> list[_Answer]:
        """For every set the bound of all GPUs' work, and at least that of the sets around it."""
        bounds = [solver.at_least(_members(mask)) for mask in range(self.everything + 1)]
        for mask in range(self.everything, -1, -1):
            for i in range(len(self.cluster.machines)):
                bounds[mask] = max(bounds[mask], bounds[mask | 1 << i])
        return [_Answer(bound, None, exact=bound == inf) for bound in bounds]

    def solve(self) -> tuple[Plan, dict[str, float | None]]:
        """Solve pairs of job and set until the best assignment rests on solved ones."""
        best: Cost = (inf, inf, 0)
        while True:
            masks = self._assign([[self._cost(j, a) for a in row] for j, row in enumerate(self.known)])
            open_pairs = [
                (j, mask)
                for j, mask in enumerate(masks)
                if not self.known[j][mask].exact and self._cost_of(j, mask)[0] == 0
            ]
            if not open_pairs:
                return self._plan(masks)
            feasible = self._assign([[self._cost(j, a, bound=False) for a in row] for j, row in enumerate(self.known)])
            best = min(best, _sum(self._cost(j, self.known[j][m], bound=False) for j, m in enumerate(feasible)))
            j, mask = max(open_pairs, key=lambda pair: self.known[pair[0]][pair[1]].seconds)
            others = _sum(self._cost_of(i, m) for i, m in enumerate(masks) if i != j)
            limit = inf
            if best[0] == others[0]:
                limit = (best[1] - others[1]) / time_cost(self.spaces[j].job, 1.0)
            self._learn(j, mask, self.solvers[j].solve(_members(mask), limit * (1 + 1e-6)))

    def _cost_of(self, j: int, mask: int) -> Cost:
        return self._cost(j, self.known[j][mask])

    def _cost(self, j: int, answer: _Answer, *, bound: bool = True) -> Cost:
        """What a job with this answer costs, at least (`bound`) or by a plan that is known."""
        job = self.spaces[j].job
        if answer.seconds == inf or answer.seconds > job.longest_step or (not bound and answer.plan is None):
            return job.weight, 0.0, 0
        return 0.0, time_cost(job, answer.seconds), 0 if answer.exact else 1

    def _assign(self, costs: list[list[Cost]]) -> list[int]:
        """The best split of the machines by these costs, which no machine more makes worse: a mask per job."""
        full = self.everything
        table: list[list[Cost]] = [[(0.0, 0.0, 0)] * (full + 1)]
        chosen: list[list[int]] = []
        for row in costs:
            best: list[Cost] = []
            picks: list[int] = []
            for mask in range(full + 1):
                options = ((_sum((row[part], table[-1][mask ^ part])), -part) for part in _parts(mask))
                value, part = min(options)
                best.append(value)
                picks.append(-part)
            table.append(best)
            chosen.append(picks)
        masks = []
        left = full
        for picks in reversed(chosen):
            masks.append(picks[left])
            left ^= picks[left]
        return masks[::-1]

    def _learn(self, j: int, mask: int, answer: _Answer) -> None:
        """Keep an answer, and what it says of the sets inside: no faster, and as fast with all the machines it uses."""
        row = self.known[j]
        row[mask] = answer
        used = self.everything if answer.plan is None else self._machines_of(answer.plan)
        for other in _parts(mask):
            if row[other].exact:
                continue
            if other & used == used:
                row[other] = answer
            elif answer.seconds > row[other].seconds:
                row[other] = _Answer(answer.seconds, None, exact=answer.seconds == inf)

    def _machines_of(self, plan: JobPlan) -> int:
        names = {stage.machine for pipeline in plan.pipelines for stage in pipeline.stages}
        return sum(1 << i for i, machine in enumerate(self.cluster.machines) if machine.name in names)

    def _plan(self, masks: list[int]) -> tuple[Plan, dict[str, float | None]]:
        jobs: dict[str, JobPlan] = {}
        waiting: dict[str, str] = {}
        seconds: dict[str, float | None] = {}
        for j, mask in enumerate(masks):
            name, answer = self.spaces[j].job.name, self.known[j][mask]
            if answer.plan is None or answer.seconds > self.spaces[j].job.longest_step:
                waiting[name] = self._reason(j)
                seconds[name] = None
            else:
                jobs[name] = answer.plan
                seconds[name] = answer.seconds
        used = {stage.machine for plan in jobs.values() for pipe in plan.pipelines for stage in pipe.stages}
        idle = tuple(machine.name for machine in self.cluster.machines if machine.name not in used)
        return Plan(jobs, idle, waiting), seconds

    def _reason(self, j: int) -> str:
        """Why a job waits."""
        alone = self.known[j][self.everything].seconds
        if alone == inf:
            return why_waiting(self.spaces[j], alone=True)
        if alone > self.spaces[j].job.longest_step:
            return "no plan finishes it by its deadline, not even with all machines"
        return "the other jobs have the machines it needs"


def _sum(costs: Sequence[Cost] | Iterator[Cost]) -> Cost:
    waiting, running, bounds = 0.0, 0.0, 0
    for cost in costs:
        waiting += cost[0]
        running += cost[1]
        bounds += cost[2]
    return waiting, running, bounds


def _members(mask: int) -> list[int]:
    return [i for i in range(mask.bit_length()) if mask >> i & 1]


def _parts(mask: int) -> Iterator[int]:
    """All subsets of a mask."""
    part = mask
    while True:
        yield part
        if part == 0:
            return
        part = (part - 1) & mask


@dataclass(frozen=True)
class _Mode:
    """A value for every option that is fixed before pipelines are listed."""

    options: Options
    tables: Tables
    open_tables: Tables  # with memory without end
    wide_tables: Tables  # with network cards and trunks without end
    total: int  # microbatches of a step


class _JobSolver:
    """The best plan of one job on a set of machines."""

    def __init__(self, space: JobSpace) -> None:
        self.space = space
        self.layers = len(space.job.model.layers)
        self.modes = [self._mode(options) for options in _all_fixed(space)]
        self.pool = empty_pool(4096, self.layers)

    def _mode(self, options: Options) -> _Mode:
        tables = self.space.tables(options)
        open_tables = tables._replace(capacity=np.full_like(tables.capacity, inf))
        total = self.space.job.global_batch // options.microbatch_size
        return _Mode(options, tables, open_tables, without_sharing(tables), total)

    def at_least(self, machines: list[int]) -> float:
        """Seconds below which no plan on these machines can be; inf where there is none."""
        usable = [machine for machine in machines if machine in self.space.allowed]
        if not usable:
            return inf
        slots = self._slots(usable)
        return min(_all_work(mode, slots, _bounds(mode, slots)) for mode in self.modes)

    def solve(self, machines: list[int], limit: float) -> _Answer:
        """The best plan on these machines, or that none is faster than `limit` seconds."""
        usable = [machine for machine in machines if machine in self.space.allowed]
        if not usable:
            return _Answer(inf, None, exact=True)
        best: JobPlan | None = None
        seconds = limit
        seed = arrange(self.space, usable)
        if seed is not None and seed[1] >= 0:
            plan, its = self.space.plan(seed[0])
            if its < seconds:
                best, seconds = plan, its
        slots = self._slots(usable)
        # First only plans close to the bound, then wider and wider: what is looked at grows quickly with the time
        # allowed.
        ceiling = self.at_least(machines)
        widest = 100 * ceiling
        while True:
            ceiling = ceiling * _WIDER if ceiling < widest else inf
            found, its = self._below(slots, min(ceiling, seconds))
            if found is not None:
                return _Answer(its, found, exact=True)
            if ceiling >= seconds:
                return _Answer(seconds, best, exact=best is not None or seconds == inf)

    def _below(self, slots: Slots, seconds: float) -> tuple[JobPlan | None, float]:
        """The best plan faster than `seconds`."""
        best: JobPlan | None = None
        for search in (self._alone, self._together):
            for mode in self.modes:
                plan, seconds = search(mode, slots, seconds)
                best = plan or best
        return best, seconds

    def _slots(self, machines: list[int]) -> Slots:
        """The different slots of a set of machines."""
        hosts = self.space.cluster.machines
        all_slots = [Slot(m, t) for m in machines for t in self.space.degrees if t <= hosts[m].gpus]
        encoded = self.space.encode(Skeleton((tuple(all_slots),), self.modes[0].options))
        gpus = np.array([hosts[m].gpus for m in machines])
        rows = [self.space.places.of_machine[m] for m in machines]
        twins = [max((j for j in range(i) if rows[j] == row), default=-1) for i, row in enumerate(rows)]
        return Slots(
            machine=encoded.machine,
            local=np.array([machines.index(slot.machine) for slot in all_slots]),
            place=encoded.place,
            kind=encoded.kind,
            ranks=encoded.ranks,
            gpus=gpus,
            radix=np.concatenate([[1], np.cumprod(gpus[:-1] + 1)]),
            twin=np.array(twins),
        )

    def _chains(self, mode: _Mode, slots: Slots, bounds: Bounds, seconds: float, *, alone: bool, shards: int) -> Pool:
        """All chains that may be in a plan faster than `seconds`."""
        while True:
            count = list_chains(
                mode.tables, slots, bounds, _room(mode, 1, self.layers), empty_durations(self.layers), seconds,
                mode.total, alone, shards, self.pool,
            )  # fmt: skip
            if count <= len(self.pool.stages):
                return Pool(*(array[:count] for array in self.pool))
            if count > _MOST_CHAINS:
                raise _too_large(self.space.job)
            self.pool = empty_pool(count + count // 4, self.layers)

    def _alone(self, mode: _Mode, slots: Slots, seconds: float) -> tuple[JobPlan | None, float]:
        """The best plan of one pipeline that is faster than `seconds`."""
        bounds = _bounds(mode, slots)
        if not mode.options.shard_optimizer or _all_work(mode, slots, bounds) >= seconds * _STRICTLY:
            return None, seconds  # one replica has nobody to share with: the same plans as with it
        pool = self._chains(mode, slots, bounds, seconds * _STRICTLY, alone=True, shards=1)
        plan, out, scratch = _room(mode, 1, self.layers), empty_durations(self.layers), np.zeros((2, self.layers))
        trial, chain, extra = best_alone(
            mode.tables, mode.open_tables, slots, pool, len(pool.stages), plan, out, scratch, mode.total,
            seconds * _STRICTLY,
        )  # fmt: skip
        if chain < 0:
            return None, seconds
        return self._job_plan(mode, slots, pool, [chain], [mode.total], extra, by_region=False), trial

    def _together(self, mode: _Mode, slots: Slots, seconds: float) -> tuple[JobPlan | None, float]:
        """The best plan of several pipelines that is faster than `seconds`."""
        bounds = _bounds(mode, slots)
        most_replicas = min(mode.total, int(slots.gpus.sum()))
        if most_replicas < 2 or _all_work(mode, slots, bounds) >= seconds * _STRICTLY:
            return None, seconds
        shard = mode.options.shard_optimizer
        most_shards = most_replicas if shard else 1
        pool = self._chains(mode, slots, bounds, seconds * _STRICTLY, alone=False, shards=most_shards)
        digits = digits_of(slots)
        pool = self._useful(mode, slots, bounds, pool, digits, seconds * _STRICTLY, most_replicas)
        best: JobPlan | None = None
        known = _NO_TIMES
        for extra in (mode.total, *range(mode.total - 1)):  # with all the warm-up first: its times serve the others
            times, ends = self._times(mode, slots, pool, extra, seconds * _STRICTLY, known)
            if extra == mode.total:
                known = times
                continue
            for replicas in range(2, min(most_replicas, mode.total - extra) + 1):
                most = np.zeros((len(pool.stages), 3), np.int64)
                most_microbatches(
                    mode.tables, slots, pool, len(most), bounds.sync, mode.total, extra, seconds * _STRICTLY, replicas,
                    replicas if shard else 1, times, ends, most,
                )  # fmt: skip
                if extra and not np.any(most[pool.stages > 1, 0] > extra):
                    continue
                can = capacities(digits, pool.usage, most, replicas)
                order = np.lexsort((-most[:, 0], pool.usage))
                order = order[_kept(most[:, 0], can, digits, pool.usage, mode.total)[order]]
                if len(order) == 0:
                    continue
                chosen = Pool(*(array[order] for array in pool))
                stages = replicas * self.layers
                found = Found(np.full(replicas, -1), np.zeros(replicas, np.int64), np.zeros(1, np.int64))
                trial, steps = combine(
                    mode.tables, mode.wide_tables, slots, chosen, digits, most[order], can, times[order],
                    ends[order], mode.total, extra, _room(mode, replicas, stages),
                    empty_durations(stages), np.zeros((2, stages)), seconds * _STRICTLY, found, _MOST_STEPS,
                )  # fmt: skip
                if steps > _MOST_STEPS:
                    raise _too_large(self.space.job)
                if found.chain[0] >= 0:
                    seconds = trial
                    chains, shares = found.chain.tolist(), found.share.tolist()
                    best = self._job_plan(
                        mode, slots, chosen, chains, shares, extra, by_region=bool(found.by_region[0])
                    )
        return best, seconds

    def _useful(
        self, mode: _Mode, slots: Slots, bounds: Bounds, pool: Pool, digits: Ints, seconds: float, most_replicas: int
    ) -> Pool:
        """The chains with which others could do the batch, going by bounds."""
        kept = np.zeros(len(pool.stages), bool)
        most = np.zeros((len(pool.stages), 3), np.int64)
        for replicas in range(2, most_replicas + 1):
            most_microbatches(
                mode.tables, slots, pool, len(most), bounds.sync, mode.total, 0, seconds, replicas,
                replicas if mode.options.shard_optimizer else 1, _NO_TIMES, _NO_TIMES, most,
            )  # fmt: skip
            can = capacities(digits, pool.usage, most, replicas)
            kept |= _kept(most[:, 0], can, digits, pool.usage, mode.total)
        return Pool(*(array[kept] for array in pool))

    def _times(
        self, mode: _Mode, slots: Slots, pool: Pool, extra: int, seconds: float, known: Floats
    ) -> tuple[Floats, Floats]:
        """Every chain's seconds for 0, 1, 2 ... microbatches, and what follows them (`time_chains`)."""
        count = len(pool.stages)
        times, ends = np.full((count, mode.total + 1), inf), np.zeros((count, 3))
        time_chains(
            mode.open_tables, slots, pool, count, _room(mode, 1, self.layers), empty_durations(self.layers), mode.total,
            extra, seconds, known, times, ends,
        )  # fmt: skip
        return times, ends

    def _job_plan(
        self,
        mode: _Mode,
        slots: Slots,
        pool: Pool,
        chains: list[int],
        shares: list[int],
        extra: int,
        *,
        by_region: bool,
    ) -> JobPlan:
        made, firsts, lasts = [], [], []
        for c in chains:
            picks = pool.slot[c, : pool.stages[c]].tolist()
            its_lasts = pool.last[c, : pool.stages[c]].tolist()
            made.append(tuple(Slot(int(slots.machine[q]), int(slots.ranks[q])) for q in picks))
            firsts += [0, *(last + 1 for last in its_lasts[:-1])]
            lasts += its_lasts
        sync = Sync.BY_REGION if by_region else Sync.RING
        options = replace(mode.options, schedule=Schedule.ahead(extra), sync=sync)
        names = tuple(machine.name for machine in self.space.cluster.machines)
        return to_job_plan(Skeleton(tuple(made), options), names, firsts, lasts, shares)


def _kept(most: Ints, can: Ints, digits: Ints, usage: Ints, total: int) -> NDArray[np.bool_]:
    """The chains with which the others, on the GPUs that are left, could do the batch."""
    others = can[-2, len(digits) - 1 - usage]
    kept: NDArray[np.bool_] = (most > 0) & (others >= 0) & (most + others >= total)
    return kept


def _too_large(job: Job) -> InputError:
    return InputError(
        f"too large to be solved exactly: too many plans of job {job.name!r} are nearly as good", hint="plan without it"
    )


def _all_fixed(space: JobSpace) -> list[Options]:
    """All options but for those that the solver goes through by itself, first those that save memory. Where sharing the
    optimizer's state never costs, it is always shared."""
    possible = {choice.name: choice.possible(space.job, fine=True) for choice in SPACE if choice.name not in _SOLVED}
    possible["shard_optimizer"] = (True, False) if space.engine.sends_weights else (True,)
    return [replace(space.plainest, **dict(zip(possible, each, strict=True))) for each in product(*possible.values())]


def _room(mode: _Mode, replicas: int, stages: int) -> Encoded:
    """Room for a plan."""
    return Encoded(
        starts=np.zeros(replicas + 1, np.int64),
        machine=np.zeros(stages, np.int64),
        place=np.zeros(stages, np.int64),
        kind=np.zeros(stages, np.int64),
        ranks=np.ones(stages, np.int64),
        first=np.zeros(stages, np.int64),
        last=np.zeros(stages, np.int64),
        microbatches=np.ones(replicas, np.int64),
        warmup=np.ones(stages, np.int64),
        options=np.array(codes_of(mode.options)),
    )


def _bounds(mode: _Mode, slots: Slots) -> Bounds:
    """What every plan on these slots needs at least.

    Whatever weights layers are given (they add up to 1), a GPU that is at work on the layer with the most weight a
    second does the most; all GPUs together must do a weight of 1 per microbatch. The weights are the layers' mean
    shares of time.
    """
    tables = mode.tables
    both = np.diff(tables.forward[slots.kind] + tables.backward[slots.kind], axis=1)  # [Q, L] seconds
    weight = np.mean(both / both.sum(axis=1, keepdims=True), axis=0)
    speed = np.max(weight / both, axis=1) / slots.ranks
    count = len(slots.gpus)
    rate = np.array([speed[slots.local == i].max() for i in range(count)])
    row = [int(slots.place[slots.local == i][0]) for i in range(count)]
    sync = np.stack([_first_sync(tables, slots, row, size) for size in (last_bytes, first_bytes)])
    return Bounds(
        work=np.append(np.cumsum(both.min(axis=0)[::-1])[::-1], 0.0),
        share=np.append(np.cumsum(weight[::-1])[::-1], 0.0),
        rate=rate,
        sync=sync,
    )


def _first_sync(tables: Tables, slots: Slots, row: Sequence[int], size: Callable[[Tables, bool], float]) -> Floats:
    """[3, n] seconds to add up what `size` says of the first layer, at least, as `Bounds.sync` has them. `row`: the
    machines' places."""
    trips = 1 if tables.rules.swaps else 2
    flows = int(slots.ranks.max())
    count = len(row)
    with_shared, without, one_flow = (np.full((3, count), inf) for _ in range(3))
    for i, j in product(range(count), repeat=2):
        a, b = row[i], row[j]
        if i == j:
            apart, wait, rate = 0, 0.0, float(tables.local[a]) if slots.gpus[i] > 1 else 0.0
        else:
            apart, wait = 1 if tables.region[a] == tables.region[b] else 2, float(tables.latency[a, b])
            rate = float(min(tables.bandwidth[a, b] * flows, tables.ceiling[a, b]))
        if rate == 0.0:
            continue
        kinds = slice(0, apart + 1)
        for found, amount, waits in (
            (with_shared, size(tables, False), trips * wait),
            (without, size(tables, True), trips * wait),
        ):
            found[kinds, i] = np.minimum(found[kinds, i], amount / rate + waits)
        # What layers share comes to each of its holders at least once, from any other, be it of the same pipeline.
        one_flow[:, i] = np.minimum(one_flow[:, i], tables.shared * tables.wire_bytes / rate)
    return np.minimum(with_shared, without + one_flow) if tables.rules.shares_once else with_shared


def _all_work(mode: _Mode, slots: Slots, bounds: Bounds) -> float:
    """Seconds in which all GPUs together can do all microbatches, at least."""
    return mode.total / float(bounds.rate @ slots.gpus)
