#!/usr/bin/env bash
# Starts the workers of a host: node.sh GROUP NUMBER. Written by `hulk export`.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
case "$1/$2" in
    g0-rome/0) node=0 ;;
    g1-oslo/0) node=1 ;;
    g2-oslo/0) node=2 ;;
    *) echo "no machine of the plan: $1 $2" >&2; exit 2 ;;
esac
case "$1/" in
    g0-rome/*) ranks=1 ;;
    g1-oslo/*) ranks=2 ;;
    g2-oslo/*) ranks=1 ;;
esac
shift 2
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
exec "${PYTHON:-python3}" -m torch.distributed.run --nnodes 3 --node-rank "$node" --nproc-per-node "$ranks" \
    --master-addr g0-rome-0.tiny --master-port 29500 -m hulk.runtime.worker --plan plan.json --cluster \
    cluster.json --jobs jobs.json --job tiny --data=/data/text.txt --steps=20 --patience=1800.0 "$@"
