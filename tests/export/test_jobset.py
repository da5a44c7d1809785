"""The JobSet that is written keeps to what its resource definition takes, whatever the names of jobs and regions are;
and the check would notice if it did not."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import yaml
from export_scenes import tiny
from jobset_schema import problems

from hulk.export import TARGETS, Scene


def written(scene: Scene) -> dict[str, Any]:
    _, jobset = yaml.safe_load_all(TARGETS.get("jobset").export(scene)["jobset.yaml"].text)
    return jobset


def with_job(name: str) -> Scene:
    scene = tiny()
    return replace(scene, job=replace(scene.job, name=name))


@pytest.mark.parametrize(
    "name", ["tiny", "7B run", "Ärger_mit_Namen", "x" * 80, "a-" * 40, "1" * 40, "--", "UPPER.case/path"]
)
def test_what_is_written_is_taken(name: str) -> None:
    assert problems(written(with_job(name))) == []


REPLACED: list[tuple[tuple[str | int, ...], Any, str]] = [
    (("spec", "restarts"), 3, "restarts"),
    (("spec", "failurePolicy", "restartStrategy"), "Whenever", "Whenever"),
    (("spec", "failurePolicy", "maxRestarts"), "0", "maxRestarts"),
    (("spec", "failurePolicy", "maxRestarts"), -1, "maxRestarts"),
    (("spec", "network", "enableDNSHostnames"), "yes", "enableDNSHostnames"),
    (("spec", "network", "enableDnsHostnames"), True, "enableDnsHostnames"),
    (("spec", "replicatedJobs", 0, "name"), "Rome", "Rome"),
    (("spec", "replicatedJobs", 0, "name"), "g1-oslo", "groups of one name"),
    (("spec", "replicatedJobs", 0, "name"), "g" * 60, "too long for the name of a pod"),
    (("spec", "replicatedJobs", 0, "name"), None, "name"),
    (("spec", "replicatedJobs", 0, "replicas"), 1.5, "replicas"),
    (("spec", "replicatedJobs", 1, "dependsOn"), [{"name": "g0-rome", "status": "Started"}], "Started"),
    (("spec", "replicatedJobs", 1, "dependsOn"), [{"name": "g2-oslo", "status": "Ready"}], "not before it"),
    (("spec", "replicatedJobs", 1, "completions"), 2, "completions"),
    (("spec", "replicatedJobs"), [], "replicatedJobs"),
    (("spec", "successPolicy"), {"operator": "All", "targetReplicatedJobs": ["g9"]}, "no group g9"),
    (("spec", "coordinator"), {"replicatedJob": "g9"}, "no group g9"),
    (("metadata", "name"), "7b", "7b"),
    (("metadata", "name"), None, "name"),
    (("apiVersion",), "jobset.x-k8s.io/v1", "v1"),
]


@pytest.mark.parametrize(("path", "value", "words"), REPLACED)
def test_what_a_server_would_refuse_is_noticed(path: tuple[str | int, ...], value: Any, words: str) -> None:
    document = copy.deepcopy(written(tiny()))
    inner: Any = document
    for each in path[:-1]:
        inner = inner[each]
    if value is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    found = problems(document)
    assert found and words in "; ".join(found)
