"""A plan on another cluster than its own: priced, with a warning that names what is different."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import small
from hulk.io.cluster_file import read_cluster
from hulk.io.plan_file import dump_plan, load_plan, load_plan_for
from hulk.io.schema import schema
from hulk.io.yamlfile import parse_document
from warm import hulk

NAME = ("name: small", "name: other")
CHANGES = [
    (NAME, "it was made for cluster 'small', and this is 'other' (its machines and links are the same)"),
    (("gpu: v100-32, gpus: 2", "gpu: v100-16, gpus: 4"), "paris-1 had 2 × v100-32 of 32 GiB, here it has 4 × v100-16"),
    (("gpus: 2, network: 10 Gbit/s}\n  - {name: oslo", "gpus: 2}\n  - {name: oslo"), "the network card of paris-1 did"),
    (("gpus: 2, network: 10 Gbit/s}\n  - {name: p", "gpus: 2, network: 10 Gbit/s, price: 9 $/h}\n  - {name: p"),
     "rome-1 cost 0.44 $/h, here it costs 9 $/h; rome-2 cost"),
    (("latency: 30 ms, bandwidth: 0.5", "latency: 30 ms, bandwidth: 0.4"),
     "the link between paris and rome was 30 ms at 0.5 Gbit/s, here it is 30 ms at 0.4 Gbit/s"),
    (("links:\n", "links:\n  - {between: [rome-2, paris-2], latency: 31 ms}\n"), "links between its machines are not"),
    (("rome: {at", "rome: {egress: 0.1 $/GB, at"), "links between its machines are not what"),
    (("name: paris, count: 2", "name: paris-1"), "there is no paris-2 here, which had 2 × v100-32 of 32 GiB"),
]  # fmt: skip
SAME = [
    ("", ""),
    ("name: small", "about: nothing of this counts\nname: small"),
    ("bandwidth: 0.1 Gbit/s", "bandwidth: 0.2 Gbit/s"),  # to oslo, where nothing runs
    ("name: oslo-1, ", "name: oslo, count: 2, "),
]


def differs(change: tuple[str, str], plan: Path) -> str | None:
    assert change[0] in small.CLUSTER
    cluster = read_cluster(parse_document(small.CLUSTER.replace(*change, 1), name="small.yaml"))
    return load_plan_for(plan, cluster)[1]


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    path.write_text(dump_plan(small.plan(), cluster=small.cluster()))
    return path


@pytest.mark.parametrize(("change", "words"), CHANGES)
def test_the_difference_is_named(change: tuple[str, str], words: str, plan: Path) -> None:
    assert words in (differs(change, plan) or "")


@pytest.mark.parametrize("change", SAME)
def test_what_the_plan_does_not_use_is_no_difference(change: tuple[str, str], plan: Path) -> None:
    assert differs(change, plan) is None


def test_many_differences_are_not_all_told(plan: Path) -> None:
    text = differs(("gpus: 2", "gpus: 3"), plan) or ""
    everything = small.CLUSTER.replace("gpus: 2", "gpus: 4").replace("name: small", "name: other")
    told = load_plan_for(plan, read_cluster(parse_document(everything, name="x.yaml")))[1] or ""
    assert text.count(";") == 1
    assert told.startswith("it was made for cluster 'small', and this is 'other'; rome-1 had")
    assert told.endswith("; 2 more differences")


def test_old_plans_load_and_new_ones_fit_their_schema(plan: Path) -> None:
    document = json.loads(plan.read_text())
    Draft202012Validator(schema("plan")).validate(document)
    new = load_plan(plan)
    del document["made_for"]
    plan.write_text(json.dumps(document))
    assert load_plan(plan) == new
    assert differs(("", ""), plan) is None
    assert differs(NAME, plan) == "it was made for cluster 'small', and this is 'other'"


@pytest.mark.parametrize("verb", ["price", "explain", "simulate", "run"])
def test_every_verb_warns_on_stderr(verb: str, plan: Path, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(small.CLUSTER.replace("gpu: v100-32, gpus: 2", "gpu: a100-80, gpus: 2"))
    (tmp_path / "jobs.yaml").write_text(small.JOBS)
    more = ("--job", "nothing") if verb == "run" else ()
    done = hulk(verb, str(plan), "-c", str(tmp_path / "c.yaml"), "-j", str(tmp_path / "jobs.yaml"), *more)
    warning = "warning: this is not the cluster of the plan: paris-1 had 2 × v100-32 of 32 GiB, here it has 2 × a100-80"
    assert done.stderr.startswith(warning)
    assert done.returncode == (2 if verb == "run" else 0)
