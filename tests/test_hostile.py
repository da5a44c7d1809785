"""Some of the cases of benchmarks/hostile.py, and that it would see what it looks for."""

from __future__ import annotations

import pytest

import hostile
from hostile_cases import Case


def test_sixty_hostile_cases() -> None:
    hostile.warm_up()
    result = hostile.try_cases(seed=1, indices=range(60))
    assert result["cases"] == 60
    assert result["failures"] == []
    assert len(result["kinds"]) > 6


FINE = hostile.Done(status=0, seconds=1.0, stdout=b"{}\n", stderr=b"")


@pytest.mark.parametrize(
    ("trouble", "done", "after", "case"),
    [
        ("", {}, {}, {}),
        ("tracebacks", {"stderr": b"Traceback (most recent call last):\nKeyError"}, {}, {}),
        ("tracebacks", {"stderr": b"error: a fault in hulk itself: x", "status": 256}, {}, {}),
        ("signals", {"status": 11}, {}, {}),
        ("exit_codes", {"status": 120 * 256, "stderr": b"x"}, {}, {}),
        ("exit_codes", {"status": 2 * 256, "stdout": b""}, {}, {}),
        ("slow", {"seconds": 21.0}, {}, {}),
        ("slow", {"status": 9, "waited": True}, {}, {}),
        ("raw_control", {"stdout": b"a\x1b[31m"}, {}, {}),
        ("raw_control", {"stderr": "\u202e".encode()}, {}, {}),
        ("overwritten", {}, {"in.yaml": "other"}, {}),
        ("overwritten", {"status": 2 * 256}, {"old.json": "other"}, {"output": "old.json"}),
        ("", {}, {"old.json": "other"}, {"output": "old.json"}),
        ("left_behind", {}, {"new.json": "x"}, {}),
        ("left_behind", {"status": 2 * 256}, {"new.json": "x"}, {"output": "new.json"}),
        ("not_json", {"stdout": b"{'a': 1}"}, {}, {"argv": ["price", "--json"]}),
        ("lost", {"stdout": b""}, {}, {"stream": "full"}),
    ],
)
def test_trouble_is_seen(trouble: str, done: dict, after: dict, case: dict) -> None:
    before = {"in.yaml": "digest", "old.json": "digest"}
    given = Case(**{"kind": "x", "argv": ["show"], "files": {}} | case)
    found = hostile.troubles(given, hostile.Done(**{**vars(FINE), **done}), before, before | after)
    assert list(found) == ([trouble] if trouble else [])
