"""Tables of history: sessions, events of nodes, nodes, one JSON document; what cannot be read is said and left out."""

from __future__ import annotations

import gzip
from datetime import UTC
from pathlib import Path
from zoneinfo import ZoneInfo

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.clock import unix
from backend.ingest.bundle.reading import BadRows
from backend.model.cluster import Node
from backend.model.past import Cable, Outage
from backend.model.work import Attempt
from backend.replay.past_tables import Found, kind_of, read_table
from backend.store.engine import Store
from tests.backend.replay.test_past import all_of, take

SESSIONS = """session,nodes,excluded nodes,start,end,outcome,auto or manual
s1,"gpu-[0001-0004]",,2026-02-01T00:00:00,2026-02-01T05:00:00,NVLink error,
s2,"gpu-[0001-0002,0005]",gpu-0003; gpu-0004,2026-02-01T05:10:00,2026-02-01T09:00:00,crash,auto
s2,"gpu-[0001-0002,0005]",,2026-02-01T09:20:00,2026-02-02T00:00:00,COMPLETED,manual
"""
#: As ``sacctmgr -P show event`` prints it without format, and with another order of columns.
EVENTS = """Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User
c1||2026-02-01T00:00:00|2026-02-01T01:00:00||Cluster Registered TRES|
c1|gpu-0001|2026-02-01T02:00:00|2026-02-01T03:00:00|DRAIN|ib|down|root(0)
c1|gpu-0002|2026-02-01T02:00:00|Unknown|DOWN*|Not responding|slurm(64030)
c1|gpu-0003|yesterday|Unknown|DOWN|x|root
"""


def table(kind: str, text: str) -> tuple[Found, BadRows]:
    bad = BadRows()
    return read_table(kind, text.encode(), "history.csv", UTC, bad), bad


def test_a_table_is_known_by_its_first_line() -> None:
    heads = {
        SESSIONS: "sessions",
        "Session ID;Node List;Started\n": "sessions",
        EVENTS: "events",
        "NodeName|Start|End|State|Reason\n": "events",
        "node,rack,switch\n": "nodes",
        "\ufeffhostname\track\n": "nodes",
        "#\n# Topology file: generated on Mon Feb  2\n": "fabric",
        "# Topology file: generated\n": "fabric",
        '{\n  "attempts": []}': "document",
        '{"nodes":[{"name":"a"}]}': "document",
        '{"ts": 1, "host": "a", "line": "x"}': "",
        "2026-02-02T00:00:00+00:00 gpu-0001 kernel: x": "",
        "": "",
        "node": "",
    }
    assert {text: kind_of(text) for text in heads} == heads


def test_sessions_are_attempts_with_who_asked_for_them() -> None:
    found, bad = table("sessions", SESSIONS)
    assert not bad.count
    first, second, third = found.attempts
    assert (first.state, first.reason, len(first.nodes), first.run) == ("UNKNOWN", "NVLink error", 4, "history")
    assert (second.state, second.excluded, second.requeued_by) == ("FAILED", ("gpu-0003", "gpu-0004"), "system")
    assert (third.job, third.restart, third.state, third.requeued_by) == ("s2", 1, "COMPLETED", "manual")


def test_a_session_that_makes_no_sense_costs_itself() -> None:
    rows = [
        "x,a,,never,,ok,",
        "y,a,,2026-02-02,2026-02-01,ok,",
        "z,a[1-9999999999],,2026-02-02,,,",
        ",a,,2026-02-01,,,",
    ]
    found, bad = table("sessions", SESSIONS + "\n".join(rows))
    assert len(found.attempts) == 3 and bad.count == 4
    assert bad.told[0].why.startswith("'never' is no time") and bad.told[0].line == 5


def test_events_of_nodes_are_outages_in_whatever_order_of_columns() -> None:
    found, bad = table("events", EVENTS)
    assert [(o.node, o.state, o.reason, o.user, o.end is None) for o in found.outages] == [
        ("gpu-0001", "DRAIN", "ib|down", "root", False),
        ("gpu-0002", "DOWN*", "Not responding", "slurm", True),
    ]
    assert [row.line for row in bad.told] == [5]
    zone = ZoneInfo("Europe/Berlin")
    other = "User|NodeName|Start|End|State\nroot|n1|2026-07-01T02:00:00|1782900000|DRAIN\n"
    (outage,) = read_table("events", other.encode(), "e", zone, BadRows()).outages
    assert (outage.start, outage.end) == (1782864000.0, 1782900000.0)


DOCUMENT = {
    "attempts": [
        {"job": "9", "state": "FAILED", "start": 1_770_000_000, "end": 1_770_003_600, "nodes": "gpu-[0001-0002]"},
        {"job": "9", "state": "NONSENSE"},
    ],
    "outages": [{"nodes": ["gpu-0001"], "start": 1_770_003_600, "end": None, "reason": "fan"}, 7],
    "nodes": [{"name": "gpu-0001", "rack": "r1"}, {"name": "gpu 2"}],
}


def test_tables_are_imported_once_and_fill_what_nobody_said(store: Store, tmp_path: Path) -> None:
    files = {"sessions.csv": SESSIONS.encode(), "events.txt": EVENTS.encode(), "all.json": orjson.dumps(DOCUMENT)}
    files["nodes.csv.gz"] = gzip.compress(b"node,rack,leaf,fs\ngpu-[0001-0003],r9,leaf1,/scratch=lustre1\n")
    for name, body in files.items():
        (tmp_path / name).write_bytes(body)
    paths = [tmp_path / name for name in files]
    told = take(store, *paths, unfinished=True)
    assert (told.attempts, told.outages, told.bad.count) == (4, 3, 4)
    assert {(a.job, a.restart) for a in all_of(store, Attempt)} == {("s1", 0), ("s2", 0), ("s2", 1), ("9", 0)}
    assert {(n.name, n.rack) for n in all_of(store, Node)} >= {("gpu-0001", "r9"), ("gpu-0003", "r9")}
    assert len(all_of(store, Cable)) == 3 and len(all_of(store, Outage)) == 3
    again = take(store, *paths, unfinished=True)
    assert (again.attempts, again.outages, again.nodes) == (0, 0, 0)


def test_an_imported_session_ends_when_its_table_says(store: Store, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text(SESSIONS)
    take(store, tmp_path / "s.csv")
    ends = {(a.job, a.restart): unix(a.end) if a.end else None for a in all_of(store, Attempt)}
    assert ends == {("s1", 0): 1769922000.0, ("s2", 0): 1769936400.0, ("s2", 1): 1769990400.0}


@settings(max_examples=60, deadline=None)
@given(body=st.binary(max_size=300), kind=st.sampled_from(["sessions", "events", "nodes", "fabric", "document"]))
def test_no_bytes_make_a_table_raise(body: bytes, kind: str) -> None:
    head = {"sessions": b"session,nodes,start,end\n", "events": b"NodeName|Start|End|State\n", "nodes": b"node,rack\n"}
    for text in (body, head.get(kind, b"{") + body):
        read_table(kind, text, "x", UTC, BadRows())


@pytest.mark.parametrize("kind", ["sessions", "events", "nodes", "fabric", "document"])
def test_an_empty_file_is_no_table_and_no_crash(kind: str) -> None:
    found, _ = table(kind, "")
    assert found == Found()
