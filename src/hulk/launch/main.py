"""The main path of `hulk launch`: agents on all machines, everything checked, all started, followed to the last step.
Nothing stays behind, however it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hulk.errors import HulkError, InputError
from hulk.export import TARGETS, Files, Scene
from hulk.export.start import machine_path
from hulk.launch.checkpoints import Found, still_to_do
from hulk.launch.checks import NotReadyError, problems_of, torch_problems
from hulk.launch.follow import LOST, Part
from hulk.launch.needs import Need, inputs_of, needs_of
from hulk.launch.sites import Site
from hulk.launch.station import Station
from hulk.probe.control import hasty_pool
from hulk.probe.wire import WireError
from hulk.runtime.ending import told_early, undisturbed
from hulk.runtime.folder import log_folder
from hulk.runtime.launch import Worker
from hulk.runtime.progress import Progress, StepReport
from hulk.runtime.settings import Settings
from hulk.runtime.watch import watch

_AT_ONCE = 64
_ALL = "all.sh"  # what starts all machines over ssh: this does

Show = Callable[[StepReport | str], None]


@dataclass(frozen=True)
class Asked:
    """How to launch: whether machines must have the plan's GPUs, what to do with checkpoints that are there, and
    whether to stop after the checks."""

    gpus: bool = True
    resume: bool = False
    overwrite: bool = False
    only_check: bool = False


def launch(scenes: Sequence[Scene], site: Site, asked: Asked, progress: Progress) -> None:
    """Launch jobs and follow them to their last step. NotReadyError, before anything is started, with all that machines
    lack; RunError where a job ends early."""
    exported = {scene.job.name: TARGETS.get("torchrun").export(replace(scene, plain=True)) for scene in scenes}
    needs = needs_of(scenes, progress.jobs)
    todo = list(scenes)
    with (
        told_early(progress, lambda: settings_of(todo)),
        log_folder() as logs,
        stations_of(site, needs) as (stations, failed),
    ):
        check(stations, failed, needs, scenes, site, asked)
        if asked.only_check:
            return
        todo = still_to_do(scenes, progress, lambda scene: _ask_first(scene, stations, asked))
        _put(todo, exported, stations)
        _run(todo, stations, progress, logs)


def settings_of(scenes: Sequence[Scene]) -> dict[str, Settings]:
    """Each job's settings."""
    return {scene.job.name: scene.settings for scene in scenes}


@contextmanager
def stations_of(site: Site, needs: Mapping[str, Need]) -> Iterator[tuple[dict[str, Station], dict[str, str]]]:
    """Agents on all machines, for as long as the block lasts, and why others did not come."""
    opened: dict[str, Station] = {}
    failed: dict[str, str] = {}

    def open_one(machine: str) -> None:
        try:
            opened[machine] = station = Station(machine, site.line(machine))
            station.greet()
        except WireError as error:
            login = site.host(machine).login
            failed[machine] = f"{error}" if login == machine else f"({login}) {error}"

    try:
        with hasty_pool(min(_AT_ONCE, len(needs))) as pool:
            list(pool.map(open_one, needs))
        yield {name: opened[name] for name in needs if name not in failed}, failed
    finally:
        with undisturbed(), ThreadPoolExecutor(_AT_ONCE) as closing:
            list(closing.map(Station.close, opened.values()))


def check(
    stations: Mapping[str, Station],
    failed: Mapping[str, str],
    needs: Mapping[str, Need],
    scenes: Sequence[Scene],
    site: Site,
    asked: Asked,
) -> None:
    """Ask every machine that is there, and whether those that talk to each other can; NotReadyError with all that is
    missing, and with why others have `failed`."""
    settings = inputs_of(scenes)
    sent = settings.model_dump(mode="json", exclude_unset=True)
    problems: dict[str, list[str]] = {name: [failed[name]] if name in failed else [] for name in needs}

    def ask(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        host, need = site.host(name), site.needed(needs[name])
        wanted = [host.interface] if host.interface else []
        found = stations[name].ask({"do": "check", "settings": sent, "interfaces": wanted})
        problems[name] += problems_of(need, found, settings, gpus=asked.gpus and site.apart, apart=site.apart)
        order = {"do": "listen", "address": host.address, "ports": list(need.ports.values())}
        listening = stations[name].ask(order)
        problems[name] += listening["wrong"]
        return found, listening

    def reach(name: str) -> None:
        targets = {
            peer: (site.host(peer).address, answers[peer][1]["free"])
            for peer in sorted(needs[name].peers)
            if peer in answers and answers[peer][1]["free"] is not None
        }
        for peer, why in stations[name].ask({"do": "reach", "targets": targets})["unreached"].items():
            address = targets[peer][0]
            problems[name].append(
                f"it does not reach {peer} at {address} ({why}): does a firewall between them let all ports through?"
            )

    with hasty_pool(min(_AT_ONCE, len(needs))) as pool:
        answers = dict(zip(stations, pool.map(ask, stations), strict=True))
        for name, words in torch_problems({n: a[0]["libraries"]["torch"] for n, a in answers.items()}).items():
            problems[name].append(words)
        list(pool.map(reach, stations))
        list(pool.map(lambda station: station.ask({"do": "quiet"}), stations.values()))
    if any(problems.values()):
        raise NotReadyError(problems, len(needs))


def _ask_first(scene: Scene, stations: Mapping[str, Station], asked: Asked) -> Found:
    """The folder of checkpoints made ready on a job's first machine."""
    station = stations[scene.machines[0].name]
    job = f"{scene.job.name}.checkpoints"
    station.ask({"do": "put", "job": job, "files": _sent(scene.inputs)})
    order = {"do": "checkpoints", "job": job, "settings": _dumped(scene.settings)}
    try:
        answer = station.ask(order | {"resume": asked.resume, "overwrite": asked.overwrite}, seconds=600.0)
    except HulkError as error:
        raise InputError(str(error)) if error.exit_code == InputError.exit_code else error from None
    resume = None if answer["resume"] is None else Path(answer["resume"])
    return Found(resume, int(answer["step"]), tuple(answer["told"]))


def _put(scenes: Sequence[Scene], exported: dict[str, Files], stations: Mapping[str, Station]) -> None:
    """Every machine gets the files of its jobs, its own script among them."""
    for scene in scenes:
        if scene.settings.resume is not None:  # the scripts name it
            exported[scene.job.name] = TARGETS.get("torchrun").export(replace(scene, plain=True))
        files = exported[scene.job.name]
        common = {name: file for name, file in files.items() if name != _ALL and not name.startswith("machines/")}

        def put(machine: str, scene: Scene = scene, files: Files = files, common: Files = common) -> None:
            own = {**common, machine_path(machine): files[machine_path(machine)]}
            sent = {name: (file.text, file.mode) for name, file in own.items()}
            stations[machine].ask({"do": "put", "job": scene.job.name, "files": sent})

        with hasty_pool(_AT_ONCE) as pool:
            list(pool.map(put, scene.ranks_on))


def _run(scenes: Sequence[Scene], stations: Mapping[str, Station], progress: Progress, logs: Path) -> None:
    """Start all scripts, and watch all ranks."""
    if scenes:
        progress.begin()
    workers: list[Worker] = []
    parts: dict[tuple[str, str], Part] = {}
    for scene in scenes:
        for machine in scene.ranks_on:
            part = Part(logs / f"{scene.job.name}-{machine}.log")
            parts[scene.job.name, machine] = part
            workers += part.workers(progress.jobs[scene.job.name], machine)
            stations[machine].tell({"do": "start", "job": scene.job.name, "script": machine_path(machine)})
    if not workers:
        return
    for machine in dict.fromkeys(name for _, name in parts):
        mine = {job: part for (job, name), part in parts.items() if name == machine}
        stations[machine].follow(_hearing(stations[machine], mine))
    watch(workers, progress, timeout=scenes[0].settings.timeout)


def _hearing(station: Station, parts: Mapping[str, Part]) -> Callable[[dict[str, Any] | None], None]:
    """What to do with what an agent says of its jobs."""

    def hear(message: dict[str, Any] | None) -> None:
        if message is None:
            for part in parts.values():
                if part.poll() is not None:
                    continue
                part.say(f"the line to {station.machine} is broken: {station.why()}")
                part.end(LOST)
            return
        job = parts.get(str(message.get("job")))
        if job is None:
            if "error" in message:
                for part in parts.values():
                    part.say(str(message["error"]))
                    part.end(1)
        elif "line" in message:
            job.take(str(message["line"]))
        elif "said" in message:
            job.say(str(message["said"]))
        elif "ended" in message:
            job.end(int(message["ended"]))

    return hear


def _sent(inputs: Mapping[str, str]) -> dict[str, tuple[str, int]]:
    return {name: (text, 0o644) for name, text in inputs.items()}


def _dumped(settings: Settings) -> dict[str, Any]:
    return settings.model_dump(mode="json", exclude_unset=True)
