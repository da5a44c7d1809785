"""The command line as a person meets it: output, exit codes, and never a traceback."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from warm import ROOT, hulk

PLAN = "examples/hulk47.plan.json"
FILES = ("--cluster", "hulk47", "--jobs", "paper4")


def test_show_prints_regions_machines_and_latencies():
    done = hulk("show", "hulk47")
    assert done.returncode == 0, done.stderr
    assert "47 machines with 364 GPUs" in done.stdout
    assert "latency (ms)" in done.stdout
    assert "613" in done.stdout
    assert "×" in done.stdout  # Beijing–Paris


@pytest.mark.parametrize("what", ["clusters", "models", "gpus", "jobs"])
def test_list(what):
    done = hulk("list", what)
    assert done.returncode == 0, done.stderr
    expected = {"clusters": "world8", "models": "opt-175b", "gpus": "gh200-96", "jobs": "paper6"}[what]
    assert expected in done.stdout


def test_price_for_people():
    done = hulk("price", PLAN, *FILES)
    assert done.returncode == 0, done.stderr
    for part in ("compute", "bubble", "transfer", "sync", "update", "bottleneck:"):
        assert part in done.stdout


def test_price_for_programs_adds_up():
    done = hulk("price", PLAN, *FILES, "--json")
    assert done.returncode == 0, done.stderr
    jobs = json.loads(done.stdout)["jobs"]
    assert set(jobs) == set(json.loads((ROOT / PLAN).read_text())["jobs"])
    for job in jobs.values():
        assert sum(job["breakdown_s"].values()) == pytest.approx(job["step_s"])
        assert job["money_per_step"]["total"] > 0
        for stage in (stage for pipeline in job["pipelines"] for stage in pipeline):
            assert stage["memory_used"] <= stage["memory"]["capacity"]


@pytest.fixture(scope="module")
def smaller(tmp_path_factory) -> str:
    """The example plan without its largest job, which takes many seconds to simulate."""
    plan = json.loads((ROOT / PLAN).read_text())
    largest = max(plan["jobs"], key=lambda name: sum(len(p["stages"]) for p in plan["jobs"][name]["pipelines"]))
    used = dict.fromkeys(stage["machine"] for p in plan["jobs"].pop(largest)["pipelines"] for stage in p["stages"])
    plan["waiting"][largest], plan["idle"] = "left out", [*plan["idle"], *used]
    path = tmp_path_factory.mktemp("smaller") / "plan.json"
    path.write_text(json.dumps(plan))
    return str(path)


def test_simulate_agrees_with_the_price_and_writes_a_trace(smaller, tmp_path):
    trace = tmp_path / "trace.json"
    done = hulk("simulate", smaller, *FILES, "--trace", str(trace), "--json")
    assert done.returncode == 0, done.stderr
    for job in json.loads(done.stdout)["jobs"].values():
        assert job["step_s"] == pytest.approx(job["price_s"], rel=0.01)
    events = json.loads(trace.read_text())["traceEvents"]
    assert any(event["ph"] == "X" for event in events)


def test_simulate_is_the_same_for_the_same_seed(smaller):
    first, again, other = (
        hulk("simulate", smaller, *FILES, "--jitter", "0.1", "--seed", seed, "--json").stdout
        for seed in ("7", "7", "8")
    )
    assert first and first == again
    assert first != other


@pytest.mark.parametrize("which", ["cluster", "jobs", "plan", "hosts"])
def test_schema_is_json_schema(which):
    from jsonschema import Draft202012Validator

    done = hulk("schema", which)
    assert done.returncode == 0, done.stderr
    Draft202012Validator.check_schema(json.loads(done.stdout))


def test_infeasible_plan_exits_3_with_the_reason(tmp_path):
    stage = {"machine": "london-1", "gpus": list(range(8)), "layers": [0, 50]}
    job = {"microbatch_size": 8, "pipelines": [{"microbatches": 256, "stages": [stage]}]}
    plan = {"hulk": "plan/1", "jobs": {"t5-11b": job}}
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    done = hulk("price", str(path), *FILES)
    assert done.returncode == 3
    assert "cannot run" in done.stdout
    assert "london-1" in done.stdout
    assert hulk("simulate", str(path), *FILES).returncode == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("show", "hulk74"), "did you mean 'hulk47'?"),
        (("show", "nowhere.yaml"), "nowhere.yaml"),
        (("price", "missing.json", *FILES), "missing.json"),
        (("price", PLAN, "--cluster", "world8", "--jobs", "paper4"), "no machine"),
        (("price", PLAN, "--cluster", "hulk47", "--jobs", "paper5"), "did you mean"),
        (("simulate", PLAN, *FILES, "--trace", "/no/such/folder/trace.json"), "trace.json"),
        (("schema", "clusters"), "clusters"),
        (("price",), ""),
    ],
)
def test_bad_input_exits_2_without_a_traceback(arguments, words):
    done = hulk(*arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert words in done.stderr


def test_core_needs_no_torch():
    """Pricing works where torch, transformers and matplotlib cannot be imported."""
    blocked = "import sys; [sys.modules.__setitem__(m, None) for m in ('torch', 'transformers', 'matplotlib')]; "
    done = subprocess.run(
        [sys.executable, "-c", blocked + "from hulk.cli import main; main()", "price", PLAN, *FILES],
        capture_output=True, text=True, cwd=ROOT, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
