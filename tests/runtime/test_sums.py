"""How long sums of gradients take by the price of a run: cases small enough to work out by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pytest
from cases import CONFIGS

from hulk.cost.compiled import plain
from hulk.cost.compute import ComputeModel
from hulk.cost.engine import HULK, Engine
from hulk.cost.play import play
from hulk.cost.prepared import Prepared, prepare
from hulk.cost.price import closed_form, price_job
from hulk.cost.report import JobPrice
from hulk.cost.sync import chain_pieces
from hulk.cost.tables import without_sharing
from hulk.domain.options import Options, Schedule, Sharding, Sync
from hulk.domain.plan import JobPlan, Pipeline, Stage
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
OVERHEAD = HULK.hop_overhead


def prepared(
    folder: Path,
    *pipelines: list[tuple[str, int, int]],
    engine: Engine = HULK,
    model: str = "llama",
    microbatches: tuple[int, ...] = (),
    **options,
) -> Prepared:
    """Pipelines of stages (machine, first layer, last layer), ready to be priced."""
    counts = microbatches or (1,) * len(pipelines)
    (folder / "config.json").write_text(json.dumps(CONFIGS[model] | {"vocab_size": 20000}))
    (folder / "cluster.yaml").write_text(CLUSTER)
    entry = {"name": "job", "model": "./config.json", "sequence": 16, "global_batch": sum(counts)}
    (folder / "jobs.yaml").write_text(json.dumps({"jobs": [{**entry, "precision": "fp32"}]}))
    (job,) = load_jobs(folder / "jobs.yaml")
    made = tuple(
        Pipeline(tuple(Stage(m, (0,), a, b) for m, a, b in stages), count)
        for stages, count in zip(pipelines, counts, strict=True)
    )
    plan = JobPlan(made, Options(microbatch_size=1, **options))
    answer = prepare(
        job, plan, load_cluster(folder / "cluster.yaml"), compute=ComputeModel(bundled_profiles()), engine=engine
    )
    assert isinstance(answer, Prepared)
    return answer


def params(made: Prepared) -> float:
    """Parameters, those that layers share counted once."""
    tables = made.book.tables
    return float(tables.split[-1] + tables.whole[-1] - tables.tied[-1])


LAYERS = 4  # llama with 3 blocks: embedding, blocks, head
PLAIN = replace(HULK, bucket=None)


def seconds(made: Prepared) -> float:
    """Of a step, as it plays; the closed form says the same."""
    played = play([made])[0].seconds
    assert closed_form(made, without_sharing(made.book.tables)) == pytest.approx(played)
    return played


def passes(made: Prepared, stage: int = 0) -> float:
    return float(made.durations.forward[stage] + made.durations.backward[stage])


def test_two_replicas_swap_everything_in_one_trip(tmp_path):
    made = prepared(tmp_path, [("x-1", 0, LAYERS)], [("y-1", 0, LAYERS)], engine=PLAIN)
    trip = LATENCY + 4 * params(made) / RATE + OVERHEAD
    assert seconds(made) == pytest.approx(passes(made) + trip + made.durations.update[0])


def test_who_comes_late_finds_the_others_part_there(tmp_path):
    made = prepared(tmp_path, [("x-1", 0, LAYERS)], [("y-1", 0, LAYERS)], engine=PLAIN, microbatches=(1, 200))
    trip = LATENCY + 4 * params(made) / RATE + OVERHEAD
    late = 200 * passes(made, 1)
    assert late > passes(made) + trip
    # The first one waits for the second's part; the second is done when it has added its own.
    ends = play([made])[0].sync_end
    assert ends.tolist() == pytest.approx([late + trip, late])
    assert seconds(made) == pytest.approx(late + trip + made.durations.update[0])


def test_a_ring_takes_twice_as_many_rounds_as_hops(tmp_path):
    made = prepared(tmp_path, *([(name, 0, LAYERS)] for name in ("x-1", "x-2", "y-1", "y-2")), engine=PLAIN)
    rounds = 2 * (4 - 1)
    ring = rounds * (LATENCY + OVERHEAD + 4 * params(made) / 4 / RATE)
    assert seconds(made) == pytest.approx(passes(made) + ring + made.durations.update[0])


def test_a_chain_sends_pieces(tmp_path):
    made = prepared(tmp_path, *([(f"x-{i}", 0, LAYERS)] for i in (1, 2, 3)), sync=Sync.BY_REGION, engine=PLAIN)
    size = 4 * params(made)
    pieces = plain(chain_pieces)(size)
    assert pieces > 1
    one_way = 2 * LATENCY + (pieces + 1) * (size / pieces / RATE + OVERHEAD)
    assert seconds(made) == pytest.approx(passes(made) + 2 * one_way + made.durations.update[0])


def test_buckets_follow_one_another(tmp_path):
    shape = [("x-1", 0, LAYERS)], [("y-1", 0, LAYERS)]
    size = 4 * params(prepared(tmp_path, *shape))
    made = prepared(tmp_path, *shape, engine=replace(HULK, bucket=size / 2.5))
    trips = 3 * (LATENCY + OVERHEAD) + size / RATE
    # The first bucket leaves when backward has made a third of the gradients.
    first = passes(made) - 2 / 3 * (made.durations.backward[0] - HULK.pass_overhead)
    assert seconds(made) == pytest.approx(first + trips + made.durations.update[0], rel=1e-6)


def test_a_shared_parameter_is_added_up_once_among_all_who_hold_it(tmp_path):
    # gpt2 with 4 blocks; embedding and head share the largest matrix.
    alone = prepared(tmp_path, [("x-1", 0, 5)], [("y-1", 0, 5)], model="gpt2")
    (whole,) = alone.shares
    assert whole.size == pytest.approx(4 * params(alone))

    cut = prepared(tmp_path, [("x-1", 0, 2), ("x-2", 3, 5)], [("y-1", 0, 5)], model="gpt2")
    *sets, shared = cut.shares
    assert shared.members == (0, 1, 2) and shared.size == 4 * 20000 * 32
    assert [share.members for share in sets] == [(1, 2), (0, 2)]
    assert sum(share.size for share in sets) + shared.size == pytest.approx(4 * params(cut))

    # Other engines: replicas add up all they have, and then each pipeline's ends what they share.
    others = prepared(
        tmp_path, [("x-1", 0, 2), ("x-2", 3, 5)], [("y-1", 0, 5)], model="gpt2", engine=replace(HULK, shares_once=False)
    )
    *sets, pair = others.shares
    assert pair.members == (1, 0) and pair.size == shared.size
    assert sum(share.size for share in sets) == pytest.approx(4 * params(cut) + shared.size)


def test_owners_send_what_they_have_updated(tmp_path):
    shape = [("x-1", 0, LAYERS)], [("y-1", 0, LAYERS)]
    made = prepared(tmp_path, *shape, engine=PLAIN)
    price = price_job(
        made.job,
        replace(made.plan, options=replace(made.plan.options, sharding=Sharding.OPTIMIZER)),
        made.cluster,
        compute=ComputeModel(bundled_profiles()),
        engine=PLAIN,
    )
    assert isinstance(price, JobPrice)
    trip = LATENCY + 4 * params(made) / RATE + OVERHEAD
    weights = 2 * LATENCY + 4 * params(made) / 2 / RATE + OVERHEAD
    # Parameters are dealt out whole, so the two do not have exactly half each.
    assert price.step == pytest.approx(passes(made) + trip + made.durations.update[0] / 2 + weights, rel=0.02)


def test_a_stage_goes_on_when_it_is_done_itself(tmp_path):
    """gpt2 in two stages, which share the embedding: the first sends its part last, and need not wait for more."""
    made = prepared(tmp_path, [("x-1", 0, 2), ("y-1", 3, 5)], model="gpt2", engine=PLAIN)
    durations = made.durations
    forward, backward = durations.forward, durations.backward
    hop = LATENCY + durations.send_forward[0]
    back = LATENCY + durations.send_backward[0]
    ends = list(accumulate([forward[0], hop, forward[1], backward[1], back, backward[0]]))
    trip = LATENCY + 4 * 20000 * 32 / RATE + OVERHEAD
    first = max(ends[5], ends[3] + trip) + durations.update[0]
    second = ends[5] + trip + durations.update[1] - ends[1]
    assert seconds(made) == pytest.approx(max(first, second))
    waits = prepared(tmp_path, [("x-1", 0, 2), ("y-1", 3, 5)], model="gpt2", engine=replace(PLAIN, rolls=False))
    assert seconds(waits) == pytest.approx(ends[5] + trip + durations.update[1])


def test_messages_of_the_next_step_are_there_when_a_late_stage_comes_to_them(tmp_path):
    """The second stage of gpt2, by GPipe over a slow link, waits long for the first one's part of the embedding. In a
    step alone it is the one that takes longest; but while it waits, activations of the next step come in, and from then
    on the first one decides, which waits for the second one's part."""
    count = 8
    made = prepared(
        tmp_path,
        [("x-1", 0, 2), ("y-1", 3, 5)],
        model="gpt2",
        engine=replace(PLAIN, message_overhead=0.02),
        microbatches=(count,),
        schedule=Schedule.parse("gpipe"),
    )
    durations, tables = made.durations, made.book.tables
    (forward, its_forward), backward = durations.forward.tolist(), float(durations.backward[1])
    assert durations.send_forward[0] > max(forward, its_forward)  # forwards wait for the link
    turn = forward + count * durations.send_forward[0] + LATENCY + its_forward
    below_head = float(tables.backward[0][5] - tables.backward[0][3])  # still to do when the head's gradient is there
    trip = LATENCY + 4 * 20000 * 32 / RATE + OVERHEAD
    played = play([made])[0].seconds
    assert played == pytest.approx(turn + count * backward - below_head + trip + durations.update[0], rel=1e-6)
    assert played < 0.99 * closed_form(made, tables)
