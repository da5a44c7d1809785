"""The same training in one process: transformers' own class, torch's own optimizer, the whole global batch at once."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
import transformers

from hulk.io.jobs_file import load_jobs
from hulk.runtime.data import Samples, read_tokens
from hulk.runtime.models import BUILDS, draw
from hulk.runtime.slices import list_entries
from hulk.runtime.weights import SeededWeights


def oracle(folder: Path, text: Path, *, steps: int, seed: int, rate: float, decay: float) -> list[float]:
    """The losses of the job in a case's folder."""
    torch.set_num_threads(1)
    job = load_jobs(folder / "jobs.yaml")[0]
    blueprint = draw(job)
    config = copy.deepcopy(blueprint.model.config)
    config._attn_implementation = "eager"  # transformers' own, whatever the runtime has instead
    model = getattr(transformers, BUILDS[blueprint.model_type].model_class)(config).eval()
    weights = SeededWeights(blueprint, seed)
    known = dict(model.named_parameters())
    entries = list_entries(blueprint)
    assert set(known) == {entry.name for entry in entries}
    with torch.no_grad():
        for entry in entries:
            known[entry.name].copy_(weights.get(entry.name, entry.home))
    make = {
        "adamw": lambda: torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay),
        "adam": lambda: torch.optim.Adam(model.parameters(), lr=rate, weight_decay=decay),
        "sgd": lambda: torch.optim.SGD(model.parameters(), lr=rate, weight_decay=decay),
        "momentum": lambda: torch.optim.SGD(model.parameters(), lr=rate, weight_decay=decay, momentum=0.9),
    }
    optimizer = make[str(job.optimizer)]()
    samples = Samples(read_tokens(text, None), blueprint, seed=seed, where="text")
    losses = []
    for step in range(steps):
        batch = samples.batch(step * job.global_batch, job.global_batch)
        inputs = {"input_ids": batch.ids}
        if batch.decoder_ids is not None:
            inputs["decoder_input_ids"] = batch.decoder_ids
        logits = model(**inputs).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses
