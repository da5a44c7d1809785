"""Words of generated scripts. Every text that came from a file or an argument goes through `word` or a check here, so
that none of it is taken for a command, an option or another folder."""

from __future__ import annotations

import shlex
import unicodedata
from collections.abc import Iterable, Sequence

from hulk.errors import InputError

HEAD = "#!/usr/bin/env bash\n"
_UNSEEN = {"Cc", "Cs", "Zl", "Zp"}  # controls, line ends among them; half pairs, which no file can hold
_WIDTH = 110


def checked(text: str, what: str = "a text") -> str:
    """The text; InputError where a control character or a line end is in it."""
    if any(unicodedata.category(character) in _UNSEEN for character in text):
        raise InputError(f"{what} has a control character in it: {text!r}", hint="rename it")
    return text


def word(text: object, what: str = "a text") -> str:
    """One word of a command."""
    return shlex.quote(checked(str(text), what))


def file_name(name: str) -> str:
    """A name as the name of a file: InputError where it would lead to another folder, or look like an option."""
    if not name or "/" in name or name.startswith((".", "-")) or len(name.encode("utf-8", "replace")) > 200:
        raise InputError(f"{name!r} cannot be the name of a file", hint="rename it")
    return checked(name, "a name")


def host_name(address: str) -> str:
    """An address as ssh and other programs get it: InputError where it could be taken for an option or for more."""
    if not address or address.startswith("-") or any(c.isspace() or c in "/\\'\"`$;&|<>(){}*?!#," for c in address):
        raise InputError(f"{address!r} cannot be the address of a machine", hint="say where it is with --hosts")
    return checked(address, "an address")


def command(words: Iterable[str], *, indent: str = "    ") -> str:
    """A command of words that are quoted already, on as many lines as it takes."""
    lines, line = [], ""
    for each in words:
        if line and len(line) + len(each) >= _WIDTH:
            lines.append(line)
            line = indent
        line += each if not line or line == indent else f" {each}"
    return " \\\n".join([*lines, line])


def array(name: str, words: Sequence[str]) -> str:
    """A bash array of words that are quoted already."""
    return f"{name}=(\n" + "".join(f"    {each}\n" for each in words) + ")\n"


def label(name: str, *, dots: bool = True) -> str:
    """A name of small letters, digits and dashes (and dots) alone that begins with a letter, for systems that take no
    others. It is short: what Kubernetes makes of it must have at most 63 characters."""
    kept = "".join(c if c.isascii() and (c.isalnum() or (dots and c == ".")) else "-" for c in name.lower())
    kept = kept.strip("-.")
    return (kept if kept[:1].isalpha() else f"job-{kept}")[:30].rstrip("-.")
