"""What broken files and options are made of: a small valid case, and values that break it."""

from __future__ import annotations

from typing import Any

CLUSTER = """\
hulk: cluster/1
name: small
about: six machines
sources: [nowhere]
regions:
  rome: {label: Rome, at: [41.9, 12.5], egress: 0.02 $/GB}
  paris: {at: [48.9, 2.4]}
  oslo: {at: [59.9, 10.8]}
machines:
  - {name: r, count: 3, region: rome, gpu: rtx-3090, gpus: 2, network: 10 Gbit/s, memory: 23 GiB, price: 1 $/h}
  - {name: p, count: 2, region: paris, gpu: v100-32, gpus: 2, network: 10 Gbit/s}
  - {name: oslo-1, region: oslo, gpu: gtx-1080, gpus: 1, network: 1 Gbit/s}
links:
  - {between: [rome, paris], latency: 30 ms, bandwidth: 0.5 Gbit/s, trunk: 10 Gbit/s, egress: 0.01 $/GB}
  - {between: [rome, oslo], latency: ~50 ms, bandwidth: 0.1 Gbit/s}
  - {between: [p-1, r-2], latency: 29 ms}
  - {inside: rome, latency: 0.1 ms, bandwidth: 9 Gbit/s}
  - {between: [p, oslo-1], blocked: true}
assume: {inside: {latency: 0.5 ms, bandwidth: 10 Gbit/s}, between: estimate, unmeasured_pairs: median}
"""
JOBS = """\
hulk: jobs/1
about: two of them
jobs:
  - {name: bert, model: bert-large, sequence: 128, global_batch: 32, precision: fp16, tokens: 1B, weight: 2}
  - {name: own, model: ./config.json, sequence: 128, global_batch: 16, optimizer: sgd, allow: ["r*", paris], deny: [x]}
"""
CONFIG = {
    "model_type": "bert", "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4,
    "intermediate_size": 1024, "vocab_size": 3000, "max_position_embeddings": 512, "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1, "type_vocab_size": 2,
}  # fmt: skip
JOINED = "{name: rome-9, region: rome, gpu: a100-80, gpus: 2, network: 25 Gbit/s}\n"
PLAN = {
    "hulk": "plan/1",
    "cluster": "small",
    "made_for": {
        "fingerprint": "0" * 32,
        "machines": [{"names": ["r-1"], "region": "rome", "gpu": "rtx-3090", "gpus": 2, "memory": "23 GiB",
                      "network": "10 Gbit/s", "price": "1 $/h"}],
        "links": [{"between": ["paris", "rome"], "latency": "30 ms", "bandwidth": "0.5 Gbit/s"}],
    },
    "jobs": {
        "bert": {
            "microbatch_size": 2, "schedule": "1f1b+2", "recompute": "full", "sync": "ring", "sharding": "optimizer",
            "pipelines": [
                {"microbatches": 10, "stages": [{"machine": "r-1", "gpus": [0], "layers": [0, 11]},
                                                {"machine": "r-1", "gpus": [1], "layers": [12, 25]}]},
                {"microbatches": 6, "stages": [{"machine": "r-2", "gpus": [0, 1], "layers": [0, 11]},
                                               {"machine": "p-1", "gpus": [0, 1], "layers": [12, 25]}]},
            ],
        }
    },
    "idle": ["r-3", "p-2", "oslo-1"],
    "waiting": {"own": "because"},
}  # fmt: skip

EVIL = [
    "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x9b31m", "\u202egnp.exe", "\u2066x\u2069", "a\u200bb\ufeff", "\x00",
    "\x7f\r",
    "[/]", "[bold]x[/bold]", "[link=http://x]y[/link]", ":smile:", "\nerror: fake", "\u2028", "\U000e0041", "%s%n{0}",
    "🧑\u200d🚀" * 5, "ﷺ", "Z" + "\u0301" * 50, "../../etc/passwd", "/dev/zero", "-", "--help", "", " ", "~", "null",
    "NaN",
    "1:30", "0x1F", "1_000", "x" * 5000, "é", "北京", "'\"\\", "`id`", "$(id)", "a" * 101,
]  # fmt: skip
NUMBERS: list[Any] = [
    0, -1, 1, 2, 3, 7, 1023, 1024, 10**4, 10**5, 10**6, 10**7, 2**24, 2**31 - 1, 2**31, 2**53, 2**63 - 1, 2**63, 10**30,
    10**200, -(10**30), 0.5, 1e-9, 1e9, 1e-320, 5e-324, 1e-30, 1e30, 1.7e308, -0.0, -1e-320, 0.1 + 0.2,
]  # fmt: skip
QUANTITIES = [
    f"{number} {unit}"
    for number in ("0", "-1", "1e-320", "1e-12", "1", "59.9", "1e6", "1e14", "1e30", "1e400", ".inf", "NaN", "~1", "١")
    for unit in ("ms", "Gbit/s", "GiB", "$/h", "$/GB", "B", "h", "bit/s", "", "parsec")
]
JUNK: list[Any] = [None, True, False, [], {}, [[]], {"a": {}}, [1, "a", None], {"": ""}, {"<<": {}}]
