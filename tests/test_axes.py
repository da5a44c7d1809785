"""GPUs of a stage that share sequences, and GPUs that split experts: time, memory, sums, and what cannot be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hulk.cost.axes import Keys, of_one_gpu
from hulk.cost.engine import HULK, MEGATRON, MEGATRON_DEEPSPEED, TORCHTITAN, Engine
from hulk.cost.memory import layer_memory
from hulk.cost.prepared import Prepared, prepare
from hulk.cost.price import price_job
from hulk.cost.report import Infeasible, JobPrice, Obstacle
from hulk.domain.check import check_plan
from hulk.domain.cluster import Cluster, Link, Machine, Region, pair
from hulk.domain.job import Job
from hulk.domain.options import SPACE, Options, Scope, Shape, Sharding, normal, words_of
from hulk.domain.plan import JobPlan, Pipeline, Plan
from hulk.domain.regular import parse_regular, regular_plan
from hulk.errors import InputError, PlanError
from hulk.io.gpus import gpu
from hulk.io.models import build_named_model
from hulk.io.plan_file import dump_plan, read_plan
from hulk.io.profiles import bundled_compute
from hulk.io.yamlfile import parse_document
from hulk.simulate import simulate
from test_model_types import model_of, small_config
from warm import hulk

COMPUTE = bundled_compute()
LONG = Job("j", build_named_model("llama-3-8b", sequence=131_072), global_batch=8)
MIXED = Job("j", build_named_model("mixtral-8x7b", sequence=4096), global_batch=64)


def hall(machines: int = 2, memory: float = 1e15) -> Cluster:
    """Machines of eight H100 beside each other."""
    made = tuple(Machine(f"m-{i}", "a", gpu("h100"), 8, memory, 400e9, 16.0 / 3600) for i in range(machines))
    return Cluster("hall", (Region("a"),), made, {pair("a", "a"): Link(1e-5, 50e9)})


def planned(job: Job, layout: str, machines: int = 2) -> JobPlan:
    made = regular_plan(parse_regular(layout), job, hall(machines))
    check_plan(Plan({job.name: made}), hall(machines), [job])
    return made


def priced(job: Job, layout: str, engine: Engine = MEGATRON, machines: int = 2) -> JobPrice:
    found = price_job(job, planned(job, layout, machines), hall(machines), compute=COMPUTE, engine=engine)
    assert isinstance(found, JobPrice), found
    return found


# --- sequences ---


def test_each_has_its_share_of_a_layer_but_all_of_the_weights() -> None:
    for layer in LONG.model.layers:
        part = of_one_gpu(layer, context=4)
        assert part.params == layer.params
        assert part.flops_forward == pytest.approx(layer.flops_forward / 4)
        assert (part.held_split, part.held_whole) == (layer.held_split / 4, layer.held_whole / 4)
        assert part.keys == layer.keys
    assert of_one_gpu(LONG.model.layers[1]) is LONG.model.layers[1]


@pytest.mark.parametrize("keys", Keys)
def test_keys_of_the_others_need_room(keys: Keys) -> None:
    """Grouped-query attention: keys and values of 8 heads of 128, in two bytes."""
    block = LONG.model.layers[1]
    engine = replace(TORCHTITAN, keys=keys)
    one, four = (layer_memory(block, block.output, LONG, Options(1, context=c), engine) for c in (1, 4))
    whole = 131_072 * 2 * 8 * 128 * 2
    held = 0.75 * whole if keys is Keys.KEPT else 0.0
    assert four.held_split + four.held_whole == pytest.approx((one.held_split + one.held_whole) / 4 + held)
    passing = {Keys.AROUND: 0.5, Keys.AGAIN: 0.75, Keys.KEPT: 0.0}[keys] * whole
    assert four.peak_split == pytest.approx(one.peak_split / 4 + passing)


def test_weights_are_there_in_every_part() -> None:
    tensor, shared = (priced(LONG, layout).pipelines[0][0].memory for layout in ("tp8 sp", "cp8"))
    # Norms, which every slice has whole, are the difference.
    assert shared.weights == pytest.approx(8 * tensor.weights, rel=1e-3)
    assert shared.activations < 1.1 * tensor.activations


def test_sharded_state_is_split_over_parts_as_over_replicas() -> None:
    for layout in ("cp4 tp2 dp2 zero1", "cp4 tp2 dp1 zero1"):
        plain = priced(LONG, layout.replace(" zero1", "")).pipelines[0][0].memory
        for engine, parts in ((MEGATRON, 4), (replace(MEGATRON, shards_context=False), 1)):
            found = priced(LONG, layout, engine)
            holders = parts * len(found.pipelines)
            assert found.pipelines[0][0].memory.optimizer == pytest.approx(plain.optimizer / holders)


def test_long_sequences_go_faster_where_they_are_shared() -> None:
    """Attention divides the same either way, and what tensor parallelism adds up at every block is not there."""
    steps = [priced(LONG, layout).step for layout in ("tp8 sp", "tp4 cp2 sp", "tp2 cp4 sp", "cp8")]
    assert steps == sorted(steps, reverse=True)
    assert steps[-1] > 0.8 * steps[0]


def test_keys_on_their_way_are_hidden_behind_long_attention() -> None:
    short = replace(LONG, model=build_named_model("llama-3-8b", sequence=4096))
    for job, hidden in ((LONG, True), (short, False)):
        around, gathered = (priced(job, "cp8", replace(MEGATRON, keys=keys)).step for keys in (Keys.AROUND, Keys.AGAIN))
        layers = tuple(replace(layer, keys=min(layer.keys, 1e-9)) for layer in job.model.layers)
        free = priced(replace(job, model=replace(job.model, name="free", layers=layers)), "cp8").step
        assert gathered > around >= free * (1 - 1e-9)
        assert (around < 1.0001 * free) == hidden


def test_what_has_no_effect_has_its_normal_value() -> None:
    assert normal(Options(1, context=4), Shape(2, 2, 1)).context == 1
    sharded = Options(1, context=4, sharding=Sharding.OPTIMIZER)
    assert normal(sharded, Shape(1, 1, 8)) == sharded
    assert normal(replace(sharded, context=1), Shape(1, 1, 8)).sharding is Sharding.NONE
    assert "sequences shared by 4 GPUs" in words_of(sharded, Shape(1, 1, 8))


def test_a_search_shares_long_sequences_only() -> None:
    by_name = {choice.name: choice for choice in SPACE}
    tried = {
        tokens: by_name["context"].possible(Scope(replace(LONG, model=build_named_model("llama-3-8b", tokens))))
        for tokens in (2048, 8192, 8190, 131_072)
    }
    assert tried == {2048: (1,), 8192: (1, 2), 8190: (1,), 131_072: (1, 2, 4, 8)}
    assert by_name["context"].possible(Scope(LONG, HULK.tried)) == (1,)


# --- experts ---


def test_experts_see_the_tokens_of_all_who_split_them() -> None:
    block = MIXED.model.layers[1]
    part = of_one_gpu(block, expert=4)
    assert part.flops_forward == pytest.approx(block.flops_forward)
    assert part.kernels < block.kernels
    assert block.params_split - part.params_split == pytest.approx(block.expert_params * 3 / 4)
    assert block.expert_params == 8 * 3 * 4096 * 14336


def test_memory_of_experts_is_divided() -> None:
    whole, split = (priced(MIXED, layout).pipelines[0][0].memory for layout in ("dp16 tp1", "dp16 tp1 ep8"))
    experts = sum(layer.expert_params for layer in MIXED.model.layers)
    assert whole.weights - split.weights == pytest.approx(2 * experts * 7 / 8)
    # Those who have the same experts split their optimizer's state: as many parts in all as before.
    used = [prepared(MIXED, layout).durations.memory[0] for layout in ("dp16 tp1 zero1", "dp16 tp1 zero1 ep8")]
    assert used[0] - used[1] == pytest.approx((2 + 4) * experts * 7 / 8, rel=0.01)


def prepared(job: Job, layout: str) -> Prepared:
    found = prepare(job, planned(job, layout), hall(), compute=COMPUTE, engine=MEGATRON)
    assert isinstance(found, Prepared), found
    return found


def test_gradients_of_experts_are_added_up_by_those_who_have_the_same() -> None:
    def set_bytes(layout: str) -> float:
        ready = prepared(MIXED, layout)
        return float(ready.durations.set_size[: ready.sets].sum())

    experts = 2.0 * sum(layer.expert_params for layer in MIXED.model.layers)
    alone = set_bytes("tp1 dp8") - set_bytes("tp1 dp8 ep8")
    assert alone == pytest.approx(experts)  # each has its own
    two = set_bytes("tp1 dp16") - set_bytes("tp1 dp16 ep8")
    assert two == pytest.approx(experts * (1 - (1 / 2) / (15 / 16)))


def test_shared_experts_stay_where_they_are() -> None:
    model = model_of(small_config("deepseek_v3"))
    block = next(layer for layer in model.layers if layer.experts)
    assert 0 < block.expert_params < block.params_split
    assert model.experts == block.experts == 8
    assert of_one_gpu(block, expert=8).params_split == block.params_split - block.expert_params * 7 // 8


# --- both ---


@pytest.mark.parametrize(
    ("job", "layout"),
    [(LONG, "tp2 cp2 pp2 dp2 sp"), (LONG, "cp8 dp2 zero1"), (MIXED, "tp2 pp2 ep2 dp4"), (MIXED, "cp2 ep4 dp8 zero1")],
    ids=str,
)
def test_the_simulator_plays_the_same(job: Job, layout: str) -> None:
    played = simulate([prepared(job, layout)], hall())
    assert played.steps[job.name] == pytest.approx(priced(job, layout).step, rel=1e-6)


def test_plan_files_have_them() -> None:
    plan = Plan({"j": planned(MIXED, "cp2 ep4 dp8")})
    assert read_plan(parse_document(dump_plan(plan), name="plan")) == plan


def test_engines_say_what_they_can_do() -> None:
    made = planned(MIXED, "cp2 ep4 dp8")
    for engine, words in ((HULK, "experts split over 4 GPUs"), (MEGATRON_DEEPSPEED, "sequences shared by 2 GPUs")):
        found = price_job(MIXED, made, hall(), compute=COMPUTE, engine=engine)
        assert isinstance(found, Infeasible) and found.obstacle is Obstacle.ENGINE and words in found.reason
    shared = price_job(LONG, planned(LONG, "cp2 tp4"), hall(), compute=COMPUTE, engine=HULK)
    assert isinstance(shared, JobPrice)


def test_experts_are_split_over_gpus_of_one_machine_that_hold_the_same() -> None:
    for layout, words in (
        ("tp2 pp2 ep8", "experts of layers 0–16 cannot be split over 8 GPUs of m-0: 2 of its GPUs hold each slice"),
        ("tp8 dp2 ep2", "cannot be split over 2 GPUs of m-0: 1 of its GPUs hold each slice"),
    ):
        found = price_job(MIXED, planned(MIXED, layout), hall(), compute=COMPUTE, engine=MEGATRON)
        assert isinstance(found, Infeasible) and words in found.reason
    made = planned(MIXED, "tp1 pp2 dp2 ep2")
    cut = [replace(made.pipelines[0].stages[0], last=15), replace(made.pipelines[0].stages[1], first=16)]
    other = replace(made, pipelines=(made.pipelines[1], replace(made.pipelines[0], stages=tuple(cut))))
    found = price_job(MIXED, other, hall(), compute=COMPUTE, engine=MEGATRON)
    assert isinstance(found, Infeasible) and "with experts split over 2 GPUs, all pipelines must" in found.reason


@pytest.mark.parametrize(
    ("model", "layout", "words"),
    [
        ("llama-3-8b", "cp3", "4096 tokens cannot be shared by 3 GPUs, of which each takes two equal parts"),
        ("llama-3-8b", "tp3 cp2", "6 GPUs, 2 to a sequence, cannot share the 8 attention heads of layer 1 evenly"),
        ("llama-3-8b", "ep2 dp16", "llama-3-8b has no experts that could be split over 2 GPUs"),
        ("llama-3-8b", "tp8 cp4", "needs 1 groups of 32 GPUs of one machine, or of several"),
        ("mixtral-8x7b", "ep3 dp16", "the 8 experts of mixtral-8x7b cannot be split over 3 GPUs"),
        ("t5-11b", "cp2", "GPUs cannot share a sequence of t5-11b"),
        ("xlnet-large", "cp2", "GPUs cannot share a sequence of xlnet-large"),
    ],
)
def test_what_cannot_be_divided_is_refused(model: str, layout: str, words: str) -> None:
    job = Job("j", build_named_model(model, sequence=4096 if "llama" in model or "mixtral" in model else 512), 16)
    with pytest.raises((InputError, PlanError)) as error:
        planned(job, layout)
    assert words in str(error.value)


def test_a_stage_must_have_gpus_for_all_parts() -> None:
    made = planned(LONG, "tp2 cp2 pp2 dp1")
    first, second = made.pipelines[0].stages
    narrow = replace(made, pipelines=(Pipeline((first, replace(second, gpus=second.gpus[:1])), 8),))
    with pytest.raises(PlanError, match="1 GPUs cannot share sequences 2 by 2"):
        check_plan(Plan({"j": narrow}), hall(), [LONG])


def test_what_blocks_share_a_sequence() -> None:
    """Every model with plain attention over one sequence, causal or not."""
    named = ("gpt2", "bert-large", "llama-3-8b", "mixtral-8x7b", "t5-11b", "xlnet-large")
    models = {name: build_named_model(name, sequence=512) for name in named}
    models |= {name: model_of(small_config(name)) for name in ("deepseek_v3", "falcon", "bloom", "mpt")}
    assert [name for name, model in models.items() if model.context_parts == 1] == [
        "t5-11b", "xlnet-large", "bloom", "mpt",
    ]  # fmt: skip


def test_people_see_them(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "regions: {hall: {at: [48.9, 2.4]}}\n"
        "machines: [{name: n, count: 2, region: hall, gpu: h100, gpus: 8, network: 8 x 400 Gbit/s}]\n"
    )
    (tmp_path / "j.yaml").write_text("jobs: [{name: j, model: mixtral-8x7b, sequence: 4096, global_batch: 64}]\n")
    files = ("-c", str(tmp_path / "c.yaml"), "-j", str(tmp_path / "j.yaml"), "--engine", "megatron")
    found = hulk("price", "--layout", "tp2 cp2 pp2 dp2 ep4 mb1 dp-pp sp zero1", *files)
    assert found.returncode == 0, found.stderr
    assert "4×h100" in found.stdout
    refused = hulk("price", "--layout", "cp5", *files)
    assert refused.returncode == 2 and "cannot be shared by 5 GPUs" in refused.stderr
