"""Which machines serve which job. Sets of machines are bit masks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from hulk.domain.cluster import Cluster
from hulk.domain.plan import JobPlan, Plan, idle_machines
from hulk.search.exact.job import JobSolver
from hulk.search.exact.plans import Known
from hulk.search.job_space import JobSpace
from hulk.search.objective import time_cost
from hulk.search.waiting import why_waiting

Cost = tuple[float, float, int]
"""Weight of the jobs that wait, cost of the others, how many of these costs are bounds only. Waiting is always worse,
and of equal costs the surer one is taken."""


class Assignment:
    """The best split of the machines among the jobs.

    The best split by what is known so far is found by a program over subsets of machines; where it rests on a bound,
    that pair of job and set is solved; where it rests on solved pairs alone, it is the optimum.
    """

    def __init__(self, cluster: Cluster, spaces: Sequence[JobSpace]) -> None:
        self._cluster = cluster
        self._spaces = spaces
        self._everything = (1 << len(cluster.machines)) - 1
        self._solvers = [JobSolver(space) for space in spaces]
        self._known = [self._first_bounds(solver) for solver in self._solvers]

    def _first_bounds(self, solver: JobSolver) -> list[Known]:
        """For every set the bound of all GPUs' work, and at least that of the sets around it."""
        bounds = [solver.at_least(_members(mask)) for mask in range(self._everything + 1)]
        for mask in range(self._everything, -1, -1):
            for i in range(len(self._cluster.machines)):
                bounds[mask] = max(bounds[mask], bounds[mask | 1 << i])
        return [Known(bound, None, exact=bound == inf) for bound in bounds]

    def solve(self) -> tuple[Plan, dict[str, float | None]]:
        """Solve pairs of job and set until the best assignment rests on solved ones."""
        best: Cost = (inf, inf, 0)
        while True:
            masks = self._assign([[self._cost(j, a) for a in row] for j, row in enumerate(self._known)])
            open_pairs = [
                (j, mask)
                for j, mask in enumerate(masks)
                if not self._known[j][mask].exact and self._cost_of(j, mask)[0] == 0
            ]
            if not open_pairs:
                return self._plan(masks)
            feasible = self._assign([[self._cost(j, a, bound=False) for a in row] for j, row in enumerate(self._known)])
            best = min(best, _sum(self._cost(j, self._known[j][m], bound=False) for j, m in enumerate(feasible)))
            j, mask = max(open_pairs, key=lambda pair: self._known[pair[0]][pair[1]].seconds)
            others = _sum(self._cost_of(i, m) for i, m in enumerate(masks) if i != j)
            limit = inf
            if best[0] == others[0]:
                limit = (best[1] - others[1]) / time_cost(self._spaces[j].job, 1.0)
            self._learn(j, mask, self._solvers[j].solve(_members(mask), limit * (1 + 1e-6)))

    def _cost_of(self, j: int, mask: int) -> Cost:
        return self._cost(j, self._known[j][mask])

    def _cost(self, j: int, answer: Known, *, bound: bool = True) -> Cost:
        """What a job with this answer costs, at least (`bound`) or by a plan that is known."""
        job = self._spaces[j].job
        if answer.seconds == inf or answer.seconds > job.longest_step or (not bound and answer.plan is None):
            return job.weight, 0.0, 0
        return 0.0, time_cost(job, answer.seconds), 0 if answer.exact else 1

    def _assign(self, costs: list[list[Cost]]) -> list[int]:
        """The best split of the machines by these costs, which no machine more makes worse: a mask per job."""
        full = self._everything
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

    def _learn(self, j: int, mask: int, answer: Known) -> None:
        """Keep an answer, and what it says of the sets inside: no faster, and as fast with all the machines it uses."""
        row = self._known[j]
        row[mask] = answer
        used = self._everything if answer.plan is None else self._machines_of(answer.plan)
        for other in _parts(mask):
            if row[other].exact:
                continue
            if other & used == used:
                row[other] = answer
            elif answer.seconds > row[other].seconds:
                row[other] = Known(answer.seconds, None, exact=answer.seconds == inf)

    def _machines_of(self, plan: JobPlan) -> int:
        return sum(1 << i for i, machine in enumerate(self._cluster.machines) if machine.name in plan.machines)

    def _plan(self, masks: list[int]) -> tuple[Plan, dict[str, float | None]]:
        jobs: dict[str, JobPlan] = {}
        waiting: dict[str, str] = {}
        seconds: dict[str, float | None] = {}
        for j, mask in enumerate(masks):
            name, answer = self._spaces[j].job.name, self._known[j][mask]
            if answer.plan is None or answer.seconds > self._spaces[j].job.longest_step:
                waiting[name] = self._reason(j)
                seconds[name] = None
            else:
                jobs[name] = answer.plan
                seconds[name] = answer.seconds
        idle = idle_machines(jobs.values(), [machine.name for machine in self._cluster.machines])
        return Plan(jobs, idle, waiting), seconds

    def _reason(self, j: int) -> str:
        """Why a job waits."""
        alone = self._known[j][self._everything].seconds
        if alone == inf:
            return why_waiting(self._spaces[j], alone=True)
        if alone > self._spaces[j].job.longest_step:
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
