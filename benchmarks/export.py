"""How long `hulk export` takes for a plan of 1,000 machines, target by target: the whole command, as people run it."""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

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


def cpu() -> float:
    """Seconds of CPU that all commands so far have taken."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def main() -> None:
    """Export to every target and print the seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", type=int, default=1000)
    parser.add_argument("--times", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        (here / "cluster.yaml").write_text(CLUSTER.format(half=arguments.machines // 2))
        (here / "jobs.yaml").write_text(JOBS.format(batch=8 * arguments.machines))
        (here / "hosts.yaml").write_text(HOSTS)
        cluster, jobs = load_cluster(here / "cluster.yaml"), load_jobs(here / "jobs.yaml")
        for target in TARGETS.targets():
            plan = regular_plan(parse_regular(LAYOUTS.get(target.name, DEFAULT)), jobs[0], cluster)
            save_plan(Plan({"llama": plan}), here / "plan.json", cluster=cluster)
            seconds, used = [], []
            for number in range(arguments.times):
                words = ["plan.json", "-c", "cluster.yaml", "-j", "jobs.yaml", "--to", target.name]
                words += ["-o", f"{target.name}-{number}", "--hosts", "hosts.yaml", "--data", "text.txt"]
                argv = [sys.executable, "-c", "from hulk.cli import main; main()", "export", *words]
                start, before = time.perf_counter(), cpu()
                done = subprocess.run(argv, cwd=here, capture_output=True, text=True, env=os.environ, check=False)
                seconds.append(time.perf_counter() - start)
                used.append(cpu() - before)
                if done.returncode:
                    print(f"{target.name}: {done.stderr.strip()}")
                    break
            else:
                print(f"{target.name:<12}{median(seconds):6.2f} s  {median(used):6.2f} s CPU  {done.stdout.strip()}")


if __name__ == "__main__":
    main()
