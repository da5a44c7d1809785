"""Benchmarks are plain scripts in a folder of their own; their checks run here with the same bounds."""

import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# A shell that starts the suite in the background lets it ignore Ctrl-C, and so would all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

settings.register_profile("fixed", derandomize=True)  # the same cases in every run
settings.load_profile("fixed")

LONG = (
    "test_promises", "test_baselines", "test_losses", "test_run", "test_tutorial", "test_unchecked", "test_exact",
    "test_bounds", "test_planner", "test_planning", "test_training", "test_replan_properties", "test_run_promises",
    "test_compare", "test_page", "test_serve", "test_browser",
    "test_plan_cli", "test_simulate", "test_options", "test_search_prices", "test_output", "test_seeds",
    "test_compiled", "test_validate",
)  # fmt: skip
"""Files that take long: they begin first, so that of the processes that run tests none is left with one at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, the others in their own order."""
    place = {name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: place.get(item.path.stem, len(LONG)))
