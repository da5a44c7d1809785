"""Time the layers of transformers on the GPU of this machine, as JSON lines.

    python measure_layers.py --gpu h200 --out layers.jsonl [--seconds 330] [--models gpt2-xl,...] [--device cpu --tiny]

Needs torch and transformers, and nothing of Hulk, so that it can be copied to any machine. A model is built with one
block and with several; the difference of the two, divided, is one block as it runs in the middle of a model, without
embedding and head, with launches overlapping as they do in training. Train mode with the model's own dropout, random
inputs, weights and gradients in the precision named (fp32 for tf32), gradients not accumulated. A row:

    gpu, model, kind, precision, attention (fused: PyTorch's sdpa), microbatch, sequence, tensor_parallel (1),
    forward_s, backward_s       seconds, the median of several
    held_bytes                  what the layer keeps from forward to backward

`kind` is block, head (final norm, logits, cross-entropy), embedding, or update (fused AdamW on `params` parameters,
seconds in forward_s). The order is fixed; what does not fit into memory or into --seconds is left out.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import AutoConfig, AutoModel, T5EncoderModel

BLOCKS = 4  # timed together, after the time of one
WARM_UP, LEAST, MOST, CASE_SECONDS = 2, 3, 12, 0.15

MODELS: dict[str, dict[str, Any]] = {
    "gpt2-xl": {"model_type": "gpt2", "n_embd": 1600, "n_head": 25},
    "opt-350m": {
        "model_type": "opt",
        "hidden_size": 1024,
        "ffn_dim": 4096,
        "num_attention_heads": 16,
        "do_layer_norm_before": False,
    },
    "gpt-neo-2.7b": {"model_type": "gpt_neo", "hidden_size": 2560, "num_heads": 20},
    "opt-30b": {"model_type": "opt", "hidden_size": 7168, "ffn_dim": 28672, "num_attention_heads": 56},
    "llama-3-8b": {
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
    "bert-large": {
        "model_type": "bert",
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_attention_heads": 16,
    },
    "t5-11b": {"model_type": "t5", "d_model": 1024, "d_kv": 128, "num_heads": 128, "d_ff": 65536},
}
VOCABULARIES = {"gpt2-xl": 50257, "opt-30b": 50272, "llama-3-8b": 128256, "bert-large": 30522}
SEQUENCES = {"bert-large": (256, 512), "gpt2-xl": (512, 1024), "t5-11b": (512, 1024), "llama-3-8b": (1024, 2048, 4096)}
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "tf32": torch.float32}
ATTENTION = {"fused": "sdpa", "eager": "eager"}
TINY = {"hidden_size": 64, "num_attention_heads": 2, "num_heads": 2, "n_embd": 64, "n_head": 2, "d_model": 64} | {
    "ffn_dim": 128, "intermediate_size": 128, "num_key_value_heads": 1, "d_kv": 32, "d_ff": 128
}  # fmt: skip

Pass = Callable[[], torch.Tensor]


def use(precision: str) -> None:
    """Have fp32 products run on the CUDA cores, or on the TF32 unit."""
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")


def build(name: str, blocks: int, *, attention: str, precision: str, device: str, tiny: bool) -> nn.Module:
    """The model with that many blocks and a vocabulary of 64."""
    shape = dict(MODELS[name])
    if tiny:
        shape |= {key: value for key, value in TINY.items() if key in shape}
    counts = {"gpt2": "n_layer", "gpt_neo": "num_layers", "t5": "num_layers"}
    shape[counts.get(shape["model_type"], "num_hidden_layers")] = blocks
    positions = {"gpt2": "n_positions", "t5": "n_positions"}.get(shape["model_type"], "max_position_embeddings")
    shape |= {"vocab_size": 64, positions: 8192, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    if shape["model_type"] == "opt":
        shape["word_embed_proj_dim"] = shape["hidden_size"]
    if shape["model_type"] == "gpt_neo":
        shape["attention_types"] = [[["global"], blocks]]
    config = AutoConfig.for_model(**shape, use_cache=False)
    config._attn_implementation = ATTENTION[attention]
    with torch.device(device):
        model = (
            T5EncoderModel._from_config(config)
            if shape["model_type"] == "t5"
            else AutoModel.from_config(config, attn_implementation=ATTENTION[attention])
        )
    return model.to(DTYPES[precision]).train()


def seconds(forward: Pass, parameters: list[torch.Tensor], device: str) -> tuple[float, float, float]:
    """Median seconds of forward and backward, and the bytes kept between them."""
    cuda = device == "cuda"

    def mark() -> Any:
        if not cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(start: Any, end: Any) -> float:
        return start.elapsed_time(end) / 1e3 if cuda else end - start

    def once() -> tuple[Any, Any, Any]:
        for parameter in parameters:
            parameter.grad = None
        start = mark()
        output = forward()
        middle = mark()
        output.backward(torch.ones_like(output))
        return start, middle, mark()

    def wait() -> None:
        if cuda:
            torch.cuda.synchronize()

    held = 0.0
    for _ in range(WARM_UP):
        once()
    if cuda:
        wait()
        before = torch.cuda.memory_allocated()
        kept = forward()
        held = torch.cuda.memory_allocated() - before
        del kept
    wait()
    began = time.perf_counter()
    once()
    wait()
    each = time.perf_counter() - began
    marks = [once() for _ in range(int(min(MOST, max(LEAST, CASE_SECONDS / each))))]
    wait()
    halves = [(between(a, b), between(b, c)) for a, b, c in marks]
    return statistics.median(f for f, _ in halves), statistics.median(b for _, b in halves), held


def block_rows(name: str, precision: str, attention: str, cases: list[tuple[int, int]], options: Any) -> Iterator[Any]:
    """One row for each (sequence, microbatch)."""
    use(precision)
    make = {"attention": attention, "precision": precision, "device": options.device, "tiny": options.tiny}
    models = [build(name, blocks, **make) for blocks in (1, 1 + BLOCKS)]
    for sequence, microbatch in cases:
        if time.monotonic() > options.deadline:
            return
        results = []
        for model in models:
            hidden = model.config.hidden_size
            inputs = torch.randn(microbatch, sequence, hidden, device=options.device, dtype=DTYPES[precision])
            inputs.requires_grad_()
            try:
                forward = lambda model=model, inputs=inputs: model(inputs_embeds=inputs).last_hidden_state  # noqa: E731
                results.append(seconds(forward, [inputs, *model.parameters()], options.device))
            except torch.OutOfMemoryError:
                break
            finally:
                del inputs
                gc.collect()
                if options.device == "cuda":
                    torch.cuda.empty_cache()
        if len(results) == 2:
            forward_s, backward_s, held = ((many - one) / BLOCKS for one, many in zip(*results, strict=True))
            yield {
                "kind": "block",
                "model": name,
                "precision": precision,
                "attention": attention,
                "sequence": sequence,
                "microbatch": microbatch,
                "forward_s": forward_s,
                "backward_s": backward_s,
                "held_bytes": held,
            }


def end_rows(name: str, precision: str, sequence: int, microbatch: int, options: Any) -> Iterator[Any]:
    """Head (norm, logits, fp32 cross-entropy) and embedding."""
    use(precision)
    shape, device, dtype = MODELS[name], options.device, DTYPES[precision]
    hidden = 64 if options.tiny else shape.get("hidden_size") or shape.get("n_embd")
    vocabulary = 128 if options.tiny else VOCABULARIES[name]
    norm, logits = (
        layer.to(device, dtype) for layer in (nn.LayerNorm(hidden), nn.Linear(hidden, vocabulary, bias=False))
    )
    table = nn.Embedding(vocabulary, hidden).to(device, dtype)
    tokens = torch.randint(vocabulary, (microbatch, sequence), device=device)
    inputs = torch.randn(microbatch, sequence, hidden, device=device, dtype=dtype, requires_grad=True)
    row = {"model": name, "precision": precision, "attention": "fused", "sequence": sequence, "microbatch": microbatch}
    passes: dict[str, tuple[Pass, list[torch.Tensor]]] = {
        "head": (
            lambda: functional.cross_entropy(logits(norm(inputs)).flatten(0, 1).float(), tokens.flatten()),
            [inputs, *norm.parameters(), *logits.parameters()],
        ),
        "embedding": (lambda: table(tokens), list(table.parameters())),
    }
    for kind, (forward, parameters) in passes.items():
        forward_s, backward_s, held = seconds(forward, parameters, device)
        yield row | {"kind": kind, "forward_s": forward_s, "backward_s": backward_s, "held_bytes": held}


def update_row(name: str, options: Any) -> dict[str, Any]:
    """A fused AdamW step on fp32 weights."""
    model = build(name, BLOCKS, attention="eager", precision="fp32", device=options.device, tiny=options.tiny)
    parameters = [p for p in model.parameters() if p.requires_grad]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer = torch.optim.AdamW(parameters, fused=True)

    def timed() -> float:
        if options.device == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        optimizer.step()
        if options.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - began

    count = sum(p.numel() for p in parameters)
    times = [timed() for _ in range(8)][3:]
    return {
        "kind": "update",
        "model": name,
        "precision": "fp32",
        "params": count,
        "forward_s": statistics.median(times),
    }


def other_rows(options: Any) -> Iterator[dict[str, Any]]:
    """Updates, heads and embeddings."""
    for name in ("gpt-neo-2.7b", "opt-350m"):
        yield update_row(name, options)
    for name, precision, (sequence, microbatch) in itertools.product(
        VOCABULARIES, ("bf16", "tf32"), ((512, 1), (512, 4), (1024, 4))
    ):
        if name != "bert-large" or sequence == 512:
            yield from end_rows(name, precision, 64 if options.tiny else sequence, microbatch, options)


def groups(options: Any) -> list[tuple[str, str, str]]:
    """(model, precision, attention), shuffled with a fixed seed so that a run cut short has seen some of each."""
    names = options.models.split(",") if options.models else list(MODELS)
    every = list(itertools.product(names, options.precisions.split(","), options.attentions.split(",")))
    random.Random(0).shuffle(every)
    return every


def rows(options: Any) -> Iterator[dict[str, Any]]:
    """All rows, the most telling first."""
    if not options.blocks_only:
        yield from other_rows(options)
    longest = {"fp32": 6e13, "tf32": 2.5e14, "bf16": 6e14, "fp16": 6e14}  # FLOPs of a case that fit a second or so
    for microbatches in ((1, 4), (2, 16), (8,)):
        for name, precision, attention in groups(options):
            hidden = MODELS[name].get("hidden_size") or MODELS[name].get("n_embd") or 4096
            lengths = (64,) if options.tiny else SEQUENCES.get(name, (512, 1024, 2048))
            cases = [
                (sequence, microbatch)
                for sequence, microbatch in itertools.product(lengths, microbatches)
                if 6 * 14 * hidden**2 * sequence * microbatch * (2 + BLOCKS) < longest[precision] * 0.5
            ]
            try:
                yield from block_rows(name, precision, attention, cases, options)
            except (ValueError, torch.OutOfMemoryError) as error:  # no sdpa for this model, say
                print(f"{name} {precision} {attention}: {error}", flush=True)
            gc.collect()
            if options.device == "cuda":
                torch.cuda.empty_cache()


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", required=True, help="catalogue name of this machine's GPU")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=330.0)
    parser.add_argument("--models", default="")
    parser.add_argument("--precisions", default=",".join(DTYPES))
    parser.add_argument("--attentions", default=",".join(ATTENTION))
    parser.add_argument("--blocks-only", action="store_true", help="neither heads, embeddings nor updates")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="widths of 64, to try the script")
    options = parser.parse_args()
    options.deadline = time.monotonic() + options.seconds
    torch.manual_seed(0)
    count = 0
    with options.out.open("w") as file:
        for row in rows(options):
            file.write(json.dumps({"gpu": options.gpu, "tensor_parallel": 1} | row) + "\n")
            file.flush()
            count += 1
            if count % 25 == 0:
                left = options.deadline - time.monotonic()
                print(f"{count} rows, {left:.0f} s left", flush=True)
            if time.monotonic() > options.deadline:
                break


if __name__ == "__main__":
    main()
