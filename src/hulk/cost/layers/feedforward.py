"""The feed-forward half of a block: plain, gated, or a mixture of experts.

Units: elements, per sample. With s = sequence and f = feed-forward width, held beside the input (split over tensor
parallel): relu s·f, gelu 2·s·f (its input too), gated 4·s·f (gate, act(gate), up, their product).
"""

from __future__ import annotations

from dataclasses import replace

from hulk.cost.layers.operations import activation, product, split_dropout
from hulk.cost.layers.part import NOTHING, Part, total
from hulk.domain.architecture import Architecture
from hulk.domain.model import Split

EXPERT_KERNELS = 10
"""Launches for one expert beside its products and activation: find its tokens, gather, weigh and add up the results."""


def feedforward(architecture: Architecture, rows: int) -> Part:
    """The feed-forward of one block for `rows` tokens."""
    if architecture.experts:
        return _experts(architecture, rows)
    return _mlp(architecture, rows)


def feedforward_moment(architecture: Architecture, rows: float) -> float:
    """What its backward pass needs for a moment: gradients of the activation's output and input; relu's own output is
    still held then, gelu's is not. With a gate there are three, for the output that is not held any more."""
    times = 2 if architecture.gated or not architecture.activation_keeps_input else 1
    return times * rows * max(architecture.ffn * max(1, architecture.experts_per_token), architecture.shared_ffn)


def _mlp(architecture: Architecture, rows: float, *, copies: int = 1) -> Part:
    """`copies` feed-forwards side by side with `rows` tokens each."""
    hidden, ffn, bias = architecture.hidden, architecture.ffn, architecture.ffn_bias
    inner = rows * ffn * copies
    drop = architecture.inner_dropout
    first = (2 if architecture.gated else 1) * ffn
    # relu's output serves its own backward and the next product's. Dropout after it makes two tensors of it; after a
    # gate the multiplication keeps it (below) in any case.
    parted = drop > 0.0 and not architecture.gated
    return total(
        (
            product(rows, hidden, first, split=Split.COLUMNS, bias=bias, batch=copies),
            activation(inner, holds=architecture.activation_keeps_input or parted),
            _gate(inner, clamped=architecture.clamped_gate) if architecture.gated else NOTHING,
            split_dropout(inner, drop),
            product(rows, ffn, hidden, split=Split.INNER, bias=bias, batch=copies),
        )
    )


def _gate(inner: float, *, clamped: bool) -> Part:
    """act(gate) * up: both are held; two reads and a write. In one kernel with the activation there is no act(gate).

    Clamped, gate and up are also held as they were before; the activation gate * sigmoid(a * gate) is three kernels for
    one and holds the sigmoid, and 1 is added to up: 2 clamps (4), a * gate (2), its product with gate (3), up + 1 (2) =
    11 in 5 kernels more, and 3 tensors more, none of them where all is one kernel.
    """
    more, kernels, held = (11, 5, 3) if clamped else (0, 0, 0)
    return Part(
        held_split=(2 + held) * inner,
        moved_split=(3 + more) * inner,
        kernels=1 + kernels,
        spared_split=(2 + more) * inner,
        spared_held_split=(1 + held) * inner,
        spared_kernels=1 + kernels,
    )


def _experts(architecture: Architecture, rows: int) -> Part:
    """A router and its experts, the tokens spread evenly: each expert sees rows · experts_per_token / experts.

    Held, whole: the router's input (s·h) and probabilities (s·experts), the gathered inputs of the experts
    (s·h·experts_per_token, counted by their first product), and their outputs, which the routing weights' gradient
    needs (the same again).
    """
    experts, visits = architecture.experts, architecture.experts_per_token
    hidden = architecture.hidden
    visited = rows * visits * hidden
    choices = rows * experts
    # softmax (2), top-k (1) over the probabilities
    router = product(rows, hidden, experts, split=Split.NONE, bias=architecture.router_bias)
    router += Part(held_whole=choices, moved_whole=3 * choices, kernels=5)
    # gather the inputs (2), weigh the outputs (2), add them to the result (3)
    routing = Part(held_whole=visited, moved_whole=7 * visited, kernels=EXPERT_KERNELS * experts)
    chosen = _mlp(architecture, rows * visits / experts, copies=experts)
    apart = Part(
        experts=experts,
        expert_params=chosen.params_split,
        visits=visited,
        expert_kernels=EXPERT_KERNELS * experts,
    )
    return router + routing + chosen + apart + _shared(architecture, rows)


def _shared(architecture: Architecture, rows: int) -> Part:
    """The feed-forward that every token visits beside its experts. Its input is the router's, which counts it as held.
    A gate keeps what it multiplies (s·h) and moves it (a read, a write) with the sigmoid of one number a token."""
    if not architecture.shared_ffn:
        return NOTHING
    elements = rows * architecture.hidden
    plain = replace(architecture, ffn=architecture.shared_ffn, experts=0, experts_per_token=0)
    added = Part(held_whole=-elements, moved_whole=3 * elements, kernels=1)
    gate = NOTHING
    if architecture.shared_gate:
        gate = product(rows, architecture.hidden, 1, split=Split.NONE, holds=False)
        gate += Part(held_whole=elements, moved_whole=2 * elements, kernels=2)
    return _mlp(plain, rows) + gate + added
