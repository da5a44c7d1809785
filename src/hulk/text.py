"""Text that others wrote, made safe to print: the one home of what may reach a terminal.

A label, a file name or a word quoted from a broken file may hold characters that move the cursor, recolour, reverse or
hide what stands beside them. They are shown as what they are, `\\u001b`, the way JSON writes them: so text made safe is
still the same JSON where it was JSON.
"""

from __future__ import annotations

import codecs
import re
import unicodedata

ERRORS = "hulk-fit"
"""The name of the encoding error handler for streams that cannot show every character (see `fit`)."""

_PLAIN = {
    "–": "-", "—": "-", "−": "-", "×": "x", "·": ".", "…": "...", "█": "#", "░": ".", "µ": "u", "μ": "u", "→": "->",
    "≥": ">=", "≤": "<=", "‘": "'", "’": "'", "“": '"', "”": '"', "°": "deg",
}  # fmt: skip
_SPACES = re.compile(r"[^\S\n\x0b\x0c\r\x1c-\x1f\x85\u2028\u2029]")  # tabs, no-break spaces; never what ends a line


def escaped(text: str) -> str:
    """The text with `\\uXXXX` for everything but line ends that cannot be seen: controls, marks of writing direction,
    joiners, half surrogate pairs, code points that mean nothing."""
    if text.isprintable():
        return text
    return "".join(c if c == "\n" or c.isprintable() else _code(c) for c in text)


def safe(text: str) -> str:
    """The text as a terminal may have it: `escaped`, and every kind of space as the plain one."""
    return text if text.isprintable() else escaped(_SPACES.sub(" ", text))


def one_line(text: str) -> str:
    """The text on one line, so that nobody's words look like another message."""
    return " ".join(text.split())


def fit(error: UnicodeError) -> tuple[str, int]:
    """Encoding error handler: what a stream cannot show in plain letters and signs, or as `\\uXXXX` where there are
    none."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_plainly(c) for c in error.object[error.start : error.end]), error.end


def _plainly(character: str) -> str:
    if character in _PLAIN:
        return _PLAIN[character]
    base = unicodedata.normalize("NFKD", character)[0]
    return base if base.isascii() and base.isprintable() else _code(character)


def _code(character: str) -> str:
    """The character as JSON escapes it: one unit of UTF-16, or two."""
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


codecs.register_error(ERRORS, fit)
