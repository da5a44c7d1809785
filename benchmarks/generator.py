"""Irregular clusters with jobs, drawn by seed: see `hulk.gnn.generator`."""

from __future__ import annotations

from hulk.gnn.generator import irregular

__all__ = ["irregular"]
