"""Layers tied to places: the jobs file, the plan's invariants, the search, the exact solver and what they answer."""

from __future__ import annotations

import json
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from hulk.cost.compute import ComputeModel
from hulk.cost.engine import HULK
from hulk.domain.check import check_plan
from hulk.domain.job import Rule
from hulk.domain.options import Options
from hulk.domain.plan import JobPlan, Pipeline, Plan, Stage
from hulk.errors import InputError, PlanError
from hulk.io.cluster_file import load_cluster
from hulk.io.jobs_file import load_jobs
from hulk.io.profiles import bundled_profiles
from hulk.search.baselines import BASELINES
from hulk.search.fit import fit
from hulk.search.job_space import JobSpace, Places
from hulk.search.results import RUNS, Result
from hulk.search.shape.arrange import in_order
from hulk.search.skeleton import Skeleton, Slot
from warm import hulk

CLUSTER = """
regions: {eu-rome: {at: [41.9, 12.5]}, us-ohio: {at: [40, -83]}, asia: {at: [35, 139]}}
machines:
  - {name: rm, region: eu-rome, gpu: rtx-3090, gpus: 2}
  - {name: oh, region: us-ohio, gpu: rtx-3090, gpus: 2}
  - {name: as, region: asia, gpu: rtx-3090, gpus: 2}
"""
QUICK = ("--time-limit", "60", "--evaluations", "300", "--no-gnn")
LAYERS = 14  # of gpt2: 0 the embedding, 13 the head


def write_jobs(folder: Path, *rules: str, model: str = "gpt2", more: str = "") -> Path:
    lines = "".join(f"\n      - {rule}" for rule in rules)
    path = folder / "j.yaml"
    path.write_text(f"jobs:\n  - name: a\n    model: {model}\n    global_batch: 16\n{more}    place:{lines}\n")
    return path


def write_small_model(folder: Path) -> str:
    """A model of four layers; its name for a jobs file."""
    config = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": 128, "vocab_size": 1000}
    (folder / "m.json").write_text(json.dumps(config))
    return "./m.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "c.yaml").write_text(CLUSTER)
    return tmp_path


def job_of(folder: Path, *rules: str, **kwargs: str):
    return load_jobs(write_jobs(folder, *rules, **kwargs))[0]


def space_of(folder: Path, *rules: str) -> JobSpace:
    cluster = load_cluster(folder / "c.yaml")
    compute = ComputeModel(bundled_profiles())
    return JobSpace(job_of(folder, *rules), cluster, Places.of(cluster), compute=compute, engine=HULK)


def stages_of(document: dict) -> list[dict]:
    return [stage for pipeline in document["pipelines"] for stage in pipeline["stages"]]


def regions_by_layer(document: dict) -> dict[int, set[str]]:
    """Layer → the regions it is in, by a plan's own words."""
    region = {"rm": "eu-rome", "oh": "us-ohio", "as": "asia"}
    found: dict[int, set[str]] = {}
    for stage in stages_of(document):
        for layer in range(stage["layers"][0], stage["layers"][1] + 1):
            found.setdefault(layer, set()).add(region[stage["machine"].split("-")[0]])
    return found


# --- the jobs file ---


@pytest.mark.parametrize(
    ("rule", "words", "layers", "patterns", "forbidden"),
    [
        ("embedding: eu-*", "embedding", {0}, ("eu-*",), False),
        ("head: [eu-*, asia]", "head", {13}, ("eu-*", "asia"), False),
        ("embedding and head: eu-*", "embedding and head", {0, 13}, ("eu-*",), False),
        ("blocks: us-*", "blocks", set(range(1, 13)), ("us-*",), False),
        ("layers 0-3: eu-rome", "layers 0-3", {0, 1, 2, 3}, ("eu-rome",), False),
        ("layer 5: eu-rome", "layer 5", {5}, ("eu-rome",), False),
        ("not layers 10-12, layer 2: spot-*", "layers 10-12, layer 2", {2, 10, 11, 12}, ("spot-*",), True),
        ('"not head: us-*, asia"', "head", {13}, ("us-*", "asia"), True),
        ("{head: asia}", "head", {13}, ("asia",), False),
    ],
)
def test_rules_are_read(folder, rule, words, layers, patterns, forbidden):
    assert job_of(folder, rule).place == (Rule(words, frozenset(layers), patterns, forbidden),)


def test_an_entry_may_hold_several_rules(folder):
    assert [str(rule) for rule in job_of(folder, "{head: asia, not layer 1: [b, c]}").place] == [
        "head: asia",
        "not layer 1: b, c",
    ]


def test_the_decoders_embedding_is_an_embedding_too(folder):
    job = job_of(folder, "embedding: eu-*", model="t5-small")
    kinds = [job.model.layers[layer].kind for layer in sorted(job.place[0].layers)]
    assert kinds == ["embedding"] * len(kinds)
    assert len(kinds) == sum(layer.kind == "embedding" for layer in job.model.layers)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("tail: eu-*", "'tail' names no layers"),
        ("emmbedding: eu-*", "did you mean 'embedding'"),
        ("layers 3-1: eu-*", "3 is after 1"),
        ("layers 0-14: eu-*", "has no layer 14"),
        ("layer 99: eu-*", "0 (the embedding) to 13"),
        ("embedding and: eu-*", "names no layers"),
        ("not: eu-*", "names no layers"),
        ("head: []", "expected 1 to 1,000 regions (0 found)"),
        ("head: 3", "expected a region or a list of them (a number 3 found)"),
        ("head: [3]", "expected the name of a region (a number 3 found)"),
        ('head: ""', "1 to 100 characters"),
        ("head", "'head' names no region"),
        ("[head]", "expected layers and regions"),
        ("{}", "expected layers and regions"),
        ("7", "expected layers and regions"),
    ],
)
def test_bad_rules_are_told_with_their_line(folder, rule, words):
    path = write_jobs(folder, "head: eu-*", rule)
    with pytest.raises(InputError) as error:
        load_jobs(path)
    assert words in f"{error.value.message} ({error.value.hint})"
    assert ":7: jobs[0].place[1]" in str(error.value.where)


def test_bad_rules_exit_2(folder):
    write_jobs(folder, "layers 0-99: eu-*")
    done = hulk("plan", "c.yaml", "j.yaml", *QUICK, cwd=folder)
    assert done.returncode == 2
    assert "j.yaml:6: jobs[0].place[0].layers 0-99" in done.stderr
    assert done.stderr.count("\n") <= 2


def test_a_list_is_expected(folder):
    (folder / "j.yaml").write_text("jobs:\n  - {name: a, model: gpt2, global_batch: 8, place: {head: eu-*}}\n")
    with pytest.raises(InputError, match="expected a list"):
        load_jobs(folder / "j.yaml")


# --- values and invariants ---


def test_all_rules_hold_and_allow_and_deny_besides(folder):
    job = replace(job_of(folder, "layers 0-3: [eu-*, us-*]", "not layer 2: us-*", "head: eu-*"), deny=("asia",))
    assert job.may_hold(0, "us-ohio")
    assert not job.may_hold(2, "us-ohio")
    assert not job.may_hold(13, "us-ohio")
    assert job.may_hold(13, "eu-rome")
    assert job.may_hold(5, "us-ohio")
    assert not job.may_hold(5, "asia")
    assert job.broken_rule(2, "us-ohio") == job.place[1]
    assert job.broken_rule(5, "asia") is None  # `deny` is no rule


def test_a_plan_that_breaks_a_rule_is_refused(folder):
    job, cluster = job_of(folder, "embedding and head: eu-*"), load_cluster(folder / "c.yaml")

    def plan(cut: int) -> Plan:
        stages = (Stage("rm", (0,), 0, 1), Stage("oh", (0,), 2, cut), Stage("rm", (1,), cut + 1, 13))
        good = JobPlan((Pipeline(stages, 8),), Options(1))
        bad = JobPlan((*good.pipelines, Pipeline((Stage("as", (0,), 0, 13),), 8)), Options(1))
        return Plan({"a": bad if cut == 5 else good}, ("as",) if cut != 5 else ("oh",)[:0])

    whole = plan(12)
    check_plan(replace(whole, jobs={"a": replace(whole.jobs["a"], options=Options(2))}), cluster, [job])
    with pytest.raises(PlanError) as error:
        check_plan(plan(5), cluster, [job])
    assert error.value.where == "job 'a', pipeline 2, stage 1"
    assert "layer 0 may not be in region 'asia', where 'as' is: 'embedding and head: eu-*'" in error.value.message


# --- the tables and the cut ---


def test_tables_say_how_far_a_place_may_go(folder):
    space = space_of(folder, "embedding and head: eu-*", "not layers 4-6: us-*")
    rows = space.tables(space.plainest).held_until
    assert rows[0].tolist() == [13] * 14
    assert rows[1].tolist() == [-1, 3, 3, 3, -1, -1, -1, *[12] * 6, -1]
    assert rows[2].tolist() == [-1, *[12] * 12, -1]
    assert space_of(folder, "head: '*'").tables(space.plainest).held_until.tolist() == [[13] * 14] * 3


def test_without_rules_there_is_no_table(folder):
    space = space_of(folder, "head: '*'")
    free = JobSpace(replace(space.job, place=()), space.cluster, space.places, compute=space.compute, engine=HULK)
    assert free.tables(free.plainest).held_until.shape == (0, 14)
    # A rule that keeps nothing from anywhere changes no price: the two ways to cut agree.
    for chain in ([0, 1], [0, 1, 2], [2, 0, 1, 1], [0, 0, 1, 1, 2, 2]):
        skeleton = Skeleton((tuple(Slot(machine, 1) for machine in chain),), Options(2))
        assert free.result(skeleton).seconds == pytest.approx(space.result(skeleton).seconds, rel=1e-3)


def test_the_cut_is_the_best_that_rules_allow(folder):
    """By all cuts of a pipeline whose middle must not hold layers that a cut by time alone would give it."""
    space = space_of(folder, "not layers 6-8: us-*", "head: asia")
    chain = (Slot(0, 1), Slot(1, 1), Slot(2, 1))
    skeleton = Skeleton((chain,), Options(1))
    tables, encoded = space.tables(skeleton.options), space.encode(skeleton)
    status, _ = fit(tables, encoded, *space.room(3), space.job.global_batch, np.inf)
    assert status == RUNS

    def slowest(cuts: tuple[int, int]) -> float:
        bounds = [0, *cuts, LAYERS]
        both = tables.forward + tables.backward
        return max(both[k, b] - both[k, a] for k, a, b in zip(encoded.kind, bounds, bounds[1:], strict=False))

    possible = [
        cuts
        for cuts in combinations(range(1, LAYERS), 2)
        if not set(range(*cuts)) & {6, 7, 8}  # what the second stage holds; the last one has the head
    ]
    best = min(map(slowest, possible))
    made = (int(encoded.first[1]), int(encoded.first[2]))
    assert made in possible
    assert slowest(made) <= best * 1.5  # refined by the step's time, where the slowest stage does not decide alone


def test_what_rules_forbid_is_rated_by_what_is_missing(folder):
    space = space_of(folder, "embedding and head: eu-*")

    def result(*machines: int) -> Result:
        return space.result(Skeleton((tuple(Slot(machine, 1) for machine in machines),), Options(1)))

    assert result(0, 1, 0).runs
    assert result(0, 1).value == 1  # the head alone finds no place
    assert result(1, 0).value == LAYERS
    assert result(0, 1) < result(1, 0)


def test_slots_are_put_in_an_order_that_rules_allow(folder):
    space = space_of(folder, "embedding and head: eu-*")
    rome, ohio, asia = Slot(0, 1), Slot(1, 1), Slot(2, 1)
    assert in_order(space, ((ohio, rome, rome, asia),)) == ((rome, ohio, asia, rome),)
    assert in_order(space, ((rome,), (ohio,))) == ((rome,),)
    assert in_order(space, ((rome, ohio),)) == ((rome, ohio),)  # nothing else is there
    later = space_of(folder, "layers 0-6: us-*", "layers 7-13: asia")
    assert in_order(later, ((asia, asia, ohio, ohio),)) == ((ohio, ohio, asia, asia),)


# --- hulk plan and the others ---


def test_the_ends_in_one_region_and_the_rest_spread(folder):
    """Three sites: raw data and labels only in Europe, all blocks elsewhere."""
    write_jobs(folder, "embedding and head: eu-*", "not blocks: eu-*", "not layers 1-4: asia")
    done = hulk("plan", "c.yaml", "j.yaml", "-o", "p.json", *QUICK, cwd=folder)
    assert done.returncode == 0, done.stderr
    where = regions_by_layer(json.loads((folder / "p.json").read_text())["jobs"]["a"])
    assert where[0] == where[13] == {"eu-rome"}
    assert all("eu-rome" not in where[layer] for layer in range(1, 13))
    assert all(where[layer] == {"us-ohio"} for layer in range(1, 5))
    for verb in (("price",), ("explain",), ("simulate",)):
        assert hulk(*verb, "p.json", "-c", "c.yaml", "-j", "j.yaml", cwd=folder).returncode == 0


def test_exact_and_search_agree_on_a_small_case(folder):
    write_jobs(folder, "embedding and head: eu-*", "not layer 1: eu-*", model=write_small_model(folder))
    seconds = []
    for options in ((), ("--exact",)):
        done = hulk("plan", "c.yaml", "j.yaml", "--json", "-o", "p.json", *QUICK, *options, cwd=folder)
        assert done.returncode == 0, done.stderr
        where = regions_by_layer(json.loads((folder / "p.json").read_text())["jobs"]["a"])
        assert where[0] == where[3] == {"eu-rome"}
        assert "eu-rome" not in where[1]
        price = hulk("price", "p.json", "-c", "c.yaml", "-j", "j.yaml", "--json", cwd=folder)
        seconds.append(json.loads(price.stdout)["jobs"]["a"]["step_s"])
    assert seconds[1] <= seconds[0] * (1 + 1e-6)
    assert seconds[0] <= seconds[1] * 1.05


@pytest.mark.parametrize("options", [(), ("--exact",), ("--cheapest",)])
def test_a_layer_without_a_place_lets_the_job_wait(folder, options):
    write_jobs(folder, "layers 0-3: eu-*", "layer 2: us-*", model=write_small_model(folder))
    done = hulk("plan", "c.yaml", "j.yaml", *QUICK, *options, cwd=folder)
    assert done.returncode == 3, done.stderr
    words = " ".join((done.stdout + done.stderr).split())
    assert "layer 2 may be in no region" in words
    assert "`layers 0-3: eu-*` and `layer 2: us-*`" in words


def test_a_region_that_is_nowhere_lets_the_job_wait(folder):
    write_jobs(folder, "head: atlantis")
    done = hulk("plan", "c.yaml", "j.yaml", *QUICK, cwd=folder)
    assert done.returncode == 3
    assert "layer 13" in " ".join(done.stdout.split())


def test_a_pin_to_a_machine_for_no_layer_is_refused(folder):
    write_jobs(folder, "layers 0-13: eu-*")
    done = hulk("plan", "c.yaml", "j.yaml", "--pin", "a=oh", *QUICK, cwd=folder)
    assert done.returncode == 2
    assert "no layer of 'a' may be in 'us-ohio'" in done.stderr


def test_replan_keeps_rules(folder):
    text = CLUSTER.replace("rm, region", "rm, count: 2, region").replace("oh, region", "oh, count: 2, region")
    (folder / "c.yaml").write_text(text)
    write_jobs(folder, "embedding and head: eu-*", "not blocks: eu-*")
    assert hulk("plan", "c.yaml", "j.yaml", "-o", "p.json", *QUICK, cwd=folder).returncode == 0
    used = {stage["machine"] for stage in stages_of(json.loads((folder / "p.json").read_text())["jobs"]["a"])}
    lost = min(used & {"rm-1", "rm-2"})
    done = hulk(
        "replan", "p.json", "-c", "c.yaml", "-j", "j.yaml", "--lost", lost, "-o", "q.json", *QUICK[:4], cwd=folder
    )
    assert done.returncode == 0, done.stderr
    where = regions_by_layer(json.loads((folder / "q.json").read_text())["jobs"]["a"])
    assert where[0] == where[13] == {"eu-rome"}
    assert all("eu-rome" not in where[layer] for layer in range(1, 13))


@pytest.mark.parametrize("name", [entry.name for entry in BASELINES.entries()])
def test_baselines_keep_rules(folder, name):
    job, cluster = job_of(folder, "embedding and head: eu-*", "not layers 5-6: eu-*"), load_cluster(folder / "c.yaml")
    compute = ComputeModel(bundled_profiles())
    try:
        result = BASELINES.get(name).run(cluster, [job], compute=compute, engine=HULK, seed=0, time_limit=5.0)
    except ImportError:
        pytest.skip("not installed")
    assert (job.name in result.placed) != (job.name in result.waiting)
    if job.name in result.waiting:
        assert name in ("A", "C")  # every layer on every machine, which rules forbid
        assert "`place`" in result.waiting[job.name]
        return
    plan = result.placed[job.name].plan
    assert plan is not None
    for pipeline in plan.pipelines:
        for stage in pipeline.stages:
            region = cluster.machine(stage.machine).region
            assert fnmatchcase(region, "eu-*") or not {0, 13} & set(stage.layers)
            assert not fnmatchcase(region, "eu-*") or not {5, 6} & set(stage.layers)
