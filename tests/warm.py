"""`hulk` as a command, run in forks of one warm process: a test that runs it does not wait for Python to import and
load compiled code again. Whoever tests the start itself, or pipes, has a
process of its own."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from functools import cache, partial
from pathlib import Path
from typing import Any

COMMAND = (sys.executable, "-c", "from hulk.cli import main; main()")
ROOT = Path(__file__).parent.parent
BENCHMARKS = ROOT / "benchmarks"
LIMIT = 300.0


def hulk(*arguments: str, cwd: Path = ROOT, network: Path | None = None) -> subprocess.CompletedProcess[str]:
    """`hulk` with these arguments in that folder; `network`: a folder with another one than the bundled one."""
    server = _server()
    assert server.stdin and server.stdout
    server.stdin.write(json.dumps([arguments, str(cwd), network and str(network)]) + "\n")
    server.stdin.flush()
    code, how, out, err = json.loads(server.stdout.readline())
    assert code is not None, f"hulk {' '.join(arguments)}: {how}\n{err}"
    return subprocess.CompletedProcess(["hulk", *arguments], code, out, err)


def hulk_anew(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """`hulk` in a process of its own, from its start; its output goes into pipes. `options` are subprocess's."""
    given = {"capture_output": True, "timeout": LIMIT, "encoding": "utf-8"} | options
    return subprocess.run([*COMMAND, *arguments], check=False, **given)


@cache
def _server() -> subprocess.Popen[str]:
    """One for each process that runs tests; it ends when its input does."""
    command = [sys.executable, __file__]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdin
    atexit.register(server.stdin.close)
    return server


def serve() -> None:
    """Answer requests, a line each, until there are no more. What is forked reads and writes none of them."""
    sys.path.insert(0, str(BENCHMARKS))
    from promises_run import run_forked, warm_up

    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    warm_up()
    import hulk.propose

    bundled = hulk.propose.bundled_network
    for line in requests:
        arguments, folder, network = json.loads(line)
        hulk.propose.bundled_network = partial(hulk.propose.load_network, Path(network)) if network else bundled
        answers.write(json.dumps(run_forked(arguments, Path(folder), LIMIT)) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve()
