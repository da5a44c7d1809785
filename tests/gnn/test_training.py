"""Training: scenes by seed, labels, batches, the network, checkpoints and the export."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
from scenes import SHAPE, example, exported, packed, small_model
from typer.testing import CliRunner

from hulk.cli.app import app
from hulk.errors import InputError
from hulk.gnn.batches import Item, collate, grouped, reveal
from hulk.gnn.export import example_inputs
from hulk.gnn.generator import MEMORY_SHARE, Scale, irregular, scattered
from hulk.gnn.judge import TorchNetwork, judge, scenes_of, summary
from hulk.gnn.labels import (
    Budget,
    Example,
    load_examples,
    load_shard,
    make_example,
    make_shards,
    save_shard,
    scale_of,
)
from hulk.gnn.loss import completion_loss
from hulk.gnn.model import INPUTS, Proposer, Shape
from hulk.gnn.parts import part_of
from hulk.gnn.train import Settings, load_history, split, train, with_parts
from hulk.io.profiles import bundled_compute
from hulk.propose import Facts, Graph, Network, bundled_network
from hulk.propose.graph import FROM_LINKS

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def network() -> Network:
    return exported()


@pytest.fixture(scope="module")
def examples(network: Network) -> list[Example]:
    return [example(seed, network) for seed in range(14)]


@pytest.mark.parametrize("seed", range(5))
def test_a_seed_gives_one_scene(seed: int) -> None:
    assert scattered(seed) == scattered(seed)
    assert irregular(seed) == irregular(seed)
    assert scattered(seed) != scattered(seed + 100)


@pytest.mark.parametrize("seed", range(60))
def test_scenes_are_within_their_scale(seed: int) -> None:
    scale = Scale(least=4, most=300, jobs=9)
    cluster, jobs = scattered(seed, scale)
    assert 4 <= len(cluster.machines) <= 300
    assert 1 <= len(jobs) <= 9
    assert len({job.name for job in jobs}) == len(jobs)
    memory = sum(machine.memory * machine.gpus for machine in cluster.machines)
    assert sum(18 * job.model.params for job in jobs) <= MEMORY_SHARE * memory


@pytest.mark.parametrize(("samples", "places", "jobs"), [(3, 17, 5), (1, 1, 1), (2, 1, 7), (5, 40, 2)])
def test_export_agrees_with_torch(samples: int, places: int, jobs: int, network: Network) -> None:
    inputs = example_inputs(samples, places, jobs)
    for known in (inputs[-1], torch.zeros_like(inputs[-1])):
        given = (*inputs[:-1], known)
        with torch.no_grad():
            wanted = small_model()(*given)
        found = network.session.run(None, {name: x.numpy() for name, x in zip(INPUTS, given, strict=True)})
        for a, b in zip(wanted, found, strict=True):
            np.testing.assert_allclose(a.numpy().clip(-50), b.clip(-50), atol=1e-4)


def test_the_shipped_network_answers() -> None:
    shipped = bundled_network()
    assert shipped is not None
    facts = Facts.of(packed(1))
    answer = shipped.run(Graph.of(facts), np.zeros((2, facts.places, facts.jobs + 1)))
    assert answer.shares.shape == answer.amounts.shape == (2, facts.places, facts.jobs + 1)
    logits = sum(len(head.values) for head in answer.heads)
    assert answer.recipes.shape == (2, facts.jobs, logits)
    assert answer.beside.shape == (2, facts.places, facts.places)
    np.testing.assert_allclose(np.exp(answer.shares).sum(axis=2), 1.0, atol=1e-4)


@pytest.mark.parametrize("shape", [SHAPE, Shape(16, 8, 2, edges="zeroed"), Shape(16, 8, 2, kind="gcn")])
def test_padding_changes_nothing(shape: Shape, examples: list[Example]) -> None:
    model = small_model(shape=shape)
    items = [Item.of(each) for each in examples[:5]]
    together = collate(items, None)
    draw = torch.Generator().manual_seed(0)
    known = reveal(together.target, draw)
    with torch.no_grad():
        padded, _, recipes, beside = model(*together.graph, known)
        for b, item in enumerate(items):
            alone = collate([item], None)
            columns = [*range(item.jobs), -1]
            mine, _, own, near = model(*alone.graph, known[b : b + 1, : item.places][:, :, columns])
            found = padded[b, : item.places][:, columns]
            torch.testing.assert_close(mine[0], found, atol=2e-4, rtol=1e-3)
            torch.testing.assert_close(own[0], recipes[b, : item.jobs], atol=2e-4, rtol=1e-3)
            torch.testing.assert_close(near[0], beside[b, : item.places, : item.places], atol=2e-4, rtol=1e-3)


def test_zeroed_edges_are_not_seen(examples: list[Example]) -> None:
    model = small_model(shape=Shape(16, 8, 2, edges="zeroed"))
    place, job, pair, neighbour, link, maps, worth = collate([Item.of(examples[0])], None).graph
    known = torch.zeros(1, place.shape[1], job.shape[1] + 1)
    other_pair, other_link = pair * 1.7, link.clone()
    other_link[..., 1:] += 1.0
    other_place = place.clone()
    other_place[..., -FROM_LINKS:] += 1.0
    with torch.no_grad():
        seen = model(place, job, pair, neighbour, link, maps, worth, known)
        same = model(other_place, job, other_pair, neighbour, other_link, 2 * maps, worth, known)
    torch.testing.assert_close(seen, same)


def test_parts_of_a_scene_are_scenes_with_parts_of_its_plans(examples: list[Example]) -> None:
    rng = np.random.default_rng(0)
    parts = [(each, part_of(each, rng)) for each in examples for _ in range(5)]
    assert any(part for _, part in parts)
    for whole, part in parts:
        if part is None:
            continue
        facts, table = part.facts, part.tables[0]
        assert 1 <= facts.jobs <= whole.facts.jobs
        assert (table.sum(axis=1) == facts.members).all()
        assert facts.members.min() > 0
        assert table[:, :-1].any(axis=0).all()
        assert facts.members.sum() < whole.facts.members.sum()
        # Every job of the part has all the machines that one of the whole's plans gives it.
        groups = {tuple(sorted(column[column > 0])) for plan in whole.tables for column in plan[:, :-1].T}
        assert all(tuple(sorted(column[column > 0])) in groups for column in table[:, :-1].T)
        assert part.beside.shape == (1, facts.places, facts.places)
        assert Item.of(part).graph.place.shape[0] == facts.places


def test_parts_depend_on_a_scene_alone(examples: list[Example]) -> None:
    settings = Settings(parts=4)
    alone = with_parts(examples[1:2], settings)[1:]
    among = [each for each in with_parts(examples, settings)[len(examples) :] if each.seed == examples[1].seed]
    assert len(alone) == len(among)
    assert all((a.tables == b.tables).all() for a, b in zip(alone, among, strict=True))


def test_what_is_revealed_is_part_of_the_plan(examples: list[Example]) -> None:
    batch = collate([Item.of(each) for each in examples], np.random.default_rng(0))
    known = reveal(batch.target, torch.Generator().manual_seed(0))
    assert ((known == 0) | (known == batch.target)).all()
    assert 0 < known.sum() < batch.target.sum()


def test_batches_hold_everything_once(examples: list[Example]) -> None:
    items = [Item.of(each) for each in examples]
    batches = grouped(items, np.random.default_rng(0), pairs=400, most=4)
    assert sorted(id(item) for batch in batches for item in batch) == sorted(map(id, items))
    assert max(map(len, batches)) <= 4


def test_training_lowers_the_loss_and_goes_on(examples: list[Example], tmp_path: Path) -> None:
    settings = Settings(shape=SHAPE, steps=16, rate=1e-2, pairs=1000, most=4, check_every=8)
    whole, history = train(examples, tmp_path / "whole", settings, device=CPU)
    assert history[-1].step == 16
    batch = collate([Item.of(each) for each in split(examples)[0]], None)
    known = torch.zeros_like(batch.target)
    with torch.no_grad():
        before, _ = completion_loss(small_model(settings.seed), batch, known)
        after, _ = completion_loss(whole, batch, known)
    assert after < 0.95 * before

    class StopError(Exception):
        pass

    def stop(step: int, _loss: float) -> None:
        if step == 12:
            raise StopError

    with pytest.raises(StopError):
        train(examples, tmp_path / "stopped", settings, device=CPU, progress=stop)
    resumed, history = train(examples, tmp_path / "stopped", settings, device=CPU)
    assert [point.step for point in history] == [8, 16] == [p.step for p in load_history(tmp_path / "stopped")]
    for a, b in zip(whole.parameters(), resumed.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-3)


def test_a_checkpoint_of_another_network_is_refused(examples: list[Example], tmp_path: Path) -> None:
    settings = Settings(shape=SHAPE, steps=1, pairs=2000, most=4)
    train(examples, tmp_path, settings, device=CPU)
    with pytest.raises(InputError, match="another network"):
        train(examples, tmp_path, Settings(shape=Shape(16, 8, 1), steps=2), device=CPU)


def test_shards_come_back_as_they_were(examples: list[Example], tmp_path: Path) -> None:
    save_shard(tmp_path / "examples-0.npz", examples[:3])
    for stored, given in zip(load_shard(tmp_path / "examples-0.npz"), examples, strict=False):
        assert stored.seed == given.seed
        assert (stored.tables == given.tables).all()
        for field in fields(Facts):
            np.testing.assert_allclose(
                getattr(stored.facts, field.name), getattr(given.facts, field.name), rtol=1e-6, err_msg=field.name
            )


def test_a_shard_that_is_none_says_so(tmp_path: Path) -> None:
    (tmp_path / "examples-0.npz").write_bytes(b"no shard")
    with pytest.raises(InputError, match="not a shard"):
        load_examples(tmp_path)
    with pytest.raises(InputError, match="no examples"):
        load_examples(tmp_path / "nowhere")


def test_labels_are_plans_of_the_planner(tmp_path: Path) -> None:
    scale, budget = Scale(least=4, most=8, jobs=2), Budget(searches=2, moves=300, seconds=30.0, longest=30.0)
    seen: list[tuple[int, int]] = []
    make_shards(tmp_path, range(2), scale=scale, budget=budget, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(0, 1), (1, 1)]
    assert scale_of(tmp_path) == scale
    made = load_examples(tmp_path)
    assert made
    for each in made:
        assert (each.tables.sum(axis=2) == each.facts.members).all()
        assert (np.diff(each.costs) >= 0).all()
    make_shards(tmp_path, range(2), scale=scale, budget=budget, progress=lambda *at: seen.append(at))
    assert seen[2:] == [(1, 1)]  # nothing is made again
    with pytest.raises(InputError, match="another kind"):
        make_shards(tmp_path, range(2), scale=Scale(jobs=3), budget=budget)
    scenes = scenes_of(made, scale=scale, compute=bundled_compute())
    verdicts = judge(TorchNetwork(small_model(), CPU), scenes, samples=2, rounds=2)
    assert verdicts == judge(TorchNetwork(small_model(), CPU), scenes, samples=2, rounds=2)
    assert len(verdicts) == len(made)
    assert summary(verdicts)["scenes"] == len(made)


def test_a_scene_without_jobs_is_no_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hulk.gnn.labels.scattered", lambda seed, scale: (scattered(seed, scale)[0], ()))
    assert make_example(0, Scale(most=5), Budget(), bundled_compute()) is None


def test_the_network_is_small() -> None:
    assert sum(p.numel() for p in Proposer().parameters()) < 1_000_000


def test_the_command_line_needs_no_torch() -> None:
    code = "import sys, hulk.cli.app, hulk.propose; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_commands_work_one_after_the_other(tmp_path: Path) -> None:
    examples, run, more = (str(tmp_path / name) for name in ("examples", "run", "more"))
    small = ["--scenes", "2", "--machines", "6", "--jobs", "2", "--searches", "1", "--moves", "100"]
    few = ["--steps", "2", "--hidden", "8", "--rounds", "1", "--device", "cpu"]
    for command in (
        ["data", examples, *small],
        ["train", examples, run, *few],
        ["data", more, *small, "--network", run],
        ["eval", examples, "--network", run, "--samples", "2"],
    ):
        done = CliRunner().invoke(app, ["gnn", *command])
        assert done.exit_code == 0, done.output
    assert {path.name for path in Path(run).iterdir()} >= {"network.onnx", "network.json", "curves.png"}
    assert "network" in done.output
    assert len(load_examples(Path(more))) == len(load_examples(Path(examples)))
    card = json.loads((Path(run) / "network.json").read_text(encoding="utf-8"))
    assert json.loads((Path(more) / "data.json").read_text(encoding="utf-8"))["network"] == card["sha256"]
    failed = CliRunner().invoke(app, ["gnn", "data", more, "--network", examples])
    assert "no network that can be used" in str(failed.exception)


def test_unknown_choices_are_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["gnn", "train", str(tmp_path), str(tmp_path), "--edges", "none"])
    assert isinstance(done.exception, InputError)
    assert "known: full, zeroed" in str(done.exception)
