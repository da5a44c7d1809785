"""Every objective and every solver on small mixed clusters. An index out of bounds raises IndexError here; unchecked it
would read or write somewhere else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import small
from hulk.cost import step
from hulk.cost.compiled import is_cached
from hulk.cost.compute import ComputeModel
from hulk.cost.engine import HULK
from hulk.cost.prepared import Prepared, prepare
from hulk.cost.tables import Hosts, encode, make_book
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.io.profiles import bundled_profiles
from hulk.planner import Policy, plan_jobs
from hulk.propose import bundled_network
from hulk.replan import Change, replan
from hulk.search import fit, refine
from hulk.search.assignment import anneal, archive, moves
from hulk.search.budget import Effort
from hulk.search.exact import alone, capacity, listing, solve_exactly, teams, timing
from hulk.search.objective import Objective
from hulk.search.request import Request
from hulk.search.shape import anneal as polishing
from hulk.simulate import simulate
from test_exact import make_cluster, make_job

COMPUTE = ComputeModel(bundled_profiles())
OBJECTIVES = {
    "time": Objective(),
    "max-cost": Objective(most_dollars_per_second=6 / 3600),
    "max-cost that nothing keeps": Objective(most_dollars_per_second=1e-9),
    "min-throughput": Objective(least_tokens_per_second=2e4),
    "min-throughput that nothing reaches": Objective(least_tokens_per_second=1e15),
    "cheapest": Objective(cheapest=True),
    "cheapest within limits": Objective(most_dollars_per_second=9 / 3600, least_tokens_per_second=1e3, cheapest=True),
}


def scene(seed: int) -> tuple[Cluster, list[Job]]:
    """Three to five machines of mixed types, some pair blocked, and one to three jobs, some tight."""
    rng = np.random.default_rng(seed)
    gpus = [int(rng.choice([1, 2, 3, 4, 8])) for _ in range(int(rng.integers(3, 6)))]
    jobs = []
    for i in range(1 + seed % 3):
        hidden, blocks = int(rng.choice([512, 1024])), int(rng.integers(1, 9))
        job = make_job(f"j{i}", blocks, hidden=hidden, batch=int(rng.choice([4, 12, 16])), tied=rng.random() < 0.5)
        job = replace(job, tokens=1e9, weight=float(rng.choice([1.0, 3.0])))
        jobs.append(replace(job, deadline=float(np.exp(rng.uniform(5, 14)))) if rng.random() < 0.5 else job)
    memory = 18.0 * max(job.model.params for job in jobs) * float(rng.choice([0.3, 1.0, 4.0]))
    cluster = make_cluster(rng, gpus, regions=int(rng.integers(1, 4)), memory=memory, blocked=False)
    priced = tuple(replace(m, price=m.gpus * float(rng.uniform(0.1, 3)) / 3600) for m in cluster.machines)
    return replace(cluster, machines=priced), jobs


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=list(OBJECTIVES))
def test_every_objective(objective):
    for seed in range(8):
        cluster, jobs = scene(seed)
        pins = {jobs[0].name: frozenset({cluster.machines[-1].name})} if seed % 2 else {}
        request = Request(cluster, tuple(jobs), COMPUTE, objective=objective, pins=pins)
        result = plan_jobs(request, Effort(evaluations=300, seed=seed, time_limit=60))
        assert set(result.plan.jobs) | set(result.plan.waiting) == {job.name for job in jobs}
        by_name = {job.name: job for job in jobs}
        ready = [prepare(by_name[name], own, cluster, compute=COMPUTE) for name, own in result.plan.jobs.items()]
        assert all(isinstance(one, Prepared) for one in ready)
        assert simulate(ready, cluster).steps.keys() == result.plan.jobs.keys()


def test_the_network_and_the_paper():
    cluster, jobs = scene(5)
    many = tuple(replace(cluster.machines[i % len(cluster.machines)], name=f"m{i}") for i in range(30))
    for policy in Policy:
        request = Request(replace(cluster, machines=many), tuple(jobs), COMPUTE)
        effort = Effort(evaluations=400, time_limit=20)
        result = plan_jobs(request, effort, network=bundled_network(), policy=policy)
        assert set(result.plan.jobs) | set(result.plan.waiting) == {job.name for job in jobs}


def test_the_exact_solver():
    for seed in range(4):
        rng = np.random.default_rng(seed)
        job = make_job("j", 2, hidden=512, batch=4, tied=seed % 2 == 0)
        cluster = make_cluster(rng, (2, 1, 1), regions=2, memory=18.0 * job.model.params * 2, blocked=False)
        plan, seconds = solve_exactly(cluster, [job], compute=COMPUTE)
        assert (seconds["j"] is None) == ("j" in plan.waiting)


def test_replanning():
    request, effort = Request(small.cluster(), small.jobs(), small.compute()), Effort(evaluations=300, time_limit=10)
    found = replan(small.plan(), request, Change(("rome-2",)), horizon=3e6, effort=effort)
    assert "rome-2" not in {
        stage.machine for own in found.plan.jobs.values() for p in own.pipelines for stage in p.stages
    }


def test_the_checks_are_on_and_reached_the_compiled_code():
    kernels = (
        fit.fit, refine.refine, step.durations, step.step_seconds, anneal.improve, moves.deal_out, polishing.polish,
        polishing.propose, archive.remember, archive.combine, listing.list_chains, alone.best_alone, timing.time_chains,
        capacity.most_microbatches, teams.best_team,
    )  # fmt: skip
    for kernel in kernels:  # compiled here, or kept by another process with the same checks
        assert kernel.signatures or is_cached(kernel), kernel
    cluster, jobs = scene(0)
    result = plan_jobs(Request(cluster, tuple(jobs[:1]), COMPUTE), Effort(evaluations=50))
    with pytest.raises(IndexError):
        step.seconds_of(*_broken(cluster, jobs[0], result.plan.jobs[jobs[0].name]))


def _broken(cluster, job, plan):
    """A plan whose last stage ends behind the last layer."""
    stages = plan.stages
    book = make_book(
        job, Hosts.of(cluster, plan.machines), ranks=[stage.ranks for stage in stages],
        options=plan.options, compute=COMPUTE, engine=HULK,
    )  # fmt: skip
    encoded = encode(plan, cluster, book)
    encoded.last[-1] += 5
    return book.tables, encoded
