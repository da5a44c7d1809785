"""A Slurm of four nodes on this computer, with its own munge: needs root, nothing of it stays."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

NODES = ("n1", "n2", "n3", "n4")
BARE = "n4"
"""The node that has no GPUs."""
CONFIG = """\
ClusterName=hulk
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
GresTypes=gpu
ReturnToService=2
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerParameters=sched_interval=1,bf_interval=1,bf_resolution=1
"""


class Slurm:
    """A controller and a daemon for each node, up while the context lasts. GPUs are files that stand for them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.config = folder, folder / "slurm.conf"

    def __enter__(self) -> Slurm:
        for name in ("", "munge", "state", "dev"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
            (self.folder / name).chmod(0o755)
        # munge trusts only folders that nobody else can write to, all the way up.
        key = self.folder / "munge" / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        self._write()
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def _write(self) -> None:
        ports = free_ports(1 + len(NODES))
        lines = [
            f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=8 RealMemory=500"
            + (" Gres=gpu:4" if name != BARE else "")
            for name, port in zip(NODES, ports[1:], strict=True)
        ]
        lines.append("PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
        self.config.write_text(CONFIG.format(folder=self.folder, ports=ports) + "\n".join(lines) + "\n")
        for number in range(4):
            (self.folder / "dev" / f"gpu{number}").touch()
        having = ",".join(name for name in NODES if name != BARE)
        gpus = f"NodeName={having} Name=gpu File={self.folder}/dev/gpu[0-3]"
        (self.folder / "gres.conf").write_text(f"AutoDetect=off\n{gpus}\n")

    def _start(self) -> None:
        munge = self.folder / "munge"
        options = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        run("munged", "--force", *(f"--{option}={munge / name}" for option, name in options.items()))
        run("slurmctld", "-f", str(self.config))
        for name in NODES:
            run("slurmd", "-N", name, "-f", str(self.config))
        end = time.monotonic() + 30
        while self._states() != "idle":
            if time.monotonic() > end:
                raise RuntimeError(
                    f"nodes are {self._states()!r}: {(self.folder / 'slurmctld.log').read_text()[-2000:]}"
                )
            time.sleep(0.2)

    def _states(self) -> str:
        variables = {**os.environ, "SLURM_CONF": str(self.config)}
        said = subprocess.run(["sinfo", "-h", "-o", "%T"], env=variables, capture_output=True, text=True, check=False)
        return said.stdout.strip()

    def _stop(self) -> None:
        files = [*(self.folder / f"slurmd-{name}.pid" for name in NODES), self.folder / "slurmctld.pid"]
        pids = [int(path.read_text()) for path in (*files, self.folder / "munge" / "pid") if path.exists()]
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            end = time.monotonic() + 5
            while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < end:
                time.sleep(0.1)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._stop()


def run(*argv: str) -> None:
    """Start a daemon, which goes to the background by itself."""
    done = subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False, timeout=30)
    if done.returncode:
        raise RuntimeError(f"{argv[0]}: {done.stderr}")


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nobody has now."""
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports
