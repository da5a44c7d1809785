"""A Ray cluster on this computer, a node for each machine, the first of them its head: `ray_nodes.py MACHINE …` stays
until its input ends, and says first where it is."""

from __future__ import annotations

import sys


def main() -> None:
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    try:
        for machine in sys.argv[1:]:
            cluster.add_node(num_cpus=1, num_gpus=0, include_dashboard=False, resources={f"machine:{machine}": 1})
        print(cluster.address, flush=True)
        sys.stdin.read()
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
