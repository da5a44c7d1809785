"""Real testbeds: namespaces, TUN devices, TCP. Skipped where this machine cannot hold one."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from wide import THREE, fresh_name, needs_testbed, wide_cluster

from hulk.errors import HulkError, InputError
from hulk.testbed import Testbed, check, namespaces, state

pytestmark = needs_testbed
CLUSTER = wide_cluster(THREE)
ATTEMPTS = 3  # another process may take the processor away in the middle of a measurement


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    with Testbed.up(CLUSTER, name=fresh_name()) as made:
        yield made


@pytest.fixture
def name() -> Iterator[str]:
    """A name of which nothing is left afterwards."""
    made = fresh_name()
    yield made
    assert leftovers(made) == []


def leftovers(name: str) -> list[str]:
    files = [str(path) for path in state.FOLDER.glob(f"{name}.*")]
    return files + [each for each in namespaces.existing() if each.startswith(f"hulk-{name}-")]


def eventually(holds: Callable[[], bool]) -> bool:
    return any(holds() for _ in range(ATTEMPTS))


def kill(pid: int) -> None:
    """Kill a process and see it gone."""
    handle = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    assert select.select([handle], (), (), 10)[0]
    os.close(handle)


def run(testbed: Testbed, machine: str, code: str) -> subprocess.CompletedProcess[str]:
    command = testbed.command(machine, [sys.executable, "-c", code])
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize("pair", [("a", "b"), ("c", "a")])
def test_latency_and_throughput_are_those_of_the_cluster(testbed, pair):
    assert eventually(lambda: check(testbed, [pair], seconds=1.0)[0].ok)


def test_blocked_and_cut_machines_hear_nothing(testbed):
    (blocked,) = check(testbed, [("b", "c")])
    assert (blocked.blocked, blocked.latency, blocked.ok) == (True, None, True)
    testbed.cut("b")
    (cut,) = check(testbed, [("a", "b")], seconds=0.5)
    assert (cut.blocked, cut.latency, cut.ok) == (False, None, False)
    assert testbed.traffic()["cut"] == [1]
    testbed.restore("b")
    assert eventually(lambda: check(testbed, [("a", "b")], seconds=0.5)[0].latency_ok)


def test_a_machine_has_its_address_its_device_and_a_loopback(testbed):
    code = (
        "import json, socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname());"
        f"w = socket.socket(); w.bind(('{testbed.address('c')}', 0));"
        "print(json.dumps([each for _, each in socket.if_nameindex()]))"
    )
    done = run(testbed, "c", code)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) >= {"lo", testbed.interface("c")}
    assert testbed.address("c") == "10.77.0.3"
    with pytest.raises(OSError), socket.socket() as outside:
        outside.bind((testbed.address("c"), 0))


def test_the_name_is_taken_while_it_is_up(testbed):
    with pytest.raises(InputError, match="is up already"):
        Testbed.up(CLUSTER, name=testbed.name)
    assert Testbed.attach(testbed.name).address("b") == testbed.address("b")
    assert testbed.name in {each.name for each in Testbed.all()}


def test_two_testbeds_do_not_see_each_other(testbed, name):
    with Testbed.up(wide_cluster({}, machines="ab"), name=name) as other:
        done = subprocess.run(["ip", "-n", other.namespace("a"), "route"], capture_output=True, text=True, check=True)
        assert "10.77.0.3" not in done.stdout
        assert run(testbed, "a", "pass").returncode == 0


def test_down_ends_what_runs_inside(name):
    testbed = Testbed.up(CLUSTER, name=name)
    code = "import sys, time; print('there', flush=True); time.sleep(600)"
    worker = subprocess.Popen(testbed.command("a", [sys.executable, "-c", code]), stdout=subprocess.PIPE)
    with worker:
        assert worker.stdout is not None and worker.stdout.readline()
        testbed.down()
        assert worker.wait(10) == -signal.SIGTERM
    testbed.down()
    with pytest.raises(HulkError, match="does not answer"):
        testbed.cut("a")


def test_a_killed_router_is_cleaned_up_after_and_the_name_is_free_again(name):
    first = Testbed.up(CLUSTER, name=name)
    kill(first.pid)
    with Testbed.up(CLUSTER, name=name) as second:
        assert run(second, "a", "pass").returncode == 0
        first.down()  # not its own any more
        assert second.traffic()["paths"]


@pytest.mark.parametrize("finder", ["up", "all", "attach", "down"])
def test_when_router_and_janitor_are_killed_the_next_command_cleans_up(name, finder):
    first = Testbed.up(CLUSTER, name=name)
    janitor = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text(encoding="ascii")
    kill(int(janitor))
    kill(first.pid)
    assert len(leftovers(name)) == 5  # three namespaces, socket and state
    if finder == "up":
        Testbed.up(CLUSTER, name=name).down()
    elif finder == "all":
        assert name not in {each.name for each in Testbed.all()}
    elif finder == "attach":
        with pytest.raises(InputError, match="no testbed"):
            Testbed.attach(name)
    else:
        first.down()


def test_it_goes_down_with_the_process_that_made_it(name):
    code = (
        "import os, signal, sys; sys.path.insert(0, sys.argv[2]); sys.path.insert(0, sys.argv[3])\n"
        "from wide import THREE, wide_cluster\n"
        "from hulk.testbed import Testbed\n"
        "testbed = Testbed.up(wide_cluster(THREE), name=sys.argv[1])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    here = Path(__file__).parent
    done = subprocess.run([sys.executable, "-c", code, name, str(here), str(here.parent)], timeout=400, check=False)
    assert done.returncode == -signal.SIGKILL
    state.wait_and_clear(name, 10)
