"""All agents of a listing, connected to or started, for as long as a block lasts."""

from __future__ import annotations

import contextlib
import secrets
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from hulk.errors import InputError
from hulk.io.agents_file import Listed
from hulk.probe.control import Caller, Starter, Station, hasty_pool, ssh_command
from hulk.probe.wire import Address, Line, WireError

_AT_ONCE = 32
_SPARE_SECONDS = 120.0  # that a started agent lives longer than it should need to

_HINTS = {
    "token": "this command and all agents need the same --token-file",
    "version": "install the same version of hulk on all machines",
    "refused": "start `hulk probe serve --token-file FILE --bind ADDRESS` there: without --bind it listens on loopback",
    "silent": "is it up, is `hulk probe serve --bind ADDRESS` running, does a firewall let its port through?",
}

Open = Callable[[Listed], tuple[Line, Address]]
Command = Callable[[Listed], Sequence[str]]


@contextlib.contextmanager
def called(machines: Sequence[Listed], token: bytes) -> Iterator[list[Station]]:
    """Lines to agents that run already; InputError that names all that do not answer, and why."""

    def open_one(listed: Listed) -> tuple[Line, Address]:
        address = (listed.host, listed.port)
        return Caller(address, token), address

    with _opened(machines, open_one) as stations:
        yield stations


@contextlib.contextmanager
def started(
    machines: Sequence[Listed], command: Command, *, seconds: float, ahead: bool = False
) -> Iterator[list[Station]]:
    """Agents started by commands, with a token that is made for them; they end with the block. `seconds` is how long
    they may be needed; `ahead`: they come before other processes of their machine."""
    token = secrets.token_hex(32)

    def open_one(listed: Listed) -> tuple[Line, Address]:
        settings = {"token": token, "bind": listed.bind or listed.host, "port": listed.port}
        line = Starter(command(listed), settings | {"seconds": seconds + _SPARE_SECONDS, "ahead": ahead})
        try:
            _, port = line.greet()
        except BaseException:
            line.close()
            raise
        return line, (listed.host, port)

    with _opened(machines, open_one) as stations:
        yield stations


def over_ssh(hulk: str, config: str | None = None) -> Command:
    """The command that starts an agent by ssh, where hulk is called so; `config` is for ssh."""
    return lambda listed: ssh_command(listed.ssh, hulk, config)


def resolved(listed: Listed) -> Listed:
    """The machine with an address instead of a name: a machine's own idea of its name is often its loopback."""
    try:
        found = socket.getaddrinfo(listed.host, listed.port, type=socket.SOCK_STREAM)
    except OSError:
        hint = "add address=… to its line: where the other machines reach it"
        raise InputError(f"no address is known for {listed.host!r}", hint=hint) from None
    return replace(listed, host=str(found[0][4][0]))


@contextlib.contextmanager
def _opened(machines: Sequence[Listed], open_one: Open) -> Iterator[list[Station]]:
    lines: list[Line] = []
    _allow_files(4 * len(machines) + 256)
    try:
        failed: list[tuple[Listed, WireError]] = []
        stations: list[Station] = []

        def attempt(listed: Listed) -> tuple[Line, Address] | WireError:
            try:
                line, address = open_one(listed)
            except WireError as error:
                return error
            lines.append(line)
            return line, address

        with hasty_pool(_AT_ONCE) as pool:
            for listed, result in zip(machines, pool.map(attempt, machines), strict=True):
                if isinstance(result, WireError):
                    failed.append((listed, result))
                else:
                    stations.append(Station(listed.given.name, listed.given.region, result[1], result[0]))
        if failed:
            raise _failure(failed, len(machines))
        yield stations
    finally:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(lambda line: line.close(), lines))


def _allow_files(count: int) -> None:
    """Raise the number of files that this process may have open, as far as that is left to it."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY and soft < count:
            most = count if hard == resource.RLIM_INFINITY else min(count, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _failure(failed: Sequence[tuple[Listed, WireError]], total: int) -> InputError:
    """One message for all that failed; the hint is that of the first."""
    words = [f"{each.given.name} ({each.ssh or f'{each.host}:{each.port}'}): {error}" for each, error in failed[:8]]
    if len(failed) > len(words):
        words.append(f"and {len(failed) - len(words)} more")
    ssh = bool(failed[0][0].ssh)
    hint = None if ssh else _HINTS.get(failed[0][1].reason)
    return InputError(f"{len(failed)} of {total} agents do not answer: {'; '.join(words)}", hint=hint)
