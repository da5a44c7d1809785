"""Stages on several machines: planned again when one is lost, and shown and started like all others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from halls import COMPUTE, JOB, LONG, hall, planned
from hulk.cost.engine import MEGATRON
from hulk.cost.moving import plan_moves
from hulk.domain.check import check_plan
from hulk.domain.plan import JobPlan, Part, Plan, machines_used
from hulk.domain.regular import parse_regular, regular_plan
from hulk.export import TARGETS
from hulk.export.scene import Scene
from hulk.replan.main import Change, replan
from hulk.runtime.seats import seat
from hulk.search.budget import Effort
from hulk.search.request import Request
from hulk.view.build import Extras, Shown, document_of
from hulk.whatif import suggest

# --- changes ---


def test_what_moves_is_what_a_machine_has_of_a_layer() -> None:
    tensor = planned("tp16 dp1", machines=4)
    onto = regular_plan(parse_regular("tp16 dp1"), JOB, replace(hall(4), machines=hall(4).machines[1:3]))
    moves = plan_moves(JOB, tensor, onto, hall(4), lost=("m-0",))
    everything = sum(move.bytes for move in plan_moves(JOB, planned("tp8 dp1"), _on("m-2"), hall(4)))
    # m-1 had the second half and gets the first, m-2 the second; nobody who is left has the first
    assert {(move.source, move.target) for move in moves} == {(None, "m-1"), ("m-1", "m-2")}
    assert [move.bytes for move in moves] == pytest.approx([everything / 2] * 2)
    shared = planned("tp8 cp2 mb1", LONG)
    kept = plan_moves(LONG, shared, _renamed(shared, "m-0", "m-2"), hall(4), lost=("m-0",))
    assert {(move.source, move.target) for move in kept} == {("m-1", "m-2")}  # parts of a sequence have all weights


def _on(machine: str) -> JobPlan:
    plan = planned("tp8 dp1")
    return JobPlan((replace(plan.pipelines[0], stages=(replace(plan.stages[0], machine=machine),)),), plan.options)


def _renamed(plan: JobPlan, old: str, new: str) -> JobPlan:
    stage = plan.stages[0]
    parts = [Part(new if part.machine == old else part.machine, part.gpus) for part in stage.parts]
    return JobPlan((replace(plan.pipelines[0], stages=(stage.with_parts(parts),)),), plan.options)


def test_moves_of_sharded_state() -> None:
    plan = planned("tp16 dp2 zero1", machines=4)
    assert plan_moves(JOB, plan, plan, hall(4)) == ()
    swapped = replace(plan, pipelines=plan.pipelines[::-1])
    moves = plan_moves(JOB, plan, swapped, hall(4))
    ways = {("m-0", "m-2"), ("m-2", "m-0"), ("m-1", "m-3"), ("m-3", "m-1")}
    assert {(move.source, move.target) for move in moves} == ways
    assert len({round(move.bytes) for move in moves}) == 1


@pytest.mark.parametrize("machines", [5, 4])
def test_planning_again_when_one_of_its_machines_is_lost(machines: int) -> None:
    """With a spare machine that takes its place, and without one."""
    cluster = hall(machines)
    plan = Plan({"j": planned("tp16 dp2 mb1", machines=4)}, idle=tuple(m.name for m in cluster.machines[4:]))
    request = Request(cluster, (JOB,), COMPUTE, MEGATRON)
    found = replan(plan, request, Change(lost=("m-1",)), horizon=1e9, effort=Effort(5.0, 200), widely=False)
    assert not found.stopped
    assert "m-1" not in machines_used(found.plan.jobs.values())
    check_plan(found.plan, found.cluster, [JOB])
    (change,) = found.jobs
    assert change.after_s is not None and change.moves


# --- whoever shows or starts it ---


def test_every_gpu_has_a_rank() -> None:
    seating = seat(planned("tp8 cp2 mb1", LONG))
    assert [one.machine for one in seating.seats] == ["m-0"] * 8 + ["m-1"] * 8
    assert [(one.part, one.slot) for one in seating.seats] == [(p, s) for p in range(2) for s in range(8)]
    assert seating.ranks(0, 0, part=1) == tuple(range(8, 16)) and seating.sharers(0, 0, 3) == (3, 11)
    assert [one.local_rank for one in seating.seats] == [*range(8), *range(8)]


def test_megatron_gets_ranks_machine_by_machine() -> None:
    plan = planned("tp8 cp2 pp2 dp1 mb1 sp zero1", LONG, machines=4)
    files = TARGETS.get("megatron").export(Scene(LONG, plan, hall(4)))
    arguments = files["arguments.txt"].text.split("\n")
    assert arguments[arguments.index("--context-parallel-size") + 1] == "2"
    scripts = [name for name in files if "machines/" in name]
    assert len(scripts) == 4


def test_pairs_that_talk_are_all_pairs_of_a_stage() -> None:
    from hulk.export.pairs import pairs_of

    plan = planned("tp16 pp2 dp1", machines=4)
    assert {("m-0", "m-1"), ("m-2", "m-3"), ("m-0", "m-2")} <= set(pairs_of(Scene(JOB, plan, hall(4))))


def test_the_page_and_the_words_tell_of_all_machines() -> None:
    plan = Plan({"j": planned("tp16 pp2 dp1", machines=4)}, idle=())
    shown = Shown(plan, hall(4), (JOB,), COMPUTE, MEGATRON)
    document = document_of(shown, shown.price(), Extras(simulation=shown.simulation()))
    assert document["owner"] == [0, 0, 0, 0]
    first, second = document["cut"]["j"]["pipelines"][0]["stages"]
    assert [part["machine"] for part in first["beside"]] == ["m-1"] and second["machine"] == "m-2"
    words = document["words"]["jobs"]["j"]
    assert words["group"] == ["a: m-0, m-1, m-2, m-3 (32 GPUs)"]
    assert any("on m-0 and m-1, 16×h100" in line for line in words["cut"])
    slow = replace(hall(4), machines=hall(4, card=1e8).machines)
    helps = suggest(plan, slow, (JOB,), compute=COMPUTE, engine=MEGATRON)
    assert any("in each of m-" in one.text for one in helps), helps


def test_hulk_price_says_it(tmp_path: Path) -> None:
    from warm import hulk

    (tmp_path / "hall.yaml").write_text(
        "name: hall\nregions: {a: {}}\n"
        "machines: [{name: m, count: 2, region: a, gpu: h100, gpus: 8, network: 8 x 400 Gbit/s}]\n"
        "links: [{inside: a, latency: 0.005 ms, bandwidth: 400 Gbit/s}]\n"
    )
    (tmp_path / "jobs.yaml").write_text("jobs: [{name: j, model: opt-350m, global_batch: 16}]\n")
    files = ("-c", str(tmp_path / "hall.yaml"), "-j", str(tmp_path / "jobs.yaml"))
    done = hulk("price", "--layout", "tp16 mb1 sp", *files, "--engine", "megatron")
    assert done.returncode == 0, done.stderr
    assert "m-1 and m-2" in done.stdout.replace("\n", " ")
