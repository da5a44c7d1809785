"""Benchmarks are plain scripts in a folder of their own; their checks run here with the same bounds."""

import signal
import sys
from pathlib import Path

from hypothesis import settings

# A shell that starts the suite in the background lets it ignore Ctrl-C, and so would all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

settings.register_profile("fixed", derandomize=True)  # the same cases in every run
settings.load_profile("fixed")
