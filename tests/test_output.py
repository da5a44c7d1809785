"""What reaches the terminal: never markup, never a raw control character, and an error where nothing can be written."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

import small
from hulk.errors import InputError
from hulk.text import escaped, one_line, safe
from hulk.units import Dimension, parse, positive_finite
from warm import COMMAND, hulk, hulk_anew

EVIL = (
    "[/] [red]x[/red] :smile: \x1b[31m \x9b5m \u202erev\u2066 \u200b\u200f\u061c\ufeff\x00\x7f\u2028\U000e0041 \n fake"
)
SEEN = (
    "[/] [red]x[/red] :smile: \\u001b[31m \\u009b5m \\u202erev\\u2066 \\u200b\\u200f\\u061c\\ufeff\\u0000\\u007f"
    " \\udb40\\udc41"
)


def quoted(text: str) -> str:
    """The text as YAML writes it: as JSON does, but for what takes two units of UTF-16."""
    return json.dumps(text).replace("\\udb40\\udc41", "\\U000e0041")


def raw(text: str) -> str:
    """The characters that no terminal should get."""
    return "".join(sorted({c for c in text if c != "\n" and not c.isprintable()}))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cluster, jobs and a plan with hostile text wherever there may be text."""
    folder = tmp_path_factory.mktemp("evil")
    small.write_files(folder)
    text = quoted(EVIL)
    cluster = small.CLUSTER.replace("rome: {at", f"rome: {{label: {text}, at")
    (folder / "small.yaml").write_text(f"about: {text}\nsources: [{text}]\n{cluster}")
    (folder / "jobs.yaml").write_text(f"about: {text}\n{small.JOBS}")
    plan = json.loads((folder / "plan.json").read_text())
    del plan["jobs"]["second"]
    plan["idle"] += ["paris-2"]
    plan["waiting"] = {"second": EVIL}
    (folder / "plan.json").write_text(json.dumps(plan))
    return folder


SEARCH = ("--evaluations", "1", "--time-limit", "2")
PLAN = ("plan.json", "-c", "small.yaml", "-j", "jobs.yaml")
VERBS = [
    ("show", "small.yaml"),
    ("price", *PLAN),
    ("price", *PLAN, "--json"),
    ("explain", *PLAN),
    ("explain", *PLAN, "--json"),
    ("simulate", *PLAN),
    ("plan", "small.yaml", "jobs.yaml", *SEARCH),
    ("plan", "small.yaml", "jobs.yaml", *SEARCH, "--json"),
    ("replan", *PLAN, *SEARCH, "--lost", "oslo-1"),
    ("replan", *PLAN, *SEARCH, "--lost", "oslo-1", "--json"),
]


@pytest.mark.parametrize("arguments", VERBS, ids=" ".join)
def test_text_of_others_is_shown_and_never_obeyed(arguments: tuple[str, ...], files: Path) -> None:
    done = hulk(*arguments, cwd=files)
    assert done.returncode in (0, 3), done.stderr
    assert raw(done.stdout + done.stderr) == ""
    assert "[bold]" not in done.stdout
    if arguments[0] == "show":
        assert " ".join(done.stdout.split()).count(SEEN) == 2  # about and source; the label stands in a narrow column
    if arguments[0] in ("price", "explain"):
        plain = json.loads(done.stdout)["waiting"]["second"] if "--json" in arguments else " ".join(done.stdout.split())
        assert (EVIL if "--json" in arguments else SEEN) in plain


def test_only_the_screen_knows_styles() -> None:
    """Nobody else makes rich text, so nobody can make markup of what a file says."""
    folder = Path(small.__file__).parent.parent / "src" / "hulk" / "cli"
    forbidden = re.compile(r"rich\.(markup|text)|markup=True|Console\(|\[/?(bold|red|yellow|green|dim)\b|ensure_ascii")
    found = {path.name for path in folder.glob("*.py") if forbidden.search(path.read_text())}
    assert found == {"screen.py"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "\x1b[31m\u202e.yaml"),
        ("show", "a\nerror: b.yaml"),
        ("show", os.fsdecode(b"caf\xe9\x9b.yaml")),
        ("sho\x1b[31m",),
        ("show", "hulk47", "--\x9b31m"),
        ("price", "\x1b]0;title\x07.json", "-c", "hulk47", "-j", "paper4"),
        ("schema", "\u202e"),
        ("plan", "hulk47", "paper4", "--pin", "\x1b[2J=x"),
    ],
)
def test_messages_quote_nothing_raw(arguments: tuple[str, ...]) -> None:
    done = hulk(*arguments)
    assert done.returncode == 2
    assert raw(done.stderr + done.stdout) == ""
    assert done.stderr.count("\n") in (1, 4)  # one line, or how the command is used


def test_a_broken_file_is_quoted_safely(tmp_path: Path) -> None:
    text = quoted(EVIL)
    for number, content in enumerate(
        (f"{text}: 1", f"name: {text}", f"hulk: {text}", f"regions: {{{text}: {{}}}}", f"machines: [{{{text}: 1}}]")
    ):
        path = tmp_path / f"{number}.yaml"
        path.write_text(content)
        done = hulk("show", str(path))
        assert (done.returncode, raw(done.stderr), done.stderr.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("arguments", [("show", "hulk47"), ("schema", "plan"), ("--version",), ("list", "gpus")])
def test_a_result_that_cannot_be_written_is_an_error(arguments: tuple[str, ...]) -> None:
    shell = "exec " + " ".join(f"'{word}'" for word in (*COMMAND, *arguments))
    for redirect, heard in (
        (">/dev/full", True),
        (">&-", True),
        (">/dev/full 2>/dev/full", False),
        (">&- 2>&-", False),
    ):
        done = subprocess.run(f"{shell} {redirect}", shell=True, capture_output=True, text=True, check=False)
        assert done.returncode == 1, redirect
        if heard:
            assert done.stderr.startswith("error: the result could not be written: ")
            assert done.stderr.count("\n") == 1


def test_errors_that_nobody_hears_keep_their_exit_code() -> None:
    shell = "exec " + " ".join(f"'{word}'" for word in COMMAND)
    for redirect in ("2>&-", "2>/dev/full"):
        done = subprocess.run(f"{shell} show nothing {redirect}", shell=True, capture_output=True, check=False)
        assert (done.returncode, done.stdout) == (2, b"")
        done = subprocess.run(f"{shell} show us4 {redirect}", shell=True, capture_output=True, check=False)
        assert done.returncode == 0
        assert b"us4: " in done.stdout


def test_a_reader_that_leaves_needs_no_message() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([*COMMAND, "show", "hulk47"], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_any_encoding_will_do(encoding: str, files: Path) -> None:
    settings = os.environ | {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0", "LC_ALL": "C"}
    done = hulk_anew("show", "hulk47", env=settings, encoding=encoding)
    assert done.returncode == 0, done.stderr
    assert ("8 x a100" if encoding == "ascii" else "8 × a100") in done.stdout
    done = hulk_anew("price", *PLAN, env=settings, encoding=encoding, cwd=files)
    assert done.returncode == 0, done.stderr
    assert "0-11" in done.stdout or "0–11" in done.stdout
    done = hulk_anew("price", *PLAN, "--json", env=settings, encoding=encoding, cwd=files)
    assert json.loads(done.stdout)["waiting"] == {"second": EVIL}


def test_safe_text() -> None:
    assert safe("plain, × – é 北京") == "plain, × – é 北京"
    assert safe("a\tb\u00a0c\u3000d\r\n") == "a b c d\\u000d\n"
    assert escaped("\u00a0\t\ud800") == "\\u00a0\\u0009\\ud800"
    assert one_line(" a\n\n  b ") == "a b"
    assert not raw(safe("".join(map(chr, range(0x3100)))))


# ---- Numbers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "us4", "paper4", "--min-throughput", "inf"),
        ("plan", "us4", "paper4", "--min-throughput", "nan"),
        ("plan", "us4", "paper4", "--min-throughput=-1"),
        ("plan", "us4", "paper4", "--min-throughput", "1e400"),
        ("plan", "us4", "paper4", "--time-limit", "nan"),
        ("plan", "us4", "paper4", "--evaluations", "9" * 30),
        ("simulate", "plan.json", "-c", "us4", "-j", "paper4", "--jitter", "nan"),
        ("simulate", "plan.json", "-c", "us4", "-j", "paper4", "--seed", "9" * 5000),
        ("replan", "plan.json", "-c", "us4", "-j", "paper4", "--time-limit", "inf"),
        ("compare", "us4", "paper4", "--time-limit", "inf"),
    ],
    ids=lambda arguments: " ".join(arguments)[:60],
)
def test_options_are_numbers_one_can_work_with(arguments: tuple[str, ...]) -> None:
    done = hulk(*arguments)
    option = next(word for word in arguments if word.startswith("--")).partition("=")[0]
    assert done.returncode == 2, done.stdout
    assert option in done.stderr
    assert "Traceback" not in done.stderr


def test_positive_finite() -> None:
    assert positive_finite(0.5, "--x") == 0.5
    for value in (0.0, -1.0, float("inf"), float("nan"), 1e-320, 1e19):
        with pytest.raises(InputError, match=r"^--x .*: must be more than 0 and at most 1e\+18"):
            positive_finite(value, "--x")
    with pytest.raises(InputError, match="at most 10"):
        positive_finite(11, "--x", most=10)


def test_a_quantity_is_short() -> None:
    with pytest.raises(InputError, match="got a long text"):
        parse("1" + " " * 100_000 + "x", Dimension.TIME)
