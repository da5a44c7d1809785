"""Turn measured layer times into the profiles that Hulk ships (src/hulk/data/profiles/*.json).

    python benchmarks/import_profiles.py --sailor DIR     the SOSP '25 Sailor artifact -> sailor.json, collectives.json

Run once per data set; the results are in the repository, the raw data is not.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

OUT = Path(__file__).resolve().parents[1] / "src/hulk/data/profiles"
MIB = 2**20  # the artifact's "MB": its 8 MB is one 2048 × 1024 fp32 activation

# Model as measured: hidden, feed-forward, sequence, vocabulary, products in the feed-forward part.
# The sizes follow from layer_sizes.json (parameters of block and embedding, floats of the activation sent on).
SAILOR_MODELS = {
    "OPT-350": ("opt-350m", 1024, 4096, 2048, 50304, 2),
    "GPT-Neo-2.7": ("gpt-neo-2.7b", 2560, 10240, 2048, 50304, 2),
    "OPT-30": ("opt-30b", 7168, 28672, 2048, 50304, 2),
    "LLAMA-3-8": ("llama-3-8b", 4096, 16384, 8192, 50304, 3),
}
SAILOR_GPUS = {
    "A100-40": "a100-40",
    "A100-80": "a100-80",
    "V100-16": "v100-16",
    "GH-96": "gh200-96",
    "Titan-RTX": "titan-rtx",
    "RTX-2080": "rtx-2080ti",  # see the note in SAILOR_NOTES
    "RTX-3090": "rtx-3090",
}
TF32_GPUS = {"A100-40", "A100-80", "GH-96", "RTX-3090"}
# These two ran at 18 TFLOP/s on a card with 19.5 in fp32 and 156 in tf32: TF32 was off.
TRUE_FP32 = {("OPT-30", "A100-40"), ("LLAMA-3-8", "A100-40")}
# The artifact's last entry of GPT-Neo would run the logits product at 2,500 TFLOP/s: it is the final norm alone.
HEADLESS = {"GPT-Neo-2.7"}
SAILOR_NOTES = [
    "Seconds for one microbatch on one GPU of the tensor parallel group, all-reduces included; Megatron-DeepSpeed, "
    "fp32 weights, no dropout, eager attention.",
    "precision: the unit that did the matrix work, read off the achieved FLOP/s: tf32 on Ampere and Hopper, except "
    "OPT-30B and Llama on A100-40, which ran at 18 TFLOP/s (fp32 peak 19.5).",
    "block: median of the inner blocks. embedding: forward only, its backward (2 µs) was not captured.",
    "head: the last entry. GPT-Neo's is left out: the logits product would have run at 2,500 TFLOP/s, so it holds the "
    "final norm alone. OPT's and Llama's run it at plausible rates although Llama's entry counts no parameters.",
    "flops: forward FLOPs of one sample of the layer as it was measured. The artifact's models have a vocabulary of "
    "50,304; its Llama has a feed-forward of 16,384 and no grouped queries, its OPT-350M an embedding of 1,024.",
    "rtx-2080ti: the artifact says RTX-2080, but it reaches 13 TFLOP/s in fp32 (RTX 2080: 10.1 peak; 2080 Ti: 13.4).",
    "update: seconds of the optimizer step for one layer (unfused AdamW, mean over the layers); null: not captured.",
]


def _lines(head: dict[str, Any], key: str, rows: Iterable[dict[str, Any]]) -> str:
    """JSON with one row a line, so that a change of one measurement is a change of one line."""
    body = ",\n  ".join(json.dumps(row) for row in rows)
    start = json.dumps(head, indent=1, ensure_ascii=False)[:-2]
    return f'{start},\n "{key}": [\n  {body}\n ]\n}}\n'


def _round(value: float) -> float:
    return float(f"{value:.5g}")


def sailor_curves(times: dict[str, Any]) -> Iterable[dict[str, Any]]:
    """One curve over microbatch for each model, GPU and tensor parallel degree."""
    for raw_model, by_gpu in times.items():
        model, hidden, wide, sequence, vocabulary, products = SAILOR_MODELS[raw_model]
        block = 2.0 * sequence * (4 * hidden**2 + products * hidden * wide) + 4.0 * sequence**2 * hidden
        flops = {"embedding": 0.0, "block": block, "head": 2.0 * sequence * hidden * vocabulary}
        tail = 2 if raw_model == "LLAMA-3-8" else 1  # Llama's final norm is an entry of its own, before the head
        for raw_gpu, by_microbatch in by_gpu.items():
            grid: dict[int, dict[int, list[list[float]]]] = defaultdict(dict)
            for microbatch, by_tp in by_microbatch.items():
                for tp, layers in by_tp.items():
                    grid[int(tp)][int(microbatch)] = [layers[k] for k in sorted(layers, key=int)]
            for tp, by_size in sorted(grid.items()):
                sizes = sorted(by_size)
                kinds = {
                    "embedding": [(by_size[b][0][0], None) for b in sizes],
                    "block": [
                        tuple(statistics.median(layer[i] for layer in by_size[b][1:-tail]) for i in (0, 1))
                        for b in sizes
                    ],
                }
                if raw_model not in HEADLESS:
                    kinds["head"] = [tuple(by_size[b][-1][:2]) for b in sizes]
                tf32 = raw_gpu in TF32_GPUS and (raw_model, raw_gpu) not in TRUE_FP32
                update = statistics.median(by_size[b][0][2] for b in sizes)
                for kind, pairs in kinds.items():
                    yield {
                        "model": model,
                        "gpu": SAILOR_GPUS[raw_gpu],
                        "precision": "tf32" if tf32 else "fp32",
                        "attention": "eager",
                        "sequence": sequence,
                        "tensor_parallel": tp,
                        "kind": kind,
                        "flops": flops[kind],
                        "microbatch": sizes,
                        "forward": [_round(f) for f, _ in pairs],
                        "backward": None if kind == "embedding" else [_round(b) for _, b in pairs],
                        **({"update": _round(update) if update > 0 else None} if kind == "block" else {}),
                    }


def sailor_collectives(folder: Path) -> Iterable[dict[str, Any]]:
    """The measured all-reduce times, at powers of two of MiB and the largest size of each card."""
    wanted = {2, 4, 8, 16, 32, 64, 128, 152, 256, 512, 592, 1024}
    for path in sorted(folder.glob("*/prim_OPT-350_*gpus.csv")):
        operation, _, count = path.stem.removeprefix("prim_OPT-350_").rpartition("_")
        if operation != "all_reduce":
            continue
        with path.open() as file:
            rows = {int(row["data_size(MB)"]): float(row["time(ms)"]) for row in csv.DictReader(file)}
        sizes = sorted(rows.keys() & wanted)
        yield {
            "gpu": SAILOR_GPUS[path.parent.name],
            "operation": operation,
            "gpus": int(count.removesuffix("gpus")),
            "bytes": [size * MIB for size in sizes],
            "seconds": [_round(rows[size] / 1e3) for size in sizes],
        }


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sailor", type=Path, help="folder with profiles/ and collectives/")
    options = parser.parse_args()
    artifact = {"source": "SOSP '25 Sailor artifact, MIT licence"}
    if options.sailor:
        times = json.loads((options.sailor / "profiles/layer_times.json").read_text())
        head = artifact | {"notes": SAILOR_NOTES}
        (OUT / "sailor.json").write_text(_lines(head, "curves", sailor_curves(times)))
        rows = sailor_collectives(options.sailor / "collectives")
        (OUT / "collectives.json").write_text(_lines(artifact, "collectives", rows))


if __name__ == "__main__":
    main()
