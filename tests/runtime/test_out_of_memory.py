"""A run that needs more memory than there is ends with what a person needs to know, not with where torch was."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from command import TWO, arguments, finish, start

FAILING = """
import torch
def log_softmax(*given, **options):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3.07 GiB.")
torch.log_softmax = log_softmax
"""
"""Run before anything else: the last stage's loss finds no memory."""

FULL = """
    cuda = torch.cuda
    cuda.is_available, cuda.current_device = lambda: True, lambda: 0
    cuda.mem_get_info = lambda device: (0, 140 << 30)
    cuda.memory_reserved = cuda.max_memory_reserved = cuda.max_memory_allocated = lambda device: {own} << 30
"""
"""A GPU of 140 GiB that is full then, `own` of it with this rank's tensors."""


def last_words(folder: Path, code_before: str) -> str:
    """The last line of a run that fails so."""
    code, _, errors = finish(start(arguments(TWO, folder, "--steps", "2"), first=code_before), seconds=150)
    assert code == 1
    assert "failed to run forward" not in errors
    return errors.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("own", "reached", "advice"),
    [
        (139, "140 GiB of 140 GiB were in use, 1.", "smaller microbatches, recomputation or more headroom"),
        (38, "38.0 GiB of 140 GiB were in use, and 102 GiB by other processes, 1.", "end what else runs there"),
    ],
)
def test_says_what_was_reached(own: int, reached: str, advice: str, tmp_path: Path) -> None:
    head, raises = FAILING.split("    raise", 1)
    last = last_words(tmp_path, head + FULL.format(own=own) + "    raise" + raises)
    assert f"ran out of memory in step 1: {reached}" in last and "GiB predicted" in last and advice in last


def test_says_where_how_much_and_what_to_change(tmp_path: Path) -> None:
    last = last_words(tmp_path, FAILING)
    assert "oslo-1 (rank 1, GPU 0, stage 1.2) ran out of memory in step 1: 1." in last and "GiB predicted" in last
    assert "smaller microbatches, recomputation or more headroom (hulk plan --headroom)" in last
