"""JobSet v1alpha2 as a strict schema: what a server with JobSet's resource definition, and JobSet's own admission, take
and refuse. No package brings that definition along, and the models that there are take nonsense, so it is said here.

What is inside a group's template is a Job, whose own schema is Kubernetes's."""

from __future__ import annotations

from typing import Any

from jsonschema import Draft202012Validator

_LABEL = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"  # DNS-1035: becomes the name of a service, a job and a pod
_LONGEST = 63
_SUFFIX = 6  # what Kubernetes adds to the names of pods: a dash and five characters
_WHOLE: dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
_TEXT: dict[str, Any] = {"type": "string"}
_TEXTS: dict[str, Any] = {"type": "array", "items": _TEXT}
_NAME: dict[str, Any] = {"type": "string", "pattern": _LABEL, "maxLength": _LONGEST}


def _of(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    """An object with these fields and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


_RULE = _of(
    ("action", "name"),
    action={
        "enum": [
            "FailJobSet",
            "RestartJobSet",
            "RestartJobSetAndIgnoreMaxRestarts",
            "RestartJob",
            "RestartJobAndIgnoreMaxRestarts",
        ]
    },
    name={"type": "string", "pattern": r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"},
    onJobFailureMessagePatterns=_TEXTS,
    onJobFailureReasons=_TEXTS,
    targetReplicatedJobs=_TEXTS,
)
_GROUP = _of(
    ("name", "template"),
    dependsOn={
        "type": "array",
        "maxItems": 5,
        "items": _of(("name", "status"), name=_TEXT, status={"enum": ["Ready", "Complete"]}),
    },
    groupName=_NAME,
    name={"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"},
    replicas=_WHOLE,
    template={**_of(("spec",), metadata={"type": "object"}, spec={"type": "object"})},
)
SCHEMA = _of(
    ("apiVersion", "kind", "metadata", "spec"),
    apiVersion={"const": "jobset.x-k8s.io/v1alpha2"},
    kind={"const": "JobSet"},
    metadata=_of(
        ("name",),
        name=_NAME,
        namespace=_NAME,
        labels={"type": "object", "additionalProperties": _TEXT},
        annotations={"type": "object", "additionalProperties": _TEXT},
    ),
    spec=_of(
        ("replicatedJobs",),
        coordinator=_of(("replicatedJob",), jobIndex=_WHOLE, podIndex=_WHOLE, replicatedJob=_TEXT),
        failurePolicy=_of(
            maxRestarts=_WHOLE,
            restartStrategy={"enum": ["Recreate", "BlockingRecreate", "InPlaceRestart"]},
            rules={"type": "array", "items": _RULE},
        ),
        managedBy={"type": "string", "maxLength": _LONGEST},
        network=_of(
            enableDNSHostnames={"type": "boolean"}, publishNotReadyAddresses={"type": "boolean"}, subdomain=_NAME
        ),
        replicatedJobs={"type": "array", "minItems": 1, "items": _GROUP},
        successPolicy=_of(("operator",), operator={"enum": ["All", "Any"]}, targetReplicatedJobs=_TEXTS),
        suspend={"type": "boolean"},
        ttlSecondsAfterFinished=_WHOLE,
    ),
)


def problems(document: dict[str, Any]) -> list[str]:
    """What is wrong with a JobSet, in words; nothing where it would be taken."""
    found = [f"{error.json_path}: {error.message}" for error in Draft202012Validator(SCHEMA).iter_errors(document)]
    return found or list(_between(document))


def _between(document: dict[str, Any]) -> list[str]:
    """What no schema can say: names that are twice, name nothing, or become too long."""
    spec, wrong = document["spec"], []
    names = [group["name"] for group in spec["replicatedJobs"]]
    if len(set(names)) < len(names):
        wrong.append(f"groups of one name: {names}")
    for number, group in enumerate(spec["replicatedJobs"]):
        jobs, pods = group.get("replicas", 1), group["template"]["spec"].get("completions", 1)
        pod = f"{document['metadata']['name']}-{group['name']}-{max(0, jobs - 1)}-{max(0, pods - 1)}"
        if len(pod) + _SUFFIX > _LONGEST:
            wrong.append(f"{pod} is too long for the name of a pod")
        wrong += [
            f"{group['name']} depends on {other['name']}, which is not before it"
            for other in group.get("dependsOn", ())
            if other["name"] not in names[:number]
        ]
    policies = (spec.get("successPolicy", {}), *spec.get("failurePolicy", {}).get("rules", ()))
    meant = [each for policy in policies for each in policy.get("targetReplicatedJobs", ())]
    meant += [spec["coordinator"]["replicatedJob"]] if "coordinator" in spec else []
    return [*wrong, *(f"no group {each}" for each in meant if each not in names)]
