"""Regular plans: a layout in words, the best of all of them, and what people see of both."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

from hulk.cost.engine import engine_named
from hulk.cost.prepared import Prepared, prepare
from hulk.cost.price import closed_form
from hulk.domain.model import LayerKind
from hulk.domain.options import SPACE, Options, Recompute, Schedule, Sharding, Within
from hulk.domain.regular import Order, Regular, even_layers, parse_regular, regular_plan
from hulk.errors import InputError
from hulk.io.cluster_file import load_cluster
from hulk.io.jobs_file import load_jobs
from hulk.io.profiles import bundled_compute
from hulk.search.spaces import spaces_of
from hulk.search.uniform import best_uniform
from warm import hulk

CLUSTER = """
regions: {hall: {at: [48.9, 2.4]}}
machines: [{name: n, count: 4, region: hall, gpu: h100, gpus: 8, network: 8 x 400 Gbit/s}]
links: [{inside: hall, latency: 0.005 ms, bandwidth: 400 Gbit/s}]
"""
JOBS = "jobs: [{name: j, model: llama-3-8b, sequence: 4096, global_batch: 32}]\n"


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "c.yaml").write_text(CLUSTER)
    (tmp_path / "j.yaml").write_text(JOBS)
    return str(tmp_path / "c.yaml"), str(tmp_path / "j.yaml")


def test_words_become_degrees_and_options() -> None:
    assert parse_regular("tp8 pp4 dp4 mb1 sp fsdp") == Regular(
        8, 4, 4, Options(1, sharding=Sharding.PARAMETERS, sequence_parallel=True)
    )
    assert parse_regular("TP=2, 1f1b+4 recompute-attention dp-pp hsdp zero2") == Regular(
        2,
        1,
        None,
        Options(1, Schedule.ahead(4), Recompute.ATTENTION, sharding=Sharding.GRADIENTS, shard_within=Within.MACHINE),
        Order.REPLICAS_NEAR,
    )
    assert parse_regular("pp4 vp2 zb+4") == Regular(1, 4, None, Options(1, Schedule.parse("zb+4"), chunks=2))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "says nothing"),
        ("tp0", "unknown word 'tp0'"),
        ("tp8 tp4", "'tp4' says again"),
        ("zero1 fsdp", "'fsdp' says again"),
        ("tp8 seq", "unknown word 'seq'"),
        ("tp99999999", "unknown word"),
        ("1f1b+x", "unknown word '1f1b+x'"),
    ],
)
def test_what_is_no_layout_is_refused(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words.replace("+", r"\+")):
        parse_regular(text)


def test_blocks_are_cut_evenly_and_the_ends_go_with_them() -> None:
    kinds = (LayerKind.EMBEDDING, *[LayerKind.BLOCK] * 10, LayerKind.HEAD)
    assert even_layers(kinds, 1) == (12,)
    assert even_layers(kinds, 4) == (4, 3, 2, 3)
    assert even_layers(kinds, 10) == (2, *[1] * 8, 2)
    with pytest.raises(InputError, match="10 blocks cannot be cut into 11 stages"):
        even_layers(kinds, 11)
    assert even_layers(kinds, 2, 2) == (4, 3, 2, 3)
    with pytest.raises(InputError, match="10 blocks cannot be cut into 4 stages of 3 chunks"):
        even_layers(kinds, 4, 3)


def test_orders_put_stages_or_replicas_beside_each_other(files: tuple[str, str]) -> None:
    cluster, (job,) = load_cluster(files[0]), load_jobs(files[1])
    near, far = (
        regular_plan(Regular(8, 2, 2, Options(1), order), job, cluster)
        for order in (Order.STAGES_NEAR, Order.REPLICAS_NEAR)
    )
    assert [[stage.machine for stage in p.stages] for p in near.pipelines] == [["n-1", "n-2"], ["n-3", "n-4"]]
    assert [[stage.machine for stage in p.stages] for p in far.pipelines] == [["n-1", "n-3"], ["n-2", "n-4"]]


def test_the_best_is_the_best_of_all(files: tuple[str, str]) -> None:
    """Every layout in words, priced one by one, against the search over them."""
    cluster, (job,) = load_cluster(files[0]), load_jobs(files[1])
    engine, compute = engine_named("megatron"), bundled_compute()
    space = spaces_of(cluster, [job], compute, engine=engine)[0]
    found = best_uniform(space, range(4))
    assert found is not None
    least = float("inf")
    for tensor, stages, order in product((1, 2, 4, 8), (1, 2, 4, 8, 16, 32), Order):
        slots = 32 // tensor
        if stages > slots:
            continue
        for values in product(
            *(choice.possible(space.scope) for choice in SPACE if choice.name not in ("sync", "schedule"))
        ):
            named = dict(zip([c.name for c in SPACE if c.name not in ("sync", "schedule")], values, strict=True))
            if job.global_batch % (named["microbatch_size"] * (slots // stages)):
                continue
            plan = regular_plan(Regular(tensor, stages, None, Options(**named), order), job, cluster)
            ready = prepare(job, plan, cluster, compute=compute, engine=engine)
            if isinstance(ready, Prepared):
                least = min(least, closed_form(ready, ready.book.tables))
    assert found.seconds <= least * (1 + 1e-9)
    again = prepare(job, found.plan, cluster, compute=compute, engine=engine)
    assert isinstance(again, Prepared)
    assert closed_form(again, again.book.tables) == pytest.approx(found.seconds, rel=1e-9)


def test_a_layout_is_priced_without_a_file(files: tuple[str, str]) -> None:
    files = ("-c", files[0], "-j", files[1])
    done = hulk("price", "--layout", "tp8 pp2 dp2 mb1 sp", *files, "--engine", "megatron", "--json")
    assert done.returncode == 0, done.stderr
    price = json.loads(done.stdout)["jobs"]["j"]
    assert [[stage["machine"] for stage in stages] for stages in price["pipelines"]] == [["n-1", "n-2"], ["n-3", "n-4"]]
    full = hulk("price", "--layout", "tp1 dp32", *files, "--engine", "megatron")
    assert full.returncode == 3 and "cannot run (memory)" in full.stdout
    anyway = hulk("price", "--layout", "tp1 dp32", *files, "--engine", "megatron", "--anyway")
    assert anyway.returncode == 3 and "does not fit: j: stage 1.1 on n-1 needs " in anyway.stdout
    assert "and 24 more stages do not fit" in anyway.stdout
    long = hulk("price", "--layout", "tp1 pp4 mb1 recompute zero1", *files, "--engine", "megatron")
    assert long.returncode == 0 and "32 pipelines" not in long.stdout
    rounds = hulk("price", "--layout", "tp8 pp2 vp2 mb1 sp", *files, "--engine", "megatron", "--json")
    assert rounds.returncode == 0, rounds.stderr
    (stages, _) = json.loads(rounds.stdout)["jobs"]["j"]["pipelines"]
    assert [(stage["machine"], stage["first"], stage["last"]) for stage in stages] == [
        ("n-1", 0, 8), ("n-2", 9, 16), ("n-1", 17, 24), ("n-2", 25, 33)
    ]  # fmt: skip
    split = hulk("price", "--layout", "tp8 pp2 zb", *files, "--engine", "megatron")
    assert split.returncode == 3 and 'megatron cannot do "zb"' in split.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--layout", "tp3"), "3 GPUs cannot share the 8 attention heads"),
        (("--layout", "tp8 pp3 dp2"), "needs 6 groups of 8 GPUs of one machine, and there are 4"),
        (("--layout", "tp8 mb5"), "a batch of 32 does not divide into microbatches of 5"),
        (("--layout", "tp1 pp32 dp2"), "needs 64 groups"),
        (("--layout", "tp4 pp8 vp5"), "32 blocks cannot be cut into 8 stages of 5 chunks"),
        (("--layout", "tp4 pp4 mb8 vp2"), "interleaved stages take microbatches 4 at a time, and 2 are no multiple"),
        (("--layout", "tp8 vp2"), "there is nothing to interleave"),
        (("--layout", "tp8", "--job", "k"), "--job 'k': no such job"),
        (("--job", "j"), "a plan file or --layout is needed"),
        ((), "a plan file or --layout is needed"),
    ],
)
def test_bad_layouts_are_said_in_words(files: tuple[str, str], options: tuple[str, ...], words: str) -> None:
    done = hulk("price", *options, "-c", files[0], "-j", files[1])
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr


def test_a_uniform_plan_says_what_it_costs(files: tuple[str, str]) -> None:
    done = hulk(
        "plan",
        *files,
        "--uniform",
        "--engine",
        "megatron",
        "--evaluations",
        "500",
        "--workers",
        "1",
        "--no-gnn",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert "with pipelines all alike" in found["notes"][0]
    own = found["plan"]["jobs"]["j"]
    shapes = {tuple((len(s["gpus"]), *s["layers"]) for s in p["stages"]) for p in own["pipelines"]}
    assert len(shapes) == 1 and len({p["microbatches"] for p in own["pipelines"]}) == 1


def test_uniform_is_not_exact(files: tuple[str, str]) -> None:
    done = hulk("plan", *files, "--uniform", "--exact")
    assert done.returncode == 2 and "--exact knows the default objective only, and no --uniform" in done.stderr
