"""What changed before an incident: the likeliest first, nothing from long before; and who differs from its kind."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from backend.answers.odd_ones import odd_ones
from backend.answers.what_changed import WINDOW, Suspect, what_changed
from backend.model.cluster import Node
from backend.model.incidents import Incident
from backend.model.past import Change, Version
from backend.store.engine import Store
from backend.store.ledger import VersionRow
from tests.conftest import NOW

NODES = tuple(f"n{i}" for i in range(20))


def change(node: str, item: str, value: str, hours: float, **more: Any) -> Change:
    row = Change(cluster="main", node=node, item=item, value=value, before="old", source="s", **more)
    row.at = NOW - timedelta(hours=hours)
    return row


def ranked(
    store: Store, *rows: Change, node: str = "n0", job: str = "7", beside: tuple[str, ...] = ()
) -> list[Suspect]:
    said: dict[str, Any] = {
        "cluster": "main",
        "node": node,
        "job": job,
        "kind": "gpu_bus_loss",
        "severity": "high",
        "headline": "x",
    }
    incident = Incident(**said, opened_at=NOW, changed_at=NOW, last_asserted_at=NOW)
    incident.entity_kind, incident.entity_id, incident.entity_name = "node", node, node
    with store.write() as session:
        for name in NODES:
            session.add(Node(cluster="main", name=name, model="H100", first_seen=NOW, last_seen=NOW))
        for row in rows:
            session.add(row)
            if row.node and row.item != "boot":
                key = {"cluster": "main", "node": row.node, "item": row.item, "source": row.source}
                session.merge(Version(**key, value=row.value, since=row.at))
        session.flush()
        held = {(row.node, row.item) for row in rows}
        for name in NODES:
            for item in {row.item for row in rows} - {"boot"}:
                if (name, item) not in held:
                    session.add(Version(cluster="main", node=name, item=item, source="s", value="old", since=NOW))
    with store.read() as session:
        return list(what_changed(session, incident, beside, len(NODES)))


def told(found: list[Suspect]) -> list[tuple[str, str]]:
    return [(one.change.node, one.change.item) for one in found]


def test_the_nodes_own_odd_change_comes_before_what_everybody_got(store: Store) -> None:
    everywhere = [change(name, "kernel", "6.1", 2) for name in NODES]
    found = ranked(store, *everywhere, change("n0", "driver", "999", 3), change("", "image", "v2", 1))
    assert told(found) == [("n0", "driver"), ("n0", "kernel"), ("", "image")]
    assert found[0].odd is not None and (found[0].odd.common, found[0].odd.size) == (19, 20)
    assert found[1].alike == 20 and found[1].odd is None


def test_a_change_of_long_before_or_of_strangers_is_not_offered(sqlite_store: Store) -> None:
    old = WINDOW.total_seconds() / 3600 + 1
    rows = (change("n0", "boot", "t", 9 * 24), change("n0", "driver", "2", old), change("n5", "driver", "3", 1))
    assert ranked(sqlite_store, *rows) == []


def test_what_changed_on_the_other_nodes_of_the_job_is_offered_once(sqlite_store: Store) -> None:
    rows = [change(name, "driver", "2", 4) for name in ("n1", "n2", "n3")]
    found = ranked(sqlite_store, *rows, change("", "nccl", "2.21", 5, job="7"), beside=("n0", "n1", "n2", "n3"))
    assert told(found) == [("", "nccl"), ("n1", "driver")] and found[1].alike == 3


def test_newer_comes_before_older_of_the_same_kind(sqlite_store: Store) -> None:
    found = ranked(sqlite_store, change("n0", "bios", "b", 40), change("n0", "firmware", "f", 3))
    assert told(found) == [("n0", "firmware"), ("n0", "bios")] and found[0].before_s == pytest.approx(3 * 3600)


# --- odd ones out ----------------------------------------------------------------------------------------------------


def row(node: str, value: str, item: str = "driver", source: str = "s", device: str = "") -> VersionRow:
    return VersionRow(node, device, "", item, source, value, NOW)


KIND = {f"n{i}": "H100" for i in range(30)} | {f"a{i}": "A100" for i in range(3)}


def holders(*rows: VersionRow) -> list[tuple[str, tuple[str, ...], int, int]]:
    return [(one.value, one.holders, one.common, one.size) for one in odd_ones(rows, KIND)[0]]


def test_one_of_many_is_odd_and_a_half_rolled_out_version_is_not() -> None:
    most = [row(f"n{i}", "575") for i in range(29)]
    assert holders(*most, row("n29", "570")) == [("570", ("n29",), 29, 30)]
    assert holders(*(row(f"n{i}", "575" if i % 2 else "570") for i in range(30))) == []


def test_kinds_of_nodes_sources_and_small_groups_are_not_mixed() -> None:
    rows = [row(f"n{i}", "575") for i in range(30)] + [row(f"a{i}", "550") for i in range(3)]
    assert holders(*rows) == []
    assert holders(*rows, row("n3", "575.1-1", source="slurm")) == []
    assert holders(row("a0", "1"), row("a1", "1"), row("a2", "2")) == []


def test_devices_are_compared_as_devices_and_boots_never() -> None:
    rows = [row(f"n{i}", "96.1", "vbios", device=f"GPU-{i}-{g}") for i in range(5) for g in range(8)]
    odd = row("n0", "95.0", "vbios", device="GPU-0-9")
    assert holders(*rows, odd) == [("95.0", ("n0 GPU-0-9",), 40, 41)]
    assert holders(*(row(f"n{i}", str(i), "boot") for i in range(30))) == []
