"""The bundled network, read with onnxruntime on one thread. A network that cannot be read is no network: a warning says
why, and planning goes on without."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hulk.propose.graph import (
    JOB_FEATURES,
    LINK_FEATURES,
    MAPS,
    NEIGHBOURS,
    PAIR_FEATURES,
    PLACE_FEATURES,
    Graph,
)
from hulk.propose.recipe import HEADS, Head

if TYPE_CHECKING:
    import onnxruntime

Array = NDArray[np.float32]
FILE, CARD = "network.onnx", "network.json"
FORMAT = 3
"""Counts up whenever features change their meaning: an older network would read them wrongly."""
OUTPUTS = ["shares", "amounts", "recipes", "beside"]
_SHAPES: Mapping[str, tuple[int | None, ...]] = {
    "place": (1, None, PLACE_FEATURES),
    "job": (1, None, JOB_FEATURES),
    "pair": (1, None, None, PAIR_FEATURES),
    "neighbour": (1, None, NEIGHBOURS),
    "link": (1, None, NEIGHBOURS, LINK_FEATURES),
    "maps": (1, MAPS, None, None),
    "worth": (1, None, None, 2),
    "known": (None, None, None),
}


class Answer(NamedTuple):
    """What the network says of S plans known in part."""

    shares: Array  # [S, P, J + 1] log shares: what the rest of each class should be
    amounts: Array  # [S, P, J + 1] how much of the rest an owner takes if it takes any
    recipes: Array  # [S, J, values of all heads] logits of the recipes that suit the groups
    beside: Array  # [S, P, P] logits that two classes follow each other in a pipeline, if one job has both
    heads: Sequence[Head] = HEADS  # what the logits of recipes are about, one head after the other


class Proposing(Protocol):
    """Whatever completes plans that are known in part: the shipped network, or one in training."""

    def run(self, graph: Graph, known: NDArray[np.floating[Any]]) -> Answer:
        """How S plans known in part, [S, P, J + 1] shares of each class (last column: idle), should go on."""


@dataclass(frozen=True)
class Network:
    """A network ready to run, and its model card."""

    session: onnxruntime.InferenceSession
    card: Mapping[str, Any]
    heads: Sequence[Head]

    def run(self, graph: Graph, known: NDArray[np.floating[Any]]) -> Answer:
        """See `Proposing`."""
        fed: dict[str, NDArray[Any]] = {
            name: getattr(graph, name)[None] for name in ("place", "job", "pair", "neighbour", "link", "maps", "worth")
        }
        fed["known"] = known.astype(np.float32)
        shares, amounts, recipes, beside = self.session.run(None, fed)
        return Answer(shares, amounts, recipes, beside, self.heads)


def load_network(folder: Path) -> Network | None:
    """The network of a folder with network.onnx and network.json; None with a warning where it cannot be used."""
    try:
        return _load(folder)
    except _UnusableError as reason:
        warnings.warn(f"no graph network: {reason}; planning goes on without it", RuntimeWarning, stacklevel=2)
        return None


@cache
def bundled_network() -> Network | None:
    """The network that comes with Hulk, read once; None, with one warning, where it cannot be used."""
    return load_network(Path(str(resources.files("hulk.propose"))) / "data")


class _UnusableError(Exception):
    """Why a network cannot be used."""


def _load(folder: Path) -> Network:
    try:
        data = (folder / FILE).read_bytes()
        card = json.loads((folder / CARD).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _UnusableError(f"cannot read {folder / FILE} with its card {CARD} ({type(error).__name__})") from None
    if not isinstance(card, dict) or card.get("format") != FORMAT:
        raise _UnusableError(f"{folder / CARD} is not of format {FORMAT}")
    if card.get("sha256") != hashlib.sha256(data).hexdigest():
        raise _UnusableError(f"{folder / FILE} is not the file its card {CARD} describes (sha256 differs)")
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # else it reports to its maker and leaves a file in /tmp
    try:
        import onnxruntime
    except ImportError:
        raise _UnusableError("onnxruntime is not installed") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises many kinds, none of them public
        raise _UnusableError(f"onnxruntime cannot read {folder / FILE} ({type(error).__name__})") from None
    _check_shapes(session, folder / FILE)
    return Network(session, card, _heads(session, card, folder / CARD))


def _heads(session: onnxruntime.InferenceSession, card: Mapping[str, Any], path: Path) -> tuple[Head, ...]:
    """The heads that a card lists, as many values as the network has logits for."""
    try:
        heads = tuple(Head(str(name), tuple(values)) for name, values in card["heads"])
    except (KeyError, TypeError, ValueError):
        raise _UnusableError(f"{path} does not list the heads") from None
    logits = session.get_outputs()[OUTPUTS.index("recipes")].shape[-1]
    if sum(len(head.values) for head in heads) != logits:
        raise _UnusableError(f"the heads in {path} are not those of the network")
    return heads


def _check_shapes(session: onnxruntime.InferenceSession, path: Path) -> None:
    found = {each.name: each.shape for each in session.get_inputs()}
    for name, wanted in _SHAPES.items():
        shape = found.get(name)
        if shape is None or len(shape) != len(wanted):
            raise _UnusableError(f"{path} has no input {name!r} of {len(wanted)} dimensions")
        if any(size is not None and size != given for size, given in zip(wanted, shape, strict=True)):
            raise _UnusableError(f"the input {name!r} of {path} has the shape {shape}, not {list(wanted)}")
    if [each.name for each in session.get_outputs()] != OUTPUTS:
        raise _UnusableError(f"{path} does not give {', '.join(OUTPUTS)}")
