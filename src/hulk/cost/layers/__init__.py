"""From an architecture to layers with their costs: parameters, FLOPs, activations, memory traffic.

Reading order: `part` (what is counted), `operations` (single operations), `attention` and `feedforward` (the halves of
a block), `ends` (embedding and head), `build` (the whole model).
"""

from __future__ import annotations

from hulk.cost.layers.build import build_model

__all__ = ["build_model"]
