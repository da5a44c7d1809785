"""Runs many plans one after the other in one set of processes: starting processes is what takes long.

    many.py FOLDER      started by `run_ranks`; FOLDER/cases.json lists folders and settings

Each rank takes part in the cases whose plans have it, and writes its parts of the losses to FOLDER/losses-RANK.json.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from start import be_ranks

from hulk.io.cluster_file import load_cluster
from hulk.io.jobs_file import load_jobs
from hulk.io.plan_file import load_plan
from hulk.runtime.context import Context, wire_up
from hulk.runtime.models import draw
from hulk.runtime.seats import seat
from hulk.runtime.settings import Settings
from hulk.runtime.slices import list_entries
from hulk.runtime.train import train


class Losses:
    """A reporter that keeps the losses."""

    def __init__(self) -> None:
        self.step = 0
        self.parts: dict[int, float] = {}

    def say(self, event: str, **fields: Any) -> None:
        if event == "step" and fields["loss"] is not None:
            self.parts[self.step] = fields["loss"]


def main(store: dist.Store) -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=120))
    result: dict[str, dict[int, float]] = {}
    start = time.monotonic()
    for case in _cases(folder):
        dist.barrier()  # a case may need the checkpoint of one before it
        paths = {key: Path(value) for key, value in case.get("paths", {}).items()}
        where = folder / case["name"]
        jobs, plan = load_jobs(where / "jobs.yaml"), load_plan(where / "plan.json")
        seating = seat(plan.jobs["tiny"])
        settings = Settings(data=folder / "text.txt", patience=40, **case["settings"], **paths)
        context = Context(
            jobs[0],
            load_cluster(where / "cluster.yaml"),
            seating,
            seating.seats[rank % seating.size],
            settings,
            torch.device("cpu"),
        )
        if rank >= seating.size:
            wire_up(context, list_entries(draw(jobs[0])))  # all ranks take part in making groups
            continue
        losses = Losses()
        try:
            train(context, losses)
        except BaseException as error:
            error.add_note(f"rank {rank}, case {case['name']}")
            raise
        result[case.get("as", case["name"])] = losses.parts
        with (folder / f"progress-{rank}").open("a") as file:
            file.write(f"{time.monotonic() - start:.1f} s {case['name']}\n")
    (folder / f"losses-{rank}.json").write_text(json.dumps(result))


def _cases(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / "cases.json").read_text())


if __name__ == "__main__":
    cases = Path(sys.argv[1])
    for name in sorted({case["name"] for case in _cases(cases)}):
        draw(load_jobs(cases / name / "jobs.yaml")[0])  # transformers imports a model when it is first asked for
    be_ranks(main)
