"""A tiny job between two machines of one computer, exported to be really run."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "runtime"))

from cases import Case, write_case, write_text  # noqa: E402

TWO = Case("two", "gpt2", ((12, (("rome-1", (0,), 2), ("oslo-1", (1,), 5))),))
STEPS = 2


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def variables(**more: str) -> dict[str, str]:
    """The environment of whatever starts workers of this copy of Hulk."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHON": sys.executable, "OMP_NUM_THREADS": "1", **more}


def exported(folder: Path, target: str, nodes: tuple[str, str], interface: str | None = "lo") -> Path:
    """The job's folder for a target."""
    write_case(TWO, folder)
    write_text(folder / "text.txt")
    hosts = {
        machine: {"address": "127.0.0.1", "ssh": node, "node": node.rpartition("@")[2]}
        | ({"interface": interface} if interface else {})
        for machine, node in zip(("rome-1", "oslo-1"), nodes, strict=True)
    }
    (folder / "hosts.json").write_text(json.dumps({"hosts": hosts}))
    out = folder / "out"
    words = ["plan.json", "-c", "cluster.yaml", "-j", "jobs.yaml", "--to", target, "-o", str(out), "--data", "text.txt"]
    words += ["--steps", str(STEPS), "--hosts", "hosts.json", "--port", str(free_port())]
    argv = [sys.executable, "-c", "from hulk.cli import main; main()", "export", *words]
    subprocess.run(argv, cwd=folder, env=variables(), capture_output=True, check=True, timeout=400)
    return out


def losses(output: str) -> list[float]:
    """The loss of every step, as the rank that has it says."""
    lines = [line[line.index("{") :] for line in output.splitlines() if '{"event": "step"' in line]
    events = [json.loads(line[: line.rindex("}") + 1]) for line in lines]
    by_step = {event["step"]: event["loss"] for event in events if event["loss"] is not None}
    return [by_step[step] for step in sorted(by_step)]


def single(folder: Path, steps: int = STEPS) -> list[float]:
    """The losses of the same job in one process."""
    from oracle import oracle

    from hulk.runtime.settings import Settings

    write_case(TWO, folder)
    usual = Settings()
    return oracle(
        folder,
        write_text(folder / "text.txt"),
        steps=steps,
        seed=usual.seed,
        rate=usual.rate,
        decay=usual.decay,
    )
