"""Gradient sync has one description: who holds which layers, in which groups, how many bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from factories import FixedTimes, cluster, job
from hulk.cost.prepared import Prepared, prepare
from hulk.cost.price import price_job
from hulk.cost.report import JobPrice
from hulk.domain.cluster import Link
from hulk.domain.options import Options, Sharding, Sync
from hulk.domain.plan import JobPlan, Pipeline, Stage, idle_machines, layer_holders
from keep_prices import compute_model, draw_case, job_plan


def drawn() -> Iterator[Prepared]:
    for index in range(0, 300, 2):
        case = draw_case(index)
        for each in case.jobs:
            plan = job_plan(case.ways[each.name])
            one = prepare(each, plan, case.cluster, compute=compute_model(), engine=case.engine)
            if isinstance(one, Prepared):
                yield one


def pipeline(*stages: tuple[str, int, int]) -> Pipeline:
    return Pipeline(tuple(Stage(machine, (0,), first, last) for machine, first, last in stages), 4)


def test_layers_are_held_where_the_pipelines_have_them() -> None:
    two = pipeline(("a", 0, 1), ("b", 2, 3)), pipeline(("c", 0, 2), ("a", 3, 3))
    found = [(layers, [stage.machine for stage in stages]) for layers, stages in layer_holders(two)]
    assert found == [(range(2), ["a", "c"]), (range(2, 3), ["b", "c"]), (range(3, 4), ["b", "a"])]
    plan = JobPlan(two, Options(1))
    assert plan.machines == ("a", "b", "c")
    assert [stage.machine for stage in plan.stages] == ["a", "b", "c", "a"]
    assert idle_machines([plan], ["d", "a", "c", "e"]) == ("d", "e")
    assert idle_machines([], ["d"]) == ("d",)


def test_each_layer_is_added_up_once_by_those_who_hold_it() -> None:
    seen = 0
    for one in drawn():
        stages = one.stages
        sets = {share.layers: share.members for share in one.shares if share.layers}
        if len(one.plan.pipelines) == 1:
            assert not sets
            continue
        expected = {}
        for layers, holders in layer_holders(one.plan.pipelines):
            expected[layers.start, layers.stop - 1] = [(holder.machine, holder.gpus) for holder in holders]
        assert {key: [(stages[n].machine, stages[n].gpus) for n in rows] for key, rows in sets.items()} == expected
        params = one.job.model.params
        if not one.engine.shares_once:
            params += sum(layer.tied for layer in one.job.model.layers)
        size = sum(share.size for share in one.shares if share.layers or one.engine.shares_once)
        assert size == pytest.approx(params * one.engine.wire_bytes(one.job.precision))
        seen += 1
    assert seen > 50


def test_groups_have_every_member_once_and_a_region_each() -> None:
    chains = 0
    for one in drawn():
        regions = [one.cluster.machine(stage.machine).region for stage in one.stages]
        for share in one.shares:
            assert sorted(n for chain in share.chains for n in chain) == sorted(share.members)
            if one.plan.options.sync is Sync.BY_REGION and (share.layers or one.engine.shares_once):
                assert all(len({regions[n] for n in chain}) == 1 for chain in share.chains)
                assert len({regions[n] for n in share.leaders}) == len(share.chains)
            else:
                assert share.leaders == share.members
            inside, across = len(share.members) - len(share.chains), len(share.chains) - 1
            sent = sum(size for _, _, size in share.hops())
            assert sent == pytest.approx(2 * (inside + across) * share.size)
            chains += inside > 0
    assert chains > 20


def test_bytes_between_regions_are_paid_for_as_they_are_sent() -> None:
    here = cluster({"a": "x", "b": "x", "c": "y"}, default=Link(0.0, 1e9), egress=1e-9)
    ring = JobPlan(tuple(pipeline((name, 0, 3)) for name in ("a", "b", "c")), Options(1))
    wanted = job(4, global_batch=12)
    size = 4 * 4e6

    def egress(plan: JobPlan) -> float:
        price = price_job(wanted, plan, here, compute=FixedTimes())  # type: ignore[arg-type]
        assert isinstance(price, JobPrice)
        return price.money.egress

    assert egress(ring) == pytest.approx(2 * 4 / 3 * size * 1e-9)
    by_region = replace(ring, options=replace(ring.options, sync=Sync.BY_REGION))
    assert egress(by_region) == pytest.approx(2 * size * 1e-9)
    # Weights: an n-th each, to everyone in the other region.
    assert egress(replace(by_region, options=replace(by_region.options, sharding=Sharding.OPTIMIZER))) == pytest.approx(
        (2 + 4 / 3) * size * 1e-9
    )


def test_one_replica_alone_sends_no_weights() -> None:
    here = cluster({"a": "x", "b": "y"}, default=Link(0.0, 1e9), egress=1e-9)
    plan = JobPlan((pipeline(("a", 0, 1), ("b", 2, 3)),), Options(1))
    tied = job(4, global_batch=4)
    layers = tied.model.layers
    shared = replace(tied.model, layers=(*layers[:-1], replace(layers[-1], tied=1_000_000)))
    prices = [
        price_job(
            replace(tied, model=shared),
            replace(plan, options=replace(plan.options, sharding=Sharding.OPTIMIZER if sharded else Sharding.NONE)),
            here,
            compute=FixedTimes(),
        )  # type: ignore[arg-type]
        for sharded in (False, True)
    ]
    assert all(isinstance(price, JobPrice) for price in prices)
    assert prices[0].money.egress == prices[1].money.egress > 0  # type: ignore[union-attr]
