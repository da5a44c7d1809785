"""The parts of the runtime that decide who does what: ranks, actions, buckets, batches, checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import Case, write_case, write_text

from hulk.domain.options import Schedule
from hulk.runtime.buckets import plan_buckets, routes
from hulk.runtime.entries import Entry
from hulk.runtime.seats import seat
from hulk.runtime.settings import Settings
from hulk.runtime.shards import Shards
from hulk.runtime.timetable import timetable


def test_ranks_of_a_machine_are_consecutive() -> None:
    case = Case("mixed", "gpt2", ((8, (("oslo-1", (3, 1), 2), ("rome-1", (0,), 5))), (4, (("oslo-1", (0,), 5),))))
    seating = seat(case.plan)
    places = [(s.machine, s.gpu, s.local_rank, s.pipeline, s.stage, s.slot) for s in seating.seats]
    assert places == [
        ("oslo-1", 0, 0, 1, 0, 0),
        ("oslo-1", 1, 1, 0, 0, 1),
        ("oslo-1", 3, 2, 0, 0, 0),
        ("rome-1", 0, 0, 0, 1, 0),
    ]
    assert seating.ranks(0, 0) == (2, 1)
    assert seating.machines == ("oslo-1", "rome-1")


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "1f1b+3"])
@pytest.mark.parametrize(("stages", "microbatches"), [(1, 1), (3, 2), (4, 9)])
def test_the_timetable_is_the_priced_order(schedule: str, stages: int, microbatches: int) -> None:
    from hulk.cost.pipeline import pass_at

    made = Schedule.parse(schedule)
    for stage, row in enumerate(timetable(made, stages, microbatches)):
        warmup = made.warmup(stage, stages, microbatches)
        priced = [pass_at.py_func(i, warmup, microbatches) for i in range(2 * microbatches)]
        assert row == [f"{stage}{'F' if forward else 'B'}{m}" for forward, m in priced]


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "1f1b+3", "zb", "zb+2"])
@pytest.mark.parametrize(("slots", "chunks", "microbatches"), [(3, 1, 5), (2, 2, 4), (4, 3, 12)])
def test_the_timetable_of_chunks_is_the_priced_order(schedule: str, slots: int, chunks: int, microbatches: int) -> None:
    from hulk.cost.orders import order_of

    made = Schedule.parse(schedule)
    group, letters = made.group(slots, microbatches), "FIW" if made.splits_backward else "FB"
    for s, row in enumerate(timetable(made, slots, microbatches, chunks)):
        warmup = made.warmup(s, slots, microbatches, chunks)
        priced = order_of(s, slots, chunks, microbatches, warmup, group, made.splits_backward).tolist()
        assert row == [f"{stage}{letters[kind]}{m}" for kind, stage, m in priced]


def test_stages_of_later_rounds_are_on_the_same_ranks() -> None:
    stages = tuple(("rome-1", (2 * (k % 2), 2 * (k % 2) + 1), k) for k in range(6))
    seating = seat(
        Case("rounds", "gpt2", ((6, stages), (6, tuple(("oslo-1", g, k) for _, g, k in stages))), chunks=3).plan
    )
    assert (seating.size, seating.places) == (8, ((0, 0), (0, 1), (1, 0), (1, 1)))
    assert [number for number, _ in seating.parts(1, 1)] == [1, 3, 5]
    assert Entry("tied", (259, 4), (0, 5), 0).holders(seating) == seating.places
    assert Entry("norm", (4,), (2,)).holders(seating) == ((0, 0), (1, 0))


def test_buckets_hold_every_element_once_for_every_rank() -> None:
    """Whatever the cuts and slices, each rank's buckets cover what it holds of what others hold too, once."""
    case = Case(
        "mixed",
        "gpt2",
        (
            (6, (("rome-1", (0, 1), 2), ("rome-1", (2,), 5))),
            (4, (("rome-2", (0,), 5),)),
            (2, (("oslo-1", (0, 1, 2), 1), ("oslo-2", (0, 1), 5))),
        ),
    )
    seating = seat(case.plan)
    entries = [
        Entry("tied", (259, 4), (0, 5), 0),
        Entry("fused", (4, 36), (1,), 1, groups=3),
        Entry("norm", (4,), (3,)),
        Entry("rows", (12, 4), (2,), 0),
    ]
    buckets = plan_buckets(entries, seating, largest=200)
    for entry in entries:
        for p, s in entry.holders(seating):
            ranks = seating.ranks(p, s)
            for slot, rank in enumerate(ranks):
                pieces = [piece for b in buckets if rank in b.ranks for piece in b.pieces if piece.entry == entry]
                held = entry.elements
                if entry.dim is not None:
                    held = sum(b - a for a, b in entry.ranges(len(ranks), slot)) * entry.row
                elif slot:
                    held = 0  # its lead hands it over
                assert sum(piece.elements for piece in pieces) == held, (entry.name, p, s, slot)
    assert [b.layers[0] for b in buckets] == sorted((b.layers[0] for b in buckets), reverse=True)


def test_by_region_only_firsts_cross() -> None:
    case = Case(
        "three", "gpt2", tuple((4, ((machine, (0,), 5),)) for machine in ("rome-1", "rome-2", "oslo-1")), by_region=True
    )
    seating = seat(case.plan)
    (bucket,) = plan_buckets([Entry("norm", (4,), (3,))], seating)
    found = routes(bucket, case.plan.options.sync, {0: "rome", 1: "rome", 2: "oslo"})
    assert (found[0].inside, found[0].between) == ((0, 1), (0, 2))
    assert (found[1].inside, found[1].between) == ((0, 1), None)
    assert (found[2].inside, found[2].between) == (None, (0, 2))


def test_a_sharded_optimizer_is_shared_evenly() -> None:
    case = Case("two", "gpt2", ((8, (("rome-1", (0,), 5),)), (4, (("oslo-1", (0,), 5),))), shard=True)
    entries = [Entry(str(i), (10,), (1,)) for i in range(6)]
    everywhere = Shards(seat(case.plan), dict.fromkeys([(0, 0), (1, 0)], ""))
    assert sorted(everywhere.owners(entries, (1, 0)).values()) == [(0, 0)] * 3 + [(1, 0)] * 3
    apart = Shards(seat(case.plan), {(0, 0): "rome", (1, 0): "oslo"})
    assert set(apart.owners(entries, (1, 0)).values()) == {(1, 0)}
    assert set(apart.writers(entries).values()) == {(0, 0)}


def test_groups_that_split_add_up_every_row_of_every_rank_once() -> None:
    """Three replicas of two stages in two slices, of which two split; embedding and head are one matrix."""
    stages = ((0, 1), 2), ((2, 3), 5)
    machines = ("rome-1", "rome-2", "oslo-1")
    case = Case("mixed", "gpt2", tuple((4, tuple((m, *s) for s in stages)) for m in machines), shard="parameters")
    seating = seat(case.plan)
    labels = {(p, s): machines[p].split("-")[0] for p, s in seating.places}
    shards = Shards(seating, labels)
    entries = [
        Entry("tied", (259, 4), (0, 5), 0),
        Entry("fused", (4, 36), (1,), 1, groups=3),
        Entry("norm", (5,), (3,)),
        Entry("rows", (12, 4), (2,), 0),
    ]
    buckets = plan_buckets(entries, seating, shards)
    for entry in entries:
        for place in entry.holders(seating):
            for slot, rank in enumerate(seating.ranks(*place)):
                first, last = shards.rows(entry, place, slot)
                pieces = [piece for b in buckets if rank in b.ranks for piece in b.pieces if piece.entry == entry]
                assert sorted(row for piece in pieces for row in range(*piece.rows)) == list(range(first, last))
            near = [shards.rows(entry, other, 0) for other in shards.near(place)]
            assert sorted(row for rows in near for row in range(*rows)) == list(range(entry.rows(2, 0)))


def test_who_shares_sequences_sits_part_by_part() -> None:
    case = Case("shared", "gpt2", ((12, (("rome-1", (0, 1, 2, 3), 2), ("rome-2", (1, 0), 5))),), context=2)
    seating = seat(case.plan)
    assert [(one.part, one.slot, one.leads) for one in seating.seats] == [
        (0, 0, True), (0, 1, False), (1, 0, False), (1, 1, False), (1, 0, False), (0, 0, True),
    ]  # fmt: skip
    assert seating.everyone(0, 0) == (0, 1, 2, 3)
    assert (seating.ranks(0, 0), seating.ranks(0, 0, 1), seating.ranks(0, 1)) == ((0, 1), (2, 3), (5,))
    assert (seating.sharers(0, 0, 1), seating.sharers(0, 1, 0)) == ((1, 3), (5, 4))
    bucket_ranks = {rank for b in plan_buckets([Entry("tied", (259, 4), (0, 5), 0)], seating) for rank in b.ranks}
    assert bucket_ranks == {0, 1, 5}  # the first part's


TWO = (("rome-1", (0,), 2), ("rome-1", (1,), 5))
ROUND = (("rome-1", (0,), 1), ("rome-1", (1,), 2), ("rome-1", (0,), 3), ("rome-1", (1,), 5))


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (
            Case("odd", "gpt2", ((12, (("rome-1", (0, 1, 2), 5),)),), sequence_parallel=True),
            "3 GPUs cannot share a",
        ),
        (
            Case("emulated", "gpt2", tuple((6, ((f"rome-{i}", (0,), 5),)) for i in (1, 2)), shard="gradients"),
            "an emulated run has no layers whose parameters or gradients",
        ),
        (Case("emulated", "gpt2", ((12, TWO),), schedule="zb"), "`schedule: zb` in an emulated run"),
        (Case("kept", "gpt2", ((12, TWO),), schedule="zb", recompute="operations"), "with `recompute: operations`"),
        (Case("shared", "t5", ((12, TWO),), schedule="zb"), "with T5: its blocks share"),
        (
            Case("gathered", "gpt2", ((6, ROUND), (6, ROUND)), chunks=2, shard="parameters"),
            "`chunks: 2` with `sharding: parameters`",
        ),
        (
            Case("shared", "gpt2", ((12, (("rome-1", (0, 1), 5),)),), context=2, shard="parameters"),
            "GPUs that share sequences cannot have their gradients or parameters sharded",
        ),
        (
            Case("experts", "mixtral", ((12, (("rome-1", (0, 1), 3),)),), expert=2),
            "experts cannot be split over GPUs in a run",
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Case) else "",
)
def test_what_cannot_be_split_is_refused(case: Case, words: str, tmp_path: Path) -> None:
    from hulk.errors import InputError
    from hulk.io.jobs_file import load_jobs
    from hulk.runtime.runnable import check_runnable
    from hulk.runtime.settings import Compute

    write_case(case, tmp_path)
    (job,) = load_jobs(tmp_path / "jobs.yaml")
    compute = Compute.EMULATED if case.name == "emulated" else Compute.REAL
    with pytest.raises(InputError, match=words):
        check_runnable(job, case.plan, Settings(data=tmp_path, compute=compute))


def test_pipelines_that_split_are_alike() -> None:
    from hulk.errors import InputError
    from hulk.runtime.shards import check_alike

    shapes = (8, (("rome-1", (0,), 5),)), (4, (("oslo-1", (0,), 5),))
    check_alike(Case("whole", "gpt2", shapes, shard="optimizer").plan)
    for shard, within in (("gradients", "everywhere"), ("parameters", "region"), ("optimizer", "machine")):
        with pytest.raises(InputError, match="pipeline 2 is not like pipeline 1"):
            check_alike(Case("apart", "gpt2", shapes, shard=shard, within=within).plan)


def test_settings_survive_the_command_line(tmp_path: Path) -> None:
    import typer
    from typer.testing import CliRunner

    from hulk.runtime.options import arguments_of, takes_settings
    from hulk.runtime.settings import Compute

    read: list[Settings] = []

    @takes_settings(also_fields=True)
    def command(settings: Settings) -> None:
        read.append(settings)

    app = typer.Typer()
    app.command()(command)
    given = Settings(
        data=tmp_path / "a text -- with blanks",
        tokenizer=Path("-t"),
        steps=7,
        seed=5,
        rate=0.1 + 0.2,
        decay=0.0,
        dropout=True,
        precision="bf16",
        compiled=True,
        compute=Compute.EMULATED,
        weights=Path("w"),
        checkpoints=tmp_path,
        every=3,
        keep=0,
        resume=tmp_path,
        timeout=5.5,
        patience=1e6,
        trace_steps=2,
    )
    assert all(getattr(given, name) != field.default for name, field in Settings.model_fields.items())
    for settings in (given, Settings()):
        done = CliRunner().invoke(app, arguments_of(settings))
        assert done.exit_code == 0, done.output
        assert read.pop() == settings
    assert CliRunner().invoke(app, ["--rate", "0.5", "--keep", "3"]).exit_code == 0
    assert read[0] == Settings(rate=0.5) and read[0].model_fields_set == {"rate", "keep"}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (["--stepz", "3"], "--stepz"),
        (["--steps", "0"], "--steps"),
        (["--steps", "few"], "--steps"),
        (["--lr", "nan"], "--lr"),
        (["--patience", "0"], "--patience 0.0: must be greater than 0"),
        (["--compute", "reel"], "--compute reel: must be 'real' or 'emulated'"),
        (["--precision", "fp8", "--compute", "reel"], "--precision fp8: must be 'fp32' or 'bf16'; --compute reel: "),
    ],
)
def test_a_worker_refuses_arguments_it_does_not_understand(wrong: list[str], words: str) -> None:
    import subprocess
    import sys

    known = ["--plan", "p", "--cluster", "c", "--jobs", "j", "--job", "a"]
    command = [sys.executable, "-m", "hulk.runtime.worker", *known, *wrong]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 2
    assert words in done.stderr and "Traceback" not in done.stderr and not done.stdout


def test_shares_of_a_batch_are_the_batch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from hulk.io.jobs_file import load_jobs
    from hulk.runtime.data import IGNORED, Samples, read_tokens
    from hulk.runtime.models import draw

    text = read_tokens(write_text(tmp_path / "text.txt"), None)
    for model in ("gpt2", "bert", "t5"):
        write_case(Case(model, model, ((12, (("rome-1", (0,), 5),)),)), tmp_path)
        samples = Samples(text, draw(load_jobs(tmp_path / "jobs.yaml")[0]), seed=1, where="text")
        far = samples.count - 3  # across the end of an epoch
        whole = samples.batch(far, 6)
        parts = [samples.batch(far, 2), samples.batch(far + 2, 4)]
        assert torch.equal(whole.ids, torch.cat([part.ids for part in parts]))
        assert torch.equal(whole.labels, torch.cat([part.labels for part in parts]))
        assert ((whole.labels != IGNORED).sum(dim=1) == samples.predicted).all()


def test_a_half_written_checkpoint_is_none(tmp_path: Path) -> None:
    from hulk.runtime.checkpoint import find_checkpoint, finish, list_files, make_unfinished

    for step in (1, 2, 3):
        folder = make_unfinished(tmp_path, step)
        (folder / "layer-0000.safetensors").write_bytes(b"weights")
        list_files(folder, 0, ["layer-0000.safetensors"])
        if step < 3:
            finish(tmp_path, step, {"seed": 0})
    found, wrong = find_checkpoint(tmp_path)
    assert found == tmp_path / "step-00000002" and not wrong
    (found / "layer-0000.safetensors").write_bytes(b"weight?")
    found, wrong = find_checkpoint(tmp_path)
    assert found == tmp_path / "step-00000001"
    assert wrong == ["step-00000002: layer-0000.safetensors is not what was written"]


def test_the_command_line_needs_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess
    import sys

    from hulk.errors import InputError
    from hulk.runtime import runnable

    look = "import sys, hulk.cli.app, hulk.runtime.run; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    monkeypatch.setattr(runnable, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"needs torch, transformers, safetensors .*hulk\[train\]"):
        runnable.check_engine()


@pytest.mark.parametrize("model", ["gpt2", "bert", "t5"])
def test_weights_of_a_hugging_face_checkpoint(model: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    import transformers

    from hulk.io.jobs_file import load_jobs
    from hulk.runtime.models import BUILDS, draw
    from hulk.runtime.slices import list_entries
    from hulk.runtime.weights import FileWeights

    write_case(Case(model, model, ((12, (("rome-1", (0,), 5),)),)), tmp_path)
    blueprint = draw(load_jobs(tmp_path / "jobs.yaml")[0])
    made = getattr(transformers, BUILDS[model].model_class)(blueprint.model.config)
    made.save_pretrained(tmp_path / "saved")
    weights, known = FileWeights(blueprint, tmp_path / "saved"), dict(made.named_parameters())
    for entry in list_entries(blueprint):
        assert torch.equal(weights.get(entry.name, entry.home), known[entry.name].detach())


def test_what_is_under_way_is_held_until_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    import gc
    import weakref

    from hulk.runtime import messages

    class Handle:
        def wait(self) -> None:
            pass

    posted: list[weakref.ref[object]] = []

    def post(tensor: object, **where: object) -> Handle:
        posted.append(weakref.ref(tensor))
        return Handle()

    monkeypatch.setattr(messages.dist, "irecv", post)
    monkeypatch.setattr(messages.dist, "isend", post)
    mine = messages.Messages()
    coming = mine.receive(torch.empty(4), 1, None, tag=7)
    mine.send(torch.empty(4), 2, None)
    gc.collect()
    assert all(held() is not None for held in posted)
    coming.wait()
    with pytest.raises(RuntimeError, match=r"1 messages were left under way: to rank 2, tag 0"):
        mine.close()
    del coming
    gc.collect()
    assert posted[0]() is None and posted[1]() is not None


def test_nothing_is_sent_past_the_owner_of_messages() -> None:
    """Whoever posts a message elsewhere would have to hold its tensor until it is done."""
    import hulk.runtime

    folder = Path(hulk.runtime.__file__).parent
    posting = [
        path.name for path in folder.rglob("*.py") if "dist.isend" in (text := path.read_text()) or "dist.irecv" in text
    ]
    assert posting == ["messages.py"]
