"""The program of one rank, for torchrun or anything that sets the same environment variables:

    torchrun --nnodes M --node-rank I --nproc-per-node K --master-addr A --master-port P \
        -m hulk.runtime.worker --plan plan.json --cluster cluster.yaml --jobs jobs.yaml --job NAME --data text.txt

One process a GPU; `hulk.runtime.seats` says which rank is which. It reports on standard output, a JSON object a line,
and ends with 0, or with 1 after an event "error"; with 2, and a word on standard error, where an argument is wrong.
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import sys
import traceback
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hulk.errors import InputError
from hulk.runtime.options import takes_settings
from hulk.runtime.report import BUILDING, WAITING, Reporter
from hulk.runtime.settings import Compute, RunFiles, Settings

if TYPE_CHECKING:
    from hulk.runtime.seats import Seat

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
@takes_settings(also_fields=True)
def worker(
    plan: Annotated[str, typer.Option(help="the plan file")],
    cluster: Annotated[str, typer.Option(help="the cluster file, or the name of a bundled one")],
    jobs: Annotated[str, typer.Option(help="the jobs file, or the name of a bundled one")],
    job: Annotated[str, typer.Option(help="the job to run")],
    settings: Settings,
) -> None:
    """Run one rank of a job's plan."""
    faulthandler.enable()
    reporter = Reporter(int(os.environ.get("RANK", "0")))
    logging.getLogger("torch.distributed.pipelining").setLevel(logging.CRITICAL)
    try:
        _run(RunFiles(plan, cluster, jobs), job, settings, reporter)
        sys.stderr.flush()
        # A thread of the heartbeat may still be talking to the store; nothing is left to do.
        os._exit(0)
    except BaseException as error:
        traceback.print_exc()
        _explain(error, reporter)
        sys.stderr.flush()
        # Threads of torch that still wait for other ranks must not keep this one.
        os._exit(1)


def main() -> None:
    """Run one rank with the arguments of the command line."""
    try:
        app(prog_name="hulk.runtime.worker")
    except InputError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)


def _explain(error: BaseException, reporter: Reporter) -> None:
    from hulk.errors import HulkError
    from hulk.runtime.work import CheckpointError, OthersFailedError

    error = _cause(error)
    if isinstance(error, OthersFailedError):
        reporter.say("stopped")
    elif _is_out_of_memory(error):
        reporter.say("error", message=_first_line(error), kind="memory", memory=_reached())
    elif isinstance(error, HulkError):
        reporter.say("error", message=str(error), kind="own", code=error.exit_code)
    elif isinstance(error, CheckpointError):
        reporter.say("error", message=str(error), kind="own")
    elif _is_port_taken(error):
        where = f"port {os.environ.get('MASTER_PORT')} of {os.environ.get('MASTER_ADDR')}"
        reporter.say(
            "error", message=f"{where}, where the ranks are to meet, is in use by another program", kind="port"
        )
    elif _is_network(error):
        reporter.say("error", message=_first_line(error), kind="network")
    else:
        reporter.say("error", message=f"{type(error).__name__}: {_first_line(error)}", kind="own")


def _cause(error: BaseException) -> BaseException:
    """What went wrong inside a stage: torch wraps it in an error that says where only."""
    while error.__cause__ is not None and "failed to run" in str(error):
        error = error.__cause__
    return error


def _is_out_of_memory(error: BaseException) -> bool:
    """torch has an error of its own for GPUs, and says so in words for the host's memory."""
    import torch

    words = str(error).lower()
    return (
        isinstance(error, torch.OutOfMemoryError | MemoryError)
        or "can't allocate memory" in words
        or "not enough memory" in words
    )


def _reached() -> dict[str, int] | None:
    """What this rank has needed so far, where that can still be asked."""
    import torch

    from hulk.runtime.peak import peak_memory

    try:
        return peak_memory(torch.device("cuda", torch.cuda.current_device())) if torch.cuda.is_available() else None
    except RuntimeError:
        return None


def _is_port_taken(error: BaseException) -> bool:
    words = str(error).lower()
    return "eaddrinuse" in words or "address already in use" in words


def _is_network(error: BaseException) -> bool:
    """Whether an error is about another rank: gloo, NCCL and the store say so in words only."""
    seen: BaseException | None = error
    while seen is not None:
        words = str(seen).lower()
        if isinstance(seen, ConnectionError) or any(
            sign in words for sign in ("gloo", "nccl", "connection", "timed out", "timeout", "socket", "broken pipe")
        ):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _run(files: RunFiles, name: str, settings: Settings, reporter: Reporter) -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # Ranks connect when they first talk: machines whose link is blocked need no connection.
    os.environ.setdefault("TORCH_GLOO_LAZY_INIT", "1")
    # Tensors of many sizes come and go; segments that grow leave no holes between them.
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    gc.disable()  # what torch's modules make stays: to look through it again and again takes a sixth of the start
    import torch

    from hulk.domain.check import check_plan
    from hulk.domain.gpu import Precision
    from hulk.errors import nearest
    from hulk.io.cluster_file import load_cluster
    from hulk.io.jobs_file import load_jobs
    from hulk.io.plan_file import load_plan
    from hulk.runtime.context import Context
    from hulk.runtime.groups import backend
    from hulk.runtime.meeting import keep_touch, leave_together
    from hulk.runtime.runnable import check_runnable
    from hulk.runtime.seats import seat
    from hulk.runtime.shards import check_alike
    from hulk.runtime.train import train

    gc.freeze()
    gc.enable()
    plan, cluster, jobs = load_plan(Path(files.plan)), load_cluster(files.cluster), load_jobs(files.jobs)
    check_plan(plan, cluster, jobs)
    if name not in plan.jobs:
        raise InputError(f"no job {name!r} in this plan", hint=nearest(name, plan.jobs))
    job = next(job for job in jobs if job.name == name)
    check_runnable(job, plan.jobs[job.name], settings)
    check_alike(plan.jobs[job.name])
    seating = seat(plan.jobs[job.name])
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if size != seating.size:
        raise InputError(f"{size} ranks were started, but the plan of {job.name!r} has {seating.size} GPUs")
    here = seating.seats[rank]
    on_gpu = torch.cuda.is_available() and settings.compute is Compute.REAL
    device = torch.device("cuda", _gpu(here, cluster.machine(here.machine).gpus)) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
        if (settings.precision or job.precision) == Precision.TF32:
            torch.set_float32_matmul_precision("high")
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    address, port = os.environ.setdefault("MASTER_ADDR", "127.0.0.1"), os.environ.setdefault("MASTER_PORT", "29500")
    os.environ.setdefault("RANK", "0")
    os.environ.setdefault("WORLD_SIZE", "1")
    reporter.phase(WAITING)
    _join(backend(device), settings, rank=rank, size=size)
    reporter.phase(BUILDING)
    store = keep_touch(reporter, address=address, port=int(port), timeout=settings.timeout)
    train(Context(job, cluster, seating, here, settings, device), reporter)
    leave_together(store, rank=rank, size=size, patience=settings.timeout)


def _join(backend: str, settings: Settings, *, rank: int, size: int) -> None:
    """Wait for all ranks, and make the group of all of them."""
    import torch.distributed as dist

    from hulk.runtime.meeting import meet

    limit = timedelta(seconds=max(60.0, settings.patience))
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":  # torchrun holds a store of its own
        dist.init_process_group(backend, timeout=limit)
        return
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    met = meet(address=address, port=port, rank=rank, size=size, timeout=limit)
    dist.init_process_group(backend, timeout=limit, store=met, rank=rank, world_size=size)


def _gpu(seat: Seat, gpus: int) -> int:
    """The GPU of a rank as this process counts them: by the plan's number where all of the machine's are to be seen,
    else, where a scheduler hands out only as many as are used, one after the other."""
    import torch

    seen = torch.cuda.device_count()
    return (seat.gpu if seen >= gpus else seat.local_rank) % seen


if __name__ == "__main__":
    main()
