"""A hosts file as text, a machine a line: `[user@]host key=value …`; # begins a comment."""

from __future__ import annotations

import re
import shlex
from typing import Any

from hulk.errors import InputError
from hulk.io.yamlfile import Document

_DESTINATION = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9._-]*@)?[A-Za-z0-9_][A-Za-z0-9._:%-]*")
_NUMBERS = ("gpus", "port")


def hosts_document(text: str, name: str) -> Document:
    """The lines as a document of the form that YAML has, so that what is wrong in it is told with its line."""
    hosts: dict[str, dict[str, Any]] = {}
    places: dict[tuple[int | str, ...], int] = {(): 1}
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{name}:{number}"
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            raise InputError("a quote that does not end", where=where) from None
        if not words:
            continue
        machine, said = _host(words, where)
        if machine in hosts:
            raise InputError(f"machine {machine!r} is given twice", where=where)
        hosts[machine] = said
        places["hosts", machine] = number
    if not hosts:
        raise InputError("no host in this file", where=name, hint="write a line for each: user@host region=rome")
    return Document(name, {"hosts": hosts}, "", places)


def _host(words: list[str], where: str) -> tuple[str, dict[str, Any]]:
    """A machine's name, and what its line says of it."""
    destination, *others = words
    if not _DESTINATION.fullmatch(destination):
        raise InputError(f"{destination!r} is nothing to connect to", where=where, hint="write [user@]host")
    found: dict[str, Any] = {"ssh": destination}
    for word in others:
        key, equals, value = word.partition("=")
        if not equals or key in found:
            raise InputError(f"{word!r} is not of the form key=value, or is given twice", where=where)
        found[key] = int(value) if key in _NUMBERS and value.isdecimal() and len(value) < 10 else value
    return found.pop("name", destination.rpartition("@")[2]), found
