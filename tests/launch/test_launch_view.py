"""What is said of machines and of steps: pure functions."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

import factories
from hulk.domain.cluster import Link
from hulk.io.hosts_file import HostList
from hulk.launch.checks import problems_of, torch_problems
from hulk.launch.facts import _visible
from hulk.launch.follow import Part
from hulk.launch.needs import Need
from hulk.launch.ray import RaySite
from hulk.launch.slurm import _node_problems
from hulk.probe.wire import WireError
from hulk.runtime.progress import StageStep, StepReport
from hulk.runtime.report import LONGEST, in_parts
from hulk.runtime.settings import Settings

MACHINE = factories.cluster({"a": "A", "b": "B"}, {("A", "B"): Link(1e-3, 1e9)}).machines[0]
GPU = MACHINE.gpu.name.upper().replace("-", " ")
READY = {
    "libraries": {"torch": "2.13.0", "transformers": "5.0", "safetensors": "0.5"},
    "gpus": [{"name": f"NVIDIA {GPU}", "free": 70e9}] * 2,
    "memory_free": 1e12,
    "temporary_free": 1e12,
    "inputs": {},
    "checkpoints": None,
    "no_interface": [],
}


NEED = Need(MACHINE, {0: 60e9, 1: 60e9})


def problems(**changes: object) -> list[str]:
    return list(problems_of(NEED, {**READY, **changes}, Settings(), gpus=True, apart=True))


def problems_on_cpus(**changes: object) -> list[str]:
    return list(problems_of(NEED, {**READY, "gpus": [], **changes}, Settings(), gpus=False, apart=True))


def test_a_machine_that_has_everything() -> None:
    assert problems() == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gpus": READY["gpus"][:1]}, f"1 GPUs there, the plan needs 2 × {MACHINE.gpu.name}"),
        ({"gpus": [{"name": "NVIDIA T4", "free": 70e9}] * 2}, "GPU 0 there is NVIDIA T4"),
        ({"gpus": [{**READY["gpus"][0], "free": 1e9}] * 2}, "GPU 0 there has 954 MiB free, the plan needs 55.9 GiB"),
        ({"libraries": {"torch": None, "transformers": None}}, "torch, transformers missing there: pip install"),
        ({"no_interface": ["hulk0"]}, "no network interface 'hulk0' there: bring the mesh up"),
        ({"temporary_free": 1e3}, "folder for temporary files: make room"),
        ({"checkpoints": {"wrong": "not allowed to write in /x", "free": 1e12}}, "--checkpoint-dir: not allowed"),
    ],
)
def test_what_a_machine_lacks(changes: dict[str, object], words: str) -> None:
    assert any(words in each for each in problems(**changes))


def test_without_gpus_the_machines_own_memory_counts() -> None:
    assert problems_on_cpus(memory_free=1e12) == []
    assert "2 processes need" in problems_on_cpus(memory_free=1e9)[0]


def test_torch_is_the_same_everywhere() -> None:
    assert torch_problems({"a": "2.13.0+cu130", "b": "2.13.0", "c": "2.12.1", "d": None}) == {
        "c": "torch 2.12.1 there, 2.13.0 on the others: install the same version everywhere"
    }


def test_nodes_of_slurm() -> None:
    assert list(_node_problems("n1", ("idle", "gpu:a100:4(S:0-1)"), 2)) == []
    assert "is drained" in next(_node_problems("n1", ("drained", "gpu:4"), 2))
    assert "has 1 GPUs for Slurm, the plan needs 2" in next(_node_problems("n1", ("idle", "gpu:1"), 2))


def test_nodes_of_ray() -> None:
    ray = SimpleNamespace(available_resources=lambda: {"machine:a": 1.0})
    node = {"NodeManagerAddress": "10.0.0.7", "Resources": {"machine:a": 1.0, "GPU": 2.0}}
    site = RaySite(ray, {"a": node, "b": node}, HostList(), {"a": 3, "b": 1, "c": 4})
    words = {}
    for name in ("a", "b", "c"):
        with pytest.raises(WireError) as refused:
            site.line(name)
        words[name] = str(refused.value)
    assert words["a"].startswith("its node has 2 GPUs for Ray, the plan needs 3")
    assert words["b"].startswith("the resource machine:b is in use by another job")
    assert words["c"].startswith("no node of this Ray cluster has the resource machine:c: ray start --address")
    assert site.host("a").address == "10.0.0.7" and site.host("c").address == "c"


def test_gpus_that_a_scheduler_hands_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a part of a machine, workers and checks count from 0."""
    part = RaySite(None, {}, HostList(), {MACHINE.name: 2})
    assert part.needed(Need(replace(MACHINE, gpus=8), {3: 1.0, 5: 2.0})).gpus == {0: 1.0, 1: 2.0}
    assert part.needed(Need(replace(MACHINE, gpus=2), {0: 1.0, 1: 2.0})).gpus == {0: 1.0, 1: 2.0}
    gpus = [{"name": str(number)} for number in range(4)]
    for named, seen in (("2,0", ["2", "0"]), ("", []), ("GPU-1f", ["0", "1", "2", "3"])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
        assert [each["name"] for each in _visible(gpus)] == seen


def test_long_reports_go_in_parts_and_come_back(tmp_path) -> None:
    line = json.dumps({"event": "step", "rank": 1, "spans": ["×" * 40] * 200})
    parts = in_parts(line, 1)
    assert len(parts) > 2 and all(len(each.encode()) < 4096 for each in parts)
    assert "".join(json.loads(each)["part"] for each in parts) == line
    assert [json.loads(each)["last"] for each in parts] == [False] * (len(parts) - 1) + [True]
    assert in_parts("{}", 1) == ["{}"] and len(line) > LONGEST >= max(map(len, parts))
    # Whatever else a machine prints is no event.
    part = Part(tmp_path / "log")
    part.take("(work pid=7) a warning {of some kind}")
    assert (tmp_path / "log").read_text() == "(work pid=7) a warning {of some kind}\n"


STAGE = StageStep(0, 0, "rome-1", 1.0, 0.5, 0.0, 0.0, None, None, 0.0, 1.0)


def report(*stages: StageStep) -> StepReport:
    return StepReport("job", 1, None, 2.0, 2.0, 1.0, stages)


def test_which_stage_is_late() -> None:
    slow = replace(STAGE, stage=1, machine="oslo-1", busy=1.5)
    assert report(STAGE, STAGE).late is None
    assert report(STAGE, slow).late == "1.2 on oslo-1 (busy 1.50 s, predicted 1.00 s)"
    assert report(STAGE, replace(slow, busy=1.1)).late is None
    unknown = replace(STAGE, predicted_busy=None)
    assert report(unknown, unknown).late is None
    assert (
        report(unknown, replace(unknown, busy=2.5, machine="oslo-1")).late
        == "1.1 on oslo-1 (busy 2.50 s, most others 1.00 s)"
    )
