"""docs/tutorial.md works as it stands there: every command, in its order, on three sites of a testbed that real ssh
reaches. The job that it launches has the loss of one process, and nothing of it is left behind."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from wide import fresh_name

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))

from hulk.io.cluster_file import load_cluster
from hulk.io.hosts_file import read_hosts
from hulk.runtime.settings import Settings
from ssh_lab import Lab, lacks

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(bool(lacks()), reason=f"needs {lacks()}")

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text(encoding="utf-8")
SITES = """
name: sites
regions: {rome: {}, oslo: {}, paris: {}}
machines:
  - {name: rome-1, region: rome, gpu: rtx-3090, gpus: 1}
  - {name: oslo-1, region: oslo, gpu: v100-32, gpus: 1}
  - {name: paris-1, region: paris, gpu: rtx-3090, gpus: 1}
links:
  - {between: [rome, oslo], latency: 15 ms, bandwidth: 100 Mbit/s}
  - {between: [rome, paris], latency: 8 ms, bandwidth: 150 Mbit/s}
  - {between: [oslo, paris], latency: 12 ms, bandwidth: 120 Mbit/s}
"""
LITTLE = {
    "probe": ["--seconds", "0.4", "--samples", "1", "--most", "20 MB"],
    "plan": ["--evaluations", "200", "--workers", "1", "--no-gnn"],
    "replan": ["--evaluations", "200", "--no-gnn"],
    "launch": ["--no-gpus"],
}
"""What makes commands short, and does without GPUs: how good their answers are is not the question here."""
LIMIT = 1200.0
"""Seconds for one command. The first that plans may have to compile the search, which takes minutes on a busy computer;
whoever hangs is ended by its own limits long before."""
FEWER = {"1000": "3", "100": "3"}
"""Steps: as many as are needed."""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    (tmp_path / "sites.yaml").write_text(SITES, encoding="utf-8")
    with Lab(load_cluster(tmp_path / "sites.yaml"), tmp_path, name=fresh_name()) as up:
        yield up


def test_every_command_of_the_page(lab: Lab) -> None:
    folder = lab.folder
    files = dict(re.findall(r"^```(?:text|yaml|json)\n# (\S+)\n(.*?)^```$", PAGE, re.M | re.S))
    assert set(files) == {"hosts.txt", "gpt.json", "jobs.yaml"}
    (folder / "page.txt").write_text(files.pop("hosts.txt"), encoding="utf-8")
    _, shown = read_hosts(folder / "page.txt")
    assert [(name, entry.region) for name, entry in shown.hosts.items()] == [
        (name, entry.region) for name, entry in read_hosts(folder / "hosts.txt")[1].hosts.items()
    ]
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    words = ("region", "machine", "stage", "layer", "gradient", "link", "batch")
    (folder / "text.txt").write_text(" ".join(words[(i * i + i // 3) % 7] for i in range(2000)), encoding="utf-8")
    lines = [line for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S) for line in block.splitlines()]
    assert len(lines) == 9
    said = []
    for line in lines:
        hulk, verb, *given = shlex.split(line)
        given = [FEWER.get(word, word) for word in given] + LITTLE.get(verb, [])
        done = lab.run(hulk, verb, *given, seconds=LIMIT)
        assert done.returncode == 0, f"{line}: {done.stderr}\n{done.stdout}"
        said.append(done.stdout)
    assert "3 machines are ready" in said[3]
    # The rehearsal is compared with its prediction, on the network that was measured.
    rehearsal = steps(folder / "rehearsal.jsonl")
    assert len(rehearsal) == 5 and all(step["predicted_s"] for step in rehearsal)
    assert {stage["machine"] for stage in rehearsal[0]["stages"]} == {"rome-1", "oslo-1", "paris-1"}
    # A prediction is for GPUs; the loss is that of one process.
    losses = [step["loss"] for step in steps(folder / "steps.jsonl")]
    assert losses == pytest.approx(alone(folder, len(losses)), rel=1e-5)
    assert "gpt checkpoint" in said[5] and (folder / "saved" / "gpt" / "step-00000003").is_dir()
    assert not lab.inside()


def steps(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def alone(folder: Path, count: int) -> list[float]:
    """The losses of the same job in one process."""
    from oracle import oracle

    usual = Settings()
    text = folder / "text.txt"
    return oracle(folder, text, steps=count, seed=usual.seed, rate=usual.rate, decay=usual.decay)
