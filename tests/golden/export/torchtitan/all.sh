#!/usr/bin/env bash
# Copies this folder to every machine, starts all of them over ssh, and follows them. When one fails, or on Ctrl-C, all
# are ended. Written by `hulk export`.
#   HULK_FOLDER   where the folder goes on the machines, from the home folder on
#   PYTHON        the python on the machines
#   SSH           the ssh to use
# Further arguments go to the script of every machine.
set -uo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
folder=$(printf %q "${HULK_FOLDER:-}")
[ -n "${HULK_FOLDER:-}" ] || folder=hulk-llama
python=$(printf %q "${PYTHON:-python3}")
more=
for each in "$@"; do more+=" $(printf %q "$each")"; done
logins=(
    oslo-1
    oslo-2
    oslo-3
    oslo-4
)
scripts=(
    machines/oslo-1.sh
    machines/oslo-2.sh
    machines/oslo-3.sh
    machines/oslo-4.sh
)
remote() { "${SSH:-ssh}" -o BatchMode=yes -o ConnectTimeout=15 -- "$1" "$2"; }
start() {
    tar -cf - . | remote "$1" "mkdir -p -- $folder && tar -xf - -C $folder" || return
    # Without a standard input: several of them must not read the terminal's.
    remote "$1" "cd -- $folder && PYTHON=$python bash -- $2$more" < /dev/null
}
started=()
finish() {
    trap - INT TERM
    [ ${#started[@]} -eq 0 ] || kill -- "${started[@]}" 2> /dev/null
    wait
}
trap 'finish; exit 130' INT TERM
for i in "${!logins[@]}"; do
    # Each in a process group of its own, so that all it started ends with it.
    set -m; start "${logins[$i]}" "${scripts[$i]}" & started+=("-$!"); set +m
done
code=0
for _ in "${logins[@]}"; do
    wait -n || { code=$?; break; }
done
[ "$code" -eq 0 ] || finish
exit "$code"
