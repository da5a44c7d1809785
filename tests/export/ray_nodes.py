"""A Ray cluster of several nodes on this computer, for as long as a command runs:
`ray_nodes.py MACHINE … -- COMMAND …`; the command finds it by RAY_ADDRESS. With `-` as the command it stays until its
input ends, and says first where it is."""

from __future__ import annotations

import os
import subprocess
import sys


def main() -> int:
    from ray.cluster_utils import Cluster

    at = sys.argv.index("--")
    machines, command = sys.argv[1:at], sys.argv[at + 1 :]
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        for machine in machines:
            cluster.add_node(num_cpus=1, num_gpus=0, resources={f"machine:{machine}": 1})
        if command == ["-"]:
            print(cluster.address, flush=True)
            sys.stdin.read()
            return 0
        environment = {**os.environ, "RAY_ADDRESS": cluster.address}
        return subprocess.run(command, env=environment, check=False, timeout=400).returncode
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    sys.exit(main())
