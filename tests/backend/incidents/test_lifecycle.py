"""The life of an incident: what opens it, what joins it, what counts as clear, and how it closes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from backend.incidents import lifecycle
from backend.incidents.correlate import Fold
from backend.incidents.record import Held, Ledger
from backend.model.incidents import Incident
from backend.store import incidents
from backend.store.engine import Store
from detectors.model import BoolArray, Finding, Severity
from tests.backend.incidents.claims import (
    AT,
    FLEET,
    GPU_3,
    applied,
    finding,
    incident,
    later,
    rows,
    suspicion,
    timeline,
    written,
)
from tests.detectors.fleets import gpu

HEAT = finding(kind="gpu_thermal", severity=Severity.WARNING, score=0.5, detector="telemetry/peers")


def opened(store: Store, ledger: Ledger, *findings: Finding, authority: str = "code") -> int:
    """The id of a new incident about these findings (the usual one: GPU 3 lost)."""
    found = findings or (finding(),)
    (row,) = applied(store, ledger, Fold(suspicion(*found, authority=authority)))
    return row.id or 0


def seen(
    store: Store,
    ledger: Ledger,
    elapsed_s: float = 15.0,
    frozen: frozenset[str] = frozenset(),
    blind: Mapping[str, BoolArray] | None = None,
) -> None:
    """One telemetry tick looked at all live incidents."""
    with store.write() as session:
        live = incidents.live(session, "main")
        lifecycle.watch_clear(session, live, ledger, frozen, blind or {}, FLEET, elapsed_s, later(15))


def clear_of(store: Store, number: int) -> tuple[float, bool]:
    row = incident(store, number)
    return row.clear_s, row.blind


def cleared(store: Store, ledger: Ledger) -> None:
    written(store, ledger, [], later(10))


def facts(row: Incident) -> tuple[str, str, str, str]:
    return row.kind, row.entity_name, row.node, row.severity


# --- opening and folding --------------------------------------------------------------------------------------------


def test_an_incident_opens_on_its_first_cause_and_says_what_was_dark(store: Store) -> None:
    ledger: Ledger = {}
    (row,) = applied(store, ledger, Fold(suspicion(finding(), HEAT)), dark=("prometheus",))
    kept = incident(store, row.id or 0)
    assert facts(kept) == ("gpu_bus_loss", "gpu-0001/gpu3", "gpu-0001", "critical")
    assert (kept.state, kept.job, kept.opened_at, kept.revision, kept.dark) == ("open", "48213", AT, 1, ["prometheus"])
    assert [h["kind"] for h in kept.hypotheses] == ["gpu_bus_loss", "gpu_thermal"]
    assert {found.incident_id for found in rows(store)} == {row.id}
    assert timeline(store, row.id or 0) == [("opened", finding().reason)]
    assert ledger[finding().key].incident == row.id


def test_a_fold_that_opens_with_another_joins_its_incident(store: Store) -> None:
    ledger: Ledger = {}
    victim = suspicion(finding("gpu-0002/gpu1", kind="job_slow", severity=Severity.WARNING))
    touched = applied(store, ledger, Fold(suspicion(finding())), Fold(victim, opens_with=0, victim=True))
    assert len({row.id for row in touched}) == 1
    assert incident(store, touched[0].id or 0).victims == ["gpu-0002/gpu1"]


def test_victims_are_named_and_are_no_cause(store: Store) -> None:
    ledger: Ledger = {}
    number = opened(store, ledger)
    hit = [finding(f"gpu-0002/gpu{i}", kind="job_slow", severity=Severity.WARNING) for i in (5, 1)]
    for one in hit:
        applied(store, ledger, Fold(suspicion(one), incident=number, victim=True), at=later(60))
    row = incident(store, number)
    assert row.victims == ["gpu-0002/gpu1", "gpu-0002/gpu5"]
    assert [h["kind"] for h in row.hypotheses] == ["gpu_bus_loss"] and row.severity == "critical"
    assert row.entities == ["gpu-0001/gpu3"]
    assert [(r.entity_name, r.victim) for r in rows(store)][1:] == [("gpu-0002/gpu5", True), ("gpu-0002/gpu1", True)]
    assert [what for what, _ in timeline(store, number)] == ["opened", "folded", "folded"]


def test_what_was_linked_before_is_no_news(store: Store) -> None:
    ledger: Ledger = {}
    number = opened(store, ledger)
    assert applied(store, ledger, Fold(suspicion(finding()), incident=number), at=later(60)) == []
    row = incident(store, number)
    assert (row.revision, row.changed_at) == (1, AT)
    assert len(timeline(store, number)) == 1


def test_news_makes_a_revision_that_has_to_be_decided_anew(store: Store) -> None:
    ledger: Ledger = {}
    number = opened(store, ledger)
    silent = finding(detector="telemetry/silence", severity=Severity.HIGH, score=0.6)
    applied(store, ledger, Fold(suspicion(silent, authority="vote"), incident=number), at=later(60))
    row = incident(store, number)
    assert (row.revision, row.changed_at, row.last_asserted_at) == (2, later(60), later(60))
    with store.read() as session:
        assert [r.id for r in incidents.undecided(session, "main")] == [number]


def test_a_late_victim_of_a_closed_incident_is_linked_and_opens_nothing(store: Store) -> None:
    ledger: Ledger = {}
    number = opened(store, ledger)
    with store.write() as session:
        lifecycle.close(session, session.get_one(Incident, number), later(30), "over")
    late = finding("gpu-0002/gpu1", kind="job_slow", severity=Severity.WARNING)
    applied(store, ledger, Fold(suspicion(late), incident=number, victim=True), at=later(60))
    row = incident(store, number)
    assert (row.state, row.closed_at, row.victims) == ("resolved", later(30), ["gpu-0002/gpu1"])
    assert (row.revision, row.last_asserted_at) == (2, AT)
    with store.read() as session:
        assert incidents.undecided(session, "main") == []


# --- ranking anew ---------------------------------------------------------------------------------------------------


def test_a_code_takes_the_lead_from_a_weaker_claim(store: Store) -> None:
    ledger: Ledger = {}
    number = opened(store, ledger, HEAT, authority="band")
    applied(store, ledger, Fold(suspicion(finding()), incident=number), at=later(60))
    row = incident(store, number)
    assert facts(row) == ("gpu_bus_loss", "gpu-0001/gpu3", "gpu-0001", "critical")
    assert row.entity_id == GPU_3.id and row.headline == finding().reason
    assert [h["kind"] for h in row.hypotheses] == ["gpu_bus_loss", "gpu_thermal"]


def test_a_weaker_claim_never_takes_the_lead_and_severity_never_falls(store: Store) -> None:
    ledger: Ledger = {}
    number = opened(store, ledger)
    applied(store, ledger, Fold(suspicion(HEAT, authority="band"), incident=number), at=later(60))
    row = incident(store, number)
    assert facts(row) == ("gpu_bus_loss", "gpu-0001/gpu3", "gpu-0001", "critical")
    assert [h["authority"] for h in row.hypotheses] == ["code", "band"]


def test_two_claims_of_one_cause_are_one_hypothesis_the_stronger(store: Store) -> None:
    ledger: Ledger = {}
    number = opened(store, ledger, finding(detector="telemetry/silence", score=0.6), authority="vote")
    applied(store, ledger, Fold(suspicion(finding(reason="Xid 79 of it.")), incident=number), at=later(60))
    row = incident(store, number)
    assert [(h["authority"], h["score"]) for h in row.hypotheses] == [("code", 0.9)]
    assert row.headline == "Xid 79 of it."


def test_a_level_that_grows_louder_makes_its_incident_louder_and_is_decided_anew(store: Store) -> None:
    ledger: Ledger = {}
    number = opened(store, ledger, finding(severity=Severity.WARNING, score=0.4))
    applied(store, ledger, Fold(suspicion(finding(reason="It is lost now.")), incident=number), at=later(60))
    row = incident(store, number)
    assert (row.severity, row.revision, row.headline) == ("critical", 2, "It is lost now.")
    assert [h["score"] for h in row.hypotheses] == [0.9]
    assert timeline(store, number)[-1] == ("evidence", "It is lost now.")


# --- clear time -----------------------------------------------------------------------------------------------------


def test_seen_and_clear_telemetry_time_adds_up(store: Store) -> None:
    ledger: Ledger = {}
    number = opened(store, ledger)
    cleared(store, ledger)
    seen(store, ledger)
    seen(store, ledger)
    assert clear_of(store, number) == (30.0, False)


def test_an_event_tick_is_no_telemetry_time(store: Store) -> None:
    ledger: Ledger = {}
    number = opened(store, ledger)
    cleared(store, ledger)
    seen(store, ledger, elapsed_s=0.0)
    assert clear_of(store, number) == (0.0, False)


def test_a_level_that_holds_starts_the_clear_time_over(store: Store) -> None:
    ledger: Ledger = {}
    number = opened(store, ledger)
    kept = dict(ledger)
    cleared(store, ledger)
    seen(store, ledger)
    ledger.update(kept)
    seen(store, ledger)
    assert clear_of(store, number) == (0.0, False)
    assert incident(store, number).last_asserted_at == later(15)


def test_news_starts_the_clear_time_over(store: Store) -> None:
    ledger: Ledger = {}
    number = opened(store, ledger)
    cleared(store, ledger)
    seen(store, ledger)
    applied(store, ledger, Fold(suspicion(HEAT, authority="band"), incident=number), at=later(60))
    assert incident(store, number).clear_s == 0.0


def test_a_frozen_level_stops_the_clock_and_keeps_what_it_counted(store: Store) -> None:
    ledger: Ledger = {}
    number = opened(store, ledger)
    kept = dict(ledger)
    cleared(store, ledger)
    seen(store, ledger)
    ledger.update(kept)
    seen(store, ledger, frozen=frozenset(kept))
    assert clear_of(store, number) == (15.0, True)


def test_blind_time_does_not_count_and_sight_goes_on_from_there(store: Store) -> None:
    ledger: Ledger = {}
    number = opened(store, ledger)
    cleared(store, ledger)
    seen(store, ledger)
    mask = np.zeros(len(FLEET.axes["gpu"]), np.bool_)
    mask[gpu(FLEET, "gpu-0001/gpu3")] = True
    seen(store, ledger, blind={"gpu": mask})
    assert clear_of(store, number) == (15.0, True)
    seen(store, ledger)
    assert clear_of(store, number) == (30.0, False)


def test_one_level_that_holds_outweighs_one_that_nobody_sees(store: Store) -> None:
    ledger: Ledger = {}
    number = opened(store, ledger, finding(), HEAT)
    seen(store, ledger, frozen=frozenset({HEAT.key}))
    assert clear_of(store, number) == (0.0, False)


def test_an_incident_counts_only_its_own_levels(store: Store) -> None:
    ledger: Ledger = {}
    number = opened(store, ledger)
    cleared(store, ledger)
    elsewhere = finding("gpu-0002/gpu1")
    ledger[elsewhere.key] = Held(99, elsewhere, incident=number + 1000)
    seen(store, ledger)
    assert clear_of(store, number) == (15.0, False)


# --- closing --------------------------------------------------------------------------------------------------------


def test_closing_resolves_once_and_leaves_nothing_to_decide(store: Store) -> None:
    ledger: Ledger = {}
    number = opened(store, ledger)
    with store.write() as session:
        lifecycle.close(session, session.get_one(Incident, number), later(90), "ada resolved it.", "ada")
    row = incident(store, number)
    assert (row.state, row.closed_at, row.close_note) == ("resolved", later(90), "ada resolved it.")
    assert row.decided_revision == row.revision == 2
    assert timeline(store, number)[-1] == ("closed", "ada resolved it.")
    with store.read() as session:
        assert incidents.live(session, "main") == [] and incidents.undecided(session, "main") == []


def test_facts_of_an_incident_carry_its_causes_and_keys(store: Store) -> None:
    ledger: Ledger = {}
    number = opened(store, ledger)
    keys = lifecycle.keys_by_incident(ledger)
    made = lifecycle.facts_of(incident(store, number), keys[number])
    assert made.keys == {finding().key}
    assert (made.severity, made.entity, made.opened_at) == (Severity.CRITICAL, "gpu-0001/gpu3", AT.timestamp())
    assert [(h.kind, h.authority) for h in made.hypotheses] == [("gpu_bus_loss", "code")]
