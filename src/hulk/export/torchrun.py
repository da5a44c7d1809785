"""torchrun: a script for each machine, and one that starts all of them over ssh."""

from __future__ import annotations

from hulk.export.files import Files, script
from hulk.export.scene import Scene
from hulk.export.shell import HEAD, array, file_name, host_name, word
from hulk.export.worker import check_worker, input_files, machine_path, machine_scripts

# A worker ends by itself when nobody reads its output any more, so it is enough to end the ssh that carries it.
_ALL = """\
# Copies this folder to every machine, starts all of them over ssh, and follows them. When one fails, or on Ctrl-C, all
# are ended. Written by `hulk export`.
#   HULK_FOLDER   where the folder goes on the machines, from the home folder on
#   PYTHON        the python with hulk on the machines
#   SSH           the ssh to use
# Further arguments go to every worker.
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


def export(scene: Scene) -> Files:
    """The scripts, with the files that the worker reads."""
    check_worker("torchrun", scene)
    names = [machine.name for machine in scene.machines]
    logins = [word(host_name(scene.host(name).login)) for name in names]
    # The machine's shell reads the path once more, so it is quoted twice.
    paths = [word(word(machine_path(name))) for name in names]
    text = _ALL.format(
        folder=word(word(f"hulk-{file_name(scene.job.name)}")),
        logins=array("logins", logins),
        scripts=array("scripts", paths),
    )
    return {**input_files(scene), **dict(machine_scripts(scene)), "all.sh": script(HEAD + text)}
