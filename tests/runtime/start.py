"""Starts ranks as a launcher would, and ends all of them whatever happens.

Importing torch and transformers would be most of what a rank does, so ranks are forked from nurseries: processes that
have imported everything. Two of them, with different seeds of Python's hashes: sets of words lie in the same order in
all ranks of one, and what wrongly goes by that order would agree by chance.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

NURSERIES = 2
_ENDED = "ended with"  # a rank that failed has this in its log
_FOR_WANT = ("Connection was likely closed", "Connection closed by peer", "Connection reset by peer")


def run_ranks(program: Path, *arguments: str, ranks: int, limit: float) -> None:
    """Run a program that calls `be_ranks` as so many ranks; fails with their errors if any fails or they take longer
    than `limit` seconds."""
    # The socket is held from here on and handed to rank 0, so nobody else can take its port.
    with tempfile.TemporaryDirectory() as logs, socket.create_server(("127.0.0.1", 0)) as meeting:
        shared = {
            "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(meeting.getsockname()[1]),
            "MEETING": str(meeting.fileno()), "LOGS": logs, "GLOO_SOCKET_IFNAME": "lo", "TORCH_GLOO_LAZY_INIT": "1",
            "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
        }  # fmt: skip
        started = []
        for number in range(NURSERIES):
            mine = {"RANKS": " ".join(map(str, range(number, ranks, NURSERIES))), "PYTHONHASHSEED": str(number)}
            with (Path(logs) / f"nursery {number}").open("w") as log:
                started.append(
                    subprocess.Popen(
                        [sys.executable, str(program), *arguments],
                        env=os.environ | shared | mine,
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=log,
                        pass_fds=[meeting.fileno()],
                        start_new_session=True,
                    )
                )
        try:
            late = not _all_end(started, limit)
        finally:
            for nursery in started:
                with contextlib.suppress(ProcessLookupError):  # with all its ranks
                    os.killpg(nursery.pid, signal.SIGKILL)
                nursery.wait()
        assert not late, f"not done in {limit} s"
        if any(nursery.returncode for nursery in started):
            raise AssertionError(_explain([path.read_text(errors="replace") for path in Path(logs).iterdir()]))


def _all_end(started: list[subprocess.Popen[bytes]], limit: float) -> bool:
    """Wait until all nurseries end, or one fails: the others would wait for it in vain."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        codes = [nursery.poll() for nursery in started]
        if any(codes) or None not in codes:
            return True
        time.sleep(0.05)
    return False


def _explain(logs: list[str]) -> str:
    """When one fails, the others fail for want of it: its own words come first."""
    problems = [words for words in logs if _ENDED in words] or logs
    problems.sort(key=lambda words: any(sign in words for sign in _FOR_WANT))
    return "\n".join(words[-3000:] for words in problems)[:9000]


def be_ranks(main: Callable[[Any], None]) -> None:
    """In a nursery that has imported everything: fork its ranks, which call `main` with the store where all meet."""
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "threads do not live on in forked processes"
    gc.collect()
    gc.freeze()  # what is there stays, and need not be looked through again in every rank
    children: dict[int, int] = {}
    for rank in map(int, os.environ["RANKS"].split()):
        child = os.fork()
        if child == 0:
            _be_rank(rank, main)
        children[child] = rank
    failed = False
    while children:
        child, status = os.wait()
        rank, code = children.pop(child), os.waitstatus_to_exitcode(status)
        if code:
            failed = True
            with _log(rank) as log:
                log.write(f"rank {rank} {_ENDED} {code}\n")
            signal.alarm(1)  # ends this process: the others have a second for their last words
    sys.exit(failed)


def _log(rank: int) -> Any:
    return (Path(os.environ["LOGS"]) / f"rank {rank}").open("a")


def _be_rank(rank: int, main: Callable[[Any], None]) -> NoReturn:
    try:
        with _log(rank) as log:
            os.dup2(log.fileno(), sys.stderr.fileno())
        faulthandler.enable()
        from torch.distributed import TCPStore

        from hulk.runtime.meeting import leave_together

        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        address, port, meeting = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), int(os.environ["MEETING"])
        if rank == 0:
            store = TCPStore(address, port, is_master=True, wait_for_workers=False, master_listen_fd=meeting)
        else:
            os.close(meeting)
            store = TCPStore(address, port, is_master=False, wait_for_workers=False)
        main(store)
        leave_together(store, rank=rank, size=int(os.environ["WORLD_SIZE"]), patience=40)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)  # threads of torch still run, and nothing may be taken down under them
