"""A trained network as ONNX, with its model card."""

from __future__ import annotations

import hashlib
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import onnx
import torch

from hulk.gnn.model import INPUTS, Proposer
from hulk.propose.graph import JOB_FEATURES, LINK_FEATURES, MAPS, NEIGHBOURS, PAIR_FEATURES, PLACE_FEATURES
from hulk.propose.network import CARD, FILE, FORMAT, OUTPUTS
from hulk.propose.recipe import HEADS

_OPSET = 18


def export(model: Proposer, folder: Path, *, card: Mapping[str, object]) -> Path:
    """Write network.onnx and network.json into a folder. `card` says what it was trained on and how good it is."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    model = model.cpu().eval()
    batch, places, jobs = (torch.export.Dim(name, min=1) for name in ("samples", "places", "jobs"))
    shapes = {
        "place": {1: places},
        "job": {1: jobs},
        "pair": {1: places, 2: jobs},
        "neighbour": {1: places},
        "link": {1: places},
        "maps": {2: places, 3: places},
        "worth": {1: places, 2: jobs},
        "known": {0: batch, 1: places, 2: jobs + 1},
    }
    with torch.no_grad(), _quiet():
        program = torch.onnx.export(
            model,
            example_inputs(),
            dynamo=True,
            input_names=list(INPUTS),
            output_names=OUTPUTS,
            dynamic_shapes=shapes,
            opset_version=_OPSET,
            external_data=False,
            verbose=False,
        )
    assert program is not None
    proto = program.model_proto
    _strip(proto)
    path.write_bytes(proto.SerializeToString(deterministic=True))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    facts = {
        "format": FORMAT,
        "sha256": digest,
        "heads": HEADS,
        "parameters": sum(p.numel() for p in model.parameters()),
    }
    text = json.dumps({**facts, **card}, indent=2) + "\n"
    (folder / CARD).write_text(text, encoding="utf-8")
    return path


def _strip(proto: onnx.ModelProto) -> None:
    """In place: take out where in the source each operation comes from, which is most of the file."""
    graphs = [proto.graph, *proto.functions]
    for graph in graphs:
        graph.ClearField("metadata_props")
        graph.ClearField("doc_string")
        graph.ClearField("value_info")
        for node in graph.node:
            node.ClearField("metadata_props")
            node.ClearField("doc_string")
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.initializer):
        value.ClearField("metadata_props")
    proto.ClearField("metadata_props")


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's remarks on names of axes and on packages that are not installed."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


def example_inputs(samples: int = 3, places: int = 17, jobs: int = 5) -> tuple[torch.Tensor, ...]:
    """Inputs of the right shapes, to trace with."""
    draw = torch.Generator().manual_seed(0)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=draw)

    known = uniform(samples, places, jobs + 1)
    return (
        uniform(1, places, PLACE_FEATURES),
        uniform(1, jobs, JOB_FEATURES),
        uniform(1, places, jobs, PAIR_FEATURES),
        torch.randint(0, places, (1, places, NEIGHBOURS), generator=draw),
        uniform(1, places, NEIGHBOURS, LINK_FEATURES),
        uniform(1, MAPS, places, places),
        uniform(1, places, jobs, 2),
        known / (2 * known.sum(dim=-1, keepdim=True)),
    )
