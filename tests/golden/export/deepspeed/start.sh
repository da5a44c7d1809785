#!/usr/bin/env bash
# Starts a training program of yours with the plan: ./start.sh train.py ARGUMENTS. Written by `hulk export`.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
[ $# -gt 0 ] || { echo "usage: start.sh PROGRAM ARGUMENTS" >&2; exit 2; }
exec "${DEEPSPEED:-deepspeed}" --hostfile hostfile --include \
    oslo-1:0,1,2,3,4,5,6,7@oslo-2:0,1,2,3,4,5,6,7@oslo-3:0,1,2,3,4,5,6,7@oslo-4:0,1,2,3,4,5,6,7 --master_addr \
    oslo-1 --master_port 29500 "$@" --deepspeed --deepspeed_config deepspeed.json
