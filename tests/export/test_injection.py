"""Names and paths cannot break out of generated scripts: they are checked by `bash -n`, and run with every program that
they start replaced, while the texts in them try to leave a mark."""

from __future__ import annotations

import ast
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from export_scenes import TRAINING, counted, example, tiny
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hulk.errors import HulkError, InputError
from hulk.export import TARGETS, Scene
from hulk.io.hosts_file import Host, HostList

MARK = "broken-out"
EVIL = [
    f"; touch {MARK} ;", f"$(touch {MARK})", f"`touch {MARK}`", f"'; touch {MARK}; '", f'"; touch {MARK}; "',
    f"&& touch {MARK}", f"| touch {MARK}", f"-oProxyCommand=touch {MARK}",
    f"\\'; touch {MARK} #", f"{{a,touch {MARK}}}",
    f"x\ntouch {MARK}\n", f"x\r\ntouch {MARK}", "../../up", "/etc/passwd", "a b", "*", "~", "$HOME", "!!", "#", "é ü",
    "",
    f"<(touch {MARK})", f"${{IFS}};touch${{IFS}}{MARK}", f"\\\ntouch {MARK}", "--help",
    f"esac; touch {MARK}; case x in",
]  # fmt: skip
texts = st.lists(st.sampled_from([*EVIL, "rome", "-", "1", "'", '"', "\\"]), min_size=1, max_size=3).map("".join)

# What scripts start does nothing, but for those that hand a command to another shell.
DOES_NOTHING = ("python3", "srun", "deepspeed", "accelerate", "sudo", "tar", "mkdir")
FAKE_SSH = '#!/bin/bash\nwhile [ "$1" != -- ]; do shift; done\nexec bash -c "$3"\n'


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of programs that do nothing."""
    folder = tmp_path_factory.mktemp("programs")
    for name in DOES_NOTHING:
        (folder / name).write_text("#!/bin/bash\ncat > /dev/null < /dev/null\nexit 0\n")
    (folder / "ssh").write_text(FAKE_SSH)
    for path in folder.iterdir():
        path.chmod(0o755)
    return folder


EMBEDS = ("jobset.yaml", "group.yaml")
"""Files that have scripts in them."""


def scripts_in(value: Any, key: str = "") -> Iterator[str]:
    """The scripts inside a document of JobSet or SkyPilot: what a shell is handed there."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from scripts_in(inner, name)
    elif isinstance(value, list):
        if key == "command" and value[:2] == ["bash", "-c"]:
            yield value[2]
        for inner in value:
            yield from scripts_in(inner)
    elif isinstance(value, str) and (key in ("run", "setup") or value.startswith("#!")):
        yield value


def renamed(scene: Scene, names: dict[str, str]) -> Scene:
    """The scene with other names of machines."""
    machines = tuple(replace(m, name=names.get(m.name, m.name)) for m in scene.cluster.machines)
    pipelines = tuple(
        replace(p, stages=tuple(replace(s, machine=names.get(s.machine, s.machine)) for s in p.stages))
        for p in scene.plan.pipelines
    )
    cluster = replace(scene.cluster, machines=machines)
    return replace(scene, cluster=cluster, plan=replace(scene.plan, pipelines=pipelines))


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    target=st.sampled_from([target.name for target in TARGETS.targets()]),
    evil=st.tuples(*[texts] * 10),
    where=st.integers(0, 11),
)
def test_no_text_becomes_a_command(
    target: str, evil: tuple[str, ...], where: int, programs: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    machine, job, path, address, interface, image, region, node, tokenizer, saved = evil
    scene = example(target)
    first, second = scene.plan.machines[0], scene.plan.machines[-1]

    # One or all of them at a time: a name that is refused must not hide what another would do.
    def chosen(index: int, text: str, plain: str | None) -> str | None:
        return text if where in (index, 11) else plain

    name = chosen(0, machine, first)
    scene = renamed(scene, {first: name, second: chosen(0, f"{machine}2", second)})
    host = Host(
        chosen(3, address, "127.0.0.1"),
        chosen(4, address, "me@host"),
        chosen(8, node, "n1"),
        chosen(5, interface, None),
    )
    regions = {name: chosen(7, f"aws/{region}", place) for name, place in scene.hosts.regions.items()}
    paths = {
        "data": Path(chosen(2, path, "/data")),
        "tokenizer": Path(chosen(9, tokenizer, "/tokenizer")),
        "checkpoints": Path(chosen(10, saved, "/saved")),
    }
    scene = replace(
        scene,
        job=replace(scene.job, name=chosen(1, job, "job")),
        settings=TRAINING.model_copy(update=paths),
        hosts=replace(scene.hosts, hosts={**scene.hosts.hosts, name: host}, regions=regions),
        image=chosen(6, image, "hulk"),
    )
    try:
        files = TARGETS.get(target).export(scene)
    except HulkError:
        return
    folder = tmp_path_factory.mktemp("out")
    scripts: list[str] = []
    for relative, file in files.items():
        written = folder / relative
        assert written.resolve().is_relative_to(folder)
        written.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(file.text)
        if relative.endswith(".py"):
            ast.parse(file.text)
        inside: list[str] = []
        if relative.endswith((".yaml", ".json")):
            documents = list(yaml.safe_load_all(file.text))
            assert all(isinstance(document, dict) for document in documents)
            inside = [script for document in documents for script in scripts_in(document)]
            assert inside or relative not in EMBEDS
        for number, script in enumerate(inside):
            scripts.append(f"{Path(relative).name}-{number}.sh")
            (folder / scripts[-1]).write_text(script)
        if file.text.startswith("#!"):
            scripts.append(relative)
    for relative in scripts:
        checked = subprocess.run(["bash", "-n", str(folder / relative)], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stderr
    variables = {"PATH": f"{programs}:{os.environ['PATH']}", "SLURM_SUBMIT_DIR": str(folder), "SLURMD_NODENAME": "n1"}
    for relative in scripts:
        subprocess.run(
            ["bash", str(folder / relative), "train.py"],
            cwd=folder, env=variables, capture_output=True, timeout=20, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    assert not list(folder.rglob(MARK)) and not Path(MARK).exists()


@pytest.mark.parametrize("target", ["torchrun", "slurm", "ray", "wireguard"])
@pytest.mark.parametrize("name", ["a\nb", "a\x1b[2Jb", "a\x00b", "a\u2028b"])
def test_control_characters_are_refused(target: str, name: str) -> None:
    scene = replace(tiny(HostList()), chance=counted())
    scene = renamed(scene, {"rome-1": name})
    with pytest.raises(InputError, match=r"control character|cannot be"):
        TARGETS.get(target).export(scene)
