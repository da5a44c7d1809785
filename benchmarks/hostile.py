"""Broken files and options by the thousand, thrown at the command line: no crash, no file that harms, nothing raw.

    python benchmarks/hostile.py                        2,000 cases, a table by kind, and how to repeat each failure
    python benchmarks/hostile.py --only 17 --keep dir   one case, its files kept, its command and output shown
    python benchmarks/hostile.py --verbs report serve   of the cases those of these commands

Most cases run in a fork of this process, which has imported and warmed up everything; some in a process of their own.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common
from hostile_cases import BUSY, KINDS, Case, draw

COUNT = 2000
SLOW = 20.0  # seconds of a processor; and of the clock for what only waits, three times as many
TROUBLES = (
    "tracebacks",
    "signals",
    "exit_codes",
    "slow",
    "raw_control",
    "overwritten",
    "left_behind",
    "not_json",
    "lost",
)
RUN = "from hulk.cli import main; main()"


@dataclass(frozen=True)
class Done:
    """How a command ended: `status` as os.wait4 gives it, seconds of processors it used, and what it printed."""

    status: int
    seconds: float
    stdout: bytes
    stderr: bytes
    waited: bool = False

    @property
    def code(self) -> int | None:
        """The exit code; None where a signal ended it."""
        return os.waitstatus_to_exitcode(self.status) if os.WIFEXITED(self.status) else None


def warm_up() -> None:
    """Import and compile what the verbs need, so that every fork starts with it."""
    import hulk.cli
    import hulk.planner
    import hulk.replan
    import hulk.whatif
    from hulk.cost.compute import ComputeModel
    from hulk.io.cluster_file import load_cluster
    from hulk.io.jobs_file import load_jobs
    from hulk.io.profiles import bundled_profiles
    from hulk.search.budget import Effort
    from hulk.search.request import Request

    request = Request(load_cluster("mixed-rtx"), load_jobs("paper4")[-1:], ComputeModel(bundled_profiles()))
    hulk.planner.plan_in_parallel(request, Effort(workers=1, evaluations=1))


# ---- One case -------------------------------------------------------------------------------------------------------


def lay_out(case: Case, folder: Path) -> None:
    """Write the case's files, links, pipes and folders."""
    for name, content in case.files.items():
        (folder / name).write_bytes(content)
    (folder / "tmp").mkdir()
    for what, name, target in case.special:
        path = folder / name
        match what:
            case "hard":
                os.link(folder / target, path)
            case "soft":
                path.symlink_to(target)
            case "folder":
                path.mkdir()
            case "pipe":
                os.mkfifo(path)
            case "large":
                with path.open("wb") as file:
                    file.truncate(2**40)
            case _:  # secret, readonly
                path.write_bytes(b"{}")
                path.chmod(0o000 if what == "secret" else 0o444)


def run(case: Case, folder: Path) -> Done:
    """Run the case's command in its folder."""
    with socket.create_server(("127.0.0.1", 0)) as busy:
        case.argv = [word.replace(BUSY, str(busy.getsockname()[1])) for word in case.argv]
        return _run(case, folder)


def _run(case: Case, folder: Path) -> Done:
    outputs = [tempfile.TemporaryFile(), tempfile.TemporaryFile()]  # noqa: SIM115 - the child writes, we read
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        _be_the_command(case, folder, [file.fileno() for file in outputs])
    waited = False
    while True:
        found, status, used = os.wait4(child, os.WNOHANG)
        if found:
            break
        if time.monotonic() - started > 3 * SLOW:
            os.killpg(child, signal.SIGKILL)
            waited = True
        time.sleep(0.005)
    texts = []
    for file in outputs:
        file.seek(0)
        texts.append(file.read())
        file.close()
    return Done(status, used.ru_utime + used.ru_stime, texts[0], texts[1], waited)


def _be_the_command(case: Case, folder: Path, outputs: list[int]) -> None:
    """In the child: become the command, its standard streams where they belong."""
    code = 70
    try:
        os.setsid()
        os.chdir(folder)
        os.environ |= {"HULK_TRACEBACK": "1", "TMPDIR": str(folder / "tmp"), "PYTHONIOENCODING": case.encoding}
        os.environ["XDG_DATA_HOME"] = os.environ["TMPDIR"]
        tempfile.tempdir = None
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open("/dev/full", os.O_WRONLY) if case.stream == "full" else outputs[0], 1)
        os.dup2(outputs[1], 2)
        if case.stream == "closed":
            os.close(1)
        if case.own_process:
            os.execv(sys.executable, [sys.executable, "-c", RUN, *case.argv])
        code = _in_this_process(case)
    finally:
        os._exit(code)


def _in_this_process(case: Case) -> int:
    from hulk.cli import main

    sys.stdout = None if case.stream == "closed" else io.TextIOWrapper(io.FileIO(1, "w", closefd=False), case.encoding)  # type: ignore[arg-type]
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), case.encoding, write_through=True)  # type: ignore[arg-type]
    sys.argv = ["hulk", *case.argv]
    try:
        main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
        return 1
    finally:
        with contextlib.suppress(Exception):
            sys.stderr.flush()
    return 0


def digests(folder: Path) -> dict[str, str]:
    """What stands in the folder: kind and content of everything."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"link to {path.readlink()}"
        elif not path.is_file():
            found[name] = f"mode {path.stat().st_mode:o}"
        elif path.stat().st_size > 2**26:
            found[name] = f"large: {path.stat().st_size}"
        else:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def troubles(case: Case, done: Done, before: dict[str, str], after: dict[str, str]) -> dict[str, str]:
    """What went wrong, by kind of trouble, with a word on each."""
    found: dict[str, str] = {}
    printed = (done.stdout + done.stderr).decode(case.encoding, "surrogateescape")
    if "Traceback (most recent" in printed or "a fault in hulk itself" in printed:
        found["tracebacks"] = printed.strip().splitlines()[-1][:200]
    if done.waited or done.seconds > SLOW:
        found["slow"] = f"{done.seconds:.0f} s of a processor" + (", ended by force" if done.waited else "")
    elif done.code is None:
        found["signals"] = signal.Signals(os.WTERMSIG(done.status)).name
    elif done.code not in (0, 1, 2, 3):
        found["exit_codes"] = str(done.code)
    elif done.code and not done.stderr and not done.stdout:
        found["exit_codes"] = f"{done.code} without a word"
    if raw := {character for character in printed if character != "\n" and not character.isprintable()}:
        found["raw_control"] = ", ".join(sorted(map(repr, raw)))
    # What was written stays where only the word that it was could not be said.
    allowed = {case.output} if case.output and (done.code in (0, 3) or case.stream) else set()
    if lost := [name for name in before if name not in allowed and after.get(name) != before[name]]:
        found["overwritten"] = ", ".join(lost)
    if new := [name for name in after if name not in before and name not in allowed]:
        found["left_behind"] = ", ".join(new)
    if "--json" in case.argv and "--help" not in case.argv and done.code in (0, 3) and not case.stream:
        try:
            json.loads(done.stdout, parse_constant=float.fromhex)
        except ValueError as error:
            if done.stdout or done.code == 0:
                found["not_json"] = str(error)
    if case.stream and done.code == 0:
        found["lost"] = "exit code 0 with nowhere to write to"
    return found


def try_case(seed: int, index: int, folder: Path) -> tuple[Case, Done, dict[str, str]]:
    """Draw the case, run it in that empty folder, judge it."""
    case = draw(seed, index)
    lay_out(case, folder)
    before = digests(folder)
    done = run(case, folder)
    return case, done, troubles(case, done, before, digests(folder))


def try_cases(seed: int, indices: Sequence[int], say: Any = None) -> dict[str, Any]:
    """Run all these cases: how many of each kind, and every failure."""
    failures, kinds, times = [], Counter[str](), dict.fromkeys(KINDS, 0.0)
    for index in indices:
        folder = Path(tempfile.mkdtemp(prefix="hulk-hostile-"))
        try:
            case, done, wrong = try_case(seed, index, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        kinds[case.kind] += 1
        times[case.kind] = max(times[case.kind], done.seconds)
        if wrong:
            repeat = f"python benchmarks/hostile.py --seed {seed} --only {index}"
            failures.append(
                {"index": index, "kind": case.kind, "command": shlex.join(case.argv), "repeat": repeat} | wrong
            )
        if say is not None and (wrong or (index + 1) % 100 == 0):
            say(f"{index + 1}: {ascii(failures[-1]) if wrong else f'{len(failures)} failures'}")
    counts = {trouble: sum(trouble in failure for failure in failures) for trouble in TROUBLES}
    return {"cases": len(indices)} | counts | {"failures": failures, "kinds": dict(kinds), "slowest_s": times}


def main() -> int:
    """Run the benchmark."""
    options = common.parser(__doc__)
    options.add_argument("--count", type=int, default=COUNT, help="how many cases")
    options.add_argument("--seed", type=int, default=0, help="the same seed gives the same cases")
    options.add_argument("--only", type=int, help="run this case alone and show everything")
    options.add_argument("--first", type=int, default=0, help="number of the first case")
    options.add_argument("--verbs", nargs="+", metavar="VERB", help="of the cases, those of these commands")
    options.add_argument("--keep", type=Path, help="with --only: keep the files in this new folder")
    given = options.parse_args()
    warm_up()
    if given.only is not None:
        return show(given.seed, given.only, given.keep or Path(tempfile.mkdtemp(prefix="hulk-hostile-")))
    indices: Sequence[int] = range(given.first, given.first + given.count)
    if given.verbs:
        indices = [index for index in indices if draw(given.seed, index).argv[:1] in [[verb] for verb in given.verbs]]
    result = try_cases(given.seed, indices, lambda text: print(text, file=sys.stderr))
    report = common.Report("hostile")
    report.figure("cases", result["cases"])
    for trouble in TROUBLES:
        report.figure(trouble, result[trouble], most=0)
    rows = [
        [kind, result["kinds"].get(kind, 0), sum(f["kind"] == kind for f in result["failures"]), f"{seconds:.1f} s"]
        for kind, seconds in result["slowest_s"].items()
    ]
    report.table("by kind", ["kind", "cases", "failures", "slowest"], rows)
    for failure in result["failures"]:
        wrong = "; ".join(f"{name}: {failure[name]}" for name in TROUBLES if name in failure)
        report.note(f"{failure['command']!a}\n  {wrong!a}\n  {failure['repeat']}")
    if given.json:
        print(json.dumps(report.as_dict() | result))
        return 0 if report.ok else 1
    return report.finish(False)


def show(seed: int, index: int, folder: Path) -> int:
    """One case in full."""
    folder.mkdir(parents=True, exist_ok=True)
    case, done, wrong = try_case(seed, index, folder)
    print(f"{case.kind}, in {folder}:\nhulk {shlex.join(case.argv)!a}\nexit code {done.code}, {done.seconds:.1f} s")
    for name, text in (("stdout", done.stdout), ("stderr", done.stderr)):
        print(f"--- {name}\n{ascii(text.decode('utf-8', 'replace')[-4000:])[1:-1]}".replace("\\n", "\n"))
    print(f"--- {'wrong: ' + ascii(wrong) if wrong else 'as it should be'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
