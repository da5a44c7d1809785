"""`hulk probe` as a person meets it, on this computer's loopback."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agents import TOKEN, running, token_file

from hulk.cli import main
from hulk.io.cluster_file import load_cluster
from warm import COMMAND

QUICK = ("--seconds", "0.2", "--most", "4 MB", "--samples", "1")
GPU = "gpu: v100-16, gpus: 2"


def agents_file(folder: Path, agents, *, extra: str = GPU) -> str:
    """An agents file for these agents, two in the first region and the others in one of their own each."""
    lines = ["regions: {x: {at: [41.9, 12.5]}}", "agents:"]
    for number, agent in enumerate(agents):
        region = "x" if number < 2 else f"r{number}"
        host, port = agent if isinstance(agent, tuple) else agent.address
        lines.append(f"  - {{name: m-{number}, region: {region}, address: '{host}:{port}', {extra}}}")
    (folder / "agents.yaml").write_text("\n".join(lines), encoding="utf-8")
    return "agents.yaml"


@pytest.fixture
def hulk(monkeypatch, capsys) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`hulk` in this process: nothing of it is compiled, so no warm process is needed."""

    def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["hulk", *arguments])
        monkeypatch.chdir(cwd)
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, stopped.value.code, out, err)

    return run


@pytest.fixture
def token(tmp_path: Path) -> str:
    return token_file(tmp_path).name


def test_from_agents_to_a_cluster_file_and_what_has_drifted(hulk, tmp_path, token):
    with running(3) as agents:
        given = ("--agents", agents_file(tmp_path, agents), "--token-file", token)
        done = hulk("probe", *given, "-o", "lab.yaml", *QUICK, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "m-0" in done.stdout and "r2 – x" in done.stdout
        cluster = load_cluster(tmp_path / "lab.yaml")
        assert [(m.name, m.gpu.name, m.gpus) for m in cluster.machines] == [(f"m-{n}", "v100-16", 2) for n in range(3)]
        assert {link.origin for link in (cluster.link("m-0", "m-1"), cluster.link("m-1", "m-2"))} == {"measured"}
        assert cluster.region("x").latitude == 41.9

        again = hulk("probe", *given, "-o", "lab.yaml", *QUICK, cwd=tmp_path)
        assert (again.returncode, "this file exists" in again.stderr) == (2, True)

        changed = (tmp_path / "lab.yaml").read_text(encoding="utf-8").replace("latency: ", "latency: 999", 1)
        (tmp_path / "old.yaml").write_text(changed, encoding="utf-8")
        drifted = hulk("probe", *given, "--update", "old.yaml", "-o", "new.yaml", "--json", *QUICK, cwd=tmp_path)
        assert drifted.returncode == 0, drifted.stderr
        links = json.loads(drifted.stdout)["links"]
        assert any("latency" in link["drifted"] for link in links)
        assert load_cluster(tmp_path / "new.yaml").link("m-0", "m-1").latency < 1.0
        table = hulk("probe", *given, "--update", "old.yaml", *QUICK, cwd=tmp_path)
        assert "have drifted by more than 10 %" in table.stdout
    assert {path.name for path in tmp_path.iterdir()} == {
        "probe.token", "agents.yaml", "lab.yaml", "old.yaml", "new.yaml",
    }  # fmt: skip


def test_what_is_wrong_is_told_on_one_line(hulk, tmp_path, token):
    closed = socket.create_server(("127.0.0.1", 0))
    nobody = closed.getsockname()
    closed.close()
    with running(1) as agents, running(1, b"the token of somebody else") as others:
        (tmp_path / "open.token").write_bytes(TOKEN)
        (tmp_path / "open.token").chmod(0o644)
        good = agents_file(tmp_path, agents)
        rows = (
            ((), "which machines?"),
            (("--agents", good, "--hosts", good, "-o", "a.yaml"), "which machines?"),
            (("--agents", good, "--token-file", token), "nothing to do"),
            (("--agents", good, "-o", "a.yaml"), "--token-file FILE"),
            (("--agents", good, "--token-file", "open.token", "-o", "a.yaml"), "others may use this token"),
            (("--agents", "none.yaml", "--token-file", token, "-o", "a.yaml"), "no such file"),
            (("--agents", good, "--token-file", token, "-o", "no/such/a.yaml"), "No such file"),
            (("--agents", good, "--token-file", token, "-o", "a.yaml", "--most", "5"), "no unit"),
            (("--agents", good, "--token-file", token, "-o", "a.yaml", "--time-limit", "inf"), "--time-limit"),
            (("--testbed", "nobody", "--token-file", token, "-o", "a.yaml"), "testbed"),
        )
        for arguments, words in rows:
            done = hulk("probe", *arguments, cwd=tmp_path)
            assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), (arguments, done.stderr)
            assert words in done.stderr, (arguments, done.stderr)
        for machines, words in (
            ([agents[0], nobody], "nothing listens there"),
            ([agents[0], others[0]], "another token"),
        ):
            given = ("--agents", agents_file(tmp_path, machines), "--token-file", token, "-o", "a.yaml")
            done = hulk("probe", *given, *QUICK, cwd=tmp_path)
            assert done.returncode == 2, done.stderr
            assert "1 of 2 agents do not answer: m-1 (127.0.0.1:" in done.stderr
            assert words in done.stderr
        done = hulk(
            "probe", "--agents", agents_file(tmp_path, agents, extra="price: 1 $/h"), "--token-file", token,
            "-o", "a.yaml", cwd=tmp_path,
        )  # fmt: skip
        assert (done.returncode, "which GPUs" in done.stderr) == (2, True)
    assert not (tmp_path / "a.yaml").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("agents: []", "at least 1"),
        ("agents: [{name: a, region: x}]", "agents[0].address: this key is missing"),
        ("agents: [{name: a, region: x, address: 'a b'}]", "is no address"),
        ("agents: [{name: a, region: x, address: 'h:99999'}]", "is no address"),
        ("agents: [{name: a, region: x, address: h}, {name: a, region: x, address: h}]", "given twice"),
        ("agents: [{name: x, region: x, address: h}]", "both a region and a machine"),
        ("agents: [{name: a, region: x, address: h, gpuss: 4}]", "did you mean 'gpus'?"),
    ],
)
def test_agents_files_are_checked(hulk, tmp_path, token, text, words):
    (tmp_path / "agents.yaml").write_text(text, encoding="utf-8")
    done = hulk("probe", "--agents", "agents.yaml", "--token-file", token, "-o", "a.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr


@contextlib.contextmanager
def served(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], tuple[str, int]]]:
    """`hulk probe serve` in a process of its own, once it listens."""
    command = [*COMMAND, "probe", "serve", *arguments]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("listening on "), process.communicate()
        host, _, port = line.split()[2].rpartition(":")
        try:
            yield process, (host, int(port))
        finally:
            process.kill()


def listens(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_agent_listens_on_loopback_and_ends_when_told(hulk, tmp_path, token, number):
    with served(tmp_path, "--token-file", token, "--port", "0") as (process, address):
        assert address[0] == "127.0.0.1"
        assert listens(address)
        busy = hulk("probe", "serve", "--token-file", token, "--port", str(address[1]), cwd=tmp_path)
        assert (busy.returncode, "is in use" in busy.stderr) == (2, True)
        process.send_signal(number)
        assert process.wait(20) == 0
        assert not listens(address)


def test_an_agent_ends_by_itself(tmp_path, token):
    with served(tmp_path, "--token-file", token, "--port", "0", "--for", "1") as (process, address):
        assert process.wait(30) == 0
        assert not listens(address)


def test_ctrl_c_leaves_no_file(tmp_path, token):
    with running(2) as agents:
        given = ("--agents", agents_file(tmp_path, agents), "--token-file", token, "-o", "a.yaml")
        command = [*COMMAND, "probe", *given, "--seconds", "10", "--most", "16 GB"]
        before = {path.name for path in tmp_path.iterdir()}
        with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
            while not any(agent.connected for agent in agents):  # until it has called
                assert run.poll() is None, run.communicate()
                os.sched_yield()
            run.send_signal(signal.SIGINT)
            _, words = run.communicate(timeout=400)
        assert run.returncode != 0
        assert "Traceback" not in words
        assert {path.name for path in tmp_path.iterdir()} == before


# ---- ssh ------------------------------------------------------------------------------------------------------------

FAKE_SSH = """#!{python}
import sys, os
destination = sys.argv[sys.argv.index("--") + 1]
assert "BatchMode=yes" in sys.argv
os.execv("/bin/sh", ["sh", "-c", sys.argv[-1]])
"""


@pytest.fixture
def ssh(tmp_path, monkeypatch):
    """A command `ssh` that runs here what it should run there, and a command `hulk`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "ssh").write_text(FAKE_SSH.format(python=sys.executable), encoding="utf-8")
    (folder / "hulk").write_text(
        f'#!/bin/sh\necho welcome\nexec {sys.executable} -c "{COMMAND[2]}" "$@"\n', encoding="utf-8"
    )
    for name in ("ssh", "hulk"):
        (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def hulk_with(environment: dict[str, str], *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


def test_agents_are_started_by_ssh_and_gone_afterwards(tmp_path, ssh):
    hosts = "# two of them\nme@localhost name=a region=x port=0 address=127.0.0.1 gpu=h100 gpus=8\n"
    hosts += "localhost name=b region=y port=0 address=127.0.0.1 gpu='rtx-3090' gpus=1 network='10 Gbit/s'\n"
    (tmp_path / "hosts.txt").write_text(hosts, encoding="utf-8")
    done = hulk_with(ssh, "probe", "--hosts", "hosts.txt", "-o", "lab.yaml", "--json", *QUICK, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [m.gpu.name for m in load_cluster(tmp_path / "lab.yaml").machines] == ["h100", "rtx-3090"]
    running = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) not in running


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'Host key verification failed.' >&2; exit 255", "does not know its host key"),
        ("echo 'me@h: Permission denied (publickey,password).' >&2; exit 255", "would ask for a password"),
        ("echo 'ssh: connect to host h port 22: Connection refused' >&2; exit 255", "Connection refused"),
        ("echo 'sh: 1: hulk: not found' >&2; exit 127", "say where it is with --hulk"),
        ("exit 3", "exit code 3"),
        ('echo \'{"hulk": "probe/0", "version": "0.0.1", "address": ["h", 1]}\'; cat', "0.0.1 there"),
        ('echo \'{"error": "port 5078 of 127.0.0.1 is in use"}\'', "is in use"),
    ],
)
def test_what_ssh_says_is_told_in_one_message(tmp_path, ssh, script, words):
    (tmp_path / "bin" / "ssh").write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    (tmp_path / "hosts.txt").write_text("me@localhost region=x name=a\n", encoding="utf-8")
    done = hulk_with(ssh, "probe", "--hosts", "hosts.txt", "-o", "lab.yaml", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "1 of 1 agents do not answer: a (me@localhost)" in done.stderr
    assert words in done.stderr


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("-oProxyCommand=touch$IFS/tmp/x region=x name=a", "nothing to connect to"),
        ("'a;b' region=x name=a", "nothing to connect to"),
        ("host", "region: this key is missing"),
        ("host region=x region=y", "given twice"),
        ("host region=x colour=red", "unknown key"),
        ("host region=x gpus=many", "whole number"),
        ("host region='x", "a quote that does not end"),
        ("no-such-host.invalid region=x", "no address is known"),
        ("# nobody", "no host in this file"),
    ],
)
def test_lists_of_hosts_are_checked(hulk, tmp_path, line, words):
    (tmp_path / "hosts.txt").write_text(f"\n{line}\n", encoding="utf-8")
    done = hulk("probe", "--hosts", "hosts.txt", "-o", "a.yaml", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr


SSHD = shutil.which("sshd") or ("/usr/sbin/sshd" if Path("/usr/sbin/sshd").exists() else None)


@pytest.fixture
def sshd(tmp_path, ssh) -> Iterator[Path]:
    """A real sshd on loopback that lets a key of this test in; a configuration for ssh with hosts `known`, `unknown`
    (its host key is not known) and `stranger` (no key)."""
    if SSHD is None or os.geteuid() != 0 or shutil.which("ssh-keygen") is None:
        pytest.skip("needs sshd, and root to start it")
    (tmp_path / "bin" / "ssh").unlink()
    for key in ("host", "mine"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / key], check=True)
    free = socket.create_server(("127.0.0.1", 0))
    port = free.getsockname()[1]
    free.close()
    shutil.copy(tmp_path / "mine.pub", tmp_path / "authorized")
    host_key = (tmp_path / "host.pub").read_text(encoding="ascii").strip()
    (tmp_path / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key}\n", encoding="ascii")
    common = f"  HostName 127.0.0.1\n  Port {port}\n  IdentitiesOnly yes\n"
    rows = {
        "known": (tmp_path / "mine", tmp_path / "known_hosts"),
        "unknown": (tmp_path / "mine", "/dev/null"),
        "stranger": ("/dev/null", tmp_path / "known_hosts"),
    }
    text = "".join(
        f"Host {name}\n{common}  IdentityFile {key}\n  UserKnownHostsFile {hosts}\n  GlobalKnownHostsFile /dev/null\n"
        for name, (key, hosts) in rows.items()
    )
    (tmp_path / "ssh_config").write_text(text, encoding="utf-8")
    options = [
        "-o", f"Port={port}", "-o", "ListenAddress=127.0.0.1", "-o", f"HostKey={tmp_path / 'host'}",
        "-o", f"AuthorizedKeysFile={tmp_path / 'authorized'}", "-o", "StrictModes=no", "-o", "UsePAM=no",
        "-o", "PidFile=none", "-o", "PermitRootLogin=yes", "-o", "PasswordAuthentication=no",
        "-o", f"SetEnv=PYTHONPATH={os.environ.get('PYTHONPATH', '')}",
    ]  # fmt: skip
    Path("/run/sshd").mkdir(exist_ok=True)
    with subprocess.Popen([SSHD, "-D", "-e", "-f", "/dev/null", *options], stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        assert "listening" in server.stderr.readline().lower()
        yield tmp_path
        server.kill()


def test_a_real_sshd(sshd):
    given = (
        "probe",
        "--ssh-config",
        "ssh_config",
        "--hulk",
        str(sshd / "bin" / "hulk"),
        "--hosts",
        "hosts.txt",
        *QUICK,
    )
    line = "port=0 address=127.0.0.1 gpu=h100 gpus=8"
    (sshd / "hosts.txt").write_text(f"known name=a region=x {line}\nknown name=b region=y {line}\n", encoding="utf-8")
    done = hulk_with({}, *given, "-o", "lab.yaml", cwd=sshd)
    assert done.returncode == 0, done.stderr
    assert load_cluster(sshd / "lab.yaml").link("a", "b").origin == "measured"
    for host, words in (("unknown", "does not know its host key"), ("stranger", "would ask for a password")):
        (sshd / "hosts.txt").write_text(f"{host} name=a region=x {line}\n", encoding="utf-8")
        done = hulk_with({}, *given, "-o", "other.yaml", cwd=sshd)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert words in done.stderr
