"""Starting a program on machines: a script for each of them, and one that starts all over ssh."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hulk.export.files import Files, script
from hulk.export.scene import Scene
from hulk.export.shell import HEAD, array, command, file_name, host_name, word

PYTHON = '"${PYTHON:-python3}"'

# A program that writes ends by itself when nobody reads its output any more, so it is enough to end its ssh.
_ALL = """\
# Copies this folder to every machine, starts all of them over ssh, and follows them. When one fails, or on Ctrl-C, all
# are ended. Written by `hulk export`.
#   HULK_FOLDER   where the folder goes on the machines, from the home folder on
#   PYTHON        the python on the machines
#   SSH           the ssh to use
# Further arguments go to the script of every machine.
set -uo pipefail
cd -- "$(dirname -- "${{BASH_SOURCE[0]}}")"
folder=$(printf %q "${{HULK_FOLDER:-}}")
[ -n "${{HULK_FOLDER:-}}" ] || folder={folder}
python=$(printf %q "${{PYTHON:-python3}}")
more=
for each in "$@"; do more+=" $(printf %q "$each")"; done
{logins}{scripts}remote() {{ "${{SSH:-ssh}}" -o BatchMode=yes -o ConnectTimeout=15 -- "$1" "$2"; }}
start() {{
    tar -cf - . | remote "$1" "mkdir -p -- $folder && tar -xf - -C $folder" || return
    # Without a standard input: several of them must not read the terminal's.
    remote "$1" "cd -- $folder && PYTHON=$python bash -- $2$more" < /dev/null
}}
started=()
finish() {{
    trap - INT TERM
    [ ${{#started[@]}} -eq 0 ] || kill -- "${{started[@]}}" 2> /dev/null
    wait
}}
trap 'finish; exit 130' INT TERM
for i in "${{!logins[@]}}"; do
    # Each in a process group of its own, so that all it started ends with it.
    set -m; start "${{logins[$i]}}" "${{scripts[$i]}}" & started+=("-$!"); set +m
done
code=0
for _ in "${{logins[@]}}"; do
    wait -n || {{ code=$?; break; }}
done
[ "$code" -eq 0 ] || finish
exit "$code"
"""

# Where a machine's ranks do not follow one another torchrun cannot number them.
_BY_RANK = """\
export WORLD_SIZE={size} LOCAL_WORLD_SIZE={local} MASTER_ADDR={address} MASTER_PORT={port}
ranks=({ranks})
trap 'code=$?; kill $(jobs -p) 2> /dev/null || :; exit "$code"' EXIT
for i in "${{!ranks[@]}}"; do
    RANK=${{ranks[$i]}} LOCAL_RANK=$i {program} &
done
for _ in "${{ranks[@]}}"; do wait -n; done
"""


@dataclass(frozen=True)
class Node:
    """A machine with its ranks, and the GPUs they have in that order (None: the program finds its own)."""

    machine: str
    ranks: tuple[int, ...]
    gpus: tuple[int, ...] | None = None


def in_order(nodes: Sequence[Node]) -> bool:
    """Whether every machine's ranks follow one another, and those of the machine before: what torchrun can do."""
    return [rank for node in nodes for rank in node.ranks] == list(range(sum(len(node.ranks) for node in nodes)))


def start_files(
    scene: Scene, nodes: Sequence[Node], program: Sequence[str], *, before: str = "", one_by_one: bool = False
) -> Files:
    """The scripts that start a program, whose words are quoted and follow `python`. `before`: lines that come first.
    The first node has rank 0. `one_by_one`: without torchrun."""
    by_torchrun = in_order(nodes) and not one_by_one
    starts = _torchrun(scene, nodes, program) if by_torchrun else _by_rank(scene, nodes, program)
    files = {
        machine_path(node.machine): script(_machine(scene, nodes, number, before + start))
        for number, (node, start) in enumerate(zip(nodes, starts, strict=True))
    }
    logins = [word(host_name(scene.host(node.machine).login)) for node in nodes]
    # The machine's shell reads the path once more, so it is quoted twice.
    paths = [word(word(machine_path(node.machine))) for node in nodes]
    folder = word(word(f"hulk-{file_name(scene.job.name)}"))
    text = _ALL.format(folder=folder, logins=array("logins", logins), scripts=array("scripts", paths))
    return {**files, "all.sh": script(HEAD + text)}


def machine_path(machine: str) -> str:
    """Where a machine's own script is."""
    return f"machines/{file_name(machine)}.sh"


def torchrun(*, nodes: str, node: str, ranks: str, address: str, port: str) -> list[str]:
    """The words of torchrun for one machine, all quoted already."""
    return [
        *(PYTHON, "-m", "torch.distributed.run", "--nnodes", nodes, "--node-rank", node),
        *("--nproc-per-node", ranks, "--master-addr", address, "--master-port", port),
    ]


def _torchrun(scene: Scene, nodes: Sequence[Node], program: Sequence[str]) -> Iterator[str]:
    """What each machine starts: torchrun, with its ranks."""
    count, address = str(len(nodes)), word(host_name(scene.host(nodes[0].machine).address))
    for number, node in enumerate(nodes):
        own, ranks = str(number), str(len(node.ranks))
        words = torchrun(nodes=count, node=own, ranks=ranks, address=address, port=str(scene.port))
        yield f"exec {command([*words, *program])}\n"


def _by_rank(scene: Scene, nodes: Sequence[Node], program: Sequence[str]) -> Iterator[str]:
    """What each machine starts where its ranks do not follow one another: a process for each."""
    address, size = word(host_name(scene.host(nodes[0].machine).address)), sum(len(node.ranks) for node in nodes)
    words = command([PYTHON, *program], indent="        ")
    for node in nodes:
        ranks = " ".join(map(str, node.ranks))
        yield _BY_RANK.format(
            size=size, local=len(node.ranks), address=address, port=scene.port, ranks=ranks, program=words
        )


def _machine(scene: Scene, nodes: Sequence[Node], number: int, start: str) -> str:
    """The script of one machine."""
    node = nodes[number]
    return (
        f"{HEAD}# Starts the ranks of machine {number + 1} of {len(nodes)}. Written by `hulk export`.\n"
        'set -euo pipefail\ncd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."\n'
        f"{environment(scene.host(node.machine).interface, node.gpus)}{start}"
    )


def environment(interface: str | None = None, gpus: Sequence[int] | None = None) -> str:
    """Lines that set what the libraries read from the environment."""
    lines = 'export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"\n'
    if interface is not None:
        name = word(host_name(interface))
        lines += f"export GLOO_SOCKET_IFNAME={name} NCCL_SOCKET_IFNAME={name}\n"
    if gpus is not None:
        lines += f"export CUDA_VISIBLE_DEVICES={','.join(map(str, gpus))}\n"
    return lines
