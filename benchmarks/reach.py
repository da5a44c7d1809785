"""From machines that ssh reaches to a running job, by three commands: does the launched job take as long as predicted?

Ten clusters, each drawn from a seed of its own and emulated by a testbed with an sshd on every machine: 3 to 5 machines
in 2 or 3 regions, 5 to 150 ms, 50 to 500 Mbit/s. On each of them `hulk probe --hosts` measures, `hulk plan` plans on
what was measured, with a part for every machine, and `hulk launch --on ssh` starts the plan with emulated compute.
Jobs are drawn again until the plan for the true network has a step of 1 to 5 s. Measured: the median step after the
first, beside what `hulk launch` predicts from the probed cluster file. `links`: by how much the probe's worst bandwidth
is off, since a prediction is no better than what it is made of.

Compute is waited for, so the machines need next to no processor; what else runs on this computer would still wake them
late. So the lab, with all that is launched in it, comes before other processes.

Needs what `hulk testbed` needs, and sshd: Linux, root. `--only` runs some clusters, for looking at them.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median

from common import Report, parser
from hulk.io.cluster_file import load_cluster
from ssh_lab import HULK, SOURCES, Lab, lacks
from testbed import MODELS, write_cluster

CLUSTERS = 10
STEPS = 9
SHORTEST, LONGEST = 1.0, 5.0
"""Seconds of a predicted step."""
MOST_PERCENT = 8.0
NICE = -15
LITTLE = ("--evaluations", "1000", "--workers", "1", "--no-gnn")
HEAD = ["", "machines", "regions", "model", "stages", "probe", "launch", "links", "predicted", "measured", "error"]


@dataclass(frozen=True)
class Reached:
    """What came of a cluster: seconds of the commands, and of a step as predicted and as measured; `links`: the share
    by which the probe's worst bandwidth is off."""

    row: tuple[str, ...]
    probe: float
    launch: float
    links: float
    predicted: float
    steps: tuple[float, ...]

    @property
    def measured(self) -> float:
        """The median step after the first."""
        return median(self.steps[1:])

    @property
    def error(self) -> float:
        """How far the prediction is off, as a share of what was measured; negative where it is too low."""
        return self.predicted / self.measured - 1


def draw(number: int, folder: Path) -> list[str]:
    """Write a cluster and a job; answers with the words that pin the job to every machine."""
    rng = random.Random(9000 + number)
    hulk = folder / "hulk"
    hulk.write_text(HULK, encoding="utf-8")
    hulk.chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH") or str(SOURCES)}
    while True:
        names = write_cluster(folder, 3 + number % 3, 2 + number % 2, rng)
        entry = {"name": "job", "model": "./config.json", "precision": "fp32", "sequence": rng.choice((128, 256, 512))}
        entry["global_batch"] = rng.choice((24, 48, 96))
        (folder / "config.json").write_text(json.dumps(MODELS[rng.choice(sorted(MODELS))]))
        (folder / "jobs.yaml").write_text(json.dumps({"jobs": [entry]}))
        pins = [word for name in names for word in ("--pin", f"job={name}")]
        command = [str(hulk), "plan", "cluster.yaml", "jobs.yaml", *pins, *LITTLE, "--json"]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            step = json.loads(done.stdout)["price"]["jobs"]["job"]["step_s"]
            if SHORTEST <= step <= LONGEST:
                return pins


def reach(number: int, folder: Path) -> Reached:
    """Probe, plan and launch one cluster."""
    folder.mkdir(parents=True)
    pins = draw(number, folder)
    truth = load_cluster(folder / "cluster.yaml")
    with _preferred(), Lab(truth, folder, name=f"reach-{os.getpid()}-{number}") as lab:
        began = time.monotonic()
        _do(lab, "probe", "--hosts", "hosts.txt", "-o", "lab.yaml", "--samples", "2")
        probed = time.monotonic()
        _do(lab, "plan", "lab.yaml", "jobs.yaml", *pins, *LITTLE, "-o", "plan.json")
        planned = time.monotonic()
        given = ("plan.json", "-c", "lab.yaml", "-j", "jobs.yaml", "--on", "ssh", "--hosts", "hosts.txt")
        _do(lab, "launch", *given, "--compute", "emulated", "--steps", str(STEPS), "--metrics", "steps.jsonl")
        launched = time.monotonic()
    lines = [json.loads(line) for line in (folder / "steps.jsonl").read_text(encoding="utf-8").splitlines()]
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))["jobs"]["job"]["pipelines"]
    config = json.loads((folder / "config.json").read_text())
    row = (
        str(number),
        str(len(truth.machines)),
        str(len(truth.regions)),
        str(config["model_type"]),
        "+".join(str(len(pipeline["stages"])) for pipeline in plan),
    )
    seconds = tuple(line["step_s"] for line in lines)
    found, names = load_cluster(folder / "lab.yaml"), [machine.name for machine in truth.machines]
    links = max(abs(found.link(a, b).bandwidth / truth.link(a, b).bandwidth - 1) for a, b in combinations(names, 2))
    return Reached(row, probed - began, launched - planned, links, lines[-1]["predicted_s"], seconds)


@contextmanager
def _preferred() -> Iterator[None]:
    """What is started meanwhile comes before other processes; containers may refuse that."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)


def _do(lab: Lab, *argv: str) -> None:
    done = lab.run("hulk", *argv, seconds=900.0)
    if done.returncode != 0:
        raise RuntimeError(f"hulk {' '.join(argv)}: {done.stderr}")


def build_report(numbers: Sequence[int]) -> Report:
    """A row for each cluster, and how far predictions are off."""
    report, rows, errors = Report("reach"), [], []
    with tempfile.TemporaryDirectory(prefix="hulk-reach-") as folder:
        for number in numbers:
            found = reach(number, Path(folder) / str(number))
            cells = [f"{found.probe:.0f} s", f"{found.launch:.0f} s", f"{100 * found.links:.0f} %"]
            cells += [f"{found.predicted:.2f} s", f"{found.measured:.2f} s", f"{100 * found.error:+.1f} %"]
            rows.append([*found.row, *cells])
            errors.append(100 * abs(found.error))
            report.figure(f"cluster.{number}.predicted_s", found.predicted)
            report.figure(f"cluster.{number}.measured_s", found.measured)
            report.figure(f"cluster.{number}.links_percent", 100 * found.links)
            print(*rows[-1], "steps", *(f"{step:.2f}" for step in found.steps), file=sys.stderr, flush=True)
    report.table("probed, planned and launched", HEAD, rows)
    report.figure("clusters", len(rows))
    report.figure("median_error_percent", median(errors), most=MOST_PERCENT)
    report.figure("worst_error_percent", max(errors))
    return report


def main() -> int:
    """Command line."""
    arguments = parser(__doc__)
    arguments.add_argument("--only", type=int, nargs="*", help="numbers of clusters")
    given = arguments.parse_args()
    if lacks():
        sys.exit(f"this needs {lacks()}")
    return build_report(given.only or range(CLUSTERS)).finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
