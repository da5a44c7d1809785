"""The tests' own launcher: a rank that dies is told of, whatever the others do."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from start import run_ranks

PROGRAM = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from start import be_ranks

def main(store):
    if os.environ["RANK"] == sys.argv[1]:
        os.abort()
    store.set(os.environ["RANK"], "here")
    store.wait(sys.argv[2:])

be_ranks(main)
"""


def test_a_rank_that_dies_in_native_code_is_named(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with pytest.raises(AssertionError, match=r"Fatal Python error: Aborted(?s:.*)rank 2 ended with -6"):
        run_ranks(program, "2", "0", "1", "2", ranks=3, limit=180)
