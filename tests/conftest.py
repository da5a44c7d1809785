"""Benchmarks are plain scripts in a folder of their own; their checks run here with the same bounds."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
