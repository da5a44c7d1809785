"""The nodes of a Slurm looked at before a job is submitted: `srun` starts an agent on each of them, which is asked what
machines that ssh reaches are asked. What is in use then is not waited for."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from hulk import __version__
from hulk.export.slurm import node_name
from hulk.io.hosts_file import Host, HostList
from hulk.launch.needs import Need
from hulk.launch.sites import AgentLine
from hulk.probe.control import Piped
from hulk.probe.wire import WireError

IN_USE = "its node is in use"
"""How the words begin that say that a node could not be looked at now."""
_WAIT = 10  # seconds for Slurm to hand out a node that nobody uses
_TAKEN = re.compile(r"nodes are busy|unable to allocate resources|resources not available|job .* revoked", re.I)
_PASSED_ON = ("PARTITION", "ACCOUNT", "QOS", "RESERVATION", "TIMELIMIT")
"""What people set for sbatch in the environment, and srun has other names for."""


@dataclass(frozen=True)
class SlurmSite:
    """Nodes of a Slurm. `wrong`: by machine, what is known to be wrong with its node; `gpus`: whether GPUs are asked
    for."""

    hosts: HostList
    wrong: Mapping[str, str]
    needs: Mapping[str, Need]
    gpus: bool
    apart = True

    def host(self, machine: str) -> Host:
        """As the hosts file says."""
        return replace(self.hosts.of(machine), login=machine)

    def line(self, machine: str) -> AgentLine:
        """An agent in a step of a job of its own."""
        if machine in self.wrong:
            raise WireError("silent", self.wrong[machine])
        gpus = len(self.needs[machine].gpus) if self.gpus else 0
        return SrunLine(self._command(machine, gpus))

    def _command(self, machine: str, gpus: int) -> list[str]:
        given = [
            f"{name}={os.environ[f'SBATCH_{each}']}"
            for each in _PASSED_ON
            if f"SBATCH_{each}" in os.environ and (name := f"SLURM_{each}") not in os.environ
        ]
        node = node_name(self.hosts.of(machine).node)
        asked = ["--nodes=1", "--ntasks=1", f"--nodelist={node}", f"--immediate={_WAIT}", "--job-name=hulk-check"]
        asked += [f"--gpus-per-node={gpus}"] if gpus else []
        python = os.environ.get("PYTHON", "python3")  # as the job's own scripts call it
        return ["env", *given, "srun", "--quiet", "--unbuffered", *asked, python, "-P", "-m", "hulk.launch.agent"]

    def needed(self, need: Need) -> Need:
        """Slurm numbers the GPUs that it hands out from 0; a whole machine's are the plan's."""
        if not self.gpus or len(need.gpus) == need.machine.gpus:
            return need
        return replace(need, gpus=dict(enumerate(size for _, size in sorted(need.gpus.items()))))


class SrunLine(Piped):
    """The line to an agent that srun has started."""

    def why(self) -> str:
        """Why it has ended, as far as srun or the agent said so."""
        words = super().why()
        if _TAKEN.search(words) or any(_TAKEN.search(line) for line in self.said):
            return f"{IN_USE}: what it lacks shows when the job's turn comes"
        if any("No module named" in line and "hulk" in line for line in self.said):
            return (
                f"the Python that the job runs there has no hulk, or an older one: install {__version__}, or set PYTHON"
            )
        if any("execve" in line or "No such file" in line for line in self.said):
            return "the job's Python is not there: set PYTHON to the one that has hulk"
        return words
