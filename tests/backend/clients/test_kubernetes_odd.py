"""Random and broken JSON of nodes, pods, their owners, claims and events: nothing odd ever raises."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.clients.kubernetes_conventions import conventions
from backend.clients.kubernetes_json import at, quantity, whole
from backend.clients.kubernetes_nodes import node_of
from backend.clients.kubernetes_pods import pod_of
from backend.clients.kubernetes_work import claim_of, owner_of, verdict_of
from backend.ingest.kubernetes_events import said_of

KNOWN = conventions()
NOW = 1_800_000_000.0
READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-03-01T12:00:00Z"}

NAMES = """
metadata name namespace uid labels annotations ownerReferences controller kind spec nodeName containers
resources limits nvidia.com/gpu status phase conditions type reason message lastTransitionTime
containerStatuses state terminated exitCode restartCount taints key value effect unschedulable managedFields
fieldsV1 f:spec nodeInfo bootID capacity allocatable allocation devices results device series count
lastTimestamp involvedObject True False Ready NoSchedule gpu-1 2026-03-01T12:00:00Z 9e99 -1 items affinity
nodeAffinity template
"""
WORDS = st.sampled_from(NAMES.split())
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | WORDS
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=6), max_leaves=40
)


@settings(max_examples=80, deadline=None)
@given(JSON, st.dictionaries(WORDS, JSON, max_size=6), st.dictionaries(WORDS, JSON, max_size=6))
def test_whatever_stands_in_json_never_raises(found: Any, meta: dict[str, Any], rest: dict[str, Any]) -> None:
    whole_one = {"metadata": {"name": "n", "namespace": "x", "uid": "u", **meta}, "spec": rest, "status": found, **rest}
    for one in (found, whole_one):
        node_of(one, KNOWN, NOW)
        pod = pod_of(one, KNOWN)
        verdict_of([pod] if pod else [])
        owner_of(one, "jobs", KNOWN)
        claim_of(one)
        said_of(one)


def mutated(value: Any, path: tuple[Any, ...], into: Any) -> Any:
    if not path:
        return into
    if isinstance(value, dict):
        return {k: mutated(v, path[1:], into) if k == path[0] else v for k, v in value.items()}
    if isinstance(value, list) and isinstance(path[0], int):
        return [mutated(v, path[1:], into) if i == path[0] else v for i, v in enumerate(value)]
    return value


def paths(value: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [before, *(path for key, part in inner for path in paths(part, (*before, key)))]


FULL_POD = {
    "metadata": {
        "name": "p", "namespace": "n", "uid": "u", "creationTimestamp": "2026-03-01T12:00:00Z",
        "labels": {"jobset.sigs.k8s.io/jobset-name": "j", "jobset.sigs.k8s.io/restart-attempt": "1"},
        "annotations": {"scheduling.koordinator.sh/device-allocated": '{"gpu":[{"minor":1}]}'},
        "ownerReferences": [{"kind": "Job", "name": "j", "uid": "o", "controller": True}],
    },
    "spec": {
        "nodeName": "n1", "activeDeadlineSeconds": 60, "resourceClaims": [{"name": "g", "resourceClaimName": "c"}],
        "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
        "initContainers": [{"name": "i", "restartPolicy": "Always", "resources": {"requests": {"nvidia.com/gpu": 1}}}],
    },
    "status": {
        "phase": "Failed", "startTime": "2026-03-01T12:00:00Z", "reason": "Evicted", "message": "memory",
        "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}],
        "containerStatuses": [
            {"name": "c", "restartCount": 1, "state": {"terminated": {"exitCode": 137, "finishedAt": "x"}},
             "lastState": {"terminated": {"exitCode": 1, "finishedAt": "2026-03-01T12:00:00Z"}}},
        ],
        "resourceClaimStatuses": [{"name": "g", "resourceClaimName": "c"}],
    },
}  # fmt: skip
FULL_NODE = {
    "metadata": {
        "name": "n", "uid": "u", "labels": {"nvidia.com/gpu.count": "8", "nvidia.com/gpu.product": "H100"},
        "annotations": {"watchkeeper/reason": "[watchkeeper] x inc=1", "watchkeeper/cordon": "true"},
        "managedFields": [{"manager": "m", "time": "t", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}],
    },
    "spec": {"unschedulable": True, "taints": [{"key": "site/broken", "value": "v", "effect": "NoSchedule"}]},
    "status": {
        "capacity": {"nvidia.com/gpu": "8"}, "allocatable": {"nvidia.com/gpu": "7"},
        "nodeInfo": {"bootID": "b", "kernelVersion": "6"},
        "conditions": [READY, {"type": "VMEventScheduled", "status": "True", "message": "soon"}],
    },
}  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_one_odd_field_costs_itself_and_never_the_rest(draw: st.DataObject) -> None:
    for full in (FULL_POD, FULL_NODE):
        path = draw.draw(st.sampled_from(paths(full)[1:]))
        odd = mutated(full, path, draw.draw(JSON))
        pod = pod_of(odd, KNOWN)
        node_of(odd, KNOWN, NOW)
        if full is FULL_POD and path[0] != "metadata":
            assert pod is not None and pod.job == "j"


@given(st.text(max_size=30))
def test_quantities_times_and_numbers_are_read_or_not_said(said: str) -> None:
    for found in (quantity(said), at({"a": said}, "a"), whole({"a": said}, "a")):
        assert found is None or found == found


@pytest.mark.parametrize(
    ("said", "number"),
    [
        ("8", 8),
        ("500m", 0.5),
        ("1Ki", 1024),
        ("2e3", 2000),
        (8, 8),
        ("", None),
        ("eight", None),
        (True, None),
        (-1, None),
    ],
)
def test_quantities(said: Any, number: float | None) -> None:
    assert quantity(said) == number
