"""Compiled code is never stale, and its absence never an error."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

import hulk
from hulk.cost.arrays import durations_for, empty_durations
from hulk.cost.compiled import compiled_sources
from hulk.cost.step import Encoded
from hulk.domain.options import SPACE
from hulk.search.price_cache import empty_cache, key_of

PACKAGE = Path(hulk.__file__).parent
DECORATORS = {"kernel", "lean", "inner", "maker", "inlined"}
ASK = """
from hulk.cost.compiled import cache_folder, is_cached
from hulk.search.late import late_part
print(cache_folder(), is_cached(late_part), late_part(3.0, 2.0))
"""


def ask(package: Path, **environment: str) -> list[str]:
    """Folder of compiled code, whether `late_part` was there, and what it says, in a new process."""
    inherited = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        env={**inherited, "PYTHONPATH": str(package.parent), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_an_edit_anywhere_in_compiled_code_uses_another_folder(tmp_path):
    """The function that changes is in another file than the one that is asked: numba itself would not see it."""
    package = tmp_path / "src" / "hulk"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__", "data"))
    home = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    first, again = ask(package, **home), ask(package, **home)
    assert first[1:] == ["False", again[2]]
    assert again[:2] == [first[0], "True"]
    late = package / "search" / "late.py"
    late.write_text(late.read_text().replace("_STEP, _SLOPE = 0.1", "_STEP, _SLOPE = 0.5"))
    changed = ask(package, **home)
    assert changed[0] != first[0]
    assert float(changed[2]) == pytest.approx(float(first[2]) + 0.4)
    step = package / "cost" / "pipeline.py"
    step.write_text(step.read_text() + "\n# another\n")
    assert ask(package, **home)[0] not in (first[0], changed[0])


@pytest.mark.parametrize("home", [{"NUMBA_CACHE_DIR": "/proc/nowhere", "HOME": "/proc/nowhere"}, {"HOME": "/dev/null"}])
def test_without_a_writable_cache_a_folder_is_used_that_goes_again(home):
    home.setdefault("XDG_CACHE_HOME", "/dev/null/cache")
    folder, cached, value = ask(PACKAGE, **home)
    assert cached == "False"
    assert float(value) > 0
    assert not Path(folder).exists()


def test_compiled_functions_use_no_code_or_constants_of_files_that_are_not_digested():
    """Names that a compiled function takes from another file of Hulk come from a compiled source."""
    sources = set(compiled_sources())
    checked = 0
    for source in sources:
        tree = ast.parse(source.read_text())
        foreign = {}
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("hulk."):
                file = PACKAGE.parent.joinpath(*node.module.split(".")).with_suffix(".py")
                if file not in sources:
                    foreign.update({alias.asname or alias.name: file for alias in node.names})
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and any(
                isinstance(each, ast.Name) and each.id in DECORATORS for each in node.decorator_list
            ):
                checked += 1
                used = {name.id for part in node.body for name in ast.walk(part) if isinstance(name, ast.Name)}
                assert not used & set(foreign), (source, node.name)
    assert checked > 80


def test_keys_of_remembered_prices_tell_small_plans_apart():
    """Every way to put up to four slots of two degrees into pipelines, with many options: a key is one plan's."""
    memo, seen = empty_cache(2), {}
    drawn = np.random.default_rng(0)
    every = [[choice.code_of(value) for value in choice.values] for choice in SPACE]
    plans = []
    for count in range(1, 5):
        for cuts in range(1 << (count - 1)):
            starts = [0, *(i + 1 for i in range(count - 1) if cuts >> i & 1), count]
            plans += [(starts, [kinds >> i & 1 for i in range(count)]) for kinds in range(1 << count)]
    keyed = 0
    for starts, kinds in plans:
        n = len(kinds)
        zeros = np.zeros(n, np.int64)
        encoded = Encoded(
            np.array(starts), zeros, zeros, np.array(kinds), zeros + 1, zeros, zeros,
            np.ones(len(starts) - 1, np.int64), zeros, np.zeros(len(SPACE), np.int64), zeros,
        )  # fmt: skip
        for codes in {tuple(int(drawn.choice(codes)) for codes in every) for _ in range(400)}:
            encoded.options[:] = codes
            key = int(key_of(memo, encoded, 0))
            assert seen.setdefault(key, (starts, kinds, codes)) == (starts, kinds, codes)
            keyed += 1
    assert len(seen) == keyed


def test_room_made_by_compiled_code_is_of_the_type_that_python_makes():
    """Of another type, say arrays not known to be contiguous, and all that is handed it would be compiled twice."""

    @numba.njit
    def room(stages):
        return durations_for(stages)

    room.compile((numba.int64,))
    (found,) = room.nopython_signatures
    assert found.return_type == numba.typeof(empty_durations(3))


LOADED = """
from hulk.planner import load_compiled
load_compiled()
from hulk.cost import play, step
from hulk.search import fit, refine
from hulk.search.assignment import anneal
from hulk.search.shape import anneal as polishing
kernels = play.run, step.durations, step.seconds_of, fit.fit, refine.refine, anneal.improve, polishing.polish
print([kernel.__name__ for kernel in kernels if not kernel.signatures])
"""


def test_a_search_has_all_that_takes_long_to_compile_before_its_time_begins():
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, timeout=400, check=True)
    assert done.stdout.strip() == "[]"
