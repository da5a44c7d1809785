"""A run by any plan gives the losses of one process with the same seed, data and global batch."""

from __future__ import annotations

import json
import os
import time
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("torch")

from cases import Case, write_case, write_text
from start import run_ranks

STEPS, SEED, RATE, DECAY = 3, 3, 1e-2, 0.01  # few steps and long ones: the models must have learnt something
RANKS = 6
LIMIT = 300.0


def one(*lasts: int, at: str = "rome-1", first: int = 0, gpus: int = 1) -> tuple[tuple[str, tuple[int, ...], int], ...]:
    """A pipeline on one machine: stages that end with these layers, on `gpus` GPUs each, from GPU `first` on."""
    return tuple((at, tuple(range(first + i * gpus, first + (i + 1) * gpus)), last) for i, last in enumerate(lasts))


def rounds(
    *lasts: int, slots: int = 2, at: str = "rome-1", gpus: int = 1
) -> tuple[tuple[str, tuple[int, ...], int], ...]:
    """A pipeline on one machine whose stages go round so many slots."""
    places = one(*range(slots), at=at, gpus=gpus)
    return tuple((*places[k % slots][:2], last) for k, last in enumerate(lasts))


CASES = [
    # GPT-2 has layers 0 to 5
    Case("one stage", "gpt2", ((12, one(5)),)),
    Case("one stage, many samples at once", "gpt2", ((3, one(5)),), size=4, schedule="gpipe"),
    Case("two stages", "gpt2", ((12, one(1, 5)),)),
    Case("three stages, gpipe", "gpt2", ((6, one(0, 3, 5)),), size=2, schedule="gpipe"),
    Case("four stages, deep warm-up", "gpt2", ((12, one(0, 2, 4, 5)),), schedule="1f1b+2", recompute=True),
    Case("fewer microbatches than stages", "gpt2", ((2, one(0, 2, 4, 5)),), size=6),
    Case("two replicas of different shapes", "gpt2", ((4, one(2, 5)), (2, one(1, 3, 5, at="oslo-1"))), size=2),
    Case("one stage beside three", "gpt2", ((9, one(5)), (3, one(1, 3, 5, at="oslo-1")))),
    Case(
        "three replicas, by region",
        "gpt2",
        ((6, one(5)), (4, one(2, 5, at="rome-2")), (2, one(3, 5, at="oslo-1"))),
        by_region=True,
    ),
    Case("two slices", "gpt2", ((3, one(5, gpus=2)),), size=4),
    Case(
        "slices and stages", "gpt2", ((3, (("rome-1", (0, 1), 2), ("oslo-1", (0,), 4), ("oslo-2", (2, 3), 5))),), size=4
    ),
    Case("slices beside none", "gpt2", ((2, one(2, 5, gpus=2)), (1, one(3, 5, at="oslo-1"))), size=4, by_region=True),
    Case("sharded optimizer", "gpt2", ((2, one(2, 5, gpus=2)), (1, one(3, 5, at="oslo-1"))), size=4, shard=True),
    Case("sgd with momentum", "gpt2", ((12, one(2, 5)),), optimizer="momentum"),
    # OPT and GPT-Neo have layers 0 to 3, Llama and BERT 0 to 4, RoBERTa 0 to 3, T5 0 to 6
    Case("opt", "opt", ((2, one(1, 3, gpus=2)), (1, one(3, at="oslo-1"))), size=4),
    Case("gpt-neo", "gpt_neo", ((2, one(2, 3, gpus=2)), (1, one(1, 3, at="oslo-1"))), size=4, recompute=True),
    Case("llama", "llama", ((2, one(1, 4, gpus=2)), (1, one(2, 4, at="oslo-1"))), size=4, schedule="1f1b+1"),
    Case("llama, eager", "llama", ((12, one(2, 4)),), attention="eager"),
    Case("bert", "bert", ((8, one(1, 3, 4)), (4, one(4, at="oslo-1"))), recompute=True),
    Case("bert in slices", "bert", ((3, one(2, 4, gpus=2)),), size=4),
    Case("roberta", "roberta", ((2, one(1, 3, gpus=2)), (1, one(2, 3, at="oslo-1"))), size=4, schedule="gpipe"),
    Case("t5", "t5", ((8, one(1, 3, 5, 6)), (4, one(2, 6, at="oslo-1"))), recompute=True),
    # Of some blocks of a stage: alone, by operations in slices, attention with the rest
    Case("some blocks recomputed", "gpt2", ((12, one(3, 5)),), recompute=True, counts=(2, 0)),
    Case(
        "some operations recomputed",
        "t5",
        ((2, one(3, 6, gpus=2)), (1, one(2, 6, at="oslo-1"))),
        size=4,
        recompute="operations",
        counts=(1, None, 2, 1),
    ),
    Case(
        "some attention recomputed, interleaved, sequence parallel",
        "gpt2",
        ((4, rounds(1, 2, 3, 5, gpus=2)),),
        size=3,
        recompute="attention",
        counts=(1, 0, None, 0),
        chunks=2,
        sequence_parallel=True,
        attention="eager",
    ),
    # What holders split, what is recomputed, and what is divided along the sequence, in turn and together
    Case(
        "parameters sharded within regions",
        "llama",
        ((2, one(4)), (2, one(4, at="rome-2")), (2, one(4, at="oslo-1"))),
        size=2,
        shard="parameters",
        within="region",
        recompute="attention",
    ),
    Case(
        "parameters sharded, two stages",
        "gpt2",
        ((3, one(2, 5)), (3, one(2, 5, at="oslo-1"))),
        size=2,
        schedule="1f1b+1",
        shard="parameters",
        recompute="operations",
    ),
    Case(
        "gradients sharded",
        "t5",
        ((2, one(3, 6)), (2, one(3, 6, at="oslo-1"))),
        size=3,
        shard="gradients",
        recompute="operations",
    ),
    Case(
        "sequence parallel",
        "llama",
        ((3, one(2, 4, gpus=2)),),
        size=4,
        sequence_parallel=True,
        recompute="attention",
        attention="eager",
    ),
    Case(
        "sequence parallel, recomputed", "opt", ((3, one(3, gpus=2)),), size=4, sequence_parallel=True, recompute=True
    ),
    Case(
        "sequence parallel, optimizer sharded",
        "gpt2",
        ((2, one(2, 5, gpus=2)), (1, one(3, 5, at="oslo-1"))),
        size=4,
        sequence_parallel=True,
        shard=True,
    ),
    Case(
        "sequence parallel, gradients sharded within machines",
        "gpt_neo",
        ((2, one(3, gpus=2)), (2, one(3, at="rome-1", first=2, gpus=2))),
        size=3,
        sequence_parallel=True,
        shard="gradients",
        within="machine",
    ),
    Case(
        "sequence parallel, parameters sharded",
        "bert",
        ((2, one(4, gpus=2)), (2, one(4, at="oslo-1", gpus=2))),
        size=3,
        sequence_parallel=True,
        shard="parameters",
    ),
    # Stages on several machines
    Case("slices on two machines", "gpt2", ((3, one(2, 5, at="rome-1+rome-2")),), size=4),
    Case(
        "slices on two machines, optimizer sharded",
        "llama",
        ((2, one(4, at="rome-1+rome-2")), (1, one(2, 4, at="oslo-1"))),
        size=4,
        sequence_parallel=True,
        shard=True,
    ),
    Case(
        "slices on a machine, sequences over two",
        "gpt2",
        ((2, (("rome-1+rome-2", (0, 1), 2), ("oslo-1", (0, 1), 5))),),
        size=6,
        context=2,
    ),
    # What shares a sequence, alone and with the rest
    Case("sequences shared", "llama", ((3, one(4, gpus=2)),), size=4, context=2),
    Case(
        "sequences shared, slices and stages",
        "gpt2",
        ((2, (("rome-1", (0, 1, 2, 3), 2), ("oslo-1", (0, 1), 5))),),
        size=6,
        context=2,
        sequence_parallel=True,
        recompute="operations",
    ),
    Case(
        "sequences shared, optimizer sharded",
        "bert",
        ((2, one(2, 4, gpus=2)), (1, one(4, at="oslo-1", gpus=2))),
        size=4,
        context=2,
        shard=True,
    ),
    Case(
        "sequences shared, windows",
        "gpt_neo",
        ((3, one(3, gpus=2)),),
        size=4,
        context=2,
        recompute="attention",
        attention="eager",
    ),
    Case(
        "optimizer sharded within regions", "gpt2", ((6, one(5)), (6, one(5, at="oslo-1"))), shard=True, within="region"
    ),
    Case("t5 in slices", "t5", ((2, one(2, 6, gpus=2)), (2, one(6, at="oslo-1"))), size=3, schedule="gpipe"),
    # Stages that go round their GPUs, and gradients of weights apart from backward
    Case("interleaved", "gpt2", ((12, rounds(1, 2, 3, 5)),), chunks=2),
    Case(
        "interleaved, three stages, deep warm-up",
        "gpt2",
        ((12, rounds(0, 1, 2, 3, 4, 5, slots=3)),),
        chunks=2,
        schedule="1f1b+3",
        recompute="operations",
    ),
    Case(
        "interleaved replicas",
        "gpt2",
        ((4, rounds(1, 2, 3, 5)), (2, rounds(0, 2, 3, 5, at="oslo-1"))),
        size=2,
        chunks=2,
        shard=True,
        recompute=True,
    ),
    Case("interleaved slices", "llama", ((4, rounds(0, 1, 2, 4, gpus=2)),), size=3, chunks=2, sequence_parallel=True),
    Case("interleaved t5", "t5", ((4, rounds(0, 1, 2, 3, 5, 6)),), size=3, chunks=3, schedule="gpipe"),
    Case("zero bubble", "gpt2", ((12, one(1, 3, 5)),), schedule="zb"),
    Case(
        "zero bubble, two replicas",
        "gpt2",
        ((4, one(2, 5)), (2, one(1, 3, 5, at="oslo-1"))),
        size=2,
        schedule="zb+2",
        recompute=True,
    ),
    Case("zero bubble in slices", "llama", ((4, one(1, 4, gpus=2)),), size=3, schedule="zb", recompute="attention"),
    Case("zero bubble, interleaved", "gpt2", ((12, rounds(1, 2, 3, 5)),), chunks=2, schedule="zb", shard=True),
]


# Two plans one after the other: the second goes on from the checkpoint that the first one writes half-way.
RELAYS = [
    ("slices beside none", "one stage beside three"),
    ("two stages", "sharded optimizer"),
    ("sharded optimizer", "two slices"),
    ("two stages", "parameters sharded, two stages"),
    ("parameters sharded, two stages", "sequence parallel, optimizer sharded"),
    ("sequences shared, slices and stages", "two stages"),
    ("two stages", "sequences shared, slices and stages"),
]
HALF = STEPS // 2

Losses = dict[str, dict[int, float]]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Losses]:
    """The losses of all cases by step, each added up over the replicas. One of several test processes runs them."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "losses"
    try:
        folder.mkdir()
    except FileExistsError:
        return folder, _wait_for(folder / "totals.json", seconds=LIMIT)
    write_text(folder / "text.txt")
    settings = {"steps": STEPS, "seed": SEED, "rate": RATE, "decay": DECAY}
    orders: list[dict[str, object]] = []
    saving = {first for first, _ in RELAYS}
    for case in CASES:
        write_case(case, folder / case.name)
        saves = {"checkpoints": str(folder / "saved" / case.name)} if case.name in saving else {}
        orders.append({"name": case.name, "settings": settings | {"every": HALF}, "paths": saves})
    for first, second in RELAYS:
        resume = {"resume": str(folder / "saved" / first / f"step-{HALF:08d}")}
        orders.append({"name": second, "as": f"{first}, {second}", "settings": settings, "paths": resume})
    (folder / "cases.json").write_text(json.dumps(orders))
    run_ranks(Path(__file__).parent / "many.py", str(folder), ranks=RANKS, limit=LIMIT)
    totals: Losses = {}
    for rank in range(RANKS):
        for name, parts in json.loads((folder / f"losses-{rank}.json").read_text()).items():
            for step, part in parts.items():
                steps = totals.setdefault(name, {})
                steps[int(step)] = steps.get(int(step), 0.0) + part
    (folder / "totals.part").write_text(json.dumps(totals))
    (folder / "totals.part").rename(folder / "totals.json")
    return folder, totals


def _wait_for(path: Path, *, seconds: float) -> Losses:
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, "the process that runs the cases has not finished"
        time.sleep(0.5)
    return {
        name: {int(step): loss for step, loss in steps.items()} for name, steps in json.loads(path.read_text()).items()
    }


@cache
def expected(model: str, optimizer: str, attention: str, folder: Path) -> dict[int, float]:
    """The losses of one process by step; the plan has no part in them."""
    from oracle import oracle

    case = next(c for c in CASES if (c.model, c.optimizer, c.attention) == (model, optimizer, attention))
    losses = oracle(folder / case.name, folder / "text.txt", steps=STEPS, seed=SEED, rate=RATE, decay=DECAY)
    assert losses[-1] < 0.98 * losses[0], "nothing was learnt, so nothing would be compared"
    return dict(enumerate(losses, start=1))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equals_one_process(case: Case, measured: tuple[Path, Losses]) -> None:
    folder, totals = measured
    wanted = expected(case.model, case.optimizer, case.attention, folder)
    assert totals[case.name] == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("relay", RELAYS, ids=" then ".join)
def test_another_plan_goes_on(relay: tuple[str, str], measured: tuple[Path, Losses]) -> None:
    folder, totals = measured
    wanted = expected("gpt2", "adamw", "fused", folder)
    second = totals[", ".join(relay)]
    assert second == pytest.approx({step: wanted[step] for step in range(HALF + 1, STEPS + 1)}, rel=1e-5)
