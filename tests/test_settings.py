"""`--set`: what if something of the cluster were different."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import small
from hulk.errors import InputError
from hulk.io.plan_file import save_plan
from hulk.io.settings import apply_settings
from warm import hulk

LINK = "link rome-paris bandwidth=10 Gbit/s"
SAID = "set: link between rome and paris: 30.0 ms at 500 Mbit/s → 30.0 ms at 10.0 Gbit/s\n"


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, ...]:
    found = small.write_files(tmp_path)
    save_plan(small.plan(), found[0], cluster=small.cluster())
    return found


def step(*arguments: str) -> float:
    done = hulk("price", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return float(json.loads(done.stdout)["jobs"]["bert"]["step_s"])


def test_price(files: tuple[str, ...]) -> None:
    before = Path(files[2]).read_bytes()
    assert step(*files, "--set", LINK) < step(*files) < step(*files, "--set", "link paris rome latency=90 ms")
    done = hulk("price", *files, "--set", LINK, "--set", "machine rome-* price=9 $/h")
    said = f"{SAID}set: 3 machines rome-*: $0.44 an hour → $9.00 an hour\n"
    assert done.stdout.startswith(said + "bert: ")
    assert Path(files[2]).read_bytes() == before
    done = hulk("price", *files, "--set", LINK, "--json")
    assert json.loads(done.stdout)["set"] == [LINK]


@pytest.mark.parametrize("verb", ["explain", "simulate"])
def test_other_verbs_with_a_plan(verb: str, files: tuple[str, ...]) -> None:
    done = hulk(verb, *files, "--set", LINK)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(SAID)


def test_replan(files: tuple[str, ...], tmp_path: Path) -> None:
    joins = tmp_path / "joins.yaml"
    joins.write_text(small.NEW_MACHINE)
    more = ("--joined", str(joins), "--evaluations", "300", "--set", "machine rome-9 gpus=1")
    out = str(tmp_path / "blocked.json")
    done = hulk("replan", *files, "--set", "link rome-paris blocked=true", *more, "-o", out)
    assert done.returncode == 0, done.stderr  # the old plan talks over it, the new one does not
    again = hulk("replan", out, *files[1:], "--set", "link rome-paris blocked=true", *more)
    assert "nothing changes" in again.stdout  # it was made for the cluster as it was set
    done = hulk("replan", *files, "--set", LINK, *more, "-o", str(tmp_path / "new.json"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(SAID + "set: machine rome-9: 2 × a100-80 → 1 × a100-80, $2.78 an hour → $1.39 an")


def test_a_plan_is_of_the_cluster_as_it_was_set(files: tuple[str, ...], tmp_path: Path) -> None:
    out = str(tmp_path / "own.json")
    setting = ("--set", "machine rome-* gpu=a100-80 gpus=4")
    done = hulk("plan", files[2], files[4], "-o", out, "--evaluations", "500", *setting)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("set: 3 machines rome-*: 2 × rtx-3090 → 4 × a100-80, 24.0 GiB a GPU → 80.0 GiB a GPU")
    again = hulk("price", out, *files[1:], *setting)
    assert (again.returncode, again.stderr) == (0, "")
    elsewhere = hulk("price", out, *files[1:])
    warning = "warning: this is not the cluster of the plan: rome-1 had 4 × a100-80 of 80 GiB, here it has 2 × rtx-3090"
    assert elsewhere.stderr.startswith(warning)


def test_a_plan_of_neither_cluster_is_told(files: tuple[str, ...]) -> None:
    cluster = Path(files[2])
    cluster.write_text(small.CLUSTER.replace("latency: 30 ms", "latency: 20 ms"))
    done = hulk("price", *files, "--set", LINK)
    assert "the link between paris and rome was 30 ms at 0.5 Gbit/s, here it is 20 ms at 10 Gbit/s" in done.stderr


def test_show(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(small.CLUSTER.replace("name: rome,", "name: rome-x,"))
    done = hulk("show", "c.yaml", "--set", "machine rome-x-2 gpus=8 network=2 x 100 Gbit/s", cwd=tmp_path)
    assert done.returncode == 0
    assert "8 × rtx-3090" in done.stdout
    assert "2 × 100 Gbit/s" in done.stdout


def test_what_follows_from_a_change() -> None:
    cluster, said = apply_settings(small.cluster(), ["machine paris-* network=1 Gbit/s"])
    assert said == ("2 machines paris-*: 10.0 Gbit/s → 1.00 Gbit/s, a flow inside paris 10.0 Gbit/s → 1.00 Gbit/s",)
    assert cluster.link("paris-1", "paris-2").bandwidth == 1e9 / 8
    cluster, _ = apply_settings(cluster, ["machine paris-1 memory=64 GiB price=1 $/h", "machine paris-1 gpus=8"])
    host = cluster.machine("paris-1")
    assert (host.gpus, host.memory, host.price) == (8, 64 * 2**30, pytest.approx(1 / 3600))
    cluster, _ = apply_settings(cluster, ["region rome egress=0.05 $/GB", "link rome-oslo egress=0.02 $/GB"])
    assert cluster.egress("rome-1", "paris-1") == pytest.approx(0.05e-9)
    assert cluster.egress("rome-1", "oslo-1") == pytest.approx(0.02e-9)
    assert small.cluster().egress("rome-1", "paris-1") == 0.0


def test_links_of_single_machines_follow_their_regions() -> None:
    cluster, said = apply_settings(
        small.cluster(), ["link rome-1-paris-2 latency=~5 ms", "link rome–paris trunk=1 GB/s"]
    )
    assert said[1].endswith("trunk 8.00 Gbit/s, and 1 links of single machines")
    own = cluster.link("rome-1", "paris-2")
    assert (own.latency, own.trunk, own.latency_origin) == (0.005, 1e9, "estimated")
    cluster, _ = apply_settings(cluster, ["link rome paris blocked=true", "link rome-rome latency=2 ms"])
    assert cluster.link("rome-1", "paris-2").blocked
    assert cluster.link("rome-1", "rome-2").latency == 0.002
    with pytest.raises(InputError, match=r"is blocked \(give its latency and its bandwidth"):
        apply_settings(cluster, ["link rome-paris latency=1 ms"])
    cluster, _ = apply_settings(cluster, ["link rome-paris latency=1 ms bandwidth=1 GB/s"])
    assert not cluster.link("rome-2", "paris-2").blocked


DASHES = """
regions: {a: {at: [1, 1]}, a-b: {at: [2, 2]}, b-c: {at: [3, 3]}, c: {at: [4, 4]}}
machines:
  - {name: m, region: a, gpu: t4, gpus: 1}
"""


def test_names_with_dashes(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(DASHES)

    def said(words: str) -> str:
        done = hulk("show", "c.yaml", "--set", f"{words} latency=1 ms bandwidth=1 GB/s", cwd=tmp_path)
        return done.stdout + done.stderr

    assert said("link a-a-b").startswith("set: link between a and a-b:")
    assert said("link a-b-b-c").startswith("set: link between a-b and b-c:")
    assert "this may be regions a and b-c or regions a-b and c (put a space between the two names)" in said(
        "link a-b-c"
    )
    assert said("link a b-c").startswith("set: link between a and b-c:")
    assert "no region or machine 'x' in cluster 'c' (known: a, a-b, b-c, c, m)" in said("link a-b-x")


BAD = [
    ("", "'' is no link, machine or region"),
    ("latency=1 ms", "'' is no link, machine or region"),
    ("lnk rome-paris latency=1 ms", "'lnk' is no link, machine or region (did you mean 'link'?)"),
    ("link rome-paris", "a name and a value are needed (write it like"),
    ("link latency=1 ms", "a name and a value are needed"),
    ("link rome-pariss latency=1 ms", "no region or machine 'pariss' in cluster 'small' (did you mean 'paris'?)"),
    ("link rom-pari latency=1 ms", "no two regions or machines 'rom-pari' in cluster 'small' (did you mean 'rome-par"),
    ("link rome-paris-1 latency=1 ms", "one end is a region, the other a machine"),
    ("link rome-1-rome-1 latency=1 ms", "a link from 'rome-1' to itself"),
    ("link rome paris oslo latency=1 ms", "a link has two ends"),
    ("link rome-1-paris-1 trunk=1 GB/s", "a trunk is what two regions share"),
    ("link rome-rome trunk=1 GB/s", "trunk and egress belong to a link between two regions"),
    ("link rome-paris latency=5", "latency: '5' has no unit"),
    ("link rome-paris latency=-5 ms", "negative"),
    ("link rome-paris latency=2 h", "more than anything that exists"),
    ("link rome-paris bandwidth=0", "a bandwidth of nothing"),
    ("link rome-paris bandwith=1 GB/s", "unknown key 'bandwith' (did you mean 'bandwidth'?)"),
    ("link rome-paris latency=1 ms latency=2 ms", "latency is given twice"),
    ("link rome-paris blocked=true latency=2 ms", "a blocked link has no latency"),
    ("link rome-paris blocked=maybe", "expected true or false"),
    ("machine rome gpus=4", "no machine 'rome' in cluster 'small'"),
    ("machine oslo-* egress=1 $/GB", "unknown key 'egress'"),
    ("machine berlin-* gpus=4", "no machine 'berlin-*' in cluster 'small'"),
    ("machine rome-1 rome-2 gpus=4", "one machine can be named (with a * in its name several"),
    ("machine rome-1 gpus=0", "gpus: must be at least 1, not 0"),
    ("machine rome-1 gpus=100000000000000000000", "gpus: must be at most 1024"),
    ("machine rome-1 gpus=two", "gpus: expected a whole number (text 'two' found)"),
    ("machine rome-1 gpu=h10", "unknown GPU 'h10' (did you mean 'h100'?)"),
    ("machine rome-1 memory=80", "has no unit"),
    ("machine rome-1 memory=80 PB", "more than anything that exists"),
    ("machine rome-1 network=99 x 1 Gbit/s", "1 to 64 of them can be given"),
    ("machine rome-1 price=1 GiB", "is a size, but a price per hour"),
    ("region rom egress=0", "no region 'rom' in cluster 'small' (did you mean 'rome'?)"),
    ("region rome paris egress=0", "one region can be named"),
    ("region rome price=0", "unknown key 'price'"),
    ("region rome egress=1 $/h", "is a price per hour, but a price per volume"),
    ("link " + "x" * 2000, "longer than 1000 characters"),
]  # fmt: skip


@pytest.mark.parametrize(("setting", "words"), BAD)
def test_what_cannot_be_set_is_one_error(setting: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(small.CLUSTER)
    done = hulk("show", "c.yaml", "--set", setting, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: --set '")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_verbs_that_plan_refuse_too(files: tuple[str, ...]) -> None:
    for verb in (("plan", files[2], files[4]), ("price", *files), ("replan", *files), ("explain", *files)):
        done = hulk(*verb, "--set", "machine rome-1 gpus=0")
        assert (done.returncode, done.stdout) == (2, "")
        assert "must be at least 1" in done.stderr
