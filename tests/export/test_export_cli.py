"""`hulk export` as people use it: what it writes, what it refuses, and that nothing half-written stays."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from export_scenes import HALL, JOBS, SITES, uneven

from hulk.domain.plan import Plan
from hulk.io.bundle import cluster_files
from hulk.io.cluster_file import load_cluster
from hulk.io.jobs_file import load_jobs
from hulk.io.plan_file import load_plan, save_plan
from warm import COMMAND, LIMIT, hulk


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sites.yaml").write_text(SITES)
    (tmp_path / "hall.yaml").write_text(HALL)
    (tmp_path / "jobs.yaml").write_text(JOBS)
    save_plan(Plan({"tiny": uneven()}), tmp_path / "tiny.json", cluster=load_cluster(tmp_path / "sites.yaml"))
    return tmp_path


def export(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return hulk("export", *words, cwd=folder)


TINY = ("tiny.json", "-c", "sites.yaml", "-j", "jobs.yaml", "--data", "text.txt")


def test_a_folder_that_travels(folder: Path) -> None:
    done = export(folder, *TINY, "--to", "torchrun", "-o", "out", "--steps", "7")
    assert done.returncode == 0, done.stderr
    out = folder / "out"
    assert "torchrun: 7 files in out" in done.stdout
    assert sorted(path.name for path in (out / "machines").iterdir()) == ["oslo-1.sh", "oslo-2.sh", "rome-1.sh"]
    assert "--steps=7" in (out / "machines" / "rome-1.sh").read_text().replace("\\\n    ", "")
    assert f"--data={folder / 'text.txt'}" in (out / "machines" / "rome-1.sh").read_text()
    # What the worker reads is what the plan was made of, though nothing of it lies where it was.
    assert load_plan(out / "plan.json").jobs["tiny"] == uneven()
    assert load_cluster(out / "cluster.json").machines == load_cluster(folder / "sites.yaml").machines
    assert [job.name for job in load_jobs(out / "jobs.json")] == ["tiny"]


def test_a_cluster_brings_what_it_extends(tmp_path: Path) -> None:
    (tmp_path / "sites.yaml").write_text(SITES)
    (tmp_path / "more.yaml").write_text(
        "extends: ./sites.yaml\nmachines: [{name: extra, region: rome, gpu: a100-80, gpus: 1}]\n"
    )
    out = tmp_path / "out"
    out.mkdir()
    for name, text in cluster_files(str(tmp_path / "more.yaml")).items():
        (out / name).write_text(text)
    there, here = load_cluster(out / "cluster.json"), load_cluster(tmp_path / "more.yaml")
    assert (there.name, there.machines, there.region_links) == (here.name, here.machines, here.region_links)


def test_several_jobs_get_a_folder_each(folder: Path) -> None:
    jobs = JOBS.replace(
        "llama-3-8b, sequence: 4096, global_batch: 64", "gpt2, sequence: 64, global_batch: 12, precision: fp32"
    )
    (folder / "jobs.yaml").write_text(jobs)
    first = uneven()
    others = {"rome-1": "rome-2", "oslo-1": "oslo-3", "oslo-2": "rome-3"}
    second = replace(
        first,
        pipelines=tuple(
            replace(p, stages=tuple(replace(s, machine=others[s.machine]) for s in p.stages)) for p in first.pipelines
        ),
    )
    save_plan(Plan({"tiny": first, "llama": second}), folder / "two.json")
    words = ("two.json", *TINY[1:])
    done = export(folder, *words, "--to", "slurm", "-o", "out", "--checkpoint-dir", "saved")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["llama", "tiny"]
    scripts = [
        (folder / "out" / job / "machines" / name).read_text()
        for job, name in (("tiny", "rome-1.sh"), ("llama", "rome-2.sh"))
    ]
    assert "--master-port 29500" in scripts[0] and "--master-port 29501" in scripts[1].replace("\\\n    ", "")
    assert "saved/tiny" in scripts[0] and "saved/llama" in scripts[1]
    done = export(folder, *words, "--to", "slurm", "-o", "one", "--job", "llama")
    assert done.returncode == 0 and (folder / "one" / "job.sbatch").exists()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((*TINY, "--to", "torchrum", "-o", "out"), 2, "no target 'torchrum' (did you mean 'torchrun'?)"),
        ((*TINY, "--to", "torchrun", "-o", "."), 2, "--out '.': this folder has files already"),
        ((*TINY, "--to", "torchrun", "-o", "tiny.json"), 2, "this is there already, and no folder"),
        ((*TINY, "--to", "torchrun", "-o", "no/such/folder"), 2, "there is no folder"),
        ((*TINY, "--to", "torchrun", "-o", "out", "--job", "tine"), 2, "no job 'tine' in this plan (did you mean"),
        ((*TINY[:2], "hall.yaml", *TINY[3:], "--to", "torchrun", "-o", "out"), 2, "it was made for cluster 'sites'"),
        ((*TINY, "--to", "megatron", "-o", "out"), 3, "megatron: pipelines 1 and 2 have 2 and 1 stages"),
        ((*TINY[:-2], "--to", "torchrun", "-o", "out"), 2, "no data to train on"),
        ((*TINY, "--to", "torchrun", "-o", "out", "--hosts", "bad.yaml"), 2, "hosts.rome-1.address"),
        ((*TINY, "--to", "torchrun", "-o", "out", "--hosts", "other.yaml"), 2, "no machine 'paris-1'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_on_one_line(folder: Path, words: tuple[str, ...], code: int, message: str) -> None:
    (folder / "bad.yaml").write_text('hosts: {rome-1: "-oProxyCommand=touch x"}\n')
    (folder / "other.yaml").write_text("hosts: {paris-1: 10.0.0.1}\n")
    done = export(folder, *words)
    told = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert done.returncode == code and len(told) == 1 and message in told[0], done.stderr
    assert "Traceback" not in done.stderr and not (folder / "out").exists()


def test_a_plan_of_another_cluster(folder: Path) -> None:
    (folder / "other.yaml").write_text(SITES.replace("v100-32, gpus: 4", "v100-16, gpus: 4"))
    words = (TINY[0], "-c", "other.yaml", *TINY[3:], "--to", "torchrun", "-o", "out")
    done = export(folder, *words)
    [told] = done.stderr.splitlines()
    assert done.returncode == 2 and not (folder / "out").exists()
    assert "this is not the cluster of the plan: oslo-1 had 4 × v100-32" in told and "plan again" in told
    done = export(folder, *words, "--anyway")
    assert done.returncode == 0 and (folder / "out" / "all.sh").exists()
    assert done.stderr.startswith("warning: this is not the cluster of the plan: oslo-1 had")


def test_a_full_disk_leaves_nothing(folder: Path) -> None:
    before = sorted(path.name for path in folder.iterdir())
    full = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))"  # bytes of a file; more is an error
    argv = [*COMMAND[:2], f"{full}\n{COMMAND[2]}", "export", *TINY, "--to", "torchrun", "-o", "out"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT, check=False, cwd=folder)
    assert done.returncode == 1 and "'out' could not be written, and nothing of it is left" in done.stderr
    assert sorted(path.name for path in folder.iterdir()) == before
