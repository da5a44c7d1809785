"""Alike machines are named, and pipelines ordered, so that the least bytes move: against all other ways there are."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest

import small
from hulk.cost.engine import HULK
from hulk.cost.moving import overlap, plan_moves, shards_held
from hulk.domain.check import check_plan
from hulk.domain.cluster import change_cluster
from hulk.domain.options import Options, Recompute, Sharding
from hulk.domain.plan import JobPlan, Pipeline, Plan, Stage
from hulk.io.cluster_file import read_cluster
from hulk.io.yamlfile import parse_document
from hulk.replan.gpus import keep_gpus
from hulk.replan.matching import match
from hulk.replan.naming import alike, renamed
from hulk.replan.scene import Scene

CLUSTER = read_cluster(
    parse_document(
        """
name: alike
regions: {rome: {at: [41.9, 12.5]}, paris: {at: [48.9, 2.4]}}
machines:
  - {name: a, count: 4, region: rome, gpu: a100-80, gpus: 4}
  - {name: b, count: 3, region: paris, gpu: a100-80, gpus: 4}
  - {name: own, region: rome, gpu: a100-80, gpus: 4}
links:
  - {between: [rome, paris], latency: 12 ms, bandwidth: 5 Gbit/s}
  - {between: [own, a-1], latency: 1 ms, bandwidth: 1 Gbit/s}
""",
        name="alike.yaml",
    )
)
JOB = small.jobs()[0]
LAYERS = len(JOB.model.layers)


def drawn(rng: np.random.Generator, machines: list[str], *, shard: bool, used: dict[str, int] | None = None) -> JobPlan:
    """A plan on some of these machines: pipelines with cuts of their own, now and then two stages on one machine."""
    used = {} if used is None else used
    pipelines = []
    for _ in range(int(rng.integers(1, 4))):
        own = [name for name in rng.permutation(machines).tolist() if used.get(name, 0) < 4][: int(rng.integers(1, 4))]
        cuts = sorted(rng.choice(np.arange(1, LAYERS), size=len(own) - 1, replace=False).tolist()) if own else []
        stages = []
        for name, first, after in zip(own, [0, *cuts], [*cuts, LAYERS], strict=True):
            gpu = used.get(name, 0)
            used[name] = gpu + 1
            stages.append(Stage(name, (gpu,), first, after - 1))
        if stages:
            pipelines.append(stages)
    shares = np.full(len(pipelines), 16 // len(pipelines))
    shares[0] += 16 - shares.sum()
    made = tuple(Pipeline(tuple(stages), int(share)) for stages, share in zip(pipelines, shares, strict=True))
    return JobPlan(made, Options(2, recompute=Recompute.FULL, sharding=Sharding.OPTIMIZER if shard else Sharding.NONE))


def scene(plan: Plan, lost: tuple[str, ...] = ()) -> Scene:
    left = change_cluster(CLUSTER, lost, ())
    return Scene(plan, (JOB,), CLUSTER, left, frozenset(lost), 86400.0, small.compute(), HULK)


def moved(old: JobPlan, new: JobPlan, lost: tuple[str, ...] = ()) -> float:
    return sum(move.bytes for move in plan_moves(JOB, old, new, CLUSTER, lost))


def all_names(plan: JobPlan, left: list[str]) -> list[dict[str, str]]:
    """Every way to name the machines of a plan anew among alike ones."""
    ways = []
    for kind in (("a-1",), ("a-2", "a-3", "a-4"), ("b-1", "b-2", "b-3"), ("own",)):
        own = [name for name in plan.machines if name in kind]
        others = [name for name in kind if name in left]
        ways.append([dict(zip(own, chosen, strict=True)) for chosen in permutations(others, len(own))])
    return [{name: other for part in way for name, other in part.items()} for way in product(*ways)]


@pytest.mark.parametrize("seed", range(24))
def test_no_other_names_move_less(seed):
    rng = np.random.default_rng(seed)
    shard = seed % 3 == 0
    machines = [machine.name for machine in CLUSTER.machines]
    old = drawn(rng, machines, shard=shard)
    lost = (old.machines[0],)
    left = [name for name in machines if name not in lost]
    new = drawn(rng, left, shard=shard)
    made = scene(Plan({JOB.name: old}), lost).option({JOB.name: new}, {JOB.name: ""})
    assert made is not None
    found = made.plans[JOB.name]
    assert not set(lost).intersection(found.machines)
    check_plan(Plan({JOB.name: found}), CLUSTER, [JOB])
    ways = all_names(new, left)
    assert len(ways) > 1
    least = min(moved(old, renamed(new, names), lost) for names in ways)
    assert moved(old, found, lost) <= least * (1 + 1e-9)
    assert sum(move.bytes for move in made.moves[JOB.name]) == pytest.approx(moved(old, found, lost))


def test_machines_with_links_of_their_own_or_kept_from_a_job_are_like_no_other():
    kinds = alike(CLUSTER, {"bert": frozenset({"b-2"})})
    assert kinds["a-2"] == kinds["a-3"] == kinds["a-4"] != kinds["a-1"] != kinds["own"]
    assert kinds["b-1"] == kinds["b-3"] != kinds["b-2"]


@pytest.mark.parametrize("seed", range(12))
def test_what_a_machine_lacks_is_what_moves(seed):
    rng = np.random.default_rng(100 + seed)
    machines = [machine.name for machine in CLUSTER.machines]
    old, new = (drawn(rng, machines, shard=bool(rng.random() < 0.5)) for _ in range(2))
    lost = (machines[int(rng.integers(len(machines)))],)
    common = overlap(JOB, old, new, lost)
    lacks = {
        name: common.needs[i] - (common.held[i, common.holders.index(name)] if name in common.holders else 0.0)
        for i, name in enumerate(common.targets)
    }
    arrives = dict.fromkeys(lacks, 0.0)
    for move in plan_moves(JOB, old, new, CLUSTER, lost):
        arrives[move.target] += move.bytes
    assert arrives == pytest.approx(lacks, abs=1.0)


def test_pipelines_stand_where_their_shards_are():
    last = LAYERS - 1
    fast, slow = (
        Pipeline((Stage("a-1", (0, 1), 0, last),), 10),
        Pipeline((Stage("b-1", (0,), 0, last),), 6),
    )
    old = JobPlan((fast, slow), Options(2, sharding=Sharding.OPTIMIZER))
    turned = (replace(slow, microbatches=5), replace(fast, microbatches=11))
    new = JobPlan(turned, Options(2, sharding=Sharding.OPTIMIZER))
    assert moved(old, new) > 0
    held = shards_held(JOB, old, new)
    assert held[0, 0] == held[1, 1] == 0
    assert held[0, 1] == held[1, 0] > 0
    made = scene(Plan({JOB.name: old})).option({JOB.name: new}, {JOB.name: ""})
    assert made is not None
    assert made.moves[JOB.name] == ()
    assert [p.stages[0].machine for p in made.plans[JOB.name].pipelines] == ["a-1", "b-1"]


def test_stages_keep_the_gpus_with_most_of_their_layers():
    last = LAYERS - 1
    old = JobPlan((Pipeline((Stage("a-1", (3,), 0, 9), Stage("a-1", (1,), 10, last)), 16),), Options(2))
    # The first stage has more in common with the second GPU, the second one with nothing else.
    new = JobPlan((Pipeline((Stage("a-1", (0,), 0, 20), Stage("a-1", (1,), 21, last)), 16),), Options(2))
    kept = keep_gpus(new, old, CLUSTER, {})
    assert kept is not None
    assert [stage.gpus for stage in kept.pipelines[0].stages] == [(3,), (1,)]
    wide = JobPlan((Pipeline((Stage("a-1", (0, 1), 0, last),), 16),), Options(2))
    kept = keep_gpus(wide, old, CLUSTER, {})
    assert kept is not None
    assert kept.pipelines[0].stages[0].gpus == (1, 3)
    assert keep_gpus(wide, old, CLUSTER, {"a-1": {0, 1, 2}}) is None


def test_matching_finds_the_least_sum():
    rng = np.random.default_rng(5)
    for _ in range(150):
        rows = int(rng.integers(1, 5))
        costs = rng.integers(-4, 5, (rows, rows + int(rng.integers(3)))).astype(float)
        found = match(costs)
        assert len(set(found)) == rows
        least = min(costs[range(rows), way].sum() for way in permutations(range(costs.shape[1]), rows))
        assert costs[range(rows), found].sum() == least
