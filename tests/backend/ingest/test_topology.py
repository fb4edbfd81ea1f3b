"""Pushed topology files."""

from __future__ import annotations

import json
from typing import Any

import pytest

from backend.facts import GpuFacts
from backend.ingest.base import SourceError
from backend.ingest.topology import topology_batch

NOW = 1_770_000_000.0


def gpu(index: int = 0, **more: Any) -> dict[str, Any]:
    return {"index": index, "uuid": f"GPU-{index}", "pci_bus_id": f"00000000:{index + 16:02X}:00.0", **more}


def node(name: str = "gpu-0001", **more: Any) -> dict[str, Any]:
    return {"name": name, "rack": "r1", "switch": "leaf1", "gpus": [gpu(0), gpu(1)], **more}


def body(*nodes: Any) -> bytes:
    return json.dumps({"nodes": nodes}).encode()


def test_a_topology_file_is_nodes_with_gpus() -> None:
    batch, rejects = topology_batch(body(node(model="HGX H100")), "application/json", NOW)
    (facts,) = batch.nodes
    assert (facts.name, facts.rack, facts.switch, facts.model, facts.expected_gpus) == (
        "gpu-0001",
        "r1",
        "leaf1",
        "HGX H100",
        2,
    )
    assert facts.gpus[1] == GpuFacts(1, "GPU-1", "0000:11:00", "HGX H100")
    assert facts.read_at == 0 and facts.state == "unknown"  # no scheduler has spoken
    assert not rejects


def test_rows_of_it_are_taken_too() -> None:
    array = json.dumps([node(), node("gpu-0002", gpus=[])]).encode()
    lines = b"\n".join(json.dumps(one).encode() for one in (node(), node("gpu-0002", gpus=[])))
    for given in (array, lines, json.dumps(node()).encode()):
        batch, rejects = topology_batch(given, "application/json", NOW)
        assert batch.nodes and not rejects


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "a b"}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"rack": 5.5}, "rack"),
        ({"gpus": {}}, "gpus"),
        ({"gpus": [5]}, "gpus.0"),
        ({"gpus": [{"index": "0", "uuid": "x"}]}, "gpus.0.index"),
        ({"gpus": [{"index": 0}]}, "gpus.0"),
        ({"gpus": [{"index": 0, "pci_bus_id": "soon"}]}, "gpus.0"),
        ({"gpus": [gpu(0), gpu(0, uuid="GPU-x", pci_bus_id="")]}, "row"),
        ({"gpus": [gpu(0), gpu(1, uuid="GPU-0")]}, "row"),
    ],
)
def test_a_bad_node_is_named_and_its_neighbours_are_kept(bad: dict[str, Any], field: str) -> None:
    others = [node("a", gpus=[]), node("z", gpus=[])]
    batch, (reject,) = topology_batch(body(others[0], node() | bad, others[1]), "application/json", NOW)
    assert [facts.name for facts in batch.nodes] == ["a", "z"]
    assert (reject.row, reject.field) == (1, field) and reject.problem


def test_a_node_and_a_uuid_belong_together_once() -> None:
    batch, rejects = topology_batch(body(node(), node(), node("gpu-0002")), "application/json", NOW)
    assert [facts.name for facts in batch.nodes] == ["gpu-0001"]
    assert [(r.row, r.field) for r in rejects] == [(1, "name"), (2, "gpus")]


@pytest.mark.parametrize("given", [b"", b"{}", b'{"nodes": 5}', b"[[", b"null"])
def test_what_is_no_topology_is_refused_or_named(given: bytes) -> None:
    try:
        batch, rejects = topology_batch(given, "application/json", NOW)
    except SourceError as error:
        assert error.permanent
    else:
        assert not batch.nodes and rejects
