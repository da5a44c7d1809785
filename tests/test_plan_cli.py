"""Plan, explain, compare and replan as a person runs them, one after the other, from an empty folder."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

import hulk.propose as hulk_propose
from hulk.propose.network import CARD, FILE
from warm import hulk

CLUSTER = """
regions: {beijing: {at: [39.9, 116.4]}, rome: {at: [41.9, 12.5]}}
machines:
  - {name: bj, count: 2, region: beijing, gpu: a100-40, gpus: 2}
  - {name: rm, region: rome, gpu: rtx-3090, gpus: 2}
"""
QUICK = ("--time-limit", "60", "--evaluations", "300")  # moves end it, also on a busy machine


MANY = """
regions: {beijing: {at: [39.9, 116.4]}, rome: {at: [41.9, 12.5]}}
machines:
  - {name: bj, count: 14, region: beijing, gpu: a100-40, gpus: 2}
  - {name: rm, count: 12, region: rome, gpu: rtx-3090, gpus: 2}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "c.yaml").write_text(CLUSTER)
    (tmp_path / "j.yaml").write_text("jobs: [{name: a, model: gpt2, global_batch: 16, tokens: 1B}]\n")
    (tmp_path / "big.yaml").write_text(
        "jobs: [{name: a, model: gpt2, global_batch: 16}, {name: huge, model: opt-175b, global_batch: 16}]\n"
    )
    return tmp_path


def test_plan_then_explain_then_replan(folder):
    done = hulk("plan", "c.yaml", "j.yaml", "-o", "p.json", *QUICK, cwd=folder)
    assert done.returncode == 0, done.stderr
    for word in ("group", "plan", "step", "memory", "cost", "bottleneck"):
        assert word in done.stdout
    again = hulk("explain", "p.json", "--cluster", "c.yaml", "--jobs", "j.yaml", cwd=folder)
    assert again.returncode == 0, again.stderr
    assert "bottleneck" in again.stdout
    pipelines = json.loads((folder / "p.json").read_text())["jobs"]["a"]["pipelines"]
    used = {stage["machine"] for pipeline in pipelines for stage in pipeline["stages"]}
    lost = sorted(used)[0]
    where = ("--cluster", "c.yaml", "--jobs", "j.yaml")
    moved = hulk("replan", "p.json", *where, "--lost", lost, "--time-limit", "2", "-o", "n.json", cwd=folder)
    assert moved.returncode == 0, moved.stderr
    assert lost not in (folder / "n.json").read_text()


def test_the_same_seed_prints_the_same_json(folder):
    first, second = (hulk("plan", "c.yaml", "j.yaml", "--json", *QUICK, cwd=folder).stdout for _ in range(2))
    assert json.loads(first)["plan"] == json.loads(second)["plan"]


def test_verbose_tells_the_phases_on_stderr_and_changes_nothing_else(folder):
    silent, told = (
        hulk("plan", "c.yaml", "j.yaml", *QUICK, "--json", *more, cwd=folder) for more in ((), ("--verbose",))
    )
    assert told.stdout == silent.stdout
    lines = [line for line in told.stderr.splitlines() if " moves " in line]
    assert [line.split("  ")[0] for line in lines] == [
        "machines dealt out", "each job arranged anew", "shapes of the best raced", "the winner cooled",
        "cut, shared and played",
    ]  # fmt: skip
    assert sum(int(line.split(" moves")[0].split()[-1].replace(",", "")) for line in lines) >= 200
    assert not [line for line in silent.stderr.splitlines() if " moves " in line]
    money = hulk("plan", "c.yaml", "j.yaml", *QUICK, "--cheapest", "--verbose", cwd=folder)
    assert "few machines for each job" in money.stderr and "to finish" in money.stderr


def test_a_job_without_a_place_exits_3(folder):
    done = hulk("plan", "c.yaml", "big.yaml", *QUICK, cwd=folder)
    assert done.returncode == 3, done.stderr
    assert "huge waits" in done.stdout


def test_compare_puts_all_baselines_beside_the_planner(folder):
    done = hulk("compare", "c.yaml", "j.yaml", "--time-limit", "1", cwd=folder)
    assert done.returncode == 0, done.stderr
    for name in ("hulk", "greedy", "metis", "evolution", "B-tour"):
        assert name in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--pin", "b=bj-1"), "no job 'b'"),
        (("--avoid", "a=bj-9"), "no machine 'bj-9'"),
        (("--max-cost", "5"), "has no unit"),
        (("--max-cost", "5 $/h", "--min-throughput", "10"), "cannot go together"),
        (("--policy", "papr"), "did you mean 'paper'?"),
        (("--policy", "paper", "--no-gnn"), "--policy paper and --no-gnn cannot go together"),
        (("--policy", "paper", "--exact"), "--policy paper and --exact cannot go together"),
    ],
)
def test_bad_options_exit_2(folder, arguments, words):
    done = hulk("plan", "c.yaml", "j.yaml", *arguments, cwd=folder)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert words in done.stderr


@pytest.fixture(scope="module")
def random_network(tmp_path_factory) -> Path:
    """A folder with the bundled network, the weights of each matrix in a random order."""
    onnx = pytest.importorskip("onnx")
    made, draw = tmp_path_factory.mktemp("network"), np.random.default_rng(0)
    bundled = Path(hulk_propose.__file__).parent / "data"
    network = onnx.load(bundled / FILE)
    for tensor in network.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.dims) == 2:
            weights = onnx.numpy_helper.to_array(tensor)
            shuffled = draw.permutation(weights.ravel()).reshape(weights.shape)
            tensor.CopyFrom(onnx.numpy_helper.from_array(shuffled, tensor.name))
    (made / FILE).write_bytes(network.SerializeToString())
    digest = hashlib.sha256((made / FILE).read_bytes()).hexdigest()
    (made / CARD).write_text(json.dumps(json.loads((bundled / CARD).read_text()) | {"sha256": digest}))
    return made


@pytest.mark.parametrize("options", [(), ("--no-gnn",), ("--policy", "paper")])
def test_plan_with_and_without_the_network(folder, random_network, options):
    (folder / "many.yaml").write_text(MANY)
    done = hulk("plan", "many.yaml", "j.yaml", "--json", *QUICK, *options, cwd=folder, network=random_network)
    assert done.returncode in ((0, 3) if "paper" in options else (0,)), done.stderr
    assert done.stderr == ""
    assert json.loads(done.stdout)["plan"]["cluster"]


def _missing(folder: Path) -> None:
    folder.mkdir()


def _damaged(folder: Path) -> None:
    folder.mkdir()
    (folder / "network.onnx").write_bytes(b"damaged")
    (folder / "network.json").write_text('{"format": 1, "sha256": "another"}')


@pytest.mark.parametrize("spoil", [_missing, _damaged])
def test_a_network_that_cannot_be_read_is_one_line(folder, spoil):
    spoil(folder / "network")
    done = hulk("plan", "c.yaml", "j.yaml", *QUICK, cwd=folder, network=folder / "network")
    assert done.returncode == 0, done.stderr
    line, *others = done.stderr.splitlines()
    assert line.startswith("warning: no graph network: ")
    assert line.endswith("planning goes on without it")
    assert others == []
    assert "bottleneck" in done.stdout
    quiet = hulk("plan", "c.yaml", "j.yaml", *QUICK, "--no-gnn", cwd=folder, network=folder / "network")
    assert (quiet.returncode, quiet.stderr) == (0, "")


def test_the_papers_policy_without_a_readable_network_exits_2(folder):
    _missing(folder / "network")
    done = hulk("plan", "c.yaml", "j.yaml", "--policy", "paper", *QUICK, cwd=folder, network=folder / "network")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "--policy paper needs the network" in done.stderr


def test_replan_with_the_network_and_without(folder, random_network):
    (folder / "many.yaml").write_text(MANY)
    assert hulk("plan", "many.yaml", "j.yaml", "-o", "p.json", *QUICK, "--no-gnn", cwd=folder).returncode == 0
    plans = json.loads((folder / "p.json").read_text())["jobs"]["a"]["pipelines"]
    lost = ("--lost", plans[0]["stages"][0]["machine"], "--cluster", "many.yaml", "--jobs", "j.yaml", *QUICK)
    done = hulk("replan", "p.json", *lost, cwd=folder, network=random_network)
    assert (done.returncode, done.stderr) == (0, "")
    _missing(folder / "network")
    for options, lines in (((), 1), (("--no-gnn",), 0)):
        done = hulk("replan", "p.json", *lost, *options, cwd=folder, network=folder / "network")
        assert done.returncode == 0, done.stderr
        assert len(done.stderr.splitlines()) == lines
