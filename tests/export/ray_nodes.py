"""A Ray cluster of several nodes on this computer, in which an exported job runs: `ray_nodes.py FOLDER MACHINE …`."""

from __future__ import annotations

import os
import subprocess
import sys


def main() -> int:
    from ray.cluster_utils import Cluster

    folder, *machines = sys.argv[1:]
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        for machine in machines:
            cluster.add_node(num_cpus=1, num_gpus=0, resources={f"machine:{machine}": 1})
        environment = {**os.environ, "RAY_ADDRESS": cluster.address}
        argv = [sys.executable, f"{folder}/start.py", "--no-gpus"]
        return subprocess.run(argv, env=environment, check=False, timeout=400).returncode
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    sys.exit(main())
