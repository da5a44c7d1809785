"""An sshd on this computer's loopback, with keys made for it: machines that ssh reaches, each at an address of its
own."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

SSHD = shutil.which("sshd") or ("/usr/sbin/sshd" if Path("/usr/sbin/sshd").exists() else None)
LACKS = SSHD is None or os.geteuid() != 0 or shutil.which("ssh-keygen") is None
KINDS = ("known", "stranger", "unknown", "absent", "older", "full")
# What a machine pretends to be, by a variable that ssh brings along.
HULK = """
import os, shutil, hulk
kind = os.environ.get("HULK_KIND")
if kind == "older":
    hulk.__version__ = "0.0.1"
if kind == "full":
    usage = shutil.disk_usage
    shutil.disk_usage = lambda path: usage(path)._replace(free=1000)
from hulk.cli import main
main()
"""


class Loopback:
    """Hosts by kind: `known`, `unknown` (its host key is not known), `stranger` (no key of ours), `absent` (nobody
    listens), `older` (another version of hulk) and `full` (no room on its disk)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> Loopback:
        folder = self.folder
        (folder / "agent.py").write_text(HULK, encoding="utf-8")
        (folder / "hulk").write_text(f'#!/bin/sh\nexec "{sys.executable}" {folder / "agent.py"} "$@"\n')
        (folder / "hulk").chmod(0o755)
        for key in ("host", "mine"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        shutil.copy(folder / "mine.pub", folder / "authorized")
        key = " ".join((folder / "host.pub").read_text(encoding="ascii").split()[:2])
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {key}\n", encoding="ascii")
        text = ""
        for kind in KINDS:
            mine = "/dev/null" if kind == "stranger" else folder / "mine"
            known = "/dev/null" if kind == "unknown" else folder / "known_hosts"
            text += (
                f"Host {kind}\n  HostName 127.0.0.1\n  Port {1 if kind == 'absent' else port}\n  IdentitiesOnly yes\n"
                f"  IdentityFile {mine}\n  UserKnownHostsFile {known}\n  GlobalKnownHostsFile /dev/null\n"
                f"  SetEnv HULK_KIND={kind}\n"
            )
        (folder / "ssh_config").write_text(text, encoding="ascii")
        options = {
            "Port": port,
            "ListenAddress": "127.0.0.1",
            "HostKey": folder / "host",
            "AuthorizedKeysFile": folder / "authorized",
            "StrictModes": "no",
            "UsePAM": "no",
            "PidFile": "none",
            "PermitRootLogin": "yes",
            "PasswordAuthentication": "no",
            "AcceptEnv": "HULK_KIND",
            "SetEnv": f"HULK_MARK={folder} PYTHONPATH={os.environ.get('PYTHONPATH', '')}",
        }
        Path("/run/sshd").mkdir(exist_ok=True)
        argv = [str(SSHD), "-D", "-e", "-f", "/dev/null", *(f"-o{name}={value}" for name, value in options.items())]
        self._server = subprocess.Popen(argv, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        assert self._server.stderr is not None
        assert "listening" in self._server.stderr.readline().lower()
        return self

    def hosts(self, kinds: Mapping[str, str]) -> None:
        """Write `hosts.yaml`: which kind of host each machine is."""
        hosts = {
            machine: {"address": f"127.0.0.{number}", "ssh": kind, "interface": "lo"}
            for number, (machine, kind) in enumerate(kinds.items(), 1)
        }
        (self.folder / "hosts.yaml").write_text(json.dumps({"hosts": hosts}), encoding="ascii")

    def options(self) -> tuple[str, ...]:
        """What `hulk launch` is told of them."""
        return (
            "--on",
            "ssh",
            "--hosts",
            "hosts.yaml",
            "--ssh-config",
            "ssh_config",
            "--hulk",
            str(self.folder / "hulk"),
        )

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.kill()
        self._server.communicate()


def left_behind(mark: str) -> list[str]:
    """Processes that have this in their environment: all that was started by something that had it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes():
                found.append((path.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200])
        except OSError:
            continue
    return [words for words in found if words]
