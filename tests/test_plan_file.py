"""Plans as JSON files."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hulk.domain.options import Options, Recompute, Schedule, ScheduleKind, Sharding, Sync
from hulk.domain.plan import JobPlan, Part, Pipeline, Plan, Stage
from hulk.errors import InputError
from hulk.io.plan_file import dump_plan, load_plan, read_plan, save_plan
from hulk.io.yamlfile import parse_document

names = st.from_regex(r"[a-z0-9](?:[a-z0-9._-]{0,8}[a-z0-9])?", fullmatch=True)
schedules = st.one_of(
    st.just(Schedule(ScheduleKind.GPIPE)),
    st.builds(Schedule, st.just(ScheduleKind.ONE_F_ONE_B), st.integers(0, 999_999)),
)
index = st.integers(0, 1000)
gpus = st.lists(index, min_size=1, max_size=9).map(tuple)
beside = st.lists(st.builds(Part, names, gpus), max_size=2).map(tuple)
stages = st.builds(Stage, names, gpus, index, index, beside, st.none() | index)
pipelines = st.builds(Pipeline, st.lists(stages, min_size=1, max_size=4).map(tuple), st.integers(1, 10**9))
job_plans = st.builds(
    JobPlan,
    pipelines=st.lists(pipelines, min_size=1, max_size=3).map(tuple),
    options=st.builds(
        Options,
        microbatch_size=st.integers(1, 10**9),
        schedule=schedules,
        recompute=st.sampled_from(Recompute),
        sync=st.sampled_from(Sync),
        sharding=st.sampled_from(Sharding),
    ),
)
plans = st.builds(
    Plan,
    jobs=st.dictionaries(names, job_plans, max_size=3),
    idle=st.lists(names, max_size=4).map(tuple),
    waiting=st.dictionaries(names, st.text(st.characters(codec="utf-8"), max_size=50), max_size=3),
)

EXAMPLE = Plan(
    jobs={"opt": JobPlan((Pipeline((Stage("rome-1", (0, 1), 0, 11), Stage("rome-2", (3,), 12, 25)), 8),), Options(2))},
    idle=("paris-1",),
    waiting={"t5": "no memory left"},
)


@settings(max_examples=150, deadline=None)
@given(plans)
def test_what_is_dumped_loads_as_the_same_plan(plan: Plan) -> None:
    text = dump_plan(plan, cluster="some-cluster")
    again = read_plan(parse_document(text, name="plan.json", is_json=True))
    assert again == plan
    assert dump_plan(again, cluster="some-cluster") == text


def test_a_saved_plan_is_readable_and_loads(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    save_plan(EXAMPLE, path, cluster="mine")
    text = path.read_text()
    assert '            {"machine": "rome-1", "gpus": [0, 1], "layers": [0, 11]},\n' in text
    assert json.loads(text)["cluster"] == "mine"
    assert load_plan(path) == EXAMPLE
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]


def test_saving_replaces_the_whole_file_and_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old" * 10_000)
    path.chmod(0o640)
    save_plan(EXAMPLE, path)
    assert load_plan(path) == EXAMPLE
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old")
    with pytest.raises(InputError, match="cannot write this file"):
        save_plan(Plan(jobs={}, waiting={"a": "\ud800"}), path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]
    with pytest.raises(InputError, match="cannot write this file"):
        save_plan(EXAMPLE, tmp_path / "no" / "such" / "folder.json")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('"plan/1"', '"plan/2"', "plan.json:2: hulk: unknown value 'plan/2' (one of 'plan/1')"),
        ('"1f1b"', '"zigzag"', "jobs.opt.schedule: unknown schedule 'zigzag'"),
        ('"recompute": "none"', '"recompute": "some"', "jobs.opt.recompute: unknown value 'some' (one of 'none', 'att"),
        ("[0, 11]", "[0]", "jobs.opt.pipelines[0].stages[0].layers: expected at least 2 in this list"),
        ("[0, 11]", '[0, 11], "recomputed": -1', "stages[0].recomputed: must be at least 0, not -1"),
        ("[0, 1]", "[]", "stages[0].gpus: expected at least 1 in this list"),
        ("[3]", "[-3]", "stages[1].gpus[0]: must be at least 0, not -3"),
        ('"microbatches": 8', '"microbatches": 8.5', "microbatches: expected a whole number (a number 8.5 found)"),
        ('"machine"', '"machin"', "unknown key 'machin' (did you mean 'machine'?"),
        ('"sequence_parallel": false', '"sequence_parallel": "no"', "expected true or false (text 'no' found)"),
        ('"hulk": "plan/1",', "", "plan.json:1: hulk: this key is missing"),
    ],
)
def test_refuses(tmp_path: Path, before: str, after: str, message: str) -> None:
    text = dump_plan(EXAMPLE)
    assert before in text
    path = tmp_path / "plan.json"
    path.write_text(text.replace(before, after))
    with pytest.raises(InputError) as caught:
        load_plan(path)
    assert message in str(caught.value)
