"""Planning again: nothing changes without need, what must move adds up, and a change has to pay back."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import typer
from typer.testing import CliRunner

import small
from hulk.cli.replan import replan as replan_verb
from hulk.cost.moving import layer_state_bytes, move_seconds, plan_moves
from hulk.domain.check import check_plan
from hulk.domain.options import Options
from hulk.domain.plan import JobPlan, Pipeline, Stage
from hulk.errors import InputError
from hulk.io.gpus import gpu
from hulk.io.joined_file import load_joined
from hulk.planner import plan_jobs
from hulk.replan import Change, replan
from hulk.replan.payback import effective_seconds, payback
from hulk.search.budget import Effort
from hulk.search.request import Request

app = typer.Typer()
app.command()(replan_verb)
DAY = 86400.0


def again(*, plan=None, cluster=None, jobs=None, **options):
    options = {"horizon": DAY, "evaluations": 300, "time_limit": 60.0} | options
    cluster, jobs = cluster or small.cluster(), jobs or small.jobs()
    change = Change(**{name: tuple(options.pop(name)) for name in ("lost", "joined") if name in options})
    effort = Effort(**{name: options.pop(name) for name in ("evaluations", "time_limit", "seed") if name in options})
    asked = {name: options.pop(name) for name in ("engine", "keep_from") if name in options}
    request = Request(cluster, tuple(jobs), small.compute(), **asked)
    result = replan(plan or small.plan(), request, change, effort=effort, **options)
    check_plan(result.plan, result.cluster, jobs)
    return result


def held(plan: JobPlan) -> set[tuple[str, int]]:
    return {(s.machine, layer) for p in plan.pipelines for s in p.stages for layer in s.layers}


def test_losing_an_idle_machine_changes_nothing_and_says_so():
    result = again(lost=["rome-3"])
    assert result.plan.jobs == small.plan().jobs
    assert result.plan.idle == ("oslo-1",)
    assert not result.changed
    assert "idle" in result.note
    assert result.move_s == 0


def test_a_job_that_lost_a_machine_goes_on():
    result = again(lost=["rome-2"])
    change = next(job for job in result.jobs if job.job == "bert")
    assert change.changed
    assert change.after_s is not None
    assert not change.from_checkpoint  # rome-1 holds all layers
    assert all(move.source != "rome-2" for move in change.moves)
    assert "rome-2" not in {stage.machine for p in result.plan.jobs["bert"].pipelines for stage in p.stages}
    assert not result.stopped


def test_bytes_moved_are_the_state_of_the_layers_that_change_holder():
    result = again(lost=["rome-2"])
    for job in small.jobs():
        change = next(c for c in result.jobs if c.job == job.name)
        new = held(result.plan.jobs[job.name]) - held(small.plan().jobs[job.name])
        assert sum(m.bytes for m in change.moves) == pytest.approx(sum(sum(layer_state_bytes(job, i)) for _, i in new))


def test_the_same_seed_gives_the_same_answer():
    assert again(lost=["paris-1"], seed=3).plan == again(lost=["paris-1"], seed=3).plan


def test_machines_that_join_are_used_only_if_that_pays_back():
    found = plan_jobs(
        Request(small.cluster(), small.jobs(), small.compute()), Effort(evaluations=3000, time_limit=60)
    ).plan
    machine = replace(small.cluster().machine("rome-1"), name="rome-9", gpu=gpu("a100-80"), memory=80e9)
    patient = again(plan=found, joined=[machine], horizon=30 * DAY)
    hasty = again(plan=found, joined=[machine], horizon=61.0)
    assert any(stage.machine == "rome-9" for p in patient.plan.jobs["bert"].pipelines for stage in p.stages)
    assert all(change.payback_s is None or change.payback_s <= 30 * DAY for change in patient.jobs)
    assert hasty.plan.jobs == found.jobs
    assert not hasty.changed
    assert "rome-9" in hasty.plan.idle
    assert hasty.refused is not None
    assert hasty.refused.payback_s > 61.0


def test_layers_that_survive_nowhere_come_from_a_checkpoint():
    result = again(lost=["paris-2"])
    change = next(job for job in result.jobs if job.job == "second")
    assert change.after_s is not None
    assert change.from_checkpoint


def test_a_job_that_cannot_run_any_more_stops_and_the_others_go_on():
    jobs = (small.jobs()[0], replace(small.jobs()[1], allow=("paris",)))
    result = again(jobs=jobs, lost=["paris-2", "paris-1"])
    assert result.stopped == ("second",)
    assert "no machine is in a region" in result.plan.waiting["second"]
    assert "bert" in result.plan.jobs


def test_unknown_and_known_names_are_refused():
    with pytest.raises(InputError, match="no machine 'rome-7'"):
        again(lost=["rome-7"])
    with pytest.raises(InputError, match="already"):
        again(joined=[small.cluster().machine("rome-1")])


def test_sharded_optimizer_state_of_a_lost_replica_comes_from_a_checkpoint():
    job, old = small.jobs()[0], small.plan(shard=True).jobs["bert"]
    new = replace(old, pipelines=(replace(old.pipelines[0], microbatches=16),))
    moves = plan_moves(job, old, new, small.cluster(), lost=["rome-2"])
    lost = sum(layer_state_bytes(job, i)[1] for i in range(12)) / 2
    kept = sum(layer_state_bytes(job, i)[1] for i in range(12, 26)) / 2
    assert {m.source: m.bytes for m in moves} == pytest.approx({None: lost, "paris-1": kept})


def test_moving_takes_as_long_as_the_fullest_way():
    job, cluster = small.jobs()[1], small.cluster()
    old = small.plan().jobs["second"]
    new = JobPlan((Pipeline((Stage("rome-1", (0,), 0, 25),), 8),), Options(microbatch_size=2))
    moves = plan_moves(job, old, new, cluster)
    size = sum(sum(layer_state_bytes(job, i)) for i in range(26))
    assert [(m.source, m.target) for m in moves] == [("paris-2", "rome-1")]
    assert move_seconds(moves, cluster) == pytest.approx(size / (0.5e9 / 8) + 0.030)


def test_payback_is_where_both_have_done_as_many_steps():
    job = small.jobs()[0]
    pays = payback([(job, 10.0, 0.0)], [(job, 8.0, 100.0)])
    assert pays == pytest.approx(100.0 * 10 / (10 - 8), rel=1e-4)
    assert effective_seconds(8.0, 100.0, pays) == pytest.approx(10.0, rel=1e-4)
    assert payback([(job, 8.0, 0.0)], [(job, 8.0, 1.0)]) is None


def test_the_verb(tmp_path):
    files = small.write_files(tmp_path)
    (tmp_path / "new.yaml").write_text(small.NEW_MACHINE)
    quick = ("--evaluations", "200", "--time-limit", "5")
    done = CliRunner().invoke(app, [*files, "--lost", "oslo-1", *quick])
    assert done.exit_code == 0, done.output
    assert "nothing changes" in done.output
    out = tmp_path / "again.json"
    done = CliRunner().invoke(
        app, [*files, "--lost", "rome-2", "--joined", str(tmp_path / "new.yaml"), *quick, "-o", str(out), "--json"]
    )
    assert done.exit_code == 0, done.output
    document = json.loads(done.output)
    assert document["hulk"] == "replan/1"
    assert "rome-9" in document["machines"]
    assert document["jobs"]["bert"]["changed"]
    assert out.exists()


def test_joined_machines_bring_regions_and_links(tmp_path):
    small.write_files(tmp_path)
    path = tmp_path / "new.yaml"
    path.write_text(
        "regions: {bern: {at: [46.9, 7.4]}}\n"
        "machines: [{name: bern, count: 2, region: bern, gpu: a100-80, gpus: 8}]\n"
        "links: [{between: [bern, rome], latency: 9 ms, bandwidth: 1 Gbit/s}]\n".replace("name: bern,", "name: b,")
    )
    grown, machines = load_joined([path], small.cluster(), str(tmp_path / "small.yaml"))
    assert [machine.name for machine in machines] == ["b-1", "b-2"]
    assert grown.region_link("bern", "rome").latency == pytest.approx(0.009)
    assert grown.machines == small.cluster().machines
    with pytest.raises(InputError, match="unknown region"):
        path.write_text("{name: x, region: nowhere, gpu: a100-80, gpus: 8}")
        load_joined([path], small.cluster(), str(tmp_path / "small.yaml"))
