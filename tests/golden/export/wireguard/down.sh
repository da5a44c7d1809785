#!/usr/bin/env bash
# Brings each machine its own configuration over ssh, as root, and takes it away again. Written by `hulk export`.
#   SSH    the ssh to use
set -uo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
logins=(
    me@rome
    oslo-1.example.org
    oslo-2
)
code=0
for i in "${!logins[@]}"; do
    "${SSH:-ssh}" -o BatchMode=yes -o ConnectTimeout=15 -- "${logins[$i]}" \
        'sudo wg-quick down hulk0; sudo rm -f /etc/wireguard/hulk0.conf' < /dev/null || { echo "failed: ${logins[$i]}" >&2; code=1; }
done
exit "$code"
