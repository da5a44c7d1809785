"""Draws cases of `hulk plan`: mixed machines, regions, links, jobs, objectives and options together. The same seed and
number give the same case anywhere."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from math import exp, log
from random import Random
from typing import Any

from promises_case import OUT, Case, Job, Machine, Options, Pairs, Rule, as_yaml
from promises_cluster import ClusterDraw, log_uniform
from promises_models import Shape, bundled_shape, shape_of
from promises_wrong import contradict

SMALL = ("gpt2", "bert-base", "opt-125m", "t5-small")
MIDDLE = ("bert-large", "opt-350m", "xlnet-large", "roberta-large", "llama-3.2-1b", "gpt2-xl")
HUGE = ("opt-30b", "llama-3-70b", "mixtral-8x7b")
MOST_SECONDS = 3e9  # a century; no deadline is later
# How a person writes so many seconds.
TIMES = (("s", 1.0), ("min", 60.0), ("h", 3600.0), ("d", 86400.0), ("days", 86400.0))


def draw(seed: int, number: int) -> Case:
    """The case of that number."""
    rng = Random(f"{seed}/{number}")
    mode, turn = _mode(seed, number)
    tiny = mode in ("exact", "exact with limits")
    cluster = ClusterDraw(rng, tiny)
    jobs, files = _jobs(rng, cluster, tiny=tiny, deadlines=mode in ("cheapest", "exact with limits"))
    options = _options(rng, mode, cluster, [entry["job"] for entry in jobs])
    if mode in _WITH_MORE:
        options = _more(Random(f"{seed}/{number}/more"), options)
    case = Case(
        machines=tuple(cluster.machines),
        network=cluster.network,
        jobs=tuple(entry["job"] for entry in jobs),
        options=options,
        files={
            "cluster.yaml": as_yaml(cluster.document),
            "jobs.yaml": as_yaml({"jobs": [entry["file"] for entry in jobs]}),
            **files,
            **({OUT: "not a plan\n"} if options.out and rng.random() < 0.25 else {}),
        },
        mode=mode,
    )
    case = replace(case, may_refuse=tuple(_may_refuse(case)))
    return contradict(rng, case, turn) if mode == "contradiction" else case


# What is asked for, in how many of a hundred draws.
_MODES = {
    "plain": 34, "max-cost": 17, "min-throughput": 14, "cheapest": 13, "exact": 5, "exact with limits": 2, "paper": 5,
    "contradiction": 10,
}  # fmt: skip


# With these, plans are also asked for that are regular, for another engine, or with more memory left free.
_WITH_MORE = ("plain", "max-cost", "min-throughput", "cheapest")
_ENGINES = ("megatron", "torchtitan", "megatron-deepspeed")


def _more(rng: Random, options: Options) -> Options:
    """Some options that go with all limits, alone and together."""
    return replace(
        options,
        uniform=rng.random() < 0.2,
        engine=rng.choice(_ENGINES) if rng.random() < 0.25 else None,
        headroom=rng.choice((0.0, 0.1, 0.3)) if rng.random() < 0.25 else None,
    )


def _mode(seed: int, number: int) -> tuple[str, int]:
    """What a draw asks for, and how many draws before it ask for the same. Every hundred draws hold the same mixture,
    so that a few hundred hold everything."""
    hundred, place = divmod(number, 100)
    modes = [mode for mode, count in _MODES.items() for _ in range(count)]
    Random(f"{seed}/modes/{hundred}").shuffle(modes)
    mode = modes[place]
    return mode, hundred * _MODES[mode] + modes[:place].count(mode)


def _jobs(
    rng: Random, cluster: ClusterDraw, *, tiny: bool, deadlines: bool
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Every job as a value and as an entry of the jobs file, and the files of the models that are given inline."""
    count = rng.choices((1, 2, 3, 4), (35, 35, 20, 10))[0]
    if tiny:
        count = min(count, 2)  # also on one machine, where one of the two must wait
    elif rng.random() < 0.93:
        count = min(count, len(cluster.machines))
    files: dict[str, str] = {}
    jobs = [_job(rng, cluster, number, files, tiny) for number in range(count)]
    slack = exp(rng.uniform(log(0.3), log(30_000)))  # one for all: else some deadline would always be too early
    for made in jobs:
        if deadlines or rng.random() < 0.5:
            millions = log_uniform(rng, 1, 2000)
            made["file"]["tokens"] = f"{millions}M"
            job = replace(made["job"], tokens=millions * 1e6)
            if deadlines or rng.random() < 0.15:
                rate = cluster.guess([job], share=1 / count)
                job = replace(job, deadline=_deadline(rng, made["file"], job, rate, slack))
            made["job"] = job
    return jobs, files


def _job(rng: Random, cluster: ClusterDraw, number: int, files: dict[str, str], tiny: bool) -> dict[str, Any]:
    shape = _shape(rng, number, files, tiny)
    batches = (1, 2, 3, 4, 6, 7, 8) if tiny else (1, 4, 7, 8, 12, 13, 16, 24, 31, 32, 48, 64, 100, 128)
    entry: dict[str, Any] = {"name": f"job{number}", "model": shape.name, "global_batch": rng.choice(batches)}
    sequence = shape.sequence
    if rng.random() < 0.6 or sequence > 2048 or "/" in shape.name:
        sequence = entry["sequence"] = min(shape.longest, rng.choice((16, 64, 128, 200, 256, 512, 1024)))
    if shape.two_sided and rng.random() < 0.5:
        entry["target_sequence"] = rng.choice((8, 32, 114))
    precision = rng.choices(("bf16", "fp16", "tf32", "fp32"), (55, 25, 10, 10))[0]
    if precision != "bf16" or rng.random() < 0.3:
        entry["precision"] = precision
    optimizer = rng.choices(("adamw", "adam", "sgd", "momentum", "adafactor"), (60, 10, 10, 10, 10))[0]
    if optimizer != "adamw" or rng.random() < 0.3:
        entry["optimizer"] = optimizer
    if rng.random() < 0.1:
        entry["attention"] = "eager"
    weight = 1.0
    if rng.random() < 0.3:
        weight = entry["weight"] = log_uniform(rng, 0.1, 10)
    job = Job(entry["name"], shape, sequence, entry["global_batch"], precision, optimizer, weight)
    return {"job": _somewhere(rng, entry, job, cluster), "file": entry}


def _somewhere(rng: Random, entry: dict[str, Any], job: Job, cluster: ClusterDraw) -> Job:
    """Where it may run: mostly anywhere, or somewhere with machines, sometimes nowhere."""
    regions = sorted(cluster.document["regions"])
    chance = rng.random()
    if chance < 0.2:
        home = rng.choice(cluster.machines).region
        patterns = {home, *rng.sample(regions, rng.randint(0, len(regions) - 1))}
        entry["allow"] = sorted(rng.choice((name, name[:2] + "*")) for name in patterns)
    elif chance < 0.22:
        entry["allow"] = rng.choice(([], [], ["atlantis"], ["zz-*", "moon"]))
    if rng.random() < 0.07:
        entry["deny"] = [rng.choice((*regions, "atlantis", "us-*"))]
    job = replace(job, allow=tuple(entry["allow"]) if "allow" in entry else None, deny=tuple(entry.get("deny", ())))
    return _tied(rng, entry, job, cluster) if rng.random() < 0.25 else job


def _tied(rng: Random, entry: dict[str, Any], job: Job, cluster: ClusterDraw) -> Job:
    """Some of its layers tied to places: one to three rules, which may leave a layer no place at all."""
    regions, last = sorted(cluster.document["regions"]), len(job.shape.pieces) - 1
    rules = []
    entry["place"] = []
    for _ in range(rng.choices((1, 2, 3), (60, 30, 10))[0]):
        first = rng.randint(0, last)
        words, layers = (
            f"layers {first}-{first + 1}" if first < last else f"layer {first}",
            {first, min(first + 1, last)},
        )
        if not job.shape.two_sided and rng.random() < 0.6:
            words, layers = rng.choice(
                (
                    ("embedding", {0}),
                    ("head", {last}),
                    ("embedding and head", {0, last}),
                    ("blocks", set(range(1, last))),
                    (f"embedding, layers 0-{first}", set(range(first + 1))),
                )
            )
        home = rng.choice(cluster.machines).region
        patterns = {home, *rng.sample(regions, rng.randint(0, max(0, len(regions) - 2)))}
        named = sorted(rng.choice((name, name[:2] + "*")) for name in patterns)
        forbidden = rng.random() < 0.35
        rules.append(Rule(frozenset(layers), tuple(named), forbidden))
        said = "not " * forbidden + words
        entry["place"].append({said: named[0] if len(named) == 1 else named})
    tied = replace(job, place=tuple(rules))
    homes = {machine.region for machine in cluster.machines}
    homeless = any(not any(tied.may_hold(layer, region) for region in homes) for layer in range(last + 1))
    if homeless and rng.random() < 0.85:
        del entry["place"]
        return job
    return tied


def _shape(rng: Random, number: int, files: dict[str, str], tiny: bool) -> Shape:
    chance = rng.random()
    if not tiny and chance < 0.5:
        return bundled_shape(rng.choice(SMALL if chance < 0.34 else MIDDLE if chance < 0.485 else HUGE))
    heads = rng.choice((1, 2, 3, 4, 5, 6, 8, 12, 16))
    hidden, blocks = heads * rng.choice((16, 32, 64)), rng.randint(1, 3 if tiny else 12)
    kind = rng.choice(
        ("gpt2", "opt", "bert", "llama", "mixtral") if tiny else ("gpt2", "opt", "bert", "llama", "mixtral", "t5")
    )
    vocab = rng.choice((1000, 8192, 32000, 50257))
    wide = hidden * rng.choice((2, 4))
    base = {"model_type": kind, "vocab_size": vocab}
    usual = {"hidden_size": hidden, "num_hidden_layers": blocks, "num_attention_heads": heads}
    keys = rng.choice([n for n in range(1, heads + 1) if heads % n == 0])
    config: dict[str, Any] = base | {
        "gpt2": {"n_embd": hidden, "n_layer": blocks, "n_head": heads, "n_positions": 1024},
        "opt": usual | {"ffn_dim": wide, "max_position_embeddings": 1024},
        "bert": usual | {"intermediate_size": wide, "max_position_embeddings": 512},
        "llama": usual | {"intermediate_size": wide, "num_key_value_heads": keys},
        "mixtral": usual | {"intermediate_size": wide, "num_key_value_heads": keys, "num_local_experts": 4},
        "t5": {"d_model": hidden, "num_layers": blocks, "num_decoder_layers": rng.randint(1, 6), "num_heads": heads,
               "d_kv": 64, "d_ff": wide},
    }[kind]  # fmt: skip
    if kind in ("llama", "gpt2") and rng.random() < 0.3:
        config["tie_word_embeddings"] = kind == "llama"
    name = f"model{number}.json"
    files[name] = json.dumps(config, indent=1) + "\n"
    return shape_of(config, name=f"./{name}", sequence=512)


def _deadline(rng: Random, entry: dict[str, Any], job: Job, tokens_per_second: float, slack: float) -> float:
    """Seconds for its tokens, and the words for them in the file."""
    assert job.tokens is not None
    seconds = job.tokens / max(tokens_per_second, 1.0) * slack * exp(rng.uniform(log(0.7), log(1.5)))
    unit, factor = rng.choice([(unit, factor) for unit, factor in TIMES if seconds / factor >= 0.5] or [TIMES[0]])
    number = max(0.01, round(min(seconds, MOST_SECONDS) / factor, 2))
    entry["deadline"] = f"{number} {unit}"
    return number * factor


def _options(rng: Random, mode: str, cluster: ClusterDraw, jobs: list[Job]) -> Options:
    made = Options(
        seed=rng.randint(0, 1000),
        workers=rng.choices((1, 2, 3), (75, 15, 10))[0],
        time_limit=rng.choices((log_uniform(rng, 0.1, 0.5), log_uniform(rng, 0.5, 2)), (30, 70))[0],
        evaluations=max(1, int(log_uniform(rng, 1, 300))),
        no_gnn=mode != "paper" and rng.random() < 0.7,
        paper=mode == "paper",
        exact=mode.startswith("exact"),
        cheapest=mode == "cheapest",
    )
    shown = rng.random()
    made = replace(made, json=shown < 0.85, out=OUT if shown > 0.45 and shown < 0.98 else None)
    if mode not in ("exact", "paper") or rng.random() < 0.2:
        pins, avoids = _places(rng, cluster, jobs)
        made = replace(made, pins=pins, avoids=avoids)
    dollars = sum(machine.dollars for machine in cluster.machines)
    odd = mode in ("exact with limits", "paper", "cheapest")  # where limits are the exception
    if mode == "max-cost" or (odd and rng.random() < 0.12):
        most = 0.0 if rng.random() < 0.03 else dollars * exp(rng.uniform(log(0.02), log(3)))
        made = replace(made, max_cost=float(f"{most:.3g}"))
    elif mode == "min-throughput" or (odd and rng.random() < 0.12):
        least = cluster.guess(jobs, share=1.0) * exp(rng.uniform(log(0.0003), log(2)))
        made = replace(made, min_throughput=float(f"{rng.choices((least, 0.0, 1e300), (94, 3, 3))[0]:.3g}"))
    return made


def _places(rng: Random, cluster: ClusterDraw, jobs: list[Job]) -> tuple[Pairs, Pairs]:
    """Pins and avoided machines that do not contradict each other."""
    pins: dict[str, str] = {}
    if rng.random() < 0.35:
        most = max(1, len(cluster.machines) - len(jobs) + 1)  # with more, another job has none
        one = rng.choice(jobs) if rng.random() < 0.2 else None  # all of them, more than it may have a use for
        for machine in rng.sample(cluster.machines, most if one else min(most, rng.randint(1, 3))):
            job = one or rng.choice(jobs)
            if job.may_use(machine.region):
                pins[machine.name] = job.name
    avoids: set[tuple[str, str]] = set()
    if rng.random() < 0.3:
        for _ in range(rng.randint(1, 3)):
            job, machine = rng.choice(jobs), rng.choice(cluster.machines)
            if pins.get(machine.name) != job.name:
                avoids.add((job.name, machine.name))
    kept, kept_from = tuple((job, machine) for machine, job in pins.items()), tuple(sorted(avoids))
    starved = any(_starved(job, cluster.machines, kept, kept_from) for job in jobs)
    return ((), ()) if starved and rng.random() < 0.8 else (kept, kept_from)


def _starved(job: Job, machines: Iterable[Machine], pins: Pairs, avoids: Pairs) -> bool:
    """Whether pins and avoided machines leave a job nothing that it may use."""
    taken = {machine for name, machine in pins if name != job.name}
    taken |= {machine for name, machine in avoids if name == job.name}
    allowed = {machine.name for machine in machines if job.may_use(machine.region)}
    return bool(allowed) and not allowed - taken


def _may_refuse(case: Case) -> Iterable[str]:
    """What a sound tool may refuse although it is no contradiction."""
    options = case.options
    deadlines = any(job.deadline is not None for job in case.jobs)
    kept = bool(options.pins or options.avoids)
    money = options.max_cost is not None or options.min_throughput is not None or options.cheapest
    if options.exact and (kept or money or deadlines):
        yield "--exact with limits or places"
    if options.paper and (kept or money or deadlines):
        yield "--policy paper with limits or places"
    if options.max_cost == 0.0 or options.min_throughput in (0.0, 1e300):
        yield "a limit out of all reason"
    if options.cheapest and (options.max_cost is not None or options.min_throughput is not None):
        yield "--cheapest with another limit"
    if any(_starved(job, case.machines, options.pins, options.avoids) for job in case.jobs):
        yield "pins and avoided machines leave a job nothing"
