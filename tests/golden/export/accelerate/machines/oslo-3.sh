#!/usr/bin/env bash
# Starts a training program of yours on machine 3 of 4: machines/NAME.sh train.py ARGUMENTS. Written by `hulk export`.
set -euo pipefail
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
[ $# -gt 0 ] || { echo "usage: $0 PROGRAM ARGUMENTS" >&2; exit 2; }
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
exec accelerate launch --config_file "$here"/../accelerate.yaml --machine_rank 2 --gpu_ids 0,1,2,3,4,5,6,7 --gradient_accumulation_steps 2 "$@"
