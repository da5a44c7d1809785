"""`hulk serve`: the page, live."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import socket

    from hulk.serve.guard import App

TOKEN = "HULK_TOKEN"  # noqa: S105  the name of an environment variable
"""The environment variable that holds the token; one is made where it is not set."""

HostOption = Annotated[str, typer.Option(help="the address to listen on; others than loopback need a token")]
PortOption = Annotated[int, typer.Option(min=0, max=65535, help="the port; 0: any that is free")]
HistoryOption = Annotated[str | None, typer.Option(help="keep plans in this file (SQLite)")]
OpenOption = Annotated[bool, typer.Option("--open", help="open the page in the browser")]

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def serve(
    host: HostOption = "127.0.0.1",
    port: PortOption = 8047,
    history: HistoryOption = None,
    open_it: OpenOption = False,
) -> None:
    """Serve the page: plan, compare, try what-ifs and plan again in the browser. Ctrl-C ends it.

    On another address than loopback everyone needs the token that is printed, or that of the variable HULK_TOKEN.
    """
    from hulk.cli.inputs import announce_compilation
    from hulk.planner import is_compiled

    token = token_for(host)
    need_page()
    from hulk.io.files import check_output
    from hulk.serve.app import history_path, make_app
    from hulk.serve.background import listening
    from hulk.serve.history import History
    from hulk.serve.limits import Limits

    check_output(history, "--history")
    limits = Limits()
    with listening(host, port) as sock:
        kept = History(Path(history).absolute() if history is not None else history_path(), most=limits.kept)
        if not is_compiled():
            announce_compilation(search=True)
            import hulk.serve.warm  # noqa: F401  compiles
        listen(make_app(kept, limits=limits, token=token), sock, host, token, open_it=open_it)


def need_page() -> None:
    """InputError where what the page needs is not installed."""
    from importlib.util import find_spec

    from hulk.errors import InputError

    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        raise InputError("the page needs more packages", hint="pip install 'hulk[page]'")


def token_for(host: str) -> str | None:
    """The token that everyone needs; None on loopback, unless one is set."""
    from hulk.errors import InputError

    given = os.environ.get(TOKEN)
    if given is not None and not re.fullmatch(r"[A-Za-z0-9_-]{16,200}", given):
        raise InputError(f"{TOKEN} must be 16 to 200 letters, digits, - or _", hint="leave it out: one is made")
    if given is None and host not in _LOOPBACK:
        return secrets.token_urlsafe(24)
    return given


def listen(app: App, sock: socket.socket, host: str, token: str | None, *, open_it: bool) -> None:
    """Serve an app on a socket until Ctrl-C, and say where it is."""
    import webbrowser

    from hulk.serve.background import address_of, server_of

    address = address_of(host, sock) + (f"?token={token}" if token else "")
    typer.echo(f"the page: {address}")
    if token and host not in _LOOPBACK:
        typer.echo("warning: this is not encrypted; put it behind TLS, or reach it through ssh -L", err=True)
    if open_it and not webbrowser.open(address):
        typer.echo("warning: no browser was found; open the address yourself", err=True)
    server_of(app).run(sockets=[sock])
