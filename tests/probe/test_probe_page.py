"""docs/probe.md: what it says to type on one computer works as it stands, and its files are read."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from hulk.io.agents_file import load_hosts
from hulk.io.cluster_file import load_cluster

PAGE = (Path(__file__).parents[2] / "docs" / "probe.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## On this computer")[2].partition("\n## ")[0]


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def test_two_agents_on_this_computer(tmp_path):
    command = tmp_path / "bin" / "hulk"
    command.parent.mkdir()
    command.write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -c "from hulk.cli import main; main()" "$@"\n', encoding="utf-8"
    )
    command.chmod(0o755)
    environment = os.environ | {"PATH": f"{command.parent}:{os.environ['PATH']}"}
    (tmp_path / "agents.yaml").write_text(*blocks("yaml", SECTION), encoding="utf-8")
    agents, rest = blocks("sh", SECTION)
    with subprocess.Popen(
        ["bash", "-ec", agents + "wait\n"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as running:  # fmt: skip
        try:
            assert running.stdout is not None
            assert {running.stdout.readline().split()[2] for _ in range(2)} == {"127.0.0.1:5101", "127.0.0.1:5102"}
            done = subprocess.run(
                ["bash", "-ec", rest],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=400,
                check=False,
            )
        finally:
            os.killpg(running.pid, 15)
    assert done.returncode == 0, done.stderr
    assert "links have drifted" in done.stdout
    assert load_cluster(tmp_path / "new.yaml").link("zrh-1", "ams-1").origin == "measured"


def test_the_list_of_hosts_is_one(tmp_path):
    (tmp_path / "hosts.txt").write_text(*blocks("text", PAGE), encoding="utf-8")
    found = load_hosts(tmp_path / "hosts.txt", port=5078)
    assert [(each.given.name, each.host, each.port) for each in found.machines] == [
        ("zrh-1", "gpu1.lab.example", 5078),
        ("zrh-2", "10.1.0.12", 5078),
        ("ams-1", "198.51.100.7", 5078),
    ]
