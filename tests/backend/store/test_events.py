"""The event log: each thing once, in the order of arrival, on both databases."""

from __future__ import annotations

import threading

from backend.model.events import Event
from backend.store import events
from backend.store.engine import Store
from tests.conftest import NOW


def event(key: str, cluster: str = "main", node: str = "n1") -> Event:
    return Event(
        cluster=cluster,
        at=NOW,
        received_at=NOW,
        namespace="xid",
        code="79",
        node=node,
        entity_kind="node",
        entity_id=node,
        entity_name=node,
        dedupe=key,
        attrs={"pci": "0000:9b:00"},
    )


def append(store: Store, *keys: str, cluster: str = "main") -> tuple[int, int]:
    with store.write() as session:
        return events.append_events(session, cluster, [event(key, cluster) for key in keys])


def after(store: Store, seq: int, limit: int = 1000) -> list[str]:
    with store.read() as session:
        return [row.dedupe for row in events.events_after(session, "main", seq, limit)]


def test_the_same_event_is_kept_once(store: Store) -> None:
    assert append(store, "a", "b", "a") == (2, 1)
    assert append(store, "b", "c") == (1, 1)
    assert append(store) == (0, 0)
    assert append(store, "a", cluster="other") == (1, 0)
    assert after(store, 0) == ["a", "b", "c"]


def test_events_are_read_in_the_order_of_arrival_from_a_cursor(store: Store) -> None:
    append(store, *(f"{n}" for n in range(1200)))
    assert after(store, 0) == [f"{n}" for n in range(1000)]
    with store.read() as session:
        seq = events.last_seq(session, "main")
        last = events.events_after(session, "main", seq - 2, 10)
    assert [row.dedupe for row in last] == ["1198", "1199"] and last[-1].id == seq
    assert last[0].attrs == {"pci": "0000:9b:00"} and last[0].at == NOW
    with store.read() as session:
        assert events.last_seq(session, "nowhere") == 0


def test_events_are_found_by_id_and_by_node(store: Store) -> None:
    append(store, "a", "b", "c")
    with store.read() as session:
        ids = [row.id or 0 for row in events.events_after(session, "main", 0, 10)]
        assert [row.dedupe for row in events.events_by_id(session, "main", [ids[2], ids[0]])] == ["a", "c"]
        assert [row.dedupe for row in events.events_of_node(session, "main", "n1", 2)] == ["c", "b"]
        assert events.events_by_id(session, "other", ids) == []


def test_a_reader_never_passes_over_an_event_that_is_committed_late(store: Store) -> None:
    """Eight writers and one reader with a cursor: ids become visible in their order."""
    writers = 8
    start = threading.Barrier(writers + 1)

    def write(name: int) -> None:
        start.wait(20)
        for n in range(10):
            append(store, f"{name}:{n}")

    threads = [threading.Thread(target=write, args=(name,)) for name in range(writers)]
    for thread in threads:
        thread.start()
    start.wait(20)
    seen: list[str] = []
    cursor = 0
    while True:
        going = any(thread.is_alive() for thread in threads)
        with store.read() as session:
            found = events.events_after(session, "main", cursor, 7)
            seen += [row.dedupe for row in found]
            cursor = found[-1].id or 0 if found else cursor
        if not going and not found:
            break
    assert len(seen) == len(set(seen)) == writers * 10
