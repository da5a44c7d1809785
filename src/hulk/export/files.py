"""What an exporter makes: files by their path within the folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PRIVATE = 0o600
"""The mode of a file that nobody else may read."""


@dataclass(frozen=True, slots=True)
class File:
    """A file's text and its mode."""

    text: str
    mode: int = 0o644


Files = dict[str, File]


def script(text: str) -> File:
    """A file that can be started."""
    return File(text, 0o755)


def as_json(value: Any) -> File:
    """A value as JSON, which is YAML as well: every text in it is quoted."""
    return File(json.dumps(value, indent=2, ensure_ascii=True) + "\n")


def as_yaml(*documents: Mapping[str, Any], head: str = "") -> File:
    """Documents as YAML, in their own order of keys, after a comment."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    parts = [yaml.dump(each, Dumper=dumper, sort_keys=False, allow_unicode=False, width=10_000) for each in documents]
    return File(head + "---\n".join(parts))
