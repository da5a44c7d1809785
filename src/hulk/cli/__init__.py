"""The command line: one verb a file, each a thin edge around functions that return values."""

from __future__ import annotations

from hulk.cli.app import main

__all__ = ["main"]
