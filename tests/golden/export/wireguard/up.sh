#!/usr/bin/env bash
# Brings each machine its own configuration over ssh, as root, and starts the mesh. Written by `hulk export`.
#   SSH    the ssh to use
set -uo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
logins=(
    me@rome
    oslo-1.example.org
    oslo-2
)
files=(
    machines/rome-1.conf
    machines/oslo-1.conf
    machines/oslo-2.conf
)
code=0
for i in "${!logins[@]}"; do
    "${SSH:-ssh}" -o BatchMode=yes -o ConnectTimeout=15 -- "${logins[$i]}" \
        'sudo install -m 600 /dev/stdin /etc/wireguard/hulk0.conf && sudo wg-quick up hulk0' < "${files[$i]}" || { echo "failed: ${logins[$i]}" >&2; code=1; }
done
exit "$code"
