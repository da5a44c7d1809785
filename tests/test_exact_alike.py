"""What only pipelines that are all alike can have, solved exactly, against plain brute force."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hulk.cost.engine import HULK, MEGATRON, MEGATRON_DEEPSPEED, TORCHTITAN, WHOLE_BACKWARD, Engine
from hulk.cost.layers import build_model
from hulk.cost.prepared import Prepared, prepare
from hulk.cost.price import closed_form
from hulk.cost.step import seconds_of
from hulk.cost.tables import Hosts, encode, make_book
from hulk.domain.architecture import Architecture, Family
from hulk.domain.check import check_plan
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.options import SPACE, Options, Schedule, ScheduleKind, Scope, Sharding, Within, normal
from hulk.domain.plan import JobPlan, Pipeline, Stage
from hulk.io.cluster_file import load_cluster
from hulk.io.jobs_file import load_jobs
from hulk.io.plan_file import load_plan
from hulk.io.profiles import bundled_compute
from hulk.search.exact import solve_exactly
from hulk.search.exact.alike import alike_modes
from hulk.search.job_space import JobSpace, Places
from test_exact import CLOSE, COMPUTE, all_pipelines, compositions, machine_slots, make_cluster, make_job
from warm import hulk

# --- brute force: nothing of it comes from the solver ---


def least_seconds(cluster: Cluster, job: Job, engine: Engine) -> float | None:
    """Of all plans of any pipelines, and with several chunks or backward split, of pipelines that are all alike."""
    names = [machine.name for machine in cluster.machines]
    hosts, layers = Hosts.of(cluster, names), len(job.model.layers)
    heads = max(layer.head_width for layer in job.model.layers)
    scope = Scope(job, engine.tried)
    possible = {choice.name: choice.possible(scope, fine=True, regular=True) for choice in SPACE}
    in_tables = [choice.name for choice in SPACE if choice.in_tables]
    others = [name for name in ("shard_within", "sync") if name in possible]
    best: float | None = None
    for values in product(*(possible[name] for name in in_tables)):
        fixed = Options(**dict(zip(in_tables, values, strict=True)))
        total = job.global_batch // fixed.microbatch_size
        book = make_book(job, hosts, ranks=[1, 2], options=fixed, compute=COMPUTE, engine=engine)
        for chunks in (n for n in possible["chunks"] if n <= layers // 2):
            some = all_alike(cluster, names, layers, total, chunks)
            for pipelines in all_pipelines(cluster, names, layers, total) if chunks == 1 else some:
                if any(heads % stage.ranks for pipeline in pipelines for stage in pipeline.stages):
                    continue
                for schedule in schedules(possible["schedule"], total):
                    regular = chunks > 1 or schedule.splits_backward
                    if regular and (len(pipelines[0].stages) == 1 or not are_alike(pipelines)):
                        continue
                    for left in product(*(possible[name] for name in others)):
                        more = dict(zip(others, left, strict=True))
                        plan = JobPlan(pipelines, replace(fixed, chunks=chunks, schedule=schedule, **more))
                        if plan.options != normal(plan.options, plan.shape):
                            continue  # the same as another
                        seconds = seconds_of(book.tables, encode(plan, cluster, book))
                        if seconds >= 0 and (best is None or seconds < best):
                            best = seconds
    return best


def schedules(possible: Sequence[Schedule], total: int) -> list[Schedule]:
    kinds = {schedule.kind for schedule in possible} - {ScheduleKind.GPIPE}
    return [Schedule(kind, extra) for kind in kinds for extra in range(total)]


def are_alike(pipelines: Sequence[Pipeline]) -> bool:
    return len({(p.microbatches, tuple((s.ranks, s.first, s.last) for s in p.stages)) for p in pipelines}) == 1


def all_alike(
    cluster: Cluster, names: Sequence[str], layers: int, total: int, chunks: int
) -> Iterator[tuple[Pipeline, ...]]:
    """Pipelines of two stages or more, all alike, that go round several times."""
    for slots in product(*(machine_slots(cluster.machine(name)) for name in names)):
        for order in set(permutations(slot for some in slots for slot in some)):
            for replicas in range(1, len(order) // 2 + 1):
                stages, left = divmod(len(order), replicas)
                if left or total % (replicas * stages) or stages * chunks > layers:
                    continue
                for cut in compositions(layers, stages * chunks):
                    ends = np.cumsum([0, *cut]).tolist()
                    made = tuple(
                        Pipeline(
                            tuple(
                                Stage(*order[p * stages + n % stages], a, b - 1)
                                for n, (a, b) in enumerate(pairwise(ends))
                            ),
                            total // replicas,
                        )
                        for p in range(replicas)
                    )
                    if are_alike(made):
                        yield made


def agreed(cluster: Cluster, job: Job, engine: Engine) -> Options | None:
    """The options of the solver's plan, which was checked, priced, and held against brute force; None: it waits."""
    plan, seconds = solve_exactly(cluster, [job], compute=COMPUTE, engine=engine)
    check_plan(plan, cluster, [job])
    expected, got = least_seconds(cluster, job, engine), seconds[job.name]
    assert (expected is None) == (got is None)
    if expected is None or got is None:
        return None
    ready = prepare(job, plan.jobs[job.name], cluster, compute=COMPUTE, engine=engine)
    assert isinstance(ready, Prepared)
    assert closed_form(ready, ready.book.tables) == pytest.approx(got, rel=1e-9)
    assert got == pytest.approx(expected, rel=CLOSE)
    return plan.jobs[job.name].options


def only(engine: Engine, **tried: Sequence[Any]) -> Engine:
    """The engine with a search that tries these values; of options that are not named, those that the engine `hulk`
    is planned with at most."""
    free = ("microbatch_size", "schedule", "sync")
    plain: Mapping[str, Any] = {choice.name: choice.values[:1] for choice in SPACE if choice.name not in free}
    whole = {"schedule": WHOLE_BACKWARD, "sharding": (Sharding.NONE, Sharding.OPTIMIZER)}
    return replace(engine, searched={**plain, **whole, **tried})


def near(cluster: Cluster, *, times: float = 20.0) -> Cluster:
    """The same with links that are so many times as good."""
    links = {
        key: replace(link, latency=link.latency / times, bandwidth=link.bandwidth * times)
        for key, link in cluster.region_links.items()
    }
    return replace(cluster, region_links=links)


def drawn(seed: int, gpus: Sequence[int], job: Job, *, regions: int = 2, room: Sequence[float] = (0.3, 0.6)) -> Cluster:
    """Machines with room for such parts of the job's state on a GPU, or half as much more or less."""
    rng = np.random.default_rng([11, seed])
    memory = 18.0 * job.model.params * float(rng.choice(room))
    made = near(make_cluster(rng, gpus, regions=regions, memory=memory, blocked=False))
    more = HULK.reserve - TORCHTITAN.reserve  # than the engine leaves to tensors that `make_cluster` has in mind
    return replace(made, machines=tuple(replace(host, memory=host.memory - more) for host in made.machines))


def tiny(
    blocks: int = 1, *, hidden: int = 512, heads: int = 4, experts: int = 0, batch: int, sequence: int = 512
) -> Job:
    """A job of some blocks between an embedding and a head."""
    architecture = Architecture(
        family=Family.DECODER, hidden=hidden, layers=blocks, heads=heads, kv_heads=heads, head_dim=hidden // heads,
        ffn=2 * hidden, vocab=2048, embedding=hidden, positions=sequence, tied=False, experts=experts,
        experts_per_token=min(experts, 2),
    )  # fmt: skip
    return Job("a", build_model(architecture, name="a", sequence=sequence), batch)


@pytest.mark.parametrize("sharding", [Sharding.GRADIENTS, Sharding.PARAMETERS], ids=str)
def test_sharded_gradients_and_parameters(sharding: Sharding) -> None:
    """Those who split must be alike; within machines and regions, some are split less."""
    tried = (Sharding.NONE, Sharding.OPTIMIZER, sharding)
    engine = only(TORCHTITAN, sharding=tried, shard_within=tuple(Within))
    small, large = tiny(hidden=1024, heads=2, batch=4), tiny(2, hidden=2048, heads=1, batch=4)
    found = [agreed(drawn(seed, (2, 1), small), small, engine) for seed in range(4)]
    found += [
        agreed(drawn(1, gpus, large, regions=1, room=(0.65,)), large, engine) for gpus in ((2,), (1, 1), (1, 1, 1))
    ]
    assert any(options.sharding is sharding for options in found if options)


ZERO_BUBBLE = Schedule(ScheduleKind.ZERO_BUBBLE)


def test_interleaved_stages_and_split_backwards() -> None:
    engine = only(TORCHTITAN, chunks=range(1, 5), schedule=(*WHOLE_BACKWARD, ZERO_BUBBLE))
    job, other = tiny(2, heads=1, batch=4), make_job("a", 2, hidden=1024, batch=4, tied=True)
    found = [agreed(drawn(2, (2,), job, regions=1, room=(room,)), job, engine) for room in (0.8, 1.5)]
    found += [agreed(drawn(seed, (1, 1), other, regions=1, room=(0.8,)), other, engine) for seed in range(3)]
    assert any(options.chunks > 1 for options in found if options)
    assert any(options.schedule.splits_backward for options in found if options)


def test_interleaved_stages_of_an_engine_that_splits_no_backward() -> None:
    engine, job = only(MEGATRON, chunks=range(1, 5)), tiny(2, heads=1, batch=4)
    found = agreed(drawn(2, (2,), job, regions=1, room=(0.8,)), job, engine)
    assert found is not None and found.chunks > 1


def test_split_experts() -> None:
    engine = only(MEGATRON, expert=(1, 2), shard_within=tuple(Within))
    job = tiny(experts=8, batch=4)
    rooms = ((0, 0.5), (1, 0.8), (2, 2.0))
    found = [agreed(drawn(seed, (2, 1), job, room=(room,)), job, engine) for seed, room in rooms]
    assert any(options.expert == 2 for options in found if options)


def test_experts_split_by_those_who_share_a_sequence() -> None:
    engine = only(TORCHTITAN, expert=(1, 2), context=(1, 2), sharding=tuple(Sharding))
    job = tiny(experts=4, batch=2, sequence=8192)
    agreed(drawn(0, (2, 1), job), job, engine)


@pytest.mark.parametrize("engine", [MEGATRON, TORCHTITAN, replace(HULK, searched={})], ids=lambda engine: engine.name)
def test_everything_an_engine_has(engine: Engine) -> None:
    """All options at once, on two GPUs of one machine and of two."""
    job = make_job("a", 2, hidden=512, batch=2, tied=True, sequence=4096)
    for seed, gpus in enumerate([(2,), (1, 1)]):
        assert agreed(drawn(seed, gpus, job, regions=len(gpus), room=(12.0,)), job, engine)


def test_several_replicas_in_their_best_order() -> None:
    """Three of them in two regions: where sums go first counts, and who is near whom."""
    engine, job = only(TORCHTITAN, sharding=tuple(Sharding), shard_within=tuple(Within)), tiny(batch=3, sequence=2048)
    found = []
    for seed in range(3):
        made = near(drawn(seed, (1, 1, 1), job, room=(20.0,)))
        alike = tuple(replace(machine, gpu=made.machines[0].gpu) for machine in made.machines)
        found.append(agreed(replace(made, machines=alike), job, engine))
    assert any(options.shard_optimizer for options in found if options)


def test_an_engine_without_any_of_it_is_solved_as_before() -> None:
    job = make_job("a", 1, hidden=512, batch=2, tied=False)
    cluster = drawn(0, (2, 1), job)
    for engine, has in ((HULK, False), (MEGATRON_DEEPSPEED, False), (MEGATRON, True), (TORCHTITAN, True)):
        space = JobSpace(job, cluster, Places.of(cluster), compute=COMPUTE, engine=engine)
        assert bool(alike_modes(space)) == has


CLUSTER = """
name: two
regions: {rome: {at: [41.9, 12.5]}}
machines:
  - {name: rome, count: 2, region: rome, gpu: rtx-2080ti, gpus: 1, network: 100 Gbit/s}
"""
JOBS = "jobs: [{name: a, model: ./m.json, sequence: 512, global_batch: 4}]"
CONFIG = {"model_type": "gpt2", "n_embd": 2048, "n_layer": 6, "n_head": 16, "n_positions": 512, "vocab_size": 8192}


def test_the_command_line_has_it(tmp_path: Path) -> None:
    """The plan that is written is the solver's, keeps all invariants, and is priced as it is printed."""
    for name, text in (("c.yaml", CLUSTER), ("j.yaml", JOBS), ("m.json", json.dumps(CONFIG))):
        (tmp_path / name).write_text(text)
    files = ("c.yaml", "j.yaml", "--engine", "torchtitan", "--headroom", "0%")
    done = hulk("plan", *files, "--exact", "-o", "p.json", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    cluster, jobs = load_cluster(tmp_path / "c.yaml"), load_jobs(tmp_path / "j.yaml")
    plan, compute = load_plan(tmp_path / "p.json"), bundled_compute()
    check_plan(plan, cluster, jobs)
    _, seconds = solve_exactly(cluster, jobs, compute=compute, engine=TORCHTITAN)
    ready = prepare(jobs[0], plan.jobs["a"], cluster, compute=compute, engine=TORCHTITAN)
    assert isinstance(ready, Prepared)
    assert closed_form(ready, ready.book.tables) == pytest.approx(seconds["a"], rel=1e-9)
    assert plan.jobs["a"].options.sharding in (Sharding.GRADIENTS, Sharding.PARAMETERS)
    priced = hulk("price", "p.json", "-c", "c.yaml", "-j", "j.yaml", "--engine", "torchtitan", "--json", cwd=tmp_path)
    assert json.loads(priced.stdout)["jobs"]["a"]["step_s"] == json.loads(done.stdout)["price"]["jobs"]["a"]["step_s"]
