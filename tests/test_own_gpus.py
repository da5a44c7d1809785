"""GPU types of a person's own in a cluster file, through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from hulk.cost.power import rate_share
from hulk.errors import InputError
from hulk.io.cluster_file import read_cluster
from hulk.io.schema import schema
from hulk.io.yamlfile import parse_document
from warm import hulk

WHOLE = (
    "{name: mine, label: Mine, memory: 48 GiB, memory_bandwidth: 1.2 TB/s, "
    "rates: {fp32: 40 TFLOP/s, bf16: 200 TFLOP/s}, link: {kind: pcie, bandwidth: 24 GB/s}, power: 300 W}"
)
JOBS = "jobs: [{name: opt, model: opt-350m, global_batch: 8, sequence: 2048, precision: tf32, attention: eager}]"


def text(*gpus: str, gpu: str = "mine", more: str = "") -> str:
    lines = "".join(f"  - {each}\n" for each in gpus)
    return f"regions: {{r: {{}}}}\ngpus:\n{lines}machines:\n  - {{name: m, region: r, gpu: {gpu}, gpus: 4{more}}}\n"


def priced(folder: Path, gpus: str, gpu: str) -> dict[str, object]:
    """The price of a plan for one GPU, by `hulk price`."""
    (folder / "c.yaml").write_text(text(gpus, gpu=gpu))
    (folder / "j.yaml").write_text(JOBS)
    stages = [{"machine": "m", "gpus": [0], "layers": [0, 25]}]
    job = {"microbatch_size": 1, "pipelines": [{"microbatches": 8, "stages": stages}]}
    (folder / "p.json").write_text(json.dumps({"hulk": "plan/1", "jobs": {"opt": job}}))
    done = hulk("price", "p.json", "-c", "c.yaml", "-j", "j.yaml", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)["jobs"]["opt"]
    return found


def test_show_prints_them(tmp_path: Path) -> None:
    gpus = (WHOLE, "{name: cool, like: Mine, power_limit: 240 W}", "{name: Big, like: a100-80gb, memory: 96 GiB}")
    (tmp_path / "c.yaml").write_text(text(*gpus, gpu="big"))
    Draft202012Validator(schema("cluster")).validate(parse_document(text(*gpus), name="c.yaml").value)
    done = hulk("show", "c.yaml", cwd=tmp_path)
    assert done.returncode == 0
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "mine 48.0 GiB 1,200 GB/s 40.0 200 pcie 192 Gbit/s 300 W $0.00" in lines
    assert "cool mine 48.0 GiB 1,200 GB/s 37.4 187 pcie 192 Gbit/s 240 W of 300 W $0.00" in lines
    assert "Big a100-80 96.0 GiB 2,039 GB/s 19.5 156 312 312 nvlink 2.40 Tbit/s 400 W $1.39" in lines
    assert any("4 × Big" in line for line in lines)


def test_plan_on_them(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(text(WHOLE))
    (tmp_path / "j.yaml").write_text(JOBS)
    done = hulk("plan", "c.yaml", "j.yaml", "-o", "p.json", "--evaluations", "500", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "×mine" in done.stdout
    # Another GPU by the same name is another cluster.
    (tmp_path / "c.yaml").write_text(text(WHOLE.replace("bf16: 200", "bf16: 150")))
    done = hulk("price", "p.json", "-c", "c.yaml", "-j", "j.yaml", cwd=tmp_path)
    assert "the mine of m was TFLOP/s bf16 200, fp32 40, memory 1200 GB/s, pcie 24 GB/s; here it is" in done.stderr


def test_measured_times_hold_where_only_the_memory_is_another(tmp_path: Path) -> None:
    known = priced(tmp_path, "{name: unused, like: t4}", "a100-80")
    more = priced(tmp_path, "{name: big, like: a100-80, memory: 96 GiB, price: 1 $/h}", "big")
    cool = priced(tmp_path, "{name: cool, like: a100-80, power_limit: 300 W}", "cool")
    assert "measured" in known["layer_times"]  # type: ignore[operator]
    assert (more["step_s"], more["layer_times"]) == (known["step_s"], known["layer_times"])
    assert set(cool["layer_times"]) == {"roofline"}  # type: ignore[call-overload]


def test_a_power_limit_slows_a_gpu_down(tmp_path: Path) -> None:
    full = priced(tmp_path, "{name: x, like: a100-80, capability: '8.0', power_limit: 400 W}", "x")
    assert "measured" in full["layer_times"]  # type: ignore[operator]
    steps = [
        priced(tmp_path, f"{{name: x, like: a40, power_limit: {watts} W}}", "x")["step_s"] for watts in (300, 240, 150)
    ]
    assert steps == sorted(steps, key=lambda step: float(str(step)))
    assert len(set(steps)) == 3


# Time at 300 W over time at the limit: GPT-3 XL on A100 PCIe, GPT-3 2.7B on A40 (see hulk.cost.power).
@pytest.mark.parametrize(
    ("watts", "measured"),
    [(275, (0.969, 0.987)), (250, (0.924, 0.960)), (225, (0.820, 0.921)), (200, (0.684, 0.853)), (175, (0.565, 0.719))],
)
def test_the_rule_for_power_limits_is_near_what_was_measured(watts: float, measured: tuple[float, float]) -> None:
    share = rate_share(watts / 300)
    assert measured[0] * 0.96 < share < measured[1] * 1.04
    assert rate_share(1.0) == 1.0


BAD = [
    ("{name: a100-80, memory: 96 GiB, like: h100}", "'a100-80' is a GPU that Hulk knows already (choose another name"),
    ("{name: H100-SXM, like: h100}", "'H100-SXM' is a GPU that Hulk knows already"),
    ("{name: x, like: a100-8}", "unknown GPU 'a100-8' (did you mean 'a100-80'?)"),
    ("{name: x, like: x}", "unknown GPU 'x'"),
    (WHOLE.replace("mine", "Mine"), "GPU 'Mine' is given twice"),
    ("{name: x, memory: 96 GiB}", "a whole GPU type needs memory_bandwidth (give it, or say which known GPU"),
    (WHOLE.replace("fp32: 40 TFLOP/s, ", "").replace("mine", "x"), "a whole GPU type needs rates.fp32"),
    (WHOLE.replace("kind: pcie, ", "").replace("mine", "x"), "a whole GPU type needs link.kind"),
    ("{like: t4}", "this key is missing"),
    ("{name: x, like: t4, memory: 0}", "a size of nothing"),
    ("{name: x, like: t4, memory: -1 GiB}", "negative"),
    ("{name: x, like: t4, memory: 16}", "has no unit"),
    ("{name: x, like: t4, memory: 96 TB}", "more than anything that exists"),
    ("{name: x, like: t4, memory: 1 MiB}", "too little"),
    ("{name: x, like: t4, rates: {bf16: 0}}", "a compute rate of nothing"),
    ("{name: x, like: t4, rates: {bf16: 1e6 PFLOP/s}}", "more than anything that exists"),
    ("{name: x, like: t4, rates: {int8: 1 TFLOP/s}}", "unknown key 'int8'"),
    ("{name: x, like: t4, link: {kind: carrier-pigeon}}", "unknown value 'carrier-pigeon'"),
    ("{name: x, like: t4, capability: 9.0}", "put it in quotes"),
    ("{name: x, like: t4, capability: hopper}", "'hopper'"),
    ("{name: x, like: t4, power_limit: 0}", "a power of nothing"),
    ("{name: x, like: t4, power_limit: 60 GiB}", "is a size, but a power"),
    ("{name: x, like: t4, power_limit: 71 W}", "power_limit: more than the 70 W that a x draws"),
    ("{name: x, like: t4, power_limit: 34 W}", "power_limit: nothing is known of a x below 35 W"),
    ("{name: x, like: gh200-96, power_limit: 400 W}", "power_limit: what a x draws without a limit is not known (give"),
    ("{name: x, like: t4, power: 1 MW}", "unknown unit 'MW'"),
    ("{name: x, like: t4, watts: 3}", "unknown key 'watts'"),
    ("{name: 'a b', like: t4}", "is not a name"),
    ("nothing", "expected keys and values"),
]  # fmt: skip


@pytest.mark.parametrize(("gpu", "words"), BAD)
def test_what_cannot_be_is_one_error_with_its_line(gpu: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(text(WHOLE, gpu))
    done = hulk("show", "c.yaml", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: c.yaml:4: gpus[1]")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_limit_on_a_limit_is_refused(tmp_path: Path) -> None:
    gpus = ("{name: x, like: t4, power_limit: 60 W}", "{name: y, like: x, power_limit: 50 W}")
    with pytest.raises(InputError, match="'x' has a power_limit already"):
        read_cluster(parse_document(text(*gpus, gpu="y"), name="c.yaml"))


def test_more_memory_than_the_type_has_points_to_them() -> None:
    with pytest.raises(InputError, match="a GPU with more is one of gpus"):
        read_cluster(parse_document(text(WHOLE, more=", memory: 96 GiB"), name="c.yaml"))


def test_machines_that_join_may_bring_some(tmp_path: Path) -> None:
    from hulk.io.cluster_file import load_cluster
    from hulk.io.joined_file import load_joined

    (tmp_path / "c.yaml").write_text(text(WHOLE))
    for name, memory in (("a", 96), ("b", 64)):
        joins = f"gpus: [{{name: big, like: mine, memory: {memory} GiB}}]\nmachines: [{{name: {name}, region: r, "
        (tmp_path / f"{name}.yaml").write_text(joins + "gpu: big, gpus: 1}]\n")
    base, one = tmp_path / "c.yaml", tmp_path / "a.yaml"
    grown, machines = load_joined([one], load_cluster(base), str(base))
    assert [machine.memory for machine in machines] == [96 * 2**30]
    assert [gpu.name for gpu in grown.gpus] == ["mine", "big"]
    with pytest.raises(InputError, match="GPU 'big' is another one elsewhere"):
        load_joined([one, tmp_path / "b.yaml"], load_cluster(base), str(base))
