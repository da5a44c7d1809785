"""A run that needs more memory than there is ends with what a person needs to know, not with where torch was."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("torch")

from command import TWO, arguments, finish, start

FAILING = """
import sys
if "hulk.runtime.worker" in sys.orig_argv:
    import torch
    def log_softmax(*given, **options):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3.07 GiB.")
    torch.log_softmax = log_softmax
"""
"""Python runs this before anything else: the last stage's loss finds no memory."""


def test_says_where_how_much_and_what_to_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(FAILING)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")]))
    code, _, errors = finish(start(arguments(TWO, tmp_path / "case", "--steps", "2")), seconds=150)
    assert code == 1
    last = errors.strip().splitlines()[-1]
    assert "oslo-1 (rank 1, GPU 0, stage 1.2) ran out of memory in step 1: 1." in last and "GiB predicted" in last
    assert "smaller microbatches, recomputation or more headroom (hulk plan --headroom)" in last
    assert "failed to run forward" not in errors
