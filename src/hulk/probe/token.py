"""The token: what all agents of a cluster know and nobody else."""

from __future__ import annotations

import stat
from pathlib import Path

from hulk.errors import InputError
from hulk.io.files import read_file

_LEAST, _MOST = 16, 4096  # characters


def read_token(path: Path) -> bytes:
    """The token that a file holds; InputError where others can read it, or where it could be guessed."""
    token = read_file(path, most=_MOST).strip()
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise InputError(f"cannot read this file: {error.strerror}", where=str(path)) from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        hint = f"it is for its owner alone: chmod 600 {path}"
        raise InputError(f"others may use this token (mode {stat.S_IMODE(mode):03o})", where=str(path), hint=hint)
    if len(token) < _LEAST:
        hint = "make one: (umask 077; head -c 32 /dev/urandom | base64 > probe.token)"
        raise InputError(f"a token of {len(token)} characters; it needs {_LEAST} or more", where=str(path), hint=hint)
    return token
