"""Bad input: every kind gives one clear InputError, and nothing else ever comes out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hulk.domain.cluster import Cluster
from hulk.errors import InputError
from hulk.io.cluster_file import load_cluster, read_cluster
from hulk.io.jobs_file import read_jobs
from hulk.io.plan_file import load_plan, read_plan
from hulk.io.yamlfile import Document, parse_document, read_document

CLUSTER = """hulk: cluster/1
name: mine
regions:
  rome: {label: Rome, at: [41.90, 12.50], egress: 0.09 $/GB}
  paris: {at: [48.86, 2.35]}
machines:
  - {name: r, count: 3, region: rome, gpu: a100-80, gpus: 8, memory: 80 GiB, network: 25 Gbit/s, price: 16 $/h}
  - {name: p, count: 2, region: paris, gpu: a100-40, gpus: 4}
  - {name: single, region: paris, gpu: t4, gpus: 1}
links:
  - {between: [rome, paris], latency: 20 ms, bandwidth: 1 Gbit/s, trunk: 10 Gbit/s}
  - {between: [r-1, p-1], latency: 30 ms}
  - {inside: rome, latency: 0.5 ms, bandwidth: 25 Gbit/s}
  - {between: [single, r-2], blocked: true}
assume: {inside: {latency: 0.5 ms}, between: estimate}
"""
JOBS = """hulk: jobs/1
jobs:
  - {name: a, model: gpt2, sequence: 128, global_batch: 8, tokens: 1B, allow: [rome]}
  - {name: b, model: bert-base, global_batch: 8, weight: 2.5, precision: fp16}
"""
PLAN = """{"hulk": "plan/1", "jobs": {"a": {"microbatch_size": 2, "schedule": "1f1b+4", "pipelines": [
  {"microbatches": 4, "stages": [{"machine": "r-1", "gpus": [0, 1], "layers": [0, 13]}]}]}},
  "idle": ["p-1"], "waiting": {"b": "no room"}}
"""

READERS: dict[str, Any] = {CLUSTER: read_cluster, JOBS: read_jobs, PLAN: read_plan}


def refusal(text: str, reader: Any = read_cluster, name: str = "c.yaml") -> str:
    with pytest.raises(InputError) as caught:
        reader(parse_document(text, name=name, is_json=name.endswith(".json")))
    return str(caught.value)


# ---- Files ----------------------------------------------------------------------------------------------------------


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    cases: dict[str, str] = {}
    (tmp_path / "folder.yaml").mkdir()
    cases["folder.yaml"] = "this is a directory"
    cases["missing.yaml"] = "no such file"
    (tmp_path / "large.yaml").write_bytes(b"#" * (16 * 2**20 + 1))
    cases["large.yaml"] = "larger than 16 MiB"
    (tmp_path / "latin.yaml").write_bytes(b"a: 1\nname: caf\xe9\n")
    cases["latin.yaml"] = "latin.yaml:2: the file is not UTF-8 text"
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    cases["empty.yaml"] = "the file is empty"
    (tmp_path / "binary.yaml").write_bytes(bytes(range(1, 127)))
    cases["binary.yaml"] = "not valid YAML"
    cases["nul\0.yaml"] = "cannot read this file"
    if os.geteuid() != 0:
        (tmp_path / "secret.yaml").write_text("a: 1")
        (tmp_path / "secret.yaml").chmod(0)
        cases["secret.yaml"] = "not allowed to read"
    for name, message in cases.items():
        with pytest.raises(InputError) as caught:
            load_cluster(tmp_path / name)
        assert message in str(caught.value), name
    with pytest.raises(InputError, match=r"no bundled cluster 'hulk48', .*did you mean 'hulk47'"):
        load_cluster("hulk48")
    with pytest.raises(InputError, match="no such file"):
        load_plan("hulk47")


def test_a_bom_and_windows_line_ends_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + CLUSTER.replace("\n", "\r\n").encode())
    assert len(load_cluster(path).machines) == 6


# ---- YAML and JSON --------------------------------------------------------------------------------------------------

BOMB = "a: &a [x, x]\n" + "".join(
    f"{b}: &{b} [*{a}, *{a}, *{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "c.yaml:2: b[0]: aliases (*name) are not allowed"),
        ("a: {<<: {b: 1}}", "merge keys (<<) are not allowed"),
        ("a: !!python/object/apply:os.system ['true']", "c.yaml:1: a: tags such as 'tag:yaml.org,2002:python/object"),
        ("a: !!binary aGk=", "tags such as"),
        ("[" * 100 + "]" * 100, "nested more than 32 levels deep"),
        ("- " * 10_000, "nested more than 32 levels deep"),
        ("a: 1\nb: {c: 1,\n  c: 2}", "c.yaml:3: b: key 'c' is given twice (first on line 2)"),
        ("a: 1\n---\nb: 2", "c.yaml:2: more than one document"),
        ("a: [1, 2", "not valid YAML"),
        ("a: b: c", "c.yaml:1: not valid YAML"),
        ("a:\n\t- b", "c.yaml:2: a: not valid YAML"),
        ("{[a]: 1}", "a key must be a plain word"),
        ("a: .inf", "c.yaml:1: a: .inf is not a number that can be used here"),
        ("a: -.Inf", "is not a number"),
        ("a: .NaN", "is not a number"),
        ("a: 1e999", "too large a number"),
        ('a: "\\ud800"', "not valid YAML"),
        ("just text", "expected keys and values (text 'just text' found)"),
        ("- a\n- b", "expected keys and values (a list found)"),
    ],
)
def test_bad_yaml(text: str, message: str) -> None:
    assert message in refusal(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1,\n "a": 2}', "key 'a' is given twice"),
        ('{"a": NaN}', "NaN is not a number"),
        ('{"a": -Infinity}', "-Infinity is not a number"),
        ('{"a": 1e999}', "is not a number"),
        ('{"a": ' + "9" * 5000 + "}", "is too large a number"),
        ("[" * 100_000, "nested more than"),
        ("[" * 50 + "]" * 50, "nested more than 32 levels deep"),
        ('{"a": "\\ud800"}', "half a surrogate pair"),
        ('{"a":\n 1,}', "c.json:2: not valid JSON"),
        ("", "c.json:1: not valid JSON"),
    ],
)
def test_bad_json(text: str, message: str) -> None:
    assert message in refusal(text, name="c.json")


def test_plain_words_are_what_they_look_like() -> None:
    value = parse_document("[no, on, 1:30, 2024-01-01, 0x1F, ~, 'null', 1_000, 1e3, -5, .5, '7']", name="x").value
    expected = ["no", "on", "1:30", "2024-01-01", "0x1F", None, "null", 1000, 1000.0, -5, 0.5, "7"]
    assert value == expected
    assert [type(v) for v in value] == [type(v) for v in expected]


# ---- Cluster files --------------------------------------------------------------------------------------------------

GPUS = "gpus: 8,"
CASES = [
    ("cluster/1", "cluster/2", "c.yaml:1: hulk: unknown value 'cluster/2' (one of 'cluster/1')"),
    ("network: 25 Gbit/s", "network: 25", "c.yaml:7: machines[0].network: '25' has no unit; write it like \"25 G"),
    ("network: 25 Gbit/s", "network: 25 ms", "machines[0].network: '25 ms' is a time, but a bandwidth"),
    ("network: 25 Gbit/s", "network: 0 Gbit/s", "a bandwidth of nothing cannot be used here"),
    ("network: 25 Gbit/s", "network: 1e30 Gbit/s", "is more than anything that exists"),
    ("network: 25 Gbit/s", "network: " + "1" * 5000, "expected a bandwidth, got a long text"),
    ("network: 25 Gbit/s", "netwrok: 25 Gbit/s", "machines[0].netwrok: unknown key 'netwrok' (did you mean 'network'?"),
    ("memory: 80 GiB", "memory: 640 GiB", "machines[0].memory: a a100-80 has 80.0 GiB (memory is that of one GPU"),
    (GPUS, f"gpus: {10**30},", "machines[0].gpus: must be at most 1024"),
    (GPUS, "gpus: 0,", "machines[0].gpus: must be at least 1, not 0"),
    (GPUS, "gpus: -8,", "must be at least 1, not -8"),
    (GPUS, "gpus: '8',", "machines[0].gpus: expected a whole number (text '8' found)"),
    (GPUS, "gpus: 8.5,", "expected a whole number (a number 8.5 found)"),
    (GPUS, "gpus: true,", "expected a whole number (true/false True found)"),
    (GPUS, "gpus: [8],", "expected a whole number (a list found)"),
    (GPUS, "", "c.yaml:7: machines[0].gpus: this key is missing"),
    ("count: 3", "count: 100001", "machines[0].count: must be at most 100000"),
    ("name: r,", "name: 'r 1',", "machines[0].name: 'r 1' is not a name"),
    ("name: r,", "name: 12,", "machines[0].name: expected text (a number 12 found) (put it in quotes"),
    ("name: r,", f"name: {'r' * 101},", "longer than 100 characters"),
    ("name: p,", "name: r,", "machines[1]: machine 'r-1' is given twice"),
    ("name: single", "name: p-2", "c.yaml:9: machines[2]: machine 'p-2' is given twice"),
    ("name: single", "name: p", "machine 'p' is given twice"),
    ("gpu: a100-80", "gpu: a100-81", "c.yaml:7: machines[0].gpu: unknown GPU 'a100-81' (did you mean 'a100-80'?)"),
    ("region: rome", "region: roma", "c.yaml:7: machines[0].region: unknown region 'roma' (did you mean 'rome'?)"),
    ("at: [41.90, 12.50]", "at: [12.50, 341.90]", "c.yaml:4: regions.rome.at: not a place on Earth (first the lat"),
    ("at: [41.90, 12.50]", "at: [41.90]", "regions.rome.at: expected at least 2 in this list"),
    ("at: [41.90, 12.50]", "at: Rome", "regions.rome.at: expected a list (text 'Rome' found)"),
    ("  rome:", "  ro me:", "c.yaml:4: regions.ro me: 'ro me' is not a name"),
    ("egress: 0.09 $/GB", "egress: 0.09 $", "unknown unit '$'"),
    ("[rome, paris]", "[rome, pariss]", "c.yaml:11: links[0].between[1]: no region or machine 'pariss' (did you mean"),
    ("[rome, paris]", "[rome, rome]", "a link from 'rome' to itself (for the machines in it write: inside: rome)"),
    ("[rome, paris]", "[r-1, r-1]", "links[0]: a link from 'r-1' to itself"),
    ("[rome, paris]", "[rome]", "links[0].between: expected at least 2"),
    ("[rome, paris]", "[rome, p-1]", "links[0]: a trunk is what two regions share"),
    ("[r-1, p-1]", "[paris, rome]", "c.yaml:12: links[1]: a second link between 'paris' and 'rome'"),
    ("[single, r-2]", "[p-1, r-1]", "c.yaml:14: links[3]: a second link between 'p-1' and 'r-1'"),
    ("inside: rome", "inside: single", "links[2]: 'single' is one machine: a link goes between two"),
    ("inside: rome", "inside: roma", "links[2].inside: no region or machine 'roma'"),
    ("blocked: true", "blocked: true, latency: 1 ms", "links[3].latency: a blocked link has no latency"),
    ("blocked: true", "blocked: false", "links[3]: this link says nothing"),
    ("blocked: true", "blocked: maybe", "links[3].blocked: expected true or false (text 'maybe' found)"),
    ("{inside: rome,", "{inside: rome, between: [r-1, r-2],", "links[2]: a link has either 'between'"),
    ("{inside: rome,", "{", "links[2]: a link has either 'between'"),
    ("{inside: rome,", "{inside: rome, trunk: 1 Gbit/s,", "trunk and egress belong to a link between two regions"),
    ("latency: 30 ms", "latency: -30 ms", "links[1].latency: '-30 ms' is negative"),
    ("latency: 30 ms", "latency: 30 h", "is more than anything that exists"),
    ("between: estimate", "between: guess", "assume.between: unknown value 'guess' (one of 'estimate' or 'blocked')"),
    ("name: single, region: paris", "name: rome, region: paris", "'rome' is both a region and a machine (rename one"),
    ("name: mine", "extends: nothing", "c.yaml:2: extends: cannot extend 'nothing': no bundled cluster"),
    ("name: mine", "extends: ./nothing.yaml", "extends: cannot extend './nothing.yaml': no such file"),
    ("machines:", "machine:", "unknown key 'machine' (did you mean 'machines'?"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "message"), CASES)
def test_bad_cluster(before: str, after: str, message: str) -> None:
    assert before in CLUSTER
    assert message in refusal(CLUSTER.replace(before, after, 1))


def test_bad_clusters_as_a_whole(tmp_path: Path) -> None:
    assert "c.yaml:1: machines: the cluster has no machines" in refusal("name: x")
    lost = CLUSTER.replace("at: [48.86, 2.35]", "").replace(
        "between: [rome, paris], latency: 20 ms", "between: [rome, paris]"
    )
    assert "links[0]: no latency is known between 'rome' and 'paris' (give region 'paris' its place" in refusal(lost)
    lost = "regions: {a: {}, b: {}}\nmachines:\n" + "".join(
        f"  - {{name: m-{r}, region: {r}, gpu: t4, gpus: 1}}\n" for r in "ab"
    )
    assert "c.yaml:1: regions.a: no latency is known between 'a' and 'b'" in refusal(lost)
    many = "regions: {a: {}}\nmachines:\n" + "".join(
        f"  - {{name: m{i}, count: 100000, region: a, gpu: t4, gpus: 1}}\n" for i in range(3)
    )
    assert "machines[2].count: more than 200000 machines in all" in refusal(many)
    assert "more than 1000000 links between machines" in refusal(
        many.replace("100000", "50000") + "links: [{between: [m1, m2], latency: 1 ms}]"
    )
    two = refusal(CLUSTER.replace("gpus: 8", "gpus: 0").replace("latency: 30 ms", "latency: -1 ms"))
    assert "c.yaml:7" in two
    assert "(there are more problems in this file)" in two
    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / f"{name}.yaml").write_text(f"extends: ./{other}.yaml\n")
    with pytest.raises(InputError, match="extend each other in a circle"):
        load_cluster(tmp_path / "a.yaml")


# ---- Anything at all ------------------------------------------------------------------------------------------------

FUZZ = settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(["rome", "1 ms", "~"]),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=8), children, max_size=3),
    max_leaves=6,
)


def outcome(text: str, reader: Any) -> None:
    """Reads; an InputError is as good as a value, anything else is a failure."""
    try:
        value = reader(parse_document(text, name="fuzz.yaml"))
    except InputError as error:
        assert str(error).startswith("fuzz.yaml")
        return
    if isinstance(value, Cluster):
        for link in value.region_links.values():
            assert link.blocked or (link.latency < 60 and link.bandwidth > 0)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All places of a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at] * bool(at) + [place for key, item in items for place in places(item, (*at, key))]


@FUZZ
@given(data=st.data())
@pytest.mark.parametrize("text", READERS)
def test_changed_values(text: str, data: st.DataObject) -> None:
    """Drops, retypes, doubles and swaps parts of valid files."""
    value = yaml.safe_load(text)
    for _ in range(data.draw(st.integers(1, 3))):
        found = places(value)
        place = data.draw(st.sampled_from(found))
        parent = value
        for key in place[:-1]:
            parent = parent[key]
        match data.draw(st.sampled_from(["drop", "retype", "double", "swap"])):
            case "drop":
                del parent[place[-1]]
            case "retype":
                parent[place[-1]] = data.draw(junk)
            case "double" if isinstance(parent, list):
                parent.append(parent[place[-1]])
            case _:
                keys = list(range(len(parent))) if isinstance(parent, list) else list(parent)
                other = data.draw(st.sampled_from(keys))
                parent[place[-1]], parent[other] = parent[other], parent[place[-1]]
        if not value:
            break
    outcome(yaml.dump(value, allow_unicode=True, Dumper=_NoAliases), READERS[text])


class _NoAliases(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


@FUZZ
@given(data=st.data())
@pytest.mark.parametrize("text", READERS)
def test_garbled_bytes(text: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    raw = bytearray(text.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    folder = tmp_path_factory.getbasetemp()
    for suffix in ("yaml", "json"):
        path = folder / f"fuzz.{suffix}"
        path.write_bytes(bytes(raw))
        try:
            READERS[text](read_document(path))
        except InputError as error:
            assert path.name in str(error)


@FUZZ
@given(text=st.text(max_size=60) | junk.map(lambda value: yaml.dump(value, Dumper=_NoAliases)))
@pytest.mark.parametrize("reader", READERS.values())
def test_random_yaml(reader: Any, text: str) -> None:
    outcome(text, reader)


def test_an_error_can_be_placed_without_lines() -> None:
    document = Document("x.json", {"a": 1}, '{"a": 1}')
    assert document.where(("a", 0, "b")) == "x.json:1: a[0].b"
