"""Verdicts: what binds, what only advises, and that nothing unseen is ever called ok."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlmodel import Session

from backend.answers.exclusions import BINDING
from backend.answers.verdicts import FRESH_S, Hold, Sight, Snapshot, Trouble, query, snapshot, verdict
from backend.facts import Rung, Verb
from backend.model.actions import Decision, Exclusion
from backend.model.cluster import Node
from backend.model.incidents import Incident
from backend.store.engine import Store
from detectors.model import Severity

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
FRESH = Sight(NOW - timedelta(seconds=5))
BROKEN = Trouble(812, "gpu_bus_loss", "GPU 3 fell off the bus", 0.98, Severity.CRITICAL)


def seen(**more: Any) -> Snapshot:
    parts: dict[str, Any] = {"nodes": {"n1": FRESH, "n2": FRESH}, "holds": {}, "troubles": {}, "dark": {}}
    return Snapshot("main", NOW, **{**parts, **more})


def test_a_node_seen_fresh_and_without_trouble_is_ok() -> None:
    found = verdict(seen(), "n1")
    assert (found.verdict, found.binding, found.score, found.reasons) == ("ok", False, 0.0, ())


@pytest.mark.parametrize("origin", sorted(BINDING))
def test_what_a_person_or_act_mode_made_binds(origin: str) -> None:
    found = verdict(seen(holds={"n1": (Hold(origin, "riser", "dana", LATER),)}), "n1")
    assert (found.verdict, found.binding, found.score, found.until) == ("exclude", True, 1.0, LATER)


def test_a_proposal_says_exclude_and_binds_nobody() -> None:
    found = verdict(seen(holds={"n1": (Hold("proposed", "Drain n1."),)}, troubles={"n1": (BROKEN,)}), "n1")
    assert (found.verdict, found.binding, found.until) == ("exclude", False, None)
    assert found.score == 0.98 and "not approved" in found.reasons[0] and found.incidents == (812,)


def test_an_expired_exclusion_no_longer_holds() -> None:
    assert verdict(seen(holds={"n1": (Hold("person", "riser", "dana", NOW),)}), "n1").verdict == "ok"


def test_an_open_incident_makes_its_node_suspect_also_when_it_went_silent() -> None:
    quiet = Sight(NOW - timedelta(hours=1))
    found = verdict(seen(nodes={"n1": quiet}, troubles={"n1": (BROKEN,)}), "n1")
    assert found.verdict == "suspect" and len(found.reasons) == 2


@pytest.mark.parametrize(
    "more",
    [
        {"nodes": {}},
        {"dark": {"n1": "The exporter of n1 is silent."}},
        {"nodes": {"n1": Sight(NOW - timedelta(seconds=FRESH_S + 1))}},
    ],
)
def test_never_seen_dark_and_silent_nodes_are_unknown_never_ok(more: dict[str, Any]) -> None:
    found = verdict(seen(**more), "n1")
    assert (found.verdict, found.score, found.binding) == ("unknown", None, False) and found.reasons


def test_a_node_its_scheduler_took_out_is_not_called_ok() -> None:
    out = Sight(NOW, "Its scheduler has it out (drain by mira): disk")
    assert verdict(seen(nodes={"n1": out}), "n1").verdict == "suspect"


def test_a_query_splits_binding_from_advice_and_names_what_it_cannot_vouch_for() -> None:
    state = seen(
        nodes={f"n{i}": FRESH for i in range(1, 5)},
        holds={"n1": (Hold("approved", "bus", "dana", LATER),), "n2": (Hold("proposed", "Drain n2."),)},
        troubles={"n3": (BROKEN,)},
    )
    found = query(state, ["n1", "n2", "n3", "n4", "n9", "n1"])
    assert (found.exclude, found.avoid, found.unknown) == (("n1",), ("n2", "n3"), ("n9",))
    assert (found.hostlist, found.binding) == ("n1", True)
    assert set(found.reasons) == {"n1", "n2", "n3", "n9"}
    advised = query(state, ["n1", "n2", "n3", "n4"], advisory=True)
    assert (advised.hostlist, advised.binding) == ("n[1-3]", False)
    assert query(state, ["n4"]).binding is False and query(state, []).hostlist == ""


@settings(max_examples=60)
@given(st.text(max_size=20), st.sampled_from(["person", "approved", "act", "proposed", ""]), st.integers(-5, 5))
def test_no_unknown_name_is_ever_ok_and_only_live_binding_holds_bind(name: str, origin: str, hours: int) -> None:
    until = NOW + timedelta(hours=hours)
    holds = {name: (Hold(origin, "why", "dana", until),)} if origin else {}
    found = verdict(seen(nodes={}, holds=holds), name)
    assert found.verdict != "ok"
    assert found.binding == (origin in BINDING and until > NOW)


# --- the snapshot from a real store ---------------------------------------------------------------------------------


def incident(session: Session, node: str, **more: Any) -> Incident:
    values: dict[str, Any] = {
        "cluster": "main",
        "kind": "gpu_bus_loss",
        "severity": "critical",
        "headline": "GPU 3 fell off the bus.",
        "entity_kind": "gpu",
        "entity_id": f"GPU-{node}",
        "entity_name": f"{node}/gpu3",
        "node": node,
        "opened_at": NOW,
        "changed_at": NOW,
        "last_asserted_at": NOW,
        "hypotheses": [{"entity_kind": "gpu", "node": node, "score": 0.9}],
    }
    row = Incident(**{**values, **more})
    session.add(row)
    session.flush()
    return row


def decision(session: Session, of: Incident, state: str, revision: int = 1) -> Decision:
    step = {"rung": Rung.EXCLUDE.value, "verb": None, "node": of.node, "job": "", "text": "exclude"}
    drain = {"rung": Rung.DRAIN_NOW.value, "verb": Verb.DRAIN.value, "node": of.node, "job": "", "text": "drain"}
    row = Decision(
        cluster="main",
        incident_id=of.id or 0,
        revision=revision,
        at=NOW,
        mode="propose",
        state=state,
        sentence=f"Drain {of.node}.",
        recommended="drain_now",
        plan=[step, drain],
    )
    session.add(row)
    session.flush()
    return row


def exclusion(session: Session, node: str, **more: Any) -> None:
    values: dict[str, Any] = {"owner": "dana", "origin": "person", "reason": "riser", "created_at": NOW, "until": LATER}
    session.add(Exclusion(cluster="main", node=node, **{**values, **more}))


def node(session: Session, name: str, **more: Any) -> None:
    session.add(Node(cluster="main", name=name, first_seen=NOW, **{"last_seen": NOW, **more}))


def read(store: Store, at: datetime = NOW) -> Snapshot:
    with store.read() as session:
        return snapshot(session, "main", at)


def test_the_store_s_rows_become_the_words_a_scheduler_reads(store: Store) -> None:
    with store.write() as session:
        for i in range(1, 8):
            node(session, f"n{i}")
        node(session, "n8", last_seen=NOW - timedelta(hours=2))
        node(session, "n9", state="idle", flags=["DRAIN"], reason="disk", reason_owner="mira")
        exclusion(session, "n1")
        exclusion(session, "n2", lifted_at=NOW)
        exclusion(session, "n3", until=NOW - timedelta(seconds=1))
        decision(session, incident(session, "n4"), "proposed")
        decision(session, incident(session, "n5"), "rejected")
        incident(session, "n6", entity_kind="job", hypotheses=[{"entity_kind": "job", "node": "n6", "score": 1}])
        incident(session, "n7", kind="telemetry_dark", entity_kind="node", headline="n7 is dark.")
    words = {name: verdict(read(store), name).verdict for name in [f"n{i}" for i in range(1, 10)] + ["zz"]}
    assert words == {
        "n1": "exclude",
        "n2": "ok",
        "n3": "ok",
        "n4": "exclude",
        "n5": "suspect",
        "n6": "ok",
        "n7": "unknown",
        "n8": "unknown",
        "n9": "suspect",
        "zz": "unknown",
    }
    assert verdict(read(store), "n1").binding and not verdict(read(store), "n4").binding


def test_only_the_newest_decision_of_a_live_incident_counts(store: Store) -> None:
    with store.write() as session:
        for name in ("n1", "n2"):
            node(session, name)
        old = incident(session, "n1")
        decision(session, old, "superseded")
        decision(session, old, "approved", revision=2)
        gone = incident(session, "n2", state="resolved", closed_at=NOW)
        decision(session, gone, "proposed")
    assert verdict(read(store), "n1").verdict == "suspect"
    assert verdict(read(store), "n2").verdict == "ok"


def test_folded_victims_are_not_blamed_and_other_clusters_do_not_leak(store: Store) -> None:
    with store.write() as session:
        for name in ("n1", "n2"):
            node(session, name)
        incident(session, "n1", victims=["n2/gpu0"])
        session.add(Node(cluster="other", name="n3", first_seen=NOW, last_seen=NOW))
    assert verdict(read(store), "n2").verdict == "ok"
    assert verdict(read(store), "n3").verdict == "unknown"


def test_what_ran_out_while_the_database_is_away_stands_in_no_list() -> None:
    rows = ({"node": "a", "until": NOW + timedelta(minutes=1)}, {"node": "b", "until": None})
    away = seen(listed=rows)
    assert [row["node"] for row in away.later(NOW + timedelta(seconds=59)).listed] == ["a", "b"]
    assert [row["node"] for row in away.later(NOW + timedelta(seconds=61)).listed] == ["b"]
