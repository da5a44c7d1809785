"""Standard output and error, guarded: nothing raw reaches a terminal, whoever prints it, every character can be written
in whatever encoding there is, and a result that could not be written is an error."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import TextIO

from hulk.errors import OutputError
from hulk.text import ERRORS, safe


class Guarded(io.TextIOBase):
    """A stream that makes all text safe before it is written. `trusted` is the same stream for what is safe already and
    may hold a terminal's own codes: the console's styles."""

    def __init__(self, inner: TextIO, *, must_arrive: bool, trusted: Guarded | None = None) -> None:
        self._inner = inner
        self._must_arrive = must_arrive
        self._clean = trusted is not None
        self.trusted = self if trusted is None else trusted

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """What the text is written in."""
        return self._inner.encoding or "utf-8"

    def isatty(self) -> bool:
        """Whether a person looks at it."""
        return self._inner.isatty()

    def fileno(self) -> int:
        """The descriptor."""
        return self._inner.fileno()

    def writable(self) -> bool:
        """It is made for that."""
        return True

    def write(self, text: str) -> int:
        """Writes the text; OutputError where what is written here must arrive and does not."""
        try:
            self._inner.write(safe(text) if self._clean else text)
        except (OSError, ValueError) as error:  # ValueError: closed
            self._lost(error)
        return len(text)

    def flush(self) -> None:
        """Writes what waits."""
        try:
            self._inner.flush()
        except (OSError, ValueError) as error:
            self._lost(error)

    def _lost(self, error: Exception) -> None:
        if not self._must_arrive:
            return
        _let_go(self._inner)
        if isinstance(error, BrokenPipeError):  # `hulk show … | head`: the reader has had enough and needs no message
            raise OutputError("") from None
        reason = getattr(error, "strerror", None) or str(error)
        raise OutputError(f"the result could not be written to standard output: {reason}") from None


def guard() -> None:
    """Put guards in front of standard output and error."""
    _keep_descriptors()
    sys.stdout = _guarded(sys.stdout, 1, must_arrive=True)
    sys.stderr = _guarded(sys.stderr, 2, must_arrive=False)


def _let_go(stream: TextIO) -> None:
    """Let what still waits to be written there go nowhere, so that Python's own flush at the end is quiet."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _keep_descriptors() -> None:
    """A closed standard stream leaves its number to the next file that is opened, which others would then write into.
    /dev/null takes its place: to read only for output, so that writing still fails."""
    for number, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)  # takes the lowest free number: this one


def _guarded(stream: TextIO | None, number: int, *, must_arrive: bool) -> Guarded:
    if isinstance(stream, Guarded):
        return stream
    if stream is None:  # closed when Python started
        stream = open(number, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - lives as long as the program
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors=ERRORS)
    plain = Guarded(stream, must_arrive=must_arrive)
    return Guarded(stream, must_arrive=must_arrive, trusted=plain)
