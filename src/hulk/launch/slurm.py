"""Launching by Slurm: nodes looked at, the job submitted, its output followed, cancelled when it is not wanted."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from hulk.errors import HulkError, InputError
from hulk.export import Scene
from hulk.export.slurm import node_name
from hulk.launch.follow import LOST, Part
from hulk.launch.main import Asked, check, settings_of, stations_of
from hulk.launch.needs import needs_of
from hulk.launch.srun import IN_USE, SlurmSite
from hulk.runtime.ending import told_early
from hulk.runtime.progress import Progress

_COMMANDS = ("sbatch", "srun", "squeue", "sinfo", "scancel", "scontrol")
_LOOK = 1.0  # seconds between two looks at the queue
_READ = 0.2  # seconds between two looks at the output
_WAITING = ("PENDING", "CONFIGURING", "REQUEUED")
_UNKNOWN = "UNKNOWN"  # what state a job is in while Slurm does not say
_LEAVE = 60.0  # seconds that a job may take to leave its nodes
_PATIENCE = 300.0  # seconds without an answer after which a job is taken for lost; a controller may start anew
_GONE = re.compile(r"invalid job id", re.I)  # Slurm forgets jobs some minutes after their end
_BROKEN = re.compile(r"down|drain|fail|unknown|maint|not_resp|power", re.I)


def check_slurm(scenes: Sequence[Scene], asked: Asked, progress: Progress) -> int:
    """InputError where Slurm is not here; NotReadyError with all that nodes lack of what the scenes need. Nodes that
    others use are told and counted, not waited for: the job waits for its turn by itself."""
    missing = [name for name in _COMMANDS if shutil.which(name) is None]
    if missing:
        raise InputError(f"--on slurm needs {', '.join(missing)}", hint="launch it where Slurm's commands are")
    needs, first = needs_of(scenes, progress.jobs), scenes[0]
    nodes = {name: node_name(first.host(name).node) for name in needs}
    found = _nodes(list(nodes.values()))
    gpus = {name: len(need.gpus) if first.gpus else 0 for name, need in needs.items()}
    problems = {name: list(_node_problems(node, found.get(node), gpus[name])) for name, node in nodes.items()}
    site = SlurmSite(
        first.hosts, {name: "; ".join(words) for name, words in problems.items() if words}, needs, first.gpus
    )
    with told_early(progress, lambda: settings_of(scenes)), stations_of(site, needs) as (stations, failed):
        taken = [name for name, words in failed.items() if words.startswith(IN_USE)]
        for name in taken:
            progress.show(f"{name} is not checked: {failed.pop(name)}")
        check(stations, failed, needs, scenes, site, asked)
    return len(taken)


class SlurmJob:
    """A job that was submitted. `say` is told what it waits for."""

    def __init__(self, scene: Scene, folder: Path, say: Callable[[str], None]) -> None:
        done = _run("sbatch", "--parsable", "job.sbatch", cwd=folder)
        if done.returncode != 0:
            raise HulkError(f"{scene.job.name} was not submitted: {_last(done.stderr)}")
        self._number = done.stdout.strip().partition(";")[0]
        self._output = folder / f"slurm-{self._number}.out"
        self._name, self._say = scene.job.name, say
        self._over = threading.Event()
        self._heard, self._lost = time.monotonic(), False

    def follow(self, part: Part) -> None:
        """Wait for the job's turn, then pass on its output."""
        told = ""
        while (state := self._state()) in (*_WAITING, _UNKNOWN):
            if state == _UNKNOWN:
                time.sleep(_LOOK)
                continue
            why = _run("squeue", "-h", "-j", self._number, "-o", "%r").stdout.strip().partition("\n")[0]
            if why != told:
                self._say(f"{self._name} is job {self._number} of Slurm and waits for its turn: {why}")
                told = why
            time.sleep(_LOOK)
        threading.Thread(target=self._read, args=(part,), daemon=True).start()

    def cancel(self) -> None:
        """Take it out of the queue, and wait until its nodes are free."""
        self._over.set()
        end = time.monotonic() + _LEAVE
        asked = False
        while self._state() is not None or self._lost:
            asked = asked or _run("scancel", self._number).returncode == 0
            if time.monotonic() > end:
                break
            time.sleep(_READ)
        if not asked and (self._lost or self._state() == _UNKNOWN):
            self._say(f"{self._name} could not be cancelled, since Slurm does not answer: scancel {self._number}")

    def _state(self) -> str | None:
        """RUNNING, PENDING and their kin; None where it is over. A look that fails says nothing of the job."""
        looked = _run("squeue", "-h", "-j", self._number, "-o", "%T")
        if looked.returncode != 0 and not _GONE.search(looked.stderr):
            silent = time.monotonic() - self._heard
            if silent < _PATIENCE:
                return _UNKNOWN
            if not self._lost:
                self._say(f"{self._name}: Slurm has not answered for {silent:.0f} s: {_last(looked.stderr, 'squeue')}")
            self._lost = True
            return None
        self._heard, self._lost = time.monotonic(), False
        states = looked.stdout.split()
        return states[0] if states else None

    def _read(self, part: Part) -> None:
        """What the job writes, line by line, until it is over and all is read."""
        rest, at, looked = b"", 0, 0.0
        ended = False
        while not self._over.is_set():
            part_of = b""
            if self._output.exists():
                with self._output.open("rb") as file:
                    file.seek(at)
                    part_of = file.read()
            at += len(part_of)
            *whole, rest = (rest + part_of).split(b"\n")
            for line in whole:
                part.take(line.decode("utf-8", "replace"))
            if ended and not part_of:
                break
            if time.monotonic() - looked > _LOOK:
                ended, looked = self._state() is None, time.monotonic()
            time.sleep(_READ)
        part.end(self._code())

    def _code(self) -> int:
        """The job's exit code."""
        said = _run("scontrol", "show", "job", self._number, "--oneliner").stdout
        found = re.search(r"ExitCode=(\d+):(\d+)", said)
        if found is None:
            return LOST
        code, number = int(found[1]), int(found[2])
        return -number if number else code


def _nodes(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """By node its state and what generic resources it has."""
    said = _run("sinfo", "-h", "-N", "-n", ",".join(names), "-o", "%N|%T|%G").stdout
    rows = [line.split("|") for line in said.splitlines()]
    return {row[0]: (row[1], row[2]) for row in rows if len(row) == 3}


def _node_problems(node: str, found: tuple[str, str] | None, wanted: int) -> Iterator[str]:
    if found is None:
        yield f"no node {node!r} in this Slurm: give `node` in the hosts file"
        return
    state, resources = found
    if _BROKEN.search(state):
        yield f"node {node} is {state}: bring it back, or plan without it"
    gpus = sum(int(count) for count in re.findall(r"\bgpu(?::[^:,()]+)?:(\d+)", resources))
    if gpus < wanted:
        yield f"node {node} has {gpus} GPUs for Slurm, the plan needs {wanted}: correct gres.conf, or --no-gpus"


def _run(*argv: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)  # noqa: S603


def _last(said: str, program: str = "sbatch") -> str:
    return (said.strip().splitlines() or [f"no word from {program}"])[-1]
