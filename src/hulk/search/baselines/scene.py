"""What baselines share: the jobs' spaces, who can reach whom, how long there is, how a skeleton becomes a result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from hulk.cost.arrays import Floats
from hulk.cost.compute import ComputeModel
from hulk.cost.engine import Engine
from hulk.cost.price import price_job
from hulk.cost.report import Infeasible
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.options import COLUMN, SPACE, Options, Recompute
from hulk.search.assignment.ways import state_bytes
from hulk.search.baselines.result import BaselineResult, Placement
from hulk.search.job_space import JobSpace, Places
from hulk.search.shape.arrange import Found, arrange, tour
from hulk.search.skeleton import Chain, Skeleton
from hulk.search.waiting import why_no_place
from hulk.units import format_size

_CLIQUE_STARTS = 16


@dataclass
class Scene:
    """One cluster and its jobs, as baselines see them."""

    cluster: Cluster
    jobs: tuple[Job, ...]
    compute: ComputeModel
    engine: Engine
    deadline: float
    spaces: tuple[JobSpace, ...]
    shares: dict[float, list[float]] = field(default_factory=dict)
    _arranged: dict[tuple[str, frozenset[int], bool], Found | None] = field(default_factory=dict)

    @classmethod
    def of(
        cls, cluster: Cluster, jobs: Iterable[Job], *, compute: ComputeModel, engine: Engine, time_limit: float
    ) -> Scene:
        """Start the clock and prepare a space per job. What others do computes all blocks again, or none."""
        deadline = time.monotonic() + time_limit
        engine = replace(engine, counts=())
        jobs, places = tuple(jobs), Places.of(cluster)
        spaces = tuple(JobSpace(job, cluster, places, compute=compute, engine=engine) for job in jobs)
        return cls(cluster, jobs, compute, engine, deadline, spaces)

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self.deadline

    @cached_property
    def latency(self) -> Floats:
        """[places, places] seconds one way; inf: blocked."""
        space = self.spaces[0]
        return space.latency

    @cached_property
    def runnable(self) -> tuple[int, ...]:
        """The numbers of the jobs that nothing plain keeps from running."""
        return tuple(j for j, space in enumerate(self.spaces) if self.obstacle(space) is None)

    def power(self, job: Job, machine: int) -> float:
        """FLOP/s of a machine at the job's precision: what a share of the cluster is counted in."""
        host = self.cluster.machines[machine]
        return host.gpus * host.gpu.rate(job.precision)

    def room(self, machines: Iterable[int]) -> float:
        """Bytes that tensors can have on these machines' GPUs."""
        hosts = (self.cluster.machines[machine] for machine in machines)
        return sum(host.gpus * max(0.0, self.engine.capacity(host.gpu, host.memory)) for host in hosts)

    def reachable(self, space: JobSpace, machines: Sequence[int]) -> list[int]:
        """Of these machines, many that all reach each other: places by power, each kept if it reaches those before."""
        by_place: dict[int, list[int]] = {}
        for machine in machines:
            by_place.setdefault(space.places.of_machine[machine], []).append(machine)
        rows = np.array(list(by_place), np.int64)
        if not rows.size or not np.isinf(self.latency[np.ix_(rows, rows)]).any():
            return list(machines)
        for row, own in by_place.items():
            if np.isinf(self.latency[row, row]):  # machines of this place do not even reach each other
                del own[1:]
        power = {row: sum(self.power(space.job, machine) for machine in own) for row, own in by_place.items()}
        order = sorted(by_place, key=lambda row: -power[row])
        best: list[int] = []
        for start in order[:_CLIQUE_STARTS]:
            clique = [start]
            for row in order:
                if row != start and np.isfinite(self.latency[row, clique]).all():
                    clique.append(row)
            best = max(best, clique, key=lambda rows: sum(power[row] for row in rows))
        return sorted(machine for row in best for machine in by_place[row])

    def arranged(self, space: JobSpace, machines: Iterable[int], *, quick: bool = False) -> Found | None:
        """The planner's own shape search on exactly these machines; None where nothing fits. `quick` looks closely only
        where a quick look finds nothing. Answers are kept."""
        group = frozenset(machines) & space.allowed
        key = (space.job.name, group, quick)
        if key not in self._arranged:
            found = arrange(space, sorted(group), quick=quick) if group else None
            fits = found is not None and found[1].runs
            self._arranged[key] = found if fits else self.arranged(space, group) if quick else None
        return self._arranged[key]

    def holding_all(self, space: JobSpace) -> list[int]:
        """The machines that a job may use for every layer, whatever rules it has for some."""
        machines, layers = self.cluster.machines, range(len(space.job.model.layers))
        return [m for m in space.allowed if all(space.job.may_hold(layer, machines[m].region) for layer in layers)]

    def by_memory(self, machines: Iterable[int]) -> Iterator[list[int]]:
        """The machines in file order: all, then without those whose GPUs have least memory, and so on: the smallest
        must not keep a system that needs every machine from running at all."""
        memory = {machine: self.cluster.machines[machine].memory for machine in sorted(machines)}
        for least in sorted(set(memory.values())):
            yield [machine for machine in memory if memory[machine] >= least]

    def most_that_fit(self, space: JobSpace, machines: Sequence[int]) -> Found | None:
        """The best shape on these machines, or without as many of the smallest GPUs as it takes; None where nothing
        fits."""
        return next(filter(None, (self.arranged(space, group) for group in self.by_memory(machines))), None)

    def placement(self, space: JobSpace, skeleton: Skeleton) -> Placement:
        """The plan of a skeleton that fits, by the price."""
        plan, _ = space.plan(skeleton)
        price = price_job(space.job, plan, self.cluster, compute=self.compute, engine=self.engine)
        assert not isinstance(price, Infeasible), price.reason
        return Placement(plan, price.step, price.breakdown)

    def obstacle(self, space: JobSpace) -> str | None:
        """Why a job cannot run on this cluster whoever plans, where that is plain."""
        nowhere = why_no_place(space)
        if nowhere is not None:
            return nowhere
        if not space.allowed:
            return "no machine is in a region where the job may run"
        needed = state_bytes(space)
        room = self.room(space.allowed)
        if needed > room:
            return (
                f"weights, gradients and optimizer state take {format_size(needed)}, and all GPUs that the job may use "
                f"have {format_size(room)}"
            )
        return None


def recomputes(space: JobSpace) -> tuple[Recompute, ...]:
    """What of a job's activations its engine can compute again."""
    return SPACE[COLUMN["recompute"]].possible(space.scope)


def one_after_the_other(
    name: str, scene: Scene, place: Callable[[JobSpace, dict[str, str]], Placement | str]
) -> BaselineResult:
    """A result in which every job has all machines for itself. `place` answers with a placement or a reason to wait,
    and may leave a note under the job's name."""
    placed: dict[str, Placement] = {}
    waiting: dict[str, str] = {}
    notes: dict[str, str] = {}
    for space in scene.spaces:
        answer = scene.obstacle(space) or place(space, notes)
        if isinstance(answer, str):
            waiting[space.job.name] = answer
        else:
            placed[space.job.name] = answer
    return BaselineResult(name, concurrent=False, placed=placed, waiting=waiting, notes=notes)


def best_options(space: JobSpace, chains: tuple[Chain, ...], tried: Iterable[Options]) -> Found | None:
    """The best of several options for the same chains; None where none fits."""
    priced = [(skeleton, space.result(skeleton)) for skeleton in (Skeleton(chains, options) for options in tried)]
    return min((found for found in priced if found[1].runs), key=lambda found: found[1], default=None)


def tours(space: JobSpace, machines: Sequence[int]) -> list[list[int]]:
    """Greedy tours over the machines from every place among them."""
    starts = dict.fromkeys(space.places.of_machine[machine] for machine in machines)
    return [tour(space, machines, start) for start in starts]
