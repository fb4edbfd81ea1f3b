"""Clusters scored as one keep their own faults: the pool of one is itself, and nobody finds another's."""

from __future__ import annotations

from typing import Any

import pytest

from backend.score.places import parent_of, word_of
from backend.score.pool import Part, pooled, renamed
from backend.score.scoring import Score, score

T = 1_770_000_000.0
KINDS = ("gpu_bus_loss", "thermal_throttle")


def fault(at: float, entity: str = "n1/gpu3", kind: str = "gpu_bus_loss", **more: Any) -> dict[str, Any]:
    row = {"id": "F1", "entity": entity, "kind": kind, "start": at, "end": at + 600, "first_visible": at}
    return (
        row | {"exclude": True, "job": "7", "run": "r", "nodes": [entity.partition("/")[0]], "first_xid": None} | more
    )


def incident(at: float, entity: str = "n1/gpu3", kind: str = "gpu_bus_loss", **more: Any) -> dict[str, Any]:
    row = {"id": 1, "opened_at": at, "entity": entity, "kind": kind, "severity": "critical", "entities": [entity]}
    return row | {"exclude": [entity.partition("/")[0]], "run": "", "job": "7", "findings": ["k"]} | more


def part(begin: float, faults: list[Any], incidents: list[Any], hours: float = 10.0) -> Part:
    findings = [
        {"state": "raised", "key": "k", "entity": i["entity"], "kind": i["kind"], "ts": i["opened_at"],
         "emitted_at": i["opened_at"] + 30} for i in incidents
    ]  # fmt: skip
    above = {"n1": ("rack:a", "switch:s"), "n2": ("rack:a", "switch:s")}
    return Part(findings, incidents, faults, above, 16, (begin, begin + 3600 * hours))


def told(whole: Part) -> Score:
    return score(whole.findings, whole.incidents, whole.truth, whole.above, whole.span, whole.gpus, KINDS)


def test_the_pool_of_one_has_the_figures_of_the_one() -> None:
    one = part(T, [fault(T + 1000)], [incident(T + 1005), incident(T + 9000, "n2", "thermal_throttle", id=2)])
    alone, again = told(one), told(pooled({"a": one}))
    assert alone.faults.recall.k == 1 and alone.incidents.verdicts["false"] == 1
    assert (again.faults, again.incidents, again.span_s, again.gpus) == (
        alone.faults, alone.incidents, alone.span_s, alone.gpus
    )  # fmt: skip


def test_an_incident_of_one_cluster_never_finds_a_fault_of_another() -> None:
    silent = part(T, [fault(T + 1000)], [])
    alarmed = part(T + 5e6, [], [incident(T + 5e6 + 1005)])
    both = told(pooled({"a": silent, "b": alarmed}))
    assert both.faults.recall.k == 0 and both.incidents.verdicts["false"] == 1
    assert both.gpus == 32 and both.span_s == 36_000


def test_figures_of_many_are_those_of_each_together() -> None:
    parts = {
        f"s{n}": part(T + n * 1e6, [fault(T + n * 1e6 + 1000)], [incident(T + n * 1e6 + 1000 + n)] if n % 2 else [])
        for n in range(10)
    }
    found = told(pooled(parts))
    assert (found.faults.recall.k, found.faults.recall.n) == (5, 10)
    assert found.faults.recall.runs == 10  # the same run in each, and yet its own
    assert sorted(r.opened_delay_s for r in found.fault_results if r.opened_delay_s is not None) == [1, 3, 5, 7, 9]


@pytest.mark.parametrize(
    ("entity", "name", "word"),
    [
        ("n1", "c:n1", "node"),
        ("n1/gpu3", "c:n1/gpu3", "gpu"),
        ("n1/nic:mlx5_0", "c:n1/nic:mlx5_0", "nic"),
        ("rack:R", "c:rack:R", "rack"),
        ("link:a-b", "c:link:a-b", "link"),
        ("job:7", "c:job:7", "job"),
        ("run:x", "c:run:c.x", "run"),
        ("run:x/rank:17", "c:run:c.x/rank:17", "rank"),
    ],
)
def test_entities_keep_their_kind_under_a_cluster(entity: str, name: str, word: str) -> None:
    assert renamed(entity, "c") == name and word_of(name) == word
    assert parent_of(name) == renamed(parent_of(entity), "c")
