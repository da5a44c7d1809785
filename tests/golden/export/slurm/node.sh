#!/usr/bin/env bash
# What every node of the job starts with: its own machine's script. Written by `hulk export`.
set -euo pipefail
case "$SLURMD_NODENAME" in
    n1) script=machines/rome-1.sh ;;
    n2) script=machines/oslo-1.sh ;;
    oslo-2) script=machines/oslo-2.sh ;;
    *) echo "no machine of the plan: $SLURMD_NODENAME" >&2; exit 2 ;;
esac
exec bash -- "$script" "$@"
