#!/usr/bin/env bash
# Starts the ranks of machine 3 of 4. Written by `hulk export`.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
exec "${PYTHON:-python3}" -m torch.distributed.run --nnodes 4 --node-rank 2 --nproc-per-node 8 --master-addr oslo-1 \
    --master-port 29500 -m torchtitan.train --module hulk_plan --config plan "$@"
