"""How long sums of gradients take by the price of a run: cases small enough to work out by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from cases import CONFIGS

from hulk.cost.compute import ComputeModel
from hulk.cost.engine import HULK, TORCH
from hulk.cost.prepared import Prepared, prepare
from hulk.cost.price import price_job
from hulk.cost.report import JobPrice
from hulk.cost.sums import Share, Wires, add_up, chain_pieces, shares
from hulk.domain.plan import JobPlan, Pipeline, Schedule, Stage, Sync
from hulk.io.cluster_file import load_cluster
from hulk.io.jobs_file import load_jobs
from hulk.io.profiles import bundled_profiles

LATENCY, RATE = 0.02, 12.5e6
CLUSTER = """
name: four
regions: {x: {}, y: {}}
machines:
  - {name: x, count: 3, region: x, gpu: v100-32, gpus: 2}
  - {name: y, count: 3, region: y, gpu: v100-32, gpus: 2}
links:
  - {between: [x, y], latency: 20 ms, bandwidth: 100 Mbit/s}
  - {inside: x, latency: 20 ms, bandwidth: 100 Mbit/s}
  - {inside: y, latency: 20 ms, bandwidth: 100 Mbit/s}
"""
OVERHEAD = TORCH.message_overhead


def prepared(folder: Path, *pipelines: list[tuple[str, int, int]], engine=TORCH, model="llama", **options) -> Prepared:
    """Pipelines of stages (machine, first layer, last layer), ready to be priced."""
    (folder / "config.json").write_text(json.dumps(CONFIGS[model] | {"vocab_size": 20000}))
    (folder / "cluster.yaml").write_text(CLUSTER)
    entry = {"name": "job", "model": "./config.json", "sequence": 16, "global_batch": len(pipelines)}
    (folder / "jobs.yaml").write_text(json.dumps({"jobs": [{**entry, "precision": "fp32"}]}))
    (job,) = load_jobs(folder / "jobs.yaml")
    made = tuple(Pipeline(tuple(Stage(m, (0,), a, b) for m, a, b in stages), 1) for stages in pipelines)
    plan = JobPlan(made, microbatch_size=1, schedule=Schedule(), **options)
    answer = prepare(
        job, plan, load_cluster(folder / "cluster.yaml"), compute=ComputeModel(bundled_profiles()), engine=engine
    )
    assert isinstance(answer, Prepared)
    return answer


def params(made: Prepared) -> float:
    """Parameters, those that layers share counted once."""
    tables = made.book.tables
    return float(tables.split[-1] + tables.whole[-1] - tables.tied[-1])


def wanted(made: Prepared) -> list[Share]:
    return shares(made.book.tables, made.encoded, made.durations, made.sets)


def summed(made: Prepared, **late: float) -> list[float]:
    """When each replica has the sum of the only share, if all are ready at 0 but those that are late."""
    (share,) = wanted(made)
    ready = {n: late.get(f"stage{n}", 0.0) for n in share.members}
    return list(add_up(Wires(made.book.tables, made.encoded), share, ready, 1e12).values())


LAYERS = 4  # llama with 3 blocks: embedding, blocks, head


def test_two_replicas_swap_everything_in_one_trip(tmp_path):
    made = prepared(tmp_path, [("x-1", 0, LAYERS)], [("y-1", 0, LAYERS)])
    trip = LATENCY + 4 * params(made) / RATE + OVERHEAD
    assert summed(made) == pytest.approx([trip, trip])
    # Who comes late finds the other's part there.
    assert summed(made, stage1=10.0) == pytest.approx([10.0 + trip, 10.0])


def test_a_ring_of_equal_hops_is_the_closed_form(tmp_path):
    shape = [[(name, 0, LAYERS)] for name in ("x-1", "x-2", "y-1", "y-2")]
    made, plain = prepared(tmp_path, *shape), prepared(tmp_path, *shape, engine=HULK)
    rounds = 2 * (4 - 1)
    assert summed(made) == pytest.approx([plain.durations.set_seconds[0] + rounds * OVERHEAD] * 4)


def test_a_chain_sends_pieces(tmp_path):
    made = prepared(tmp_path, *([(f"x-{i}", 0, LAYERS)] for i in (1, 2, 3)), sync=Sync.BY_REGION)
    size = 4 * params(made)
    pieces = chain_pieces(size)
    assert pieces > 1
    one_way = 2 * LATENCY + (pieces + 1) * (size / pieces / RATE + OVERHEAD)
    assert max(summed(made)) == pytest.approx(2 * one_way)


def test_buckets_follow_one_another(tmp_path):
    made = prepared(tmp_path, [("x-1", 0, LAYERS)], [("y-1", 0, LAYERS)])
    (share,) = wanted(made)
    ready = dict.fromkeys(share.members, 0.0)
    ends = add_up(Wires(made.book.tables, made.encoded), share, ready, share.size / 2.5)
    assert list(ends.values()) == pytest.approx([3 * (LATENCY + OVERHEAD) + share.size / RATE] * 2)


def test_a_shared_parameter_is_added_up_once_among_all_who_hold_it(tmp_path):
    # gpt2 with 4 blocks; embedding and head share the largest matrix.
    (whole,) = wanted(alone := prepared(tmp_path, [("x-1", 0, 5)], [("y-1", 0, 5)], model="gpt2"))
    assert whole.size == pytest.approx(4 * params(alone))

    cut = prepared(tmp_path, [("x-1", 0, 2), ("x-2", 3, 5)], [("y-1", 0, 5)], model="gpt2")
    *sets, shared = wanted(cut)
    assert shared.members == (0, 1, 2) and shared.size == 4 * 20000 * 32
    assert [share.members for share in sets] == [(1, 2), (0, 2)]
    assert sum(share.size for share in sets) + shared.size == pytest.approx(4 * params(cut))


def test_the_step_of_two_replicas_is_passes_and_the_sum(tmp_path):
    made = prepared(tmp_path, [("x-1", 0, LAYERS)], [("y-1", 0, LAYERS)])
    price = price_job(made.job, made.plan, made.cluster, compute=ComputeModel(bundled_profiles()), engine=TORCH)
    assert isinstance(price, JobPrice)
    passes = made.durations.forward[0] + made.durations.backward[0]
    trip = LATENCY + 4 * params(made) / RATE + OVERHEAD
    assert price.step == pytest.approx(passes + trip + made.durations.update[0])
    sharded = price_job(
        made.job,
        replace(made.plan, shard_optimizer=True),
        made.cluster,
        compute=ComputeModel(bundled_profiles()),
        engine=TORCH,
    )
    assert isinstance(sharded, JobPrice)
    weights = 2 * LATENCY + 4 * params(made) / 2 / RATE + OVERHEAD
    assert sharded.step == pytest.approx(passes + trip + made.durations.update[0] / 2 + weights)
