"""`storage` of a cluster file: how fast a region reads checkpoints, and what `hulk replan` makes of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import small
from hulk.cost.moving import Move, move_seconds
from hulk.errors import InputError
from hulk.io.cluster_file import load_cluster
from warm import hulk

CLUSTER = """
name: lab
regions: {rome: {}, oslo: {}}
machines:
  - {name: rome, count: 2, region: rome, gpu: v100-32, gpus: 1, network: 10 Gbit/s}
  - {name: oslo-1, region: oslo, gpu: v100-32, gpus: 1, network: 10 Gbit/s}
links:
  - {between: [rome, oslo], latency: 10 ms, bandwidth: 1 Gbit/s}
"""
JOBS = "jobs: [{name: bert, model: bert-large, global_batch: 8, precision: fp32, allow: [rome]}]\n"


def written(folder: Path, more: str = "") -> Path:
    (folder / "lab.yaml").write_text(CLUSTER + more, encoding="utf-8")
    return folder / "lab.yaml"


def test_rates_by_region_and_for_all_others(tmp_path: Path) -> None:
    assert load_cluster(written(tmp_path)).storage == {}
    both = load_cluster(written(tmp_path, "storage: {rome: 2 Gbit/s, default: 500 MB/s}\n"))
    assert both.storage == {"rome": 2.5e8, "oslo": 5e8}
    assert load_cluster(written(tmp_path, "storage: {rome: 2 Gbit/s}\n")).storage == {"rome": 2.5e8}
    (tmp_path / "more.yaml").write_text("extends: ./lab.yaml\nstorage: {oslo: 1 GB/s}\n", encoding="utf-8")
    assert load_cluster(tmp_path / "more.yaml").storage == {"rome": 2.5e8, "oslo": 1e9}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("storage: {roma: 2 Gbit/s}", r"lab.yaml:9: storage.roma: unknown region 'roma' \(did you mean 'rome'"),
        ("storage: {rome: 2}", "has no unit"),
        ("storage: {rome: -2 Gbit/s}", "storage.rome"),
        ("storage: 2 Gbit/s", "storage"),
    ],
)
def test_what_is_wrong_in_it(tmp_path: Path, more: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        load_cluster(written(tmp_path, more))


def test_a_region_called_default(tmp_path: Path) -> None:
    text = CLUSTER.replace("oslo", "default")
    (tmp_path / "lab.yaml").write_text(text + "storage: {default: 1 GB/s}\n", encoding="utf-8")
    with pytest.raises(InputError, match="is it the region or all others"):
        load_cluster(tmp_path / "lab.yaml")


def test_machines_of_a_region_share_its_storage() -> None:
    cluster = small.cluster()
    moves = [Move(None, "rome-1", 4e9, (0,)), Move(None, "rome-2", 2e9, (1,))]
    card = cluster.machine("rome-1").network
    assert move_seconds(moves, cluster) == pytest.approx(4e9 / card)
    slow = replace(cluster, storage={"rome": 1e8})
    assert move_seconds(moves, slow) == pytest.approx(6e9 / 1e8)
    assert move_seconds(moves[1:], slow) == pytest.approx(2e9 / 1e8)
    assert move_seconds(moves, replace(cluster, storage={"paris": 1.0})) == pytest.approx(4e9 / card)


def test_replan_says_how_fast_a_checkpoint_comes(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "jobs.yaml").write_text(JOBS, encoding="utf-8")
    given = ("--evaluations", "50", "--no-gnn")
    pinned = ("--avoid", "bert=rome-2", "--workers", "1", "-o", "plan.json")
    assert hulk("plan", "lab.yaml", "jobs.yaml", *given, *pinned, cwd=tmp_path).returncode == 0
    again = ("replan", "plan.json", "-c", "lab.yaml", "-j", "jobs.yaml", "--lost", "rome-1", *given)
    done = hulk(*again, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    words = " ".join(done.stdout.split())
    assert "taken to come as fast as each machine's network card in rome, since no `storage` is given" in words
    written(tmp_path, "storage: {default: 8 Mbit/s}\n")
    words = " ".join(hulk(*again, cwd=tmp_path).stdout.split())
    assert "the checkpoint is taken to come at 8.00 Mbit/s for all of rome" in words
    assert " h" in words.partition("in all")[2][:60]  # 4 GB at 1 MB/s
    assert "checkpoints are read at 8.00 Mbit/s in rome, oslo" in hulk("show", "lab.yaml", cwd=tmp_path).stdout
