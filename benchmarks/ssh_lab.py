"""A lab of machines that ssh reaches, on this computer: a testbed with an sshd on every machine, its keys made anew.

Nothing of the computer's own ssh is used or changed. Commands run on the lab's machines, so that their traffic takes
the emulated network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from hulk.domain.cluster import Cluster
from hulk.testbed import Testbed, missing

SSHD = shutil.which("sshd") or ("/usr/sbin/sshd" if Path("/usr/sbin/sshd").exists() else None)
SOURCES = Path(__file__).parent.parent / "src"
HULK = f'#!/bin/sh\nexec "{sys.executable}" -c "from hulk.cli import main; main()" "$@"\n'


def lacks() -> str:
    """What this computer lacks for a lab, in words; nothing where it lacks nothing."""
    words = [*missing(), *(["sshd and ssh-keygen"] if SSHD is None or shutil.which("ssh-keygen") is None else [])]
    return ", and ".join(words)


class Lab:
    """The machines of a cluster, up while the context lasts. `folder` gets keys, a configuration for ssh, a command
    `hulk`, a command `ssh` that uses that configuration, and `hosts.txt`."""

    def __init__(self, cluster: Cluster, folder: Path, *, name: str) -> None:
        self.folder, self._name = folder, name
        self._cluster, self._daemons = cluster, list[subprocess.Popen[bytes]]()

    def __enter__(self) -> Lab:
        self.testbed = Testbed.up(self._cluster, name=self._name)
        try:
            self._write()
            for machine in self._cluster.machines:
                self.serve(machine.name)
        except BaseException:
            self._stop()
            raise
        return self

    def address(self, machine: str) -> str:
        """Where the other machines reach one."""
        return self.testbed.address(machine)

    def _write(self) -> None:
        (self.folder / "bin").mkdir(parents=True, exist_ok=True)
        for key in ("host", "mine"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / key)]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        shutil.copy(self.folder / "mine.pub", self.folder / "authorized")
        key = " ".join((self.folder / "host.pub").read_text(encoding="ascii").split()[:2])
        lines = [f"{self.address(machine.name)} {key}\n" for machine in self._cluster.machines]
        (self.folder / "known_hosts").write_text("".join(lines), encoding="ascii")
        config = f"Host *\n  User root\n  IdentitiesOnly yes\n  IdentityFile {self.folder / 'mine'}\n"
        config += f"  UserKnownHostsFile {self.folder / 'known_hosts'}\n  GlobalKnownHostsFile /dev/null\n"
        (self.folder / "ssh_config").write_text(config, encoding="ascii")
        wrapped = f'#!/bin/sh\nexec {shutil.which("ssh")} -F "{self.folder / "ssh_config"}" "$@"\n'
        for name, text in (("hulk", HULK), ("ssh", wrapped)):
            path = self.folder / "bin" / name
            path.write_text(text, encoding="utf-8")
            path.chmod(0o755)
        (self.folder / "hosts.txt").write_text(self.hosts(), encoding="ascii")

    def hosts(self) -> str:
        """A line for each machine."""
        return "".join(
            f"root@{self.address(m.name)} name={m.name} region={m.region} gpu={m.gpu.name} gpus={m.gpus} "
            f"interface={self.testbed.interface(m.name)} port=0\n"
            for m in self._cluster.machines
        )

    def serve(self, machine: str, **variables: str) -> subprocess.Popen[bytes]:
        """Start a machine's sshd; sessions have these variables besides."""
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        sources = os.environ.get("PYTHONPATH") or str(SOURCES)
        # With another compiler's settings or cache, every worker would compile the price again, all at the same time.
        kept = {name: value for name, value in os.environ.items() if name.startswith(("NUMBA_", "XDG_CACHE_HOME"))}
        given = {"PATH": path, "PYTHONPATH": sources, "OMP_NUM_THREADS": "1", **kept, **variables}
        options = {
            "Port": "22",
            "ListenAddress": self.address(machine),
            "HostKey": str(self.folder / "host"),
            "AuthorizedKeysFile": str(self.folder / "authorized"),
            "StrictModes": "no",
            "UsePAM": "no",
            "PidFile": "none",
            "PermitRootLogin": "yes",
            "PasswordAuthentication": "no",
            "SetEnv": " ".join(f"{name}={value}" for name, value in given.items()),
        }
        Path("/run/sshd").mkdir(exist_ok=True)
        argv = [str(SSHD), "-D", "-e", "-f", "/dev/null", *(f"-o{name}={value}" for name, value in options.items())]
        command = self.testbed.command(machine, argv)
        daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self._daemons.append(daemon)
        assert daemon.stderr is not None
        line = daemon.stderr.readline().decode()
        if "listening" not in line.lower():
            raise RuntimeError(f"sshd of {machine}: {line}")
        return daemon

    def command(self, argv: Sequence[str], *, on: str | None = None) -> list[str]:
        """What runs a command on a machine, the first if none is named."""
        return self.testbed.command(on or self._cluster.machines[0].name, argv)

    def environment(self) -> dict[str, str]:
        """For commands on a machine: `hulk` and `ssh` are the lab's."""
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "PYTHONPATH": os.environ.get("PYTHONPATH") or str(SOURCES)}

    def run(self, *argv: str, cwd: Path | None = None, seconds: float = 300.0) -> subprocess.CompletedProcess[str]:
        """A command on the first machine, to its end."""
        return subprocess.run(
            self.command(argv),
            cwd=cwd or self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def inside(self) -> list[str]:
        """What of Hulk runs on the machines: a command line each, after the machine's name."""
        found = []
        for machine in self._cluster.machines:
            pids = subprocess.run(
                ["ip", "netns", "pids", self.testbed.namespace(machine.name)],
                capture_output=True,
                text=True,
                check=True,
            ).stdout.split()
            for pid in pids:
                try:
                    words = Path("/proc", pid, "cmdline").read_bytes().replace(b"\0", b" ").decode()
                except OSError:  # it has ended since
                    continue
                found += [f"{machine.name}: {words}"] if "hulk" in words and "sshd" not in words else []
        return found

    def _stop(self) -> None:
        for daemon in self._daemons:
            daemon.kill()
            daemon.communicate()
        self.testbed.down()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop()
