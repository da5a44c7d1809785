"""How long `hulk export` takes for a plan of 1,000 machines, target by target: the whole command, as people run it; the
quickest of several times, since others may be at work on the machine."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import Report, parser
from hulk.domain.plan import Plan
from hulk.domain.regular import parse_regular, regular_plan
from hulk.export import TARGETS
from hulk.io.cluster_file import load_cluster
from hulk.io.jobs_file import load_jobs
from hulk.io.plan_file import save_plan

CLUSTER = """
name: wide
regions: {{rome: {{at: [41.9, 12.5]}}, oslo: {{at: [59.9, 10.8]}}}}
machines:
  - {{name: rome, count: {half}, region: rome, gpu: h100, gpus: 8, network: 100 Gbit/s}}
  - {{name: oslo, count: {half}, region: oslo, gpu: h100, gpus: 8, network: 100 Gbit/s}}
"""
JOBS = "jobs: [{{name: llama, model: llama-3-8b, sequence: 4096, global_batch: {batch}}}]\n"
HOSTS = "regions: {rome: aws/eu-south-1, oslo: aws/eu-north-1}\n"
# A plan that each target takes.
LAYOUTS = {
    "megatron": "tp8 pp4 mb1 sp zero1 dp-pp",
    "torchtitan": "tp8 pp4 mb1 fsdp sp dp-pp",
    "automodel": "tp8 pp4 mb1 fsdp sp dp-pp",
    "deepspeed": "pp4 mb1 zero1 dp-pp",
    "accelerate": "mb1 fsdp",
}
DEFAULT = "tp8 pp4 mb1"


MOST_SECONDS = 1.0


def took(here: Path, target: str, number: int) -> float:
    """Seconds of one export, into a new folder."""
    words = ["plan.json", "-c", "cluster.yaml", "-j", "jobs.yaml", "--to", target]
    words += ["-o", f"{target}-{number}", "--hosts", "hosts.yaml", "--data", "text.txt"]
    argv = [sys.executable, "-c", "from hulk.cli import main; main()", "export", *words]
    start = time.perf_counter()
    done = subprocess.run(argv, cwd=here, capture_output=True, text=True, env=os.environ, check=False)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(f"{target}: {done.stderr.strip()}")
    return seconds


def build_report(machines: int, times: int) -> Report:
    """All targets."""
    report, rows = Report("export"), []
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        (here / "cluster.yaml").write_text(CLUSTER.format(half=machines // 2))
        (here / "jobs.yaml").write_text(JOBS.format(batch=8 * machines))
        (here / "hosts.yaml").write_text(HOSTS)
        cluster, jobs = load_cluster(here / "cluster.yaml"), load_jobs(here / "jobs.yaml")
        for target in TARGETS.targets():
            plan = regular_plan(parse_regular(LAYOUTS.get(target.name, DEFAULT)), jobs[0], cluster)
            save_plan(Plan({"llama": plan}), here / "plan.json", cluster=cluster)
            seconds = [took(here, target.name, number) for number in range(times)]
            files = sum(path.is_file() for path in (here / f"{target.name}-0").rglob("*"))
            report.figure(f"{target.name}.seconds", min(seconds), most=MOST_SECONDS)
            rows.append([target.name, f"{min(seconds):.2f}", f"{max(seconds):.2f}", files])
    report.table(f"{machines:,} machines", ["target", "quickest, s", "slowest, s", "files"], rows)
    return report


def main() -> int:
    """Command line."""
    arguments = parser(__doc__)
    arguments.add_argument("--machines", type=int, default=1000)
    arguments.add_argument("--times", type=int, default=5)
    given = arguments.parse_args()
    return build_report(given.machines, given.times).finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
