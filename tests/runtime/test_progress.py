"""What people see of long work, on a terminal and elsewhere."""

from __future__ import annotations

import io
import sys

import pytest

from hulk.cli.progress import parts


class Terminal(io.StringIO):
    """A stream that somebody looks at."""

    def isatty(self) -> bool:
        return True


def test_a_line_a_part_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    with parts(3, "systems") as say:
        say("planning pair")
        say("running A")
    assert capsys.readouterr() == ("", "planning pair …\nrunning A …\n")


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm-256color")
    with parts(3, "systems") as say:
        say("planning pair")
        assert "…" not in terminal.getvalue()
        say("running [A]\x1b[2J")
    shown = terminal.getvalue()
    assert "running [A]" in shown and "1/3" in shown and "systems" in shown
    assert "\x1b[2J" not in shown
