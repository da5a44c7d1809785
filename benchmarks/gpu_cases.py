"""Runs on one GPU: a row of a file of readings as the files that `hulk run` takes, and the reading itself.

A row (a JSON object a line) says what ran and, where it has run, what was measured:

    name           what to call it
    gpu            the GPU type, as the catalogue names it
    model          a catalogue's model; or, with `config`, any label
    config         a Hugging Face config instead
    sequence, target_sequence, precision, optimizer, attention    as in a jobs file
    microbatch, microbatches    samples of a microbatch, microbatches of a step
    recompute      none or full
    plan           a plan file's content, instead of the plan that the three fields above make
    steps          how many steps ran
    step_s         measured: the median step without the first two, seconds
    tries_s        measured: the same of every try, where it ran more than once; `step_s` is their median
    memory_bytes   measured: the most that the process took of the GPU, context and libraries included
    allocated_bytes  measured: the most that tensors took
    failed         measured: the last words of a run that ended early, null otherwise
    date, torch, transformers   of the measurement
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.options import Options, Recompute, Schedule, Sharding, Sync
from hulk.domain.plan import JobPlan, Pipeline, Plan, Stage
from hulk.errors import InputError
from hulk.io.cluster_file import load_cluster
from hulk.io.jobs_file import load_jobs
from hulk.io.plan_file import load_plan, save_plan

Row = dict[str, Any]
JOB = "run"
LIMIT = 300.0
"""Seconds a run may take."""


def read_rows(path: Path) -> list[Row]:
    """The rows of a file."""
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            rows.append(dict(json.loads(line)))
        except ValueError as error:
            raise InputError(f"not a JSON object: {error}", where=f"{path}:{number}") from None
    if not rows:
        raise InputError("no runs here", where=str(path))
    return rows


def write_files(row: Row, folder: Path) -> None:
    """cluster.yaml, jobs.yaml and plan.json of a row: one machine with one GPU, one stage."""
    folder.mkdir(parents=True, exist_ok=True)
    machine = f"{{name: box, region: here, gpu: {row['gpu']}, gpus: 1, network: 100 Gbit/s}}"
    (folder / "cluster.yaml").write_text(f"name: one\nregions: {{here: {{at: [50, 8]}}}}\nmachines: [{machine}]\n")
    model = row["model"]
    if row.get("config"):
        (folder / "config.json").write_text(json.dumps(row["config"]))
        model = "./config.json"
    keys = ("sequence", "target_sequence", "precision", "optimizer", "attention")
    entry = {"name": JOB, "model": model, "global_batch": row["microbatch"] * row["microbatches"]}
    entry |= {key: row[key] for key in keys if row.get(key) is not None}
    (folder / "jobs.yaml").write_text(json.dumps({"jobs": [entry]}))
    if row.get("plan"):
        (folder / "plan.json").write_text(json.dumps(row["plan"]))
    else:
        layers = len(load_jobs(folder / "jobs.yaml")[0].model.layers)
        stage = Stage("box", (0,), 0, layers - 1)
        plan = JobPlan(
            (Pipeline((stage,), row["microbatches"]),),
            Options(
                microbatch_size=row["microbatch"],
                schedule=Schedule.parse("1f1b"),
                recompute=Recompute(row.get("recompute", "none")),
                sync=Sync.RING,
                sharding=Sharding.NONE,
            ),
        )
        save_plan(Plan({JOB: plan}), folder / "plan.json", cluster="one")


def load_case(row: Row, folder: Path) -> tuple[Job, JobPlan, Cluster]:
    """What a row ran, for a price."""
    write_files(row, folder)
    job = load_jobs(folder / "jobs.yaml")[0]
    return job, load_plan(folder / "plan.json").jobs[JOB], load_cluster(str(folder / "cluster.yaml"))


def write_text(path: Path) -> Path:
    """Some text to train on."""
    words = ["region", "machine", "stage", "layer", "gradient", "link", "batch"]
    path.write_text(" ".join(words[(i * i + i // 3) % 7] for i in range(200_000)))
    return path


def measure(rows: Iterable[Row], folder: Path, out: Path) -> None:
    """Run rows one after the other by `hulk run` on the GPU of this machine; a line a row, written as it comes."""
    text = write_text(folder / "text.txt")
    with out.open("a", encoding="utf-8") as file:
        for number, row in enumerate(rows):
            reading = _reading(row, folder / f"case-{number}", text)
            file.write(json.dumps(reading) + "\n")
            file.flush()
            took = reading.get("step_s")
            print(reading["name"], took, reading.get("memory_bytes"), reading["failed"] or "", flush=True)


def _reading(row: Row, folder: Path, text: Path) -> Row:
    write_files(row, folder)
    metrics = folder / "metrics.jsonl"
    files = ["--cluster", str(folder / "cluster.yaml"), "--jobs", str(folder / "jobs.yaml")]
    argv = [sys.executable, "-c", "from hulk.cli import main; main()", "run", str(folder / "plan.json"), *files]
    argv += ["--data", str(text), "--steps", str(row["steps"]), "--metrics", str(metrics)]
    begin = datetime.now(UTC)
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=LIMIT, env=os.environ | {"COLUMNS": "300"}, check=False
        )
        failed = None if done.returncode == 0 else (done.stderr.strip().splitlines() or ["?"])[-1]
    except subprocess.TimeoutExpired:
        failed = f"not done in {LIMIT:g} s"
    steps = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []
    stage = steps[-1]["stages"][0] if steps else {}
    return row | {
        "step_s": statistics.median([step["step_s"] for step in steps][2:]) if len(steps) > 2 else None,
        "memory_bytes": stage.get("memory_bytes"),
        "allocated_bytes": stage.get("allocated_bytes"),
        "update_s": stage.get("update_s"),
        "failed": failed,
        "wall_s": (datetime.now(UTC) - begin).total_seconds(),
        "date": begin.date().isoformat(),
        "torch": metadata.version("torch"),
        "transformers": metadata.version("transformers"),
    }
