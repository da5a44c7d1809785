"""Compile what most tests need, so that test processes side by side do not all do it."""

import sys
from pathlib import Path

from hulk.cost.compute import ComputeModel
from hulk.io.cluster_file import load_cluster
from hulk.io.jobs_file import load_jobs
from hulk.io.profiles import bundled_profiles
from hulk.planner import plan_in_parallel
from hulk.search.budget import Effort
from hulk.search.request import Request

request = Request(load_cluster("mixed-rtx"), load_jobs("paper4")[-1:], ComputeModel(bundled_profiles()))
plan_in_parallel(request, Effort(workers=1, evaluations=1))

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
import promises_run  # noqa: E402

promises_run.warm_up()  # the exact solver, and objectives with money
