"""What-ifs are real prices: they are reproduced here by changing the cluster by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

import small
from hulk.cost.engine import HULK
from hulk.cost.price import price_job
from hulk.domain.options import Recompute
from hulk.search.skeleton import skeleton_of
from hulk.whatif import FASTER_LINK, recut, suggest


@pytest.fixture(scope="module")
def whatifs():
    return suggest(small.plan(), small.cluster(), small.jobs(), compute=small.compute(), most=20)


def test_every_suggestion_is_a_gain_and_says_how_much(whatifs):
    assert whatifs
    for whatif in whatifs:
        assert whatif.after_s < whatif.before_s
        assert whatif.text.endswith(f"−{whatif.gain:.0%}".replace("%", " %"))


def test_ranked_by_the_gain_in_the_objective(whatifs):
    steps = {job.name: job.steps or 1.0 for job in small.jobs()}
    gains = [(w.before_s - w.after_s) * steps[w.job] for w in whatifs]
    assert gains == sorted(gains, reverse=True)


def test_most_is_per_job():
    few = suggest(small.plan(), small.cluster(), small.jobs(), compute=small.compute(), most=1)
    assert len({w.job for w in few}) == len(few)


def test_a_faster_link_is_priced_as_one(whatifs):
    found = next(w for w in whatifs if w.text.startswith("a 10 Gbit/s link paris–rome"))
    cluster, job = small.cluster(), small.jobs()[0]
    link = replace(cluster.region_link("paris", "rome"), bandwidth=FASTER_LINK)
    better = replace(cluster, region_links={**cluster.region_links, ("paris", "rome"): link})
    again = recut(job, small.plan().jobs["bert"], better, compute=small.compute(), engine=HULK)
    assert again is not None
    assert found.after_s == pytest.approx(again[1], rel=1e-9)
    price = price_job(job, again[0], better, compute=small.compute())
    assert price.step == pytest.approx(again[1], rel=1e-6)


def test_links_that_the_plan_does_not_use_are_not_suggested(whatifs):
    assert not any("oslo" in w.text for w in whatifs)


def test_recomputation_and_replicas_are_looked_at(whatifs):
    own = [w.text for w in whatifs if w.job == "bert"]
    assert any("the batch shared anew, and nothing recomputed" in text for text in own)
    assert any("without the slowest replica" in text for text in own)


def test_more_memory_is_looked_at_where_all_blocks_are_computed_again_or_none():
    engine = replace(HULK, counts=())
    found = suggest(small.plan(), small.cluster(), small.jobs(), compute=small.compute(), engine=engine, most=20)
    assert any("nothing is computed twice" in w.text for w in found if w.job == "bert")


def test_a_skeleton_read_back_gives_the_plan():
    job, cluster, own = small.jobs()[0], small.cluster(), small.plan().jobs["bert"]
    skeleton = skeleton_of(own, cluster)
    assert [len(chain) for chain in skeleton.chains] == [2, 2]
    assert skeleton.options.recompute is Recompute.FULL
    made, seconds = recut(job, own, cluster, compute=small.compute(), engine=HULK)
    assert [[s.machine for s in p.stages] for p in made.pipelines] == [["rome-1", "rome-1"], ["rome-2", "paris-1"]]
    assert seconds <= price_job(job, own, cluster, compute=small.compute()).step
