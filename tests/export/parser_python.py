"""The Python that has the targets' parsers: `make parsers` makes it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PYTHON = Path(os.environ.get("HULK_PARSERS", ROOT / ".venv-parsers" / "bin" / "python"))

needs_parsers = pytest.mark.skipif(not PYTHON.exists(), reason="`make parsers` installs the targets' parsers")
