"""Proposals: what the network is told, what becomes of its answer, and what happens without a network."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from scenes import SCALE, exported, exported_folder, packed, packed_without

from hulk.cost.engine import HULK
from hulk.domain.options import COLUMN
from hulk.gnn.generator import scattered
from hulk.io.profiles import bundled_compute
from hulk.propose import Facts, Graph, Network, load_network, paper_policy, proposals, starts
from hulk.propose.decode import affordable, complete, decode, owners, table_of
from hulk.propose.network import Answer
from hulk.propose.recipe import HEADS, UNKNOWN, Head, classes_of, recipes_of, with_codes
from hulk.propose.refine import refined, trimmed
from hulk.propose.repair import MEMORY, repaired
from hulk.search.assignment.race import GroupSearch
from hulk.search.deals import empty_deal
from hulk.search.layouts import DEGREE, LAYOUT, LENGTH, SLOW_DEGREE, TOUR
from hulk.search.results import LACKS, OPEN, RUNS
from hulk.search.spaces import spaces_of

SEEDS = range(12)


@pytest.fixture(scope="module")
def network() -> Network:
    return exported()


def _permuted(facts: Facts, places: np.ndarray, jobs: np.ndarray) -> Facts:
    changed = {}
    for field in fields(Facts):
        values = getattr(facts, field.name)
        if field.name in ("rate", "usable"):
            changed[field.name] = values[jobs][:, places]
        elif field.name in ("latency", "bandwidth", "measured"):
            changed[field.name] = values[places][:, places]
        else:
            order = jobs if field.name in ("need", "flops", "weight", "cut", "layers", "batch") else places
            changed[field.name] = values[order]
    return Facts(**changed)


@pytest.mark.parametrize("seed", SEEDS)
def test_order_does_not_matter(seed: int, network: Network) -> None:
    facts = Facts.of(packed(seed))
    rng = np.random.default_rng(seed)
    places, jobs = rng.permutation(facts.places), rng.permutation(facts.jobs)
    known = rng.dirichlet(np.ones(facts.jobs + 1), (1, facts.places)) * rng.integers(0, 2, (1, facts.places, 1))
    columns = np.append(jobs, facts.jobs)
    straight = network.run(Graph.of(facts), known)
    turned = network.run(Graph.of(_permuted(facts, places, jobs)), known[:, places][:, :, columns])
    for a, b in zip(straight[:2], turned[:2], strict=True):
        np.testing.assert_allclose(np.exp(a[0][places][:, columns]), np.exp(b[0]), atol=2e-4)
    np.testing.assert_allclose(straight.recipes[0][jobs], turned.recipes[0], atol=2e-3)
    np.testing.assert_allclose(straight.beside[0][places][:, places], turned.beside[0], atol=2e-3)
    np.testing.assert_allclose(straight.beside[0], straight.beside[0].T, atol=1e-4)


def test_scale_does_not_matter(network: Network) -> None:
    """Twice the FLOPs on GPUs twice as fast, twice the bytes in memories and links twice as large: the same graph."""
    facts = Facts.of(packed(1))
    same = replace(
        facts, rate=2 * facts.rate, flops=2 * facts.flops, room=2 * facts.room, need=2 * facts.need, cut=2 * facts.cut,
        bandwidth=2 * facts.bandwidth, card=2 * facts.card, local=2 * facts.local,
    )  # fmt: skip
    for field in fields(Graph):
        a, b = (getattr(Graph.of(each), field.name) for each in (facts, same))
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_deals_are_allowed_and_hold_their_models(seed: int, network: Network) -> None:
    scene = packed(seed)
    facts = Facts.of(scene)
    deals = proposals(scene, np.random.default_rng(seed), samples=4, rounds=3, network=network).deals
    assert 1 <= len(deals) <= 4
    for owner in (deal.owner for deal in deals):
        assert owner.shape == scene.place.shape
        assert owner.dtype == np.int64
        held = owner >= 0
        assert scene.allowed[owner[held], np.flatnonzero(held)].all()
        for job in range(facts.jobs):
            group = np.flatnonzero(owner == job)
            if group.size:
                assert scene.room[group].sum() >= MEMORY * scene.need[job]
                where = np.unique(scene.place[group])
                strongest = where[np.argmax([scene.rate[job, group[scene.place[group] == p]].sum() for p in where])]
                ways = scene.latency[strongest, where]
                assert np.isfinite(ways[where != strongest]).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_no_machine_is_dealt_twice(seed: int, network: Network) -> None:
    facts = Facts.of(packed(seed))
    tables, shares = decode(network, facts, Graph.of(facts), np.random.default_rng(seed), samples=3, rounds=4)
    for table, share in zip(tables, shares, strict=True):
        for each in (table, repaired(facts, table, share)):
            assert (each >= 0).all()
            assert (each.sum(axis=1) == facts.members).all()
            assert (np.rint(facts.usable * facts.members) >= each[:, :-1].T).all()


def test_machines_kept_from_a_job_stay_away_from_it(network: Network) -> None:
    cluster, jobs = scattered(1, SCALE)
    kept = frozenset(machine.name for machine in cluster.machines[::2])
    scene = packed_without(cluster, jobs, {jobs[0].name: kept})
    for deal in proposals(scene, np.random.default_rng(0), samples=4, network=network).deals:
        assert not (deal.owner[::2] == 0).any()


def test_the_same_seed_gives_the_same_deals(network: Network) -> None:
    once, again = (proposals(packed(2), np.random.default_rng(5), samples=4, network=network).deals for _ in range(2))
    assert all((a.owner == b.owner).all() and (a.recipes == b.recipes).all() for a, b in zip(once, again, strict=True))


def test_a_search_may_order_stages_as_the_network_would(network: Network) -> None:
    cluster, jobs = scattered(6, SCALE)
    groups = GroupSearch(spaces_of(cluster, jobs, bundled_compute()), np.random.default_rng(0))
    scene = groups.packed
    before = scene.tours.copy()
    assert starts(groups, rng=np.random.default_rng(1), network=network, samples=2)
    assert (scene.tours == before).all()
    scene = groups.packed
    apart = scene.tours[-1]
    assert (scene.tours[:-1] == before[:-1]).all()
    assert (np.isinf(apart) == np.isinf(scene.latency)).all()
    # One job on all machines, one pipeline: from every place on to the one that is least apart of those still to come.
    deal = empty_deal(scene)
    deal.owner[scene.allowed[0]] = 0
    deal.status[:] = LACKS
    deal.status[0], deal.value[0] = RUNS, 1.0
    deal.recipes[0, [DEGREE, SLOW_DEGREE, LENGTH, TOUR]] = 8, 8, 1000, len(scene.tours) - 1
    skeleton = groups.state(deal).skeletons[0]
    assert skeleton is not None
    tour = list(dict.fromkeys(scene.place[slot.machine] for chain in skeleton.chains for slot in chain))
    assert len(tour) > 3
    for i in range(len(tour) - 1):
        assert apart[tour[i], tour[i + 1]] == apart[tour[i], tour[i + 1 :]].min()


def _search(seed: int) -> GroupSearch:
    cluster, jobs = scattered(seed, SCALE)
    return GroupSearch(spaces_of(cluster, jobs, bundled_compute()), np.random.default_rng(0))


@pytest.mark.parametrize("seed", [2, 3, 6])
def test_refining_makes_no_deal_worse(seed: int, network: Network) -> None:
    groups = _search(seed)
    deals = proposals(groups.packed, np.random.default_rng(1), samples=3, rounds=3, network=network).deals
    judged = [groups.judged(deal.owner, deal.recipes) for deal in deals]
    leaner = [trimmed(groups, deal) for deal in judged]
    assert all(groups.cost(a) <= groups.cost(b) for a, b in zip(leaner, judged, strict=True))
    better = refined(groups, network, leaner, np.random.default_rng(2), times=4)
    assert [groups.cost(deal) for deal in better] == sorted(groups.cost(deal) for deal in better)
    assert groups.cost(better[0]) <= min(map(groups.cost, leaner))
    for deal in better:
        held = deal.owner >= 0
        assert groups.packed.allowed[deal.owner[held], np.flatnonzero(held)].all()
        assert (deal.status != OPEN).all()


def test_refining_is_cut_short_by_its_deadline(network: Network) -> None:
    groups = _search(2)
    deals = starts(groups, rng=np.random.default_rng(1), network=network, samples=3, times=1000, deadline=0.0)
    assert len(deals) == 1
    assert groups.budget.hurried


def test_moves_are_made_with_the_first_proposal(network: Network) -> None:
    """Before the others are asked for, and what comes of them is the first answer where it is the best."""
    groups = _search(3)
    own = groups.drawn()
    deals = starts(groups, rng=np.random.default_rng(4), network=network, samples=3, own=own, moves=200)
    assert groups.budget.tried >= 200
    costs = [groups.cost(deal) for deal in deals]
    assert costs == sorted(costs)
    assert costs[0] <= groups.cost(own)


def test_the_same_seed_refines_the_same_way(network: Network) -> None:
    once, again = (
        starts(_search(3), rng=np.random.default_rng(4), network=network, samples=3, times=3) for _ in range(2)
    )
    assert all((a.owner == b.owner).all() and (a.recipes == b.recipes).all() for a, b in zip(once, again, strict=True))


def test_a_scattered_group_leaves_what_slows_it_down() -> None:
    """One job on all machines that reach each other is slower than on a part of them, where regions are far apart."""
    groups = _search(6)
    owner = np.where(groups.packed.allowed[0], 0, -1)
    everywhere = groups.judged(owner)
    leaner = trimmed(groups, everywhere, only=np.array([0]))
    assert groups.cost(leaner) < groups.cost(everywhere)
    assert (leaner.owner == 0).sum() < (everywhere.owner == 0).sum()


def test_what_is_known_of_a_table_stays(network: Network) -> None:
    facts = Facts.of(packed(2))
    rng = np.random.default_rng(0)
    tables, _ = decode(network, facts, Graph.of(facts), rng, samples=3, rounds=3)
    known = tables * (rng.random((3, facts.places, 1)) < 0.5)
    after, _ = complete(network, facts, Graph.of(facts), rng, known, rounds=3, temperature=0.6)
    assert (after >= known).all()
    assert (after.sum(axis=2) == facts.members).all()


def test_owners_stay_where_counts_allow_it(network: Network) -> None:
    scene = packed(2)
    facts = Facts.of(scene)
    tables, _ = decode(network, facts, Graph.of(facts), np.random.default_rng(0), samples=2, rounds=3)
    one, two = (owners(scene, table) for table in tables)
    assert (owners(scene, table_of(one, scene), one) == one).all()
    moved = owners(scene, table_of(two, scene), one)
    assert (table_of(moved, scene) == table_of(two, scene)).all()
    kept = np.minimum(table_of(one, scene), table_of(two, scene))[:, :-1].sum()
    assert ((moved == one) & (moved >= 0)).sum() == kept


def test_recipes_become_classes_and_come_back() -> None:
    scene = packed(2)
    rng = np.random.default_rng(0)
    jobs = len(scene.need)
    wanted = np.stack([[rng.integers(len(head.values)) for head in HEADS] for _ in range(jobs)])
    logits = np.concatenate([np.eye(len(head.values))[wanted[:, i]] for i, head in enumerate(HEADS)], axis=1)
    recipes = with_codes(recipes_of(logits, scene, rng, likeliest=True), scene)
    # A job that shares no embedding has nothing to fold, a batch may not have every microbatch size, and an engine not
    # every value.
    not_all = {"folded", "microbatch_size", *HULK.tried}
    known = [i for i, head in enumerate(HEADS) if head.name not in not_all]
    assert (classes_of(recipes)[:, known] == wanted[:, known]).all()
    assert (classes_of(np.zeros_like(recipes)) == UNKNOWN).all()


def test_heads_are_read_by_name() -> None:
    """A network that lists its heads in another order, one that no recipe has, and not all there are: what it says
    counts by name, and the rest is drawn as a search draws it."""
    scene = packed(2)
    jobs, rng = len(scene.need), np.random.default_rng(0)
    heads = [Head("sharding", ("none", "optimizer")), Head("gone", (1, 2, 3)), Head("schedule", ("1f1b+4", "3f2b"))]
    logits = np.tile([0.0, 5.0, 9.0, 0.0, 0.0, 0.0, 9.0], (jobs, 1))  # the network likes a schedule that is gone, too
    recipes = with_codes(recipes_of(logits, scene, rng, likeliest=True, heads=heads), scene)
    assert (recipes[:, LAYOUT + COLUMN["sharding"]] == 1).all()
    assert (recipes[:, LAYOUT + COLUMN["schedule"]] == 4).all()
    drawn = [with_codes(recipes_of(logits, scene, rng, likeliest=True, heads=heads), scene) for _ in range(20)]
    assert len({int(each[0, LAYOUT + COLUMN["sync"]]) for each in drawn}) == 2


def test_a_job_without_machines_gets_some() -> None:
    facts = Facts.of(packed(4))
    shares = np.zeros((facts.places, facts.jobs + 1))
    table = np.zeros((facts.places, facts.jobs + 1), np.int64)
    table[:, 0] = facts.members  # one job has it all
    fixed = repaired(facts, table, shares)
    assert (fixed[:, :-1].sum(axis=0) > 0).sum() > 1


@pytest.mark.parametrize("seed", SEEDS)
def test_the_papers_policy_gives_no_machine_twice(seed: int, network: Network) -> None:
    scene = packed(seed)
    owner = paper_policy(scene, network)
    held = owner >= 0
    assert scene.allowed[owner[held], np.flatnonzero(held)].all()
    for job in set(owner[held].tolist()):
        assert scene.room[owner == job].sum() >= MEMORY * scene.need[job]


def test_owners_give_what_the_table_says() -> None:
    scene = packed(3)
    facts = Facts.of(scene)
    table = np.zeros((facts.places, facts.jobs + 1), np.int64)
    table[:, -1] = facts.members
    table[0] = [1] + [0] * (facts.jobs - 1) + [facts.members[0] - 1]
    assert (owners(scene, table) == 0).sum() == facts.usable[0, 0]


class _OneClassEach:
    """Says of every job that it would do well in any class, but only in one, and with one machine."""

    def run(self, graph: Graph, known: np.ndarray) -> Answer:
        samples, places, columns = known.shape
        placed = (known[..., :-1] > 0).any(axis=1, keepdims=True)
        wish = np.where(placed, 1e-6, 1.0) * np.ones((samples, places, columns - 1))
        idle = np.where(placed.all(axis=2, keepdims=True), 1.0, 1e-6) * np.ones((samples, places, 1))
        wish = np.concatenate([wish, idle], axis=2)
        amounts = np.full(known.shape, 1e-6)
        amounts[..., -1] = 1.0
        shares = np.log(wish / wish.sum(axis=2, keepdims=True))
        nothing = np.zeros(0)
        return Answer(shares, amounts, nothing, nothing)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_that_would_do_well_here_or_there_does_not_get_a_part_of_both(seed: int) -> None:
    """As long as there are rounds enough for every job to get its class."""
    facts = Facts.of(packed(seed))
    facts = replace(facts, usable=np.ones_like(facts.usable), members=np.full(facts.places, facts.jobs))
    rng = np.random.default_rng(seed)
    tables, _ = decode(_OneClassEach(), facts, Graph.of(facts), rng, samples=3, rounds=facts.jobs + facts.places)
    assert ((tables[..., :-1] > 0).sum(axis=1) == 1).all()
    assert (tables[..., :-1].sum(axis=1) == 1).all()
    assert (tables.sum(axis=2) == facts.members).all()


def test_samples_shrink_with_size() -> None:
    facts = Facts.of(packed(1))
    many = replace(facts, members=np.ones(400, np.int64), need=np.ones(60))
    assert affordable(facts, 16, 8) == (16, 8)
    samples, rounds = affordable(many, 16, 8)
    assert samples >= 2
    assert rounds >= 3
    assert samples * rounds < 16 * 8


def _broken(folder: Path, name: str) -> None:
    card, data = folder / "network.json", folder / "network.onnx"
    if name == "missing":
        data.unlink()
    elif name == "no card":
        card.unlink()
    elif name == "card is no JSON":
        card.write_text("{")
    elif name == "card is a list":
        card.write_text("[]")
    elif name == "other format":
        card.write_text(json.dumps({**json.loads(card.read_text()), "format": 0}))
    elif name == "hash":
        data.write_bytes(data.read_bytes() + b"x")
    elif name == "no ONNX":
        data.write_bytes(b"not a network")
        digest = hashlib.sha256(b"not a network").hexdigest()
        card.write_text(json.dumps({**json.loads(card.read_text()), "sha256": digest}))


@pytest.mark.parametrize(
    "name", ["missing", "no card", "card is no JSON", "card is a list", "other format", "hash", "no ONNX"]
)
def test_a_broken_network_is_none_with_a_warning(name: str, tmp_path: Path) -> None:
    shutil.copytree(exported_folder(), tmp_path, dirs_exist_ok=True)
    assert load_network(tmp_path) is not None
    _broken(tmp_path, name)
    with pytest.warns(RuntimeWarning, match="no graph network") as said:
        assert load_network(tmp_path) is None
    assert len(said) == 1
    assert "\n" not in str(said[0].message)


def test_without_a_network_there_are_no_proposals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hulk.propose.decode.bundled_network", lambda: None)
    assert proposals(packed(1), np.random.default_rng(0)) == ([], None)
