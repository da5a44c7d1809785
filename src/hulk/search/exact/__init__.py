"""The exact solver of small cases."""

from __future__ import annotations

from hulk.search.exact.job import count_pipelines, solve_exactly

__all__ = ["count_pipelines", "solve_exactly"]
