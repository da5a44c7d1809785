"""What `hulk run` and `hulk launch` ask where this computer cannot hold the processes, and what people see of a stage
that is late."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))

from cases import Case, write_case, write_text

from hulk.cli import main
from hulk.cli.run import news
from hulk.errors import HulkError
from hulk.runtime.progress import StageStep, StepReport

THREE = Case("three", "gpt2", ((12, (("rome-1", (0,), 1), ("oslo-1", (0,), 3), ("rome-2", (0,), 5))),))
RUN = ("run", "plan.json", "-c", "cluster.yaml", "-j", "jobs.yaml", "--data", "text.txt")
LAUNCH = ("launch", *RUN[1:], "--on", "local")
STARTED = "everything would have started now"


class Terminal(io.StringIO):
    """A terminal at which somebody types."""

    def isatty(self) -> bool:
        return True


def never(*given: object, **named: object) -> None:
    raise HulkError(STARTED)


@pytest.fixture
def crowded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A computer with little memory, on which nothing is really started."""
    write_case(THREE, tmp_path)
    write_text(tmp_path / "text.txt")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hulk.runtime.crowd.memory_free", lambda: 1e9)
    monkeypatch.setattr("hulk.runtime.run.run", never)
    monkeypatch.setattr("hulk.cli.launch._start", never)
    return tmp_path


@pytest.mark.parametrize("verb", [RUN, LAUNCH], ids=["run", "launch"])
@pytest.mark.parametrize(
    ("typed", "more", "told", "asked"),
    [
        ("y\n", (), STARTED, True),
        ("n\n", (), "nothing was started", True),
        ("\n", (), "nothing was started", True),
        (None, ("--yes",), STARTED, False),
        (None, ("-y",), STARTED, False),
        (None, (), "--yes starts them all the same", False),
    ],
)
def test_it_asks_where_it_cannot_go_well(
    verb: tuple[str, ...],
    typed: str | None,
    more: tuple[str, ...],
    told: str,
    asked: bool,
    crowded: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    del crowded
    monkeypatch.setattr(sys, "stdin", io.StringIO() if typed is None else Terminal(typed))
    monkeypatch.setattr(sys, "argv", ["hulk", *verb, *more])
    with pytest.raises(SystemExit) as stopped:
        main()
    said = capsys.readouterr()
    assert stopped.value.code == (1 if told == STARTED else 2), said.err
    assert told in said.err
    assert "starting 3 processes on this computer" in said.out
    assert ("start them all the same? [y/N]" in said.out + said.err) is asked


STAGE = StageStep(0, 0, "rome-1", 1.0, 0.5, 0.1, 0.1, None, None, 1e9, predicted_busy=1.0)


@pytest.mark.parametrize(("busy", "late", "ends"), [
    (1.5, True, "  late: 1.2 on oslo-1 (busy 1.50 s, predicted 1.00 s)"),
    (1.0, True, "busy/waiting 50%/25% 50%/25%"),
    (1.5, False, "busy/waiting 50%/25% 75%/25%"),
])  # fmt: skip
def test_the_line_names_the_stage_that_is_late(busy: float, late: bool, ends: str) -> None:
    slow = replace(STAGE, stage=1, machine="oslo-1", busy=busy)
    written = io.StringIO()
    with news(Console(file=written, width=200), 9, late=late) as show:
        show(StepReport("gpt", 4, 2.5, 2.0, 1.9, 1000.0, (STAGE, slow)))
        show("gpt checkpoint saved/gpt")
    line, other = written.getvalue().splitlines()
    assert line.startswith("gpt step 4/9  loss 2.5000  1.00k tokens/s  2.00 s (predicted 1.90 s)  busy/waiting")
    assert line.endswith(ends) and other == "gpt checkpoint saved/gpt"
