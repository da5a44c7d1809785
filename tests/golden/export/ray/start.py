"""Starts a plan's workers on a Ray cluster: python start.py [--no-gpus] [WORKER OPTIONS]. Written by `hulk export`.

Every machine of the plan is a node with a resource of its name, and of GPUs:

    ray start --address HEAD:6379 --num-gpus 8 --resources '{"machine:rome-1": 1}'

--no-gpus asks for none, to try a plan on CPUs. hulk must be installed for the Python that Ray runs.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import ray
from ray.util import get_node_ip_address, placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

HERE = Path(__file__).absolute().parent
WAIT = 60.0  # seconds for all machines to be there


def address() -> str:
    """Where this node is reached."""
    return get_node_ip_address()


def work(plan: dict, node: int, first: str, more: list, files: dict) -> int:
    """Runs one machine's workers to their end; the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        argv = [sys.executable, "-m", "torch.distributed.run", "--nnodes", str(len(plan["machines"]))]
        argv += ["--node-rank", str(node), "--nproc-per-node", str(plan["machines"][node]["ranks"])]
        argv += ["--master-addr", first, "--master-port", str(plan["port"]), "-m", plan["module"]]
        # Ray writes a task's output to its driver's.
        variables = {"OMP_NUM_THREADS": "1", **os.environ}
        interface = plan["machines"][node]["interface"]
        if interface:
            variables |= {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}
        return subprocess.run([*argv, *plan["arguments"], *more], cwd=folder, env=variables, check=False).returncode


def main() -> int:
    """Starts all, and waits."""
    plan = json.loads((HERE / "plan.ray.json").read_text(encoding="utf-8"))
    files = {name: (HERE / name).read_text(encoding="utf-8") for name in plan["files"]}
    more = [word for word in sys.argv[1:] if word != "--no-gpus"]
    gpus = len(more) == len(sys.argv) - 1
    ray.init(address=os.environ.get("RAY_ADDRESS", "auto"))
    machines = plan["machines"]
    bundles = [
        {"CPU": 1, f"machine:{each['name']}": 1, **({"GPU": each["ranks"]} if gpus else {})} for each in machines
    ]
    group = placement_group(bundles)
    if not group.wait(WAIT):
        print(f"these are not all there, or not free: {bundles}", file=sys.stderr)
        return 3

    def on(function, node):
        """A function as a task on a machine."""
        place = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=node)
        wanted = machines[node]["ranks"] if gpus else 0
        options = {"num_cpus": 1, "num_gpus": wanted, "max_retries": 0, "scheduling_strategy": place}
        return ray.remote(function).options(**options)

    first = plan["address"] or ray.get(on(address, 0).remote())
    left = [on(work, node).remote(plan, node, first, more, files) for node in range(len(machines))]
    while left:
        done, left = ray.wait(left)
        code = ray.get(done[0])
        if code:
            for task in left:
                ray.cancel(task, force=True)
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
