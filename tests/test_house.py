"""Rules of the house that no other tool checks: short files, functions with few arguments, nothing written twice."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src" / "hulk").rglob("*.py"))
OTHERS = sorted(path for folder in ("tests", "benchmarks", "docs") for path in (ROOT / folder).rglob("*.py"))
MOST_LINES, MOST_ARGUMENTS, MOST_TWICE = 400, 8, 12


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    given = function.args
    named = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return [name for name in named if name not in ("self", "cls")]


def test_no_file_is_long() -> None:
    long = {
        path.name: count for path in (*SOURCES, *OTHERS) if (count := len(path.read_text().splitlines())) > MOST_LINES
    }
    assert not long


def test_no_function_has_many_arguments_outside_the_command_line() -> None:
    found = {
        f"{path.relative_to(ROOT)} {function.name}": len(arguments(function))
        for path in SOURCES
        if "cli" not in path.parts
        for function in functions(path)
        if len(arguments(function)) > MOST_ARGUMENTS
    }
    assert not found


def test_no_dozen_lines_are_written_twice() -> None:
    seen: dict[tuple[str, ...], str] = {}
    twice = []
    for path in SOURCES:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
        told = [(number, line) for number, line in enumerate(lines, 1) if line and not line.startswith("#")]
        for i in range(len(told) - MOST_TWICE + 1):
            run = tuple(line for _, line in told[i : i + MOST_TWICE])
            here = f"{path.relative_to(ROOT)}:{told[i][0]}"
            if run in seen and not all(line.startswith(("from ", "import ")) for line in run):
                twice.append((seen[run], here))
            seen.setdefault(run, here)
    assert not twice


def test_modules_of_tests_and_benchmarks_have_names_of_their_own() -> None:
    # Tests import each other's modules, and the benchmarks', by their bare names: of two alike, one hides the other.
    files = [path for folder in ("tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    names = Counter(path.name for path in files if "golden" not in path.parts and path.name != "conftest.py")
    assert [name for name, times in names.items() if times > 1] == []
