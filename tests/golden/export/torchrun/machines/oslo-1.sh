#!/usr/bin/env bash
# Starts the ranks of machine 2 of 3. Written by `hulk export`.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
export GLOO_SOCKET_IFNAME=eth1 NCCL_SOCKET_IFNAME=eth1
exec "${PYTHON:-python3}" -m torch.distributed.run --nnodes 3 --node-rank 1 --nproc-per-node 2 --master-addr \
    203.0.113.1 --master-port 29500 -m hulk.runtime.worker --plan plan.json --cluster cluster.json --jobs \
    jobs.json --job tiny --data=/data/text.txt --steps=20 --patience=1800.0 "$@"
