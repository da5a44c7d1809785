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


class Plain(io.TextIOBase):
    """A stream that says so where what must arrive did not, and keeps the `error`: not every caller passes it on."""

    def __init__(self, inner: TextIO, *, must_arrive: bool) -> None:
        self._inner = inner
        self._must_arrive = must_arrive
        self.error: OutputError | None = None

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
        """Writes the text; OutputError where it must arrive and does not."""
        try:
            if text:
                self._inner.write(text)
        except (OSError, ValueError) as error:  # ValueError: closed
            self._lose(error)
        return len(text)

    def flush(self) -> None:
        """Writes what waits."""
        try:
            self._inner.flush()
        except (OSError, ValueError) as error:
            self._lose(error)

    def _lose(self, error: Exception) -> None:
        if not self._must_arrive:
            return
        reason = getattr(error, "strerror", None) or str(error)
        # `hulk show … | head`: a reader who has had enough needs no message.
        words = "" if isinstance(error, BrokenPipeError) else f"the result could not be written: {reason}"
        self.error = OutputError(words)
        _let_go(self._inner)
        raise self.error from None


class Guarded(Plain):
    """A stream that makes all text safe before it is written. `trusted` is the same stream for what is safe already and
    may hold a terminal's own codes: the console's styles."""

    def __init__(self, inner: TextIO, *, must_arrive: bool) -> None:
        super().__init__(inner, must_arrive=must_arrive)
        self.trusted = Plain(inner, must_arrive=must_arrive)

    def write(self, text: str) -> int:
        """Writes the text, made safe."""
        return self.trusted.write(safe(text))

    def flush(self) -> None:
        """Writes what waits."""
        self.trusted.flush()


def guard() -> Plain:
    """Put guards in front of standard output and error; standard output comes back, to ask for its error at the end."""
    _keep_descriptors()
    out = _guarded(sys.stdout, 1, must_arrive=True)
    sys.stdout, sys.stderr = out, _guarded(sys.stderr, 2, must_arrive=False)
    return out.trusted


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
    return Guarded(stream, must_arrive=must_arrive)
