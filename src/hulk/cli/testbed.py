"""`hulk testbed`: a wide-area network on this machine, with the latencies and bandwidths of a cluster file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hulk.cli.price import JsonOption

if TYPE_CHECKING:
    from hulk.testbed import Reading, Testbed

app = typer.Typer(
    help="A wide-area network on this machine: a namespace per machine of a cluster, and its links between them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

NameOption = Annotated[str, typer.Option("--name", help="which testbed, where there are several")]
MachineArgument = Annotated[str, typer.Argument(help="a machine of the cluster")]

# Above this the router of a common machine may not keep up; it is a warning, not a limit. Bytes/s.
_FAST = 1e9 / 8


@app.command()
def up(
    cluster: Annotated[str, typer.Argument(help="a cluster file, or the name of a bundled cluster")],
    name: NameOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Build the network of a cluster (Linux, as root; up to 16 machines). It stays until `hulk testbed down`."""
    from hulk.cli.screen import print_json
    from hulk.io.cluster_file import load_cluster

    testbed = _testbeds().up(load_cluster(cluster), name=name, detached=True)
    if as_json:
        print_json(_to_json(testbed, testbed.traffic()))
        return
    _render(testbed, testbed.traffic())
    fast = sum(wire.most > _FAST for wire in testbed.network.wires)
    if fast:
        typer.echo(
            f"note: {fast} of the links carry more than 1 Gbit/s; the router may not keep up with them", err=True
        )


@app.command()
def down(name: NameOption = "default") -> None:
    """Take the network down, and end what still runs on its machines."""
    _testbeds().attach(name).down()


@app.command()
def status(as_json: JsonOption = False) -> None:
    """Print the testbeds of this machine: their machines, and what the network has carried."""
    from hulk.cli.screen import print_json

    answers = _answers(_testbeds().all())
    if as_json:
        print_json({"hulk": "testbeds/1", "testbeds": [_to_json(*answer) for answer in answers]})
    elif not answers:
        typer.echo("no testbed is up")
    for answer in answers if not as_json else ():
        _render(*answer)


def _answers(testbeds: Sequence[Testbed]) -> list[tuple[Testbed, dict[str, Any]]]:
    """What each testbed's network has carried. One that goes down at this moment is no reason to tell of none."""
    from hulk.errors import HulkError

    found = []
    for testbed in testbeds:
        try:
            found.append((testbed, testbed.traffic()))
        except HulkError as error:
            typer.echo(f"testbed {testbed.name} is left out: {error}; it may be going down", err=True)
    return found


@app.command("exec", context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
def execute(
    machine: MachineArgument,
    command: Annotated[list[str], typer.Argument(help="what to run there, with its arguments")],
    name: NameOption = "default",
) -> None:
    """Run a command on a machine: here, but with that machine's network. Options come before MACHINE."""
    from hulk.errors import InputError

    line = _testbeds().attach(name).command(machine, command)
    if shutil.which(command[0]) is None:
        raise InputError(f"no command {command[0]!r} on this machine")
    os.execvp(line[0], line)  # noqa: S606 - no shell: the command takes the place of this process, with its exit code


@app.command()
def cut(machine: MachineArgument, name: NameOption = "default") -> None:
    """Drop every packet from and to a machine, as if its line had been cut."""
    _testbeds().attach(name).cut(machine)


@app.command()
def restore(machine: MachineArgument, name: NameOption = "default") -> None:
    """Connect a machine again that was cut off."""
    _testbeds().attach(name).restore(machine)


@app.command("check")
def measure(
    name: NameOption = "default",
    pairs: Annotated[int, typer.Option(help="measure at most this many pairs, drawn at random", min=1)] = 15,
    seconds: Annotated[float, typer.Option(help="how long to measure each throughput", min=0.5, max=60)] = 2.0,
    seed: Annotated[int, typer.Option(help="seed of the draw", min=0)] = 0,
    as_json: JsonOption = False,
) -> None:
    """Measure latency and throughput inside the network. Exit code 1 where they are not what the cluster says: latency
    within 2 ms or 5 %, throughput within 10 % (up to 200 Mbit/s)."""
    from hulk.cli.screen import print_json
    from hulk.testbed import check
    from hulk.testbed.check import choose

    testbed = _testbeds().attach(name)
    readings = check(testbed, choose(testbed, pairs, seed=seed), seconds=seconds)
    if as_json:
        found = [_reading_json(reading) for reading in readings]
        print_json({"hulk": "testbed-check/1", "testbed": name, "pairs": found})
    else:
        _render_readings(readings)
    if not all(reading.ok for reading in readings):
        raise typer.Exit(code=1)


def _testbeds() -> type[Testbed]:
    """The class, imported once this machine is known to be one it works on."""
    from hulk.testbed.requirements import require

    require()
    from hulk.testbed import Testbed

    return Testbed


def _to_json(testbed: Testbed, traffic: dict[str, Any]) -> dict[str, Any]:
    network = testbed.network
    names = [host.name for host in network.hosts]
    return {
        "name": testbed.name,
        "cluster": network.cluster,
        "pid": testbed.pid,
        "machines": [
            {
                "name": host.name,
                "address": host.address,
                "interface": testbed.interface(host.name),
                "namespace": testbed.namespace(host.name),
                "cut": index in traffic["cut"],
            }
            for index, host in enumerate(network.hosts)
        ],
        "links": [
            {
                "between": [names[a], names[b]],
                "blocked": wire is None,
                "latency_s": None if wire is None else wire.latency,
                "bytes_per_s": None if wire is None else wire.most,
            }
            for a, b, wire in network.pairs()
        ],
        "traffic": [
            path | {"source": names[path["source"]], "target": names[path["target"]]} for path in traffic["paths"]
        ],
    }


def _reading_json(reading: Reading) -> dict[str, Any]:
    """Seconds one way, bytes/s; null where nothing came through or nothing should."""
    return {
        "source": reading.source,
        "target": reading.target,
        "blocked": reading.blocked,
        "expected_latency_s": reading.expected_latency,
        "latency_s": reading.latency,
        "expected_bytes_per_s": reading.expected_throughput,
        "bytes_per_s": reading.throughput,
        "ok": reading.ok,
    }


def _render(testbed: Testbed, traffic: dict[str, Any]) -> None:
    from hulk.cli.screen import console, table
    from hulk.units import format_size

    network = testbed.network
    sent, received, dropped = ([0] * len(network.hosts) for _ in range(3))
    for path in traffic["paths"]:
        sent[path["source"]] += path["bytes"]
        received[path["target"]] += path["bytes"]
        dropped[path["source"]] += path["dropped"]
    screen = console()
    screen.print(
        f"testbed {testbed.name}: cluster {network.cluster}, {len(network.hosts)} machines, "
        f"{len(network.wires)} links, router process {testbed.pid}"
    )
    numbers = ("sent", "received", "dropped")
    rows = table("machine", "address", "namespace", *numbers, "", right=numbers)
    for index, host in enumerate(network.hosts):
        rows.add_row(
            host.name,
            host.address,
            testbed.namespace(host.name),
            format_size(sent[index]),
            format_size(received[index]),
            f"{dropped[index]:,}",
            "cut off" if index in traffic["cut"] else "",
        )
    screen.print(rows)


def _render_readings(readings: list[Reading]) -> None:
    from hulk.cli.screen import console, table
    from hulk.units import format_bandwidth, format_time

    def cell(value: float | None, show: Any) -> str:
        return "–" if value is None else show(value)

    numbers = ("latency", "measured", "bandwidth", "throughput")
    rows = table("from", "to", *numbers, "", right=numbers)
    for reading in readings:
        wrong = [
            what for what, ok in (("latency", reading.latency_ok), ("throughput", reading.throughput_ok)) if not ok
        ]
        rows.add_row(
            reading.source,
            reading.target,
            "blocked" if reading.expected_latency is None else format_time(reading.expected_latency),
            cell(reading.latency, format_time),
            cell(reading.expected_throughput, format_bandwidth),
            cell(reading.throughput, format_bandwidth),
            f"{' and '.join(wrong)} off" if wrong else "ok",
        )
    screen = console()
    screen.print(rows)
    good = sum(reading.ok for reading in readings)
    screen.print(f"{good} of {len(readings)} pairs as the cluster says; latency one way", style="dim")
