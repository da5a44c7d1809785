"""`hulk probe`: measure the machines of a cluster and what connects them, and write the cluster file."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hulk.cli.price import JsonOption

if TYPE_CHECKING:
    from hulk.domain.cluster import Cluster
    from hulk.io.agents_file import Listing
    from hulk.probe.control import Station
    from hulk.probe.links import FoundLink
    from hulk.probe.opening import Command
    from hulk.probe.survey import Effort, Survey
    from hulk.probe.written import Made

app = typer.Typer(
    help="Measure machines and the network between them: latency, bandwidth, shared lines, blocked pairs.",
    invoke_without_command=True,
    rich_markup_mode=None,
)

_PORT = 5078
_HOUR = 3600.0

TokenOption = Annotated[
    Path | None, typer.Option("--token-file", help="the secret that all agents share; readable by its owner alone")
]
PortOption = Annotated[int, typer.Option(help="where agents listen", min=0, max=65535)]


@app.callback()
def probe(
    context: typer.Context,
    agents: Annotated[
        Path | None,
        typer.Option(help="machines on which `hulk probe serve` runs: a YAML file with names and addresses"),
    ] = None,
    hosts: Annotated[
        Path | None, typer.Option(help="machines on which ssh starts the agents and ends them: a line each")
    ] = None,
    testbed: Annotated[str | None, typer.Option(help="the machines of this testbed (`hulk testbed up`)")] = None,
    token_file: TokenOption = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="write the cluster file here")] = None,
    update: Annotated[
        str | None, typer.Option(help="a cluster file: measure its machines again, and show what has drifted")
    ] = None,
    name: Annotated[str | None, typer.Option(help="the cluster's name; the file's if not given")] = None,
    full: Annotated[
        bool, typer.Option("--full", help="all pairs of machines, not some between and inside regions")
    ] = False,
    samples: Annotated[int, typer.Option(help="pairs between two regions, and inside one", min=1, max=100)] = 3,
    seconds: Annotated[float, typer.Option(help="how long a bandwidth is measured", min=0.2, max=10)] = 1.5,
    most: Annotated[str, typer.Option("--most", help="what one measurement may send")] = "2 GB",
    flows: Annotated[int, typer.Option(help="how many flows are several", min=2, max=16)] = 4,
    at_once: Annotated[int, typer.Option(help="measurements at the same time, at most", min=1, max=64)] = 8,
    time_limit: Annotated[float, typer.Option(help="seconds for all of it; what is left is estimated", min=1)] = 900.0,
    port: PortOption = _PORT,
    hulk: Annotated[str, typer.Option(help="with --hosts: how hulk is called there")] = "hulk",
    ssh_config: Annotated[Path | None, typer.Option(help="with --hosts: a configuration for ssh (its -F)")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace the file that -o names")] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure all machines and the links between them, and write a cluster file with what was found. Machines are
    given by --agents, --hosts or --testbed."""
    if context.invoked_subcommand is not None:
        return
    from hulk.cli.probe_report import render_drift, render_machines, render_survey, survey_json
    from hulk.cli.screen import console, print_json
    from hulk.errors import InputError
    from hulk.io.cluster_file import load_cluster
    from hulk.probe.drift import drift, drifted_machines
    from hulk.probe.links import found_links
    from hulk.probe.machines import found_machines
    from hulk.probe.opening import over_ssh

    effort = _effort(full, samples, seconds, most, flows, at_once, time_limit)
    if sum(each is not None for each in (agents, hosts, testbed)) != 1:
        raise InputError("which machines? give one of --agents, --hosts and --testbed")
    if output is None and update is None:
        raise InputError("nothing to do with the figures", hint="-o FILE writes a cluster file, --update FILE compares")
    base = None if update is None else load_cluster(update)
    listing = _listing(agents, hosts, testbed, port, base)
    check_new(output, overwrite)
    command = over_ssh(hulk, None if ssh_config is None else str(ssh_config))
    found = _survey(listing, _stations(listing, agents, hosts, testbed, token_file, command, effort), effort, base)
    links = found_links(found)
    made = _made(found, links)
    if output is not None:
        _write(output, update, name, listing, found, links, made)
    # A testbed's machines are this computer, whatever the file says that they stand for.
    given = [each.given for each in listing.machines] if testbed is None else []
    others = [] if base is None else drifted_machines(base, given, found.facts)
    if as_json:
        print_json(survey_json(found, links, None if base is None else drift(base, links), others))
        return
    screen = console()
    if base is None:
        render_survey(found, links, found_machines([each.given for each in listing.machines], found.facts), screen)
    else:
        if others:
            render_machines(others, screen)
        render_drift(drift(base, links), screen)
    for words in found.missed:
        screen.print(f"not measured: {words}", soft_wrap=True)
    if output is not None:
        kept = any(each.changed for each in others)
        screen.print(f"written: {output}{', with the machines as they were' if kept else ''}", style="dim")


@app.command()
def serve(
    token_file: TokenOption = None,
    bind: Annotated[
        str, typer.Option(help="the address to listen on; others reach it only if it is not loopback")
    ] = "127.0.0.1",
    port: PortOption = _PORT,
    lasting: Annotated[float, typer.Option("--for", help="seconds after which it ends by itself", min=1)] = _HOUR,
    stdio: Annotated[
        bool, typer.Option("--stdio", help="take settings and orders from standard input, as `hulk probe --hosts` does")
    ] = False,
) -> None:
    """Let this machine be measured by those who know the token, until Ctrl-C or for an hour."""
    import signal

    from hulk.errors import InputError
    from hulk.probe.agent import Agent, listen
    from hulk.probe.started import main
    from hulk.probe.token import read_token
    from hulk.units import format_time, positive_finite

    if stdio:
        main()
        return
    if token_file is None:
        raise InputError("an agent needs a token", hint="--token-file FILE")
    token = read_token(token_file)
    seconds = positive_finite(lasting, "--for", most=366 * 24 * _HOUR)
    agent = Agent(listen(bind, port), token)
    signal.signal(signal.SIGTERM, lambda number, frame: agent.stop())
    signal.signal(signal.SIGINT, lambda number, frame: agent.stop())
    host, at = agent.address
    typer.echo(f"listening on {host}:{at} for {format_time(seconds)}; Ctrl-C ends it")
    sys.stdout.flush()
    agent.serve(seconds)


def _effort(full: bool, samples: int, seconds: float, most: str, flows: int, at_once: int, time_limit: float) -> Effort:
    from hulk.probe.link import MOST_BYTES
    from hulk.probe.survey import Effort
    from hulk.units import Dimension, parse, positive_finite

    positive_finite(time_limit, "--time-limit", most=7 * 24 * _HOUR)
    positive_finite(seconds, "--seconds", most=10.0)
    size = int(positive_finite(parse(most, Dimension.SIZE), "--most", most=float(MOST_BYTES)))
    return Effort(seconds, size, flows, samples, full, at_once, time_limit)


def _listing(agents: Path | None, hosts: Path | None, testbed: str | None, port: int, base: Cluster | None) -> Listing:
    """The machines to measure; of a cluster that is measured again, what the file says of them."""
    from hulk.errors import InputError, nearest
    from hulk.io.agents_file import Given, Listed, Listing, load_agents, load_hosts
    from hulk.probe.opening import resolved

    if agents is not None:
        listing = load_agents(agents, port=port)
    elif hosts is not None:
        listing = load_hosts(hosts, port=port)
        listing = Listing(tuple(map(resolved, listing.machines)), listing.regions, listing.name)
    else:
        from hulk.testbed.requirements import require

        require()
        from hulk.testbed import Testbed

        network = Testbed.attach(testbed or "default").network
        machines = (Listed(Given(name=h.name, region=h.region), h.address, port) for h in network.hosts)
        listing = Listing(tuple(machines), name=network.cluster)
    for each in listing.machines if base is not None else ():
        assert base is not None
        known = {machine.name: machine.region for machine in base.machines}
        if each.given.name not in known:
            raise InputError(
                f"no machine {each.given.name!r} in cluster {base.name!r}", hint=nearest(each.given.name, known)
            )
        if known[each.given.name] != each.given.region:
            words = f"machine {each.given.name!r} is in {known[each.given.name]!r}, not in {each.given.region!r}"
            raise InputError(f"{words}, says cluster {base.name!r}")
    return listing


def _stations(
    listing: Listing,
    agents: Path | None,
    hosts: Path | None,
    testbed: str | None,
    token_file: Path | None,
    command: Command,
    effort: Effort,
) -> AbstractContextManager[list[Station]]:
    """The agents: called where they run, started by ssh or in the testbed's namespaces."""
    from hulk.errors import InputError
    from hulk.probe.opening import called, started
    from hulk.probe.token import read_token

    if agents is not None:
        if token_file is None:
            raise InputError("agents that run answer those who know their token", hint="--token-file FILE")
        return called(listing.machines, read_token(token_file))
    if token_file is not None:
        raise InputError("--token-file: agents that are started here get a token of their own")
    if hosts is not None:
        return started(listing.machines, command, seconds=effort.limit)
    from hulk.testbed import Testbed

    network = Testbed.attach(testbed or "default")
    # -P: root runs no code from the folder it is in.
    python = [sys.executable, "-P", "-m", "hulk.probe.started"]
    return started(
        listing.machines,
        lambda listed: network.command(listed.given.name, python),
        seconds=effort.limit,
        ahead=True,
    )


def check_new(output: Path | None, overwrite: bool) -> None:
    """InputError where -o names a file that cannot be written, or one that is there already."""
    from hulk.errors import InputError
    from hulk.io.files import check_output

    check_output(output, "-o")
    if output is not None and output.exists() and not overwrite:
        raise InputError("this file exists", where=f"-o {str(output)!r}", hint="choose another name, or --overwrite")


def _survey(
    listing: Listing, stations: AbstractContextManager[list[Station]], effort: Effort, base: Cluster | None
) -> Survey:
    """Measure, with a bar where somebody looks. What nobody could make a cluster file of is found out before."""
    from dataclasses import replace

    from hulk.cli.progress import bar
    from hulk.cli.screen import console
    from hulk.probe.machines import found_machines
    from hulk.probe.survey import ask_facts, survey

    if base is not None:
        effort = replace(effort, also=frozenset(base.machine_links))
    screen = console(sys.stderr)
    with stations as opened, bar("measurements", screen, visible=sys.stderr.isatty(), transient=True) as bars:
        task = bars.add_task("who reaches whom", total=None)
        if base is None:
            found_machines([each.given for each in listing.machines], ask_facts(opened))
        return survey(
            opened,
            effort,
            lambda done, total, words: bars.update(task, completed=done, total=total, description=words),
        )


def _made(found: Survey, links: list[FoundLink]) -> Made:
    from hulk import __version__
    from hulk.probe.written import Made
    from hulk.units import format_size, format_time

    now = datetime.now(UTC)
    pairs = len({frozenset((each.source, each.target)) for each in found.readings})
    words = (
        f"Measured by hulk probe {__version__} on {now:%Y-%m-%d} at {now:%H:%M} UTC: {len(found.regions)} machines, "
        f"{pairs} of {len(found.trips) + len(found.blocked)} pairs, {len(found.blocked)} of them blocked; "
        f"{format_size(found.size)} sent in {format_time(found.seconds)}."
    )
    if found.missed:
        words += f" Not measured: {'; '.join(found.missed[:5])}."
    return Made(f"{now:%Y-%m-%d}", words)


def _write(
    output: Path,
    update: str | None,
    name: str | None,
    listing: Listing,
    found: Survey,
    links: list[FoundLink],
    made: Made,
) -> None:
    """Write the file, once it is known to be one that Hulk reads."""
    from hulk.io.cluster_file import read_cluster
    from hulk.io.files import bundled_names, write_atomic
    from hulk.io.yamlfile import parse_document
    from hulk.probe.machines import found_machines
    from hulk.probe.written import cluster_text, update_text

    called = name or listing.name or output.stem
    if update is None:
        machines = found_machines([each.given for each in listing.machines], found.facts)
        text = cluster_text(called, listing.regions, machines, links, made)
    else:
        bundled = update in bundled_names("clusters")
        extends = update if bundled else os.path.relpath(update, output.parent)
        text = update_text(called, extends if bundled or "/" in extends else f"./{extends}", links, made)
    read_cluster(parse_document(text, name=output.name), folder=output.parent)
    write_atomic(output, text)
