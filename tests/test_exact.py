"""The exact solver against plain brute force, and what must hold of optima."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from itertools import combinations, pairwise, permutations, product

import numpy as np
import pytest

from hulk.cost.compute import ComputeModel
from hulk.cost.engine import HULK, MEGATRON, MEGATRON_DEEPSPEED, Engine
from hulk.cost.layers import build_model
from hulk.cost.prepared import Prepared, prepare
from hulk.cost.price import closed_form
from hulk.cost.step import seconds_of
from hulk.cost.tables import Hosts, encode, make_book
from hulk.domain.architecture import Architecture, Family
from hulk.domain.check import check_plan
from hulk.domain.cluster import BLOCKED, Cluster, Link, Machine, Region, pair
from hulk.domain.job import Job, Rule
from hulk.domain.options import SPACE, Options, Schedule, ScheduleKind, Scope, Sharding, Sync
from hulk.domain.plan import JobPlan, Pipeline, Stage
from hulk.errors import InputError
from hulk.io.gpus import gpu
from hulk.io.profiles import bundled_profiles
from hulk.search.exact import solve_exactly
from hulk.search.objective import Objective, job_cost

COMPUTE = ComputeModel(bundled_profiles())
GPUS = ("t4", "v100-16", "a10g", "rtx-4090", "h100")
CLOSE = 1e-6


def make_job(
    name: str, blocks: int, *, hidden: int, batch: int, tied: bool, sequence: int = 256, **kwargs: object
) -> Job:
    architecture = Architecture(
        family=Family.DECODER, hidden=hidden, layers=blocks, heads=4, kv_heads=4, head_dim=hidden // 4, ffn=4 * hidden,
        vocab=2048, embedding=hidden, positions=max(1024, sequence), tied=tied,
    )  # fmt: skip
    return Job(name, build_model(architecture, name=name, sequence=sequence), batch, **kwargs)  # type: ignore[arg-type]


def make_cluster(
    rng: np.random.Generator, gpus: Sequence[int], *, regions: int, memory: float, blocked: bool
) -> Cluster:
    """Machines of mixed types. `memory`: bytes beside what the engine reserves, give or take a half."""
    names = [f"r{i}" for i in range(regions)]
    machines = []
    for i, count in enumerate(gpus):
        kind = gpu(str(rng.choice(GPUS)))
        room = 1.5 * 2**30 + memory * float(rng.uniform(0.5, 1.5))
        region = names[i] if i < regions else str(rng.choice(names))
        machines.append(Machine(f"m{i}", region, kind, count, room, float(rng.choice([1e9, 3e9])), 0.0))
    links = {}
    for i, a in enumerate(names):
        links[pair(a, a)] = Link(1e-4, 2e9)
        for b in names[i + 1 :]:
            links[pair(a, b)] = Link(
                float(rng.uniform(1e-4, 5e-3)), float(np.exp(rng.uniform(np.log(1e8), np.log(3e9))))
            )
    if blocked:
        links[pair(names[0], names[-1])] = BLOCKED
    return Cluster("small", tuple(Region(name) for name in names), tuple(machines), links)


# --- brute force: nothing of it comes from the solver ---


def brute_force(cluster: Cluster, jobs: Sequence[Job], engine: Engine = HULK) -> float | None:
    """The least sum of costs with every job running, or None where they cannot all run."""
    tables = [best_by_machines(cluster, job, engine) for job in jobs]
    costs = []
    for chosen in product(*(table.items() for table in tables)):
        sets = [machines for machines, _ in chosen]
        if all(not a & b for a, b in combinations(sets, 2)):
            costs.append(sum(job_cost(job, seconds) for job, (_, seconds) in zip(jobs, chosen, strict=True)))
    return min(costs, default=None)


def best_by_machines(cluster: Cluster, job: Job, engine: Engine) -> dict[frozenset[str], float]:
    """The least seconds for every set of machines in use."""
    best: dict[frozenset[str], float] = {}
    names = [machine.name for machine in cluster.machines if job.may_run_in(machine.region)]
    hosts = Hosts.of(cluster, names)
    possible = {choice.name: choice.possible(Scope(job, engine.tried)) for choice in SPACE}
    tried = ("recompute", "sequence_parallel", "context")
    shardings = (Sharding.NONE, Sharding.OPTIMIZER)
    for size, sharding, *values in product((1, 2, 4, 8), shardings, *(possible[name] for name in tried)):
        if job.global_batch % size:
            continue
        total = job.global_batch // size
        options = Options(size, sharding=sharding, **dict(zip(tried, values, strict=True)))
        book = make_book(job, hosts, ranks=[1, 2, 4], options=options, compute=COMPUTE, engine=engine)
        for pipelines in all_pipelines(cluster, names, len(job.model.layers), total):
            if breaks_rules(cluster, job, pipelines):
                continue
            schedules = [Schedule(ScheduleKind.GPIPE), *(Schedule(ScheduleKind.ONE_F_ONE_B, k) for k in range(total))]
            for schedule, sync in product(schedules, Sync):
                plan = JobPlan(pipelines, replace(options, schedule=schedule, sync=sync))
                encoded = encode(plan, cluster, book)
                seconds = seconds_of(book.tables, encoded)
                if seconds >= 0:
                    used = frozenset(stage.machine for pipeline in pipelines for stage in pipeline.stages)
                    best[used] = min(best.get(used, seconds), seconds)
    return best


def breaks_rules(cluster: Cluster, job: Job, pipelines: Sequence[Pipeline]) -> bool:
    """Whether a layer is where a rule does not let it be."""
    for rule, pipeline in product(job.place, pipelines):
        for stage in pipeline.stages:
            is_there = any(fnmatchcase(cluster.machine(stage.machine).region, pattern) for pattern in rule.patterns)
            if is_there == rule.forbidden and rule.layers.intersection(stage.layers):
                return True
    return False


def all_pipelines(cluster: Cluster, names: Sequence[str], layers: int, total: int) -> Iterator[tuple[Pipeline, ...]]:
    for slots in product(*(machine_slots(cluster.machine(name)) for name in names)):
        every = [slot for some in slots for slot in some]
        for order in set(permutations(every)):
            for lengths in compositions(len(order)):
                if len(lengths) > total or max(lengths, default=0) > layers:
                    continue
                bounds = np.cumsum([0, *lengths])
                chains = [order[a:b] for a, b in pairwise(bounds)]
                all_cuts = product(*(compositions(layers, len(chain)) for chain in chains))
                for cuts, shares in product(list(all_cuts), compositions(total, len(chains))):
                    if chains:
                        yield tuple(make_pipelines(chains, cuts, shares))


def machine_slots(machine: Machine) -> list[list[tuple[str, tuple[int, ...]]]]:
    """Every way to use some of a machine's GPUs, each GPU by its number."""
    found = []
    for degrees in ((), (1,), (2,), (1, 1), (4,), (2, 1), (2, 2), (1, 1, 1), (2, 1, 1), (1, 1, 1, 1)):
        if sum(degrees) <= machine.gpus:
            starts = np.cumsum([0, *degrees])
            found.append([(machine.name, tuple(range(a, a + t))) for a, t in zip(starts, degrees, strict=False)])
    return found


def compositions(number: int, parts: int | None = None) -> list[tuple[int, ...]]:
    """Ways to write a number as an ordered sum."""
    if number == 0:
        return [()] if not parts else []
    firsts = range(1, number + 1)
    if parts is not None:
        return [(a, *rest) for a in firsts if parts > 0 for rest in compositions(number - a, parts - 1)]
    return [(a, *rest) for a in firsts for rest in compositions(number - a)]


def make_pipelines(
    chains: Sequence[Sequence[tuple[str, tuple[int, ...]]]], cuts: Sequence[Sequence[int]], shares: Sequence[int]
) -> Iterator[Pipeline]:
    for chain, cut, share in zip(chains, cuts, shares, strict=True):
        ends = np.cumsum([0, *cut]).tolist()
        stages = (Stage(name, gpus, a, b - 1) for (name, gpus), a, b in zip(chain, ends, ends[1:], strict=False))
        yield Pipeline(tuple(stages), share)


def exact_cost(cluster: Cluster, jobs: Sequence[Job], engine: Engine = HULK) -> float | None:
    """The solver's cost, its plan checked and priced; None where a job waits."""
    plan, seconds = solve_exactly(cluster, jobs, compute=COMPUTE, engine=engine)
    check_plan(plan, cluster, jobs)
    assert set(plan.jobs) | set(plan.waiting) == {job.name for job in jobs}
    for job in jobs:
        its = seconds[job.name]
        assert (its is None) == (job.name in plan.waiting)
        if its is not None:
            ready = prepare(job, plan.jobs[job.name], cluster, compute=COMPUTE, engine=engine)
            assert isinstance(ready, Prepared)
            assert closed_form(ready, ready.book.tables) == pytest.approx(its, rel=1e-9)
    if plan.waiting:
        return None
    return sum(job_cost(job, seconds[job.name]) for job in jobs)


def agree(cluster: Cluster, jobs: Sequence[Job], engine: Engine = HULK) -> None:
    expected, got = brute_force(cluster, jobs, engine), exact_cost(cluster, jobs, engine)
    assert (expected is None) == (got is None)
    if expected is not None:
        assert got == pytest.approx(expected, rel=CLOSE)


STATE = 18.0  # bytes a parameter


@pytest.mark.parametrize("seed", range(12))
def test_agrees_with_brute_force_one_job(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shapes = [((1, 1), 3, 4), ((1, 1, 1), 2, 4), ((2, 1), 2, 4), ((1, 1, 1), 1, 4)]
    gpus, blocks, batch = shapes[seed % len(shapes)]
    job = make_job("a", blocks, hidden=int(rng.choice([512, 1024, 2048])), batch=batch, tied=seed % 3 == 0)
    memory = STATE * job.model.params * float(rng.choice([0.5, 1.0, 3.0]))
    cluster = make_cluster(rng, gpus, regions=min(2, len(gpus)), memory=memory, blocked=seed % 5 == 4)
    agree(cluster, [job])


@pytest.mark.parametrize("seed", range(4))
def test_agrees_with_brute_force_several_replicas(seed: int) -> None:
    """Four replicas, so that the order of the ring and of the chains inside regions matters."""
    rng = np.random.default_rng(100 + seed)
    job = replace(make_job("a", 0, hidden=512, batch=4, tied=False, sequence=1024), global_batch=4)
    cluster = make_cluster(rng, (1, 1, 1, 1), regions=2 + seed % 2, memory=1e10, blocked=False)
    links = {
        key: replace(link, latency=link.latency / 50, bandwidth=link.bandwidth * 5)
        for key, link in cluster.region_links.items()
    }
    agree(replace(cluster, region_links=links), [job])


@pytest.mark.parametrize("seed", range(4))
def test_agrees_with_brute_force_two_jobs(seed: int) -> None:
    rng = np.random.default_rng(200 + seed)
    jobs = [
        make_job("a", 1, hidden=1024, batch=4, tied=True),
        make_job("b", 2, hidden=512, batch=2, tied=False, weight=3.0, deny=("r1",) if seed == 3 else ()),
    ]
    memory = STATE * jobs[0].model.params * float(rng.choice([0.6, 2.0]))
    agree(make_cluster(rng, (1, 1, 1), regions=2, memory=memory, blocked=seed == 2), jobs)


@pytest.mark.parametrize("seed", range(10))
def test_agrees_with_brute_force_with_rules(seed: int) -> None:
    """Layers tied to regions: the ends in one, some layers not in another, and now and then what cannot be."""
    rng = np.random.default_rng(400 + seed)
    gpus, blocks = [((1, 1, 1), 2), ((2, 1), 2), ((2, 1), 1), ((1, 1, 1), 1)][seed % 4]
    job = make_job("a", blocks, hidden=int(rng.choice([512, 1024])), batch=4, tied=seed % 3 == 0)
    layers = len(job.model.layers)
    first = int(rng.integers(0, layers))
    drawn_layers = frozenset(range(first, int(rng.integers(first, layers)) + 1))
    ends = Rule("ends", frozenset({0, layers - 1}), ("r0",))
    other = Rule("some", drawn_layers, (f"r{rng.integers(0, 2)}",), forbidden=bool(rng.random() < 0.7))
    place = [(ends,), (other,), (ends, other)][seed % 3]
    memory = STATE * job.model.params * float(rng.choice([0.6, 1.0, 3.0]))
    cluster = make_cluster(rng, gpus, regions=2, memory=memory, blocked=False)
    agree(cluster, [replace(job, place=place)])


@pytest.mark.parametrize("engine", [MEGATRON_DEEPSPEED, MEGATRON], ids=lambda engine: engine.name)
def test_agrees_with_brute_force_for_another_engine(engine: Engine) -> None:
    """Megatron's among them, which can recompute attention alone and split along the sequence."""
    rng = np.random.default_rng(300)
    job = make_job("a", 1, hidden=1024, batch=4, tied=True, sequence=1024)
    agree(make_cluster(rng, (2, 1), regions=2, memory=1e10, blocked=False), [job], engine)


def test_agrees_with_brute_force_where_sequences_are_shared() -> None:
    rng = np.random.default_rng(301)
    job = make_job("a", 1, hidden=512, batch=2, tied=False, sequence=8192)
    agree(make_cluster(rng, (2, 1), regions=1, memory=8e9, blocked=False), [job], MEGATRON)


# --- what must hold of optima ---

few = pytest.mark.parametrize("seed", range(12))


def drawn(seed: int) -> tuple[Cluster, list[Job]]:
    rng = np.random.default_rng([7, seed])
    jobs = [
        make_job(
            name, int(rng.integers(1, 4)), hidden=int(rng.choice([1024, 2048])), batch=int(rng.choice([4, 8])),
            tied=bool(rng.random() < 0.5), weight=float(rng.choice([1, 2])),
        )
        for name in ("a", "b")[: int(rng.integers(1, 3))]
    ]  # fmt: skip
    memory = STATE * jobs[0].model.params * float(rng.choice([0.6, 1.0, 3.0]))
    gpus = [int(g) for g in rng.choice([1, 2], size=int(rng.integers(2, 5)))]
    return make_cluster(rng, gpus, regions=min(3, len(gpus)), memory=memory, blocked=bool(rng.random() < 0.2)), jobs


@cache
def drawn_cost(seed: int) -> float | None:
    """The optimum of a drawn case, which all properties are about."""
    return exact_cost(*drawn(seed))


def no_worse(after: float | None, before: float | None) -> bool:
    return before is None or (after is not None and after <= before * (1 + CLOSE))


@few
def test_a_machine_more_is_never_worse(seed: int) -> None:
    cluster, jobs = drawn(seed)
    fewer = replace(cluster, machines=cluster.machines[:-1])
    assert no_worse(drawn_cost(seed), exact_cost(fewer, jobs))


@few
def test_a_faster_link_is_never_worse(seed: int) -> None:
    cluster, jobs = drawn(seed)
    key = sorted(key for key in cluster.region_links if key[0] != key[1])[seed % (len(cluster.regions) - 1)]
    link = cluster.region_links[key]
    faster = Link(1e-3, 1e9) if link.blocked else replace(link, latency=link.latency / 3, bandwidth=link.bandwidth * 2)
    better = replace(cluster, region_links={**cluster.region_links, key: faster})
    assert no_worse(exact_cost(better, jobs), drawn_cost(seed))


@few
def test_more_memory_is_never_worse(seed: int) -> None:
    cluster, jobs = drawn(seed)
    machines = list(cluster.machines)
    machines[seed % len(machines)] = replace(machines[seed % len(machines)], memory=24e9)
    assert no_worse(exact_cost(replace(cluster, machines=tuple(machines)), jobs), drawn_cost(seed))


@few
def test_order_does_not_matter(seed: int) -> None:
    cluster, jobs = drawn(seed)
    a, b = drawn_cost(seed), exact_cost(replace(cluster, machines=cluster.machines[::-1]), jobs[::-1])
    assert (a is None) == (b is None)
    assert a is None or b == pytest.approx(a, rel=CLOSE)


# --- refusals ---


def test_refuses_what_is_too_large() -> None:
    rng = np.random.default_rng(0)
    cluster = make_cluster(rng, [4] * 6, regions=2, memory=1e10, blocked=False)
    with pytest.raises(InputError, match="too large to be solved exactly: 24 GPUs"):
        solve_exactly(cluster, [make_job("a", 2, hidden=512, batch=8, tied=False)], compute=COMPUTE)
    cluster = make_cluster(rng, (1, 1), regions=2, memory=1e10, blocked=False)
    with pytest.raises(InputError, match="layers in 'a'"):
        solve_exactly(cluster, [make_job("a", 20, hidden=512, batch=8, tied=False)], compute=COMPUTE)


def test_refuses_other_objectives() -> None:
    cluster, jobs = drawn(0)
    with pytest.raises(InputError, match="default objective"):
        solve_exactly(cluster, jobs, compute=COMPUTE, objective=Objective(most_dollars_per_second=1.0))


def test_a_job_that_fits_nowhere_waits() -> None:
    cluster, jobs = drawn(0)
    small = replace(cluster, machines=tuple(replace(machine, memory=1.6e9) for machine in cluster.machines))
    plan, seconds = solve_exactly(small, jobs, compute=COMPUTE)
    assert not plan.jobs
    assert set(plan.waiting) == {job.name for job in jobs} == {name for name, its in seconds.items() if its is None}
    assert set(plan.idle) == {machine.name for machine in cluster.machines}
