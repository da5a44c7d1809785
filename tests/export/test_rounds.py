"""Plans whose stages go round their GPUs, for the engines that interleave."""

from __future__ import annotations

from export_scenes import hall

from hulk.export import TARGETS


def test_megatron_takes_the_parts_of_all_rounds() -> None:
    files = TARGETS.get("megatron").export(hall("tp2 pp4 vp2 dp4 mb1 sp"))
    arguments = files["arguments.txt"].text.splitlines()
    assert arguments[arguments.index("--pipeline-model-parallel-size") + 1] == "4"
    # Parts stand round by round, and their number says how many rounds there are (Megatron-Core, custom layouts).
    assert arguments[arguments.index("--pipeline-model-parallel-layout") + 1] == "Et*4|" + "t*4|" * 6 + "t*4L"


def test_torchtitan_takes_a_schedule_of_several_parts_a_stage() -> None:
    for words, schedule in (("", "Interleaved1F1B"), ("zb", "InterleavedZeroBubble")):
        text = TARGETS.get("torchtitan").export(hall(f"tp2 pp2 vp4 dp8 mb1 {words}"))["hulk_plan.py"].text
        assert f"'pipeline_parallel_schedule': '{schedule}'" in text
        assert "'pipeline_parallel_degree': 2" in text
        parts = text.split("'module_fqns_per_model_part': [\n")[1].split("    ]")[0].strip().splitlines()
        assert len(parts) == 8
        assert "layers.31" in parts[-1]


def test_ranks_are_counted_once() -> None:
    once, twice = (TARGETS.get("megatron").export(hall(f"tp2 pp4 dp4 mb1 {words}")) for words in ("", "vp2"))
    assert {name: file.text for name, file in once.items() if name != "arguments.txt"} == {
        name: file.text for name, file in twice.items() if name != "arguments.txt"
    }


def test_megatron_takes_a_number_of_blocks_to_compute_again() -> None:
    for words, method, count in (("recompute", "uniform", "1"), ("recompute3", "block", "3"), ("vp2", None, None)):
        arguments = TARGETS.get("megatron").export(hall(f"tp2 pp4 dp4 mb1 {words}"))["arguments.txt"].text.splitlines()
        assert ("--recompute-method" in arguments) == (method is not None)
        if method is not None:
            assert arguments[arguments.index("--recompute-method") + 1] == method
            assert arguments[arguments.index("--recompute-num-layers") + 1] == count
    # Of every part of every round, as Megatron-LM counts them.
    arguments = TARGETS.get("megatron").export(hall("tp2 pp4 vp2 dp4 mb1 recompute2"))["arguments.txt"].text
    assert "--recompute-method\nblock\n--recompute-num-layers\n2\n" in arguments
