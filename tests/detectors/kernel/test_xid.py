"""Kernel codes as levels: what opens one, what outranks what, and what ends it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from detectors.catalogue import load
from detectors.kernel.levels import family
from detectors.kernel.rows import KernelState
from detectors.model import Event, Finding, Fleet, Severity, Tick
from tests.detectors.fleets import T0, boot, entity, fleet_of, kernel, telemetry, xid

CATALOGUE = load()
FLEET = fleet_of(2)
GPU3, GPU5, OTHER = "gpu-0001/gpu3", "gpu-0001/gpu5", "gpu-0002/gpu0"
RESET = "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
NOTHING = "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
FATAL = "NETIR_LINK_EVT Fatal XC0 i0 Link 02 (0x0 0x1)"
NONFATAL = "RLW_SRC_TRACK Nonfatal XC1 i0 Link 10 (0x0 0x1)"


class Told:
    """One detector followed through a story, tick by tick."""

    def __init__(self, fleet: Fleet = FLEET) -> None:
        self.detector = family("kernel/xid", CATALOGUE)
        self.fleet = fleet
        self.state: KernelState = self.detector.start(fleet)

    def hear(self, *events: Event) -> tuple[Finding, ...]:
        return self.step(Tick(max(e.at for e in events), events=events))

    def look(self, at: float, silent: Sequence[str] = ()) -> tuple[Finding, ...]:
        return self.step(telemetry(self.fleet, at, silent))

    def step(self, tick: Tick) -> tuple[Finding, ...]:
        return self.detector.step(self.state, tick, self.fleet).findings


@pytest.fixture
def told() -> Told:
    return Told()


def test_a_lost_gpu_is_said_in_one_sentence_with_the_line_as_evidence(told: Told) -> None:
    (found,) = told.hear(xid(FLEET, GPU3, T0, 79, "GPU has fallen off the bus.", seq=123))
    assert found.reason == "GPU 3 of gpu-0001 is lost on PCIe (Xid 79)."
    assert (found.kind, found.severity, found.since) == ("gpu_bus_loss", Severity.CRITICAL, T0)
    assert found.entity == entity(FLEET, GPU3)
    line = found.evidence[0]
    assert (line.ref, line.grade) == ("event:123", "observed")
    assert line.value.startswith("NVRM: Xid (PCI:0000:9b:00): 79")


def test_the_text_without_a_number_is_the_same_loss(told: Told) -> None:
    told.hear(xid(FLEET, GPU3, T0, 79))
    line = "NVRM: GPU at PCI:0000:9b:00.0 has fallen off the bus"
    (found,) = told.hear(kernel(FLEET, GPU3, T0 + 1, line, seq=2))
    assert found.kind == "gpu_bus_loss" and found.since == T0


def test_a_line_of_an_unknown_gpu_is_held_against_the_node_and_names_the_place(told: Told) -> None:
    (found,) = told.hear(xid(FLEET, "gpu-0001", T0, 79))
    assert found.entity.kind == "node"
    assert found.reason == "The GPU at 0000:9b:00 of gpu-0001 is lost on PCIe (Xid 79)."


@pytest.mark.parametrize("code", [13, 31, 43])
def test_a_fault_of_the_application_is_a_record(told: Told, code: int) -> None:
    (found,) = told.hear(xid(FLEET, GPU3, T0, code))
    assert (found.kind, found.severity) == ("gpu_memory_fault_app", Severity.INFO)


def test_a_code_that_no_table_knows_is_shown(told: Told) -> None:
    (found,) = told.hear(xid(FLEET, GPU3, T0, 998))
    assert (found.kind, found.severity) == ("gpu_hardware_other", Severity.WARNING)
    assert "Xid 998" in found.reason


def test_a_line_too_long_to_keep_is_cut_and_reads_the_same_at_every_tick(told: Told) -> None:
    event = replace(xid(FLEET, GPU3, T0, 79), text="x" * 4096)
    first, second = told.hear(event), told.step(Tick(T0 + 1))
    assert first == second and len(first[0].evidence[0].value) == 400


# --- what outranks what ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("said", "severity"), [(FATAL, Severity.CRITICAL), (NONFATAL, Severity.INFO)])
def test_the_word_in_the_line_beats_the_table(told: Told, said: str, severity: Severity) -> None:
    (found,) = told.hear(xid(FLEET, GPU3, T0, 149, said))
    assert (found.kind, found.severity) == ("nvlink_error", severity)
    assert ("fatal" if said is FATAL else "nonfatal") in found.reason


def test_a_fatal_line_leads_over_nonfatal_ones_of_the_same_gpu(told: Told) -> None:
    nonfatal = xid(FLEET, GPU3, T0, 145, NONFATAL, 1)
    (found,) = told.hear(nonfatal, xid(FLEET, GPU3, T0 + 1, 149, FATAL, 2))
    assert found.severity is Severity.CRITICAL
    assert [piece.ref for piece in found.evidence] == ["event:2", "event:1"]


@pytest.mark.parametrize("early", [True, False])
def test_the_drivers_verdict_raises_the_code_it_speaks_about(told: Told, early: bool) -> None:
    code, verdict = xid(FLEET, GPU3, T0 + early, 63, seq=1), xid(FLEET, GPU3, T0 + 1 - early, 154, RESET, 2)
    told.hear(verdict if early else code)
    (found,) = told.hear(code if early else verdict)
    assert found.kind == "gpu_ecc_row_remap"
    assert found.reason.endswith("The driver asks for a reset of the GPU.")
    assert told.look(T0 + 4000) != (), "what the driver asks for does not pass by itself"


def test_a_verdict_makes_a_nonfatal_link_error_a_fault(told: Told) -> None:
    told.hear(xid(FLEET, GPU3, T0, 145, NONFATAL))
    (found,) = told.hear(xid(FLEET, GPU3, T0 + 1, 154, RESET, 2))
    assert found.severity is Severity.CRITICAL


def test_a_verdict_is_never_held_against_the_application(told: Told) -> None:
    told.hear(xid(FLEET, GPU3, T0, 31))
    found = {f.kind: f for f in told.hear(xid(FLEET, GPU3, T0 + 1, 154, RESET, 2))}
    assert found["gpu_memory_fault_app"].severity is Severity.INFO
    assert found["gpu_hardware_other"].severity is Severity.HIGH


def test_a_verdict_of_nothing_to_do_mends(told: Told) -> None:
    told.hear(xid(FLEET, GPU3, T0, 95), xid(FLEET, GPU3, T0 + 1, 154, RESET, 2))
    assert told.hear(xid(FLEET, GPU3, T0 + 600, 154, NOTHING, 3)) != ()
    assert told.look(T0 + 645) != (), "it settles first"
    assert told.look(T0 + 660) == ()


def test_45_alone_is_a_record(told: Told) -> None:
    (found,) = told.hear(xid(FLEET, GPU3, T0, 45))
    assert (found.kind, found.severity) == ("gpu_memory_fault_app", Severity.INFO)


@pytest.mark.parametrize("order", [(45, 79), (79, 45)])
def test_45_names_no_fault_where_another_code_stands_on_its_node(told: Told, order: tuple[int, int]) -> None:
    for at, code in enumerate(order):
        found = told.hear(xid(FLEET, GPU3 if code == 79 else GPU5, T0 + at, code, seq=code))
    assert [f.kind for f in found] == ["gpu_bus_loss"]
    assert any(piece.ref == "event:45" and piece.grade == "derived" for piece in found[0].evidence)


def test_45_on_another_node_is_a_record_of_its_own(told: Told) -> None:
    found = told.hear(xid(FLEET, GPU3, T0, 79), xid(FLEET, OTHER, T0, 45))
    assert {f.entity.host for f in found} == {"gpu-0001", "gpu-0002"}


def test_a_contained_memory_error_is_critical_only_when_it_comes_again(told: Told) -> None:
    (first,) = told.hear(xid(FLEET, GPU3, T0, 94, seq=1))
    (same,) = told.hear(xid(FLEET, GPU3, T0 + 2, 94, seq=2))
    assert first.severity is same.severity is Severity.HIGH, "two lines within 5 s are one error"
    assert told.look(T0 + 600) == (), "restarting the application ended it"
    (again,) = told.hear(xid(FLEET, GPU3, T0 + 7200, 94, seq=3))
    assert again.severity is Severity.CRITICAL and "again" in again.reason
    assert told.look(T0 + 9000) != (), "from then on it holds until it was mended"
    assert told.hear(xid(FLEET, GPU3, T0 + 9001, 94, seq=4))[0].severity is Severity.CRITICAL


def test_a_contained_memory_error_of_last_week_is_no_repetition(told: Told) -> None:
    told.hear(xid(FLEET, GPU3, T0, 94))
    (found,) = told.hear(xid(FLEET, GPU3, T0 + 7 * 86_400, 94))
    assert found.severity is Severity.HIGH and found.since == T0 + 7 * 86_400


# --- what ends it ---------------------------------------------------------------------------------------------------


def test_a_soft_code_ends_once_it_has_not_come_for_a_while(told: Told) -> None:
    told.hear(xid(FLEET, GPU3, T0, 63))
    assert told.look(T0 + 300) != ()
    assert told.look(T0 + 315) == ()
    assert len(told.state.rows) == 0


def test_a_hard_code_does_not_end_by_itself(told: Told) -> None:
    told.hear(xid(FLEET, GPU3, T0, 79))
    for day in range(1, 4):
        assert told.look(T0 + 86_400 * day) != ()


def test_a_boot_after_the_code_ends_it_once_the_gpu_answers_and_settled(told: Told) -> None:
    told.hear(xid(FLEET, GPU3, T0, 79))
    assert told.hear(boot(FLEET, "gpu-0001", T0 + 300)) != ()
    assert told.look(T0 + 345) != ()
    assert told.look(T0 + 360) == ()


def test_a_boot_alone_is_not_enough_while_the_gpu_is_missing(told: Told) -> None:
    told.hear(xid(FLEET, GPU3, T0, 79), boot(FLEET, "gpu-0001", T0 + 300))
    assert told.look(T0 + 375, silent=[GPU3]) != ()
    assert told.look(T0 + 390) != (), "back a moment ago: it settles first"
    assert told.look(T0 + 450) == ()


def test_a_boot_before_the_code_or_of_another_node_proves_nothing(told: Told) -> None:
    told.hear(xid(FLEET, GPU3, T0, 79), boot(FLEET, "gpu-0001", T0 - 60), boot(FLEET, "gpu-0002", T0 + 60))
    assert told.look(T0 + 3600) != ()


def test_a_new_code_after_the_boot_starts_over(told: Told) -> None:
    told.hear(xid(FLEET, GPU3, T0, 79, seq=1))
    told.hear(boot(FLEET, "gpu-0001", T0 + 300), xid(FLEET, GPU3, T0 + 330, 79, seq=2))
    assert told.look(T0 + 3600) != ()


def test_series_that_vanished_and_came_back_whole_end_it(told: Told) -> None:
    told.hear(xid(FLEET, GPU3, T0, 79))
    told.look(T0 + 15, silent=[GPU3])
    back = T0 + 600
    partly = telemetry(FLEET, back - 15)
    partly.values["gpu", "power_w"][3] = float("nan")
    assert told.step(partly) != ()
    assert told.look(back) != ()
    assert told.look(back + 45) != ()
    assert told.look(back + 60) == ()


def test_a_gpu_that_never_went_silent_is_not_taken_for_mended(told: Told) -> None:
    told.hear(xid(FLEET, GPU3, T0, 95))
    for step in range(1, 200):
        assert told.look(T0 + 15 * step) != ()


def test_a_tick_from_before_the_code_says_nothing_about_it(told: Told) -> None:
    """Telemetry ticks close late: the first ones after an event are older than the event."""
    told.hear(xid(FLEET, GPU3, T0 + 10, 79))
    told.look(T0, silent=[GPU3])
    told.look(T0 + 15)
    assert told.look(T0 + 600) != ()


def test_a_gpu_that_is_not_looked_at_keeps_its_level(told: Told) -> None:
    told.hear(xid(FLEET, GPU3, T0, 79), boot(FLEET, "gpu-0001", T0 + 60))
    assert told.step(Tick(T0 + 7200)) != ()
    unasked = telemetry(FLEET, T0 + 7215)
    for rows in unasked.sampled.values():
        rows[3] = False
    assert told.step(unasked) != ()


def test_an_old_line_opens_nothing(told: Told) -> None:
    assert told.hear(xid(FLEET, GPU3, T0 - 7200, 79, late=True)) == ()
    assert len(told.state.rows) == 0


def test_a_boot_counts_however_late_its_line_comes(told: Told) -> None:
    told.hear(xid(FLEET, GPU3, T0, 79))
    line = "Linux version 5.15.0-91-generic (build@host) (gcc 11.4.0) #101 SMP"
    told.hear(kernel(FLEET, "gpu-0001", T0 + 300, line, late=True))
    assert told.look(T0 + 5000) == ()


# --- fleets ---------------------------------------------------------------------------------------------------------


def test_a_replaced_gpu_needs_no_longer_answer_after_the_boot(told: Told) -> None:
    told.hear(xid(FLEET, GPU3, T0, 79))
    after = fleet_of(2, epoch=2, retired=[GPU3])
    told.state, told.fleet = told.detector.move(told.state, FLEET, after), after
    assert told.look(T0 + 300) != ()
    told.hear(boot(after, "gpu-0001", T0 + 330))
    assert told.look(T0 + 400) == ()


def test_a_node_that_left_takes_its_codes_along(told: Told) -> None:
    told.hear(xid(FLEET, OTHER, T0, 79), xid(FLEET, GPU3, T0, 79))
    smaller = fleet_of(1, epoch=2)
    told.state, told.fleet = told.detector.move(told.state, FLEET, smaller), smaller
    assert [f.entity.host for f in told.look(T0 + 15)] == ["gpu-0001"]


def test_a_level_follows_a_device_under_its_better_id(told: Told) -> None:
    """A PCI address turns out to be a UUID: the caller moves from the old fleet with the new ids in the old rows."""
    (before,) = told.hear(xid(FLEET, GPU3, T0, 79))
    row = FLEET.slot(before.entity)
    assert row is not None
    axis = FLEET.axes["gpu"]
    ids = tuple("GPU-better" if i == row else id_ for i, id_ in enumerate(axis.ids))
    renamed = _with_ids(FLEET, ids)
    told.state, told.fleet = told.detector.move(told.state, renamed, renamed), renamed
    (found,) = told.step(Tick(T0 + 1))
    assert found.entity.id == "GPU-better" and found.since == T0


def _with_ids(fleet: Fleet, ids: tuple[str, ...]) -> Fleet:
    axes = {**fleet.axes, "gpu": replace(fleet.axes["gpu"], ids=ids)}
    slots = {(kind, id_): row for kind, axis in axes.items() for row, id_ in enumerate(axis.ids)}
    return replace(fleet, axes=axes, slots=slots, epoch=fleet.epoch + 1)
