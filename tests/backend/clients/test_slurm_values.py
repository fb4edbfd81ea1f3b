"""Numbers, times, spans, names and exit codes in every form that Slurm gives them."""

from __future__ import annotations

import pytest

from backend.clients.slurm_states import job_state, node_state
from backend.clients.slurm_values import RecordError, exit_of, names_of, number, span_of, time_of, words_of


def test_a_number_is_plain_or_has_flags() -> None:
    assert number(7) == 7 and number("7") == 7
    assert number({"set": True, "infinite": False, "number": 7}) == 7
    assert number({"set": False, "infinite": False, "number": 0}) is None
    assert number({"set": True, "infinite": True, "number": 0}) is None
    assert number(None) is None and number(True) is None and number("x") is None


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("1796065824", 1796065824.0),
        (1796065824, 1796065824.0),
        ("2026-11-30T19:10:24", 1796065824.0),
        ("2026-11-30T20:10:24+01:00", 1796065824.0),
        ("Unknown", None),
        ("None", None),
        ("N/A", None),
        ("0", None),
        (0, None),
        ("16:10:48", None),
        ("Ystday 12:00", None),
        (4_294_967_294, None),
        ({"set": True, "infinite": False, "number": 1796065824}, 1796065824.0),
        ("not a time at all", None),
    ],
)
def test_a_time_names_its_day_or_is_none(text: object, at: float | None) -> None:
    assert time_of(text) == at


def test_spans_are_days_hours_minutes_and_seconds() -> None:
    assert span_of("3-00:00:00") == 259_200 and span_of("12:30:01") == 45_001 and span_of("5:00") == 300
    assert span_of("UNLIMITED") is None and span_of("") is None and span_of("7") is None


@pytest.mark.parametrize(
    ("value", "code", "signal"),
    [
        ("1:0", 1, None),
        ("0:9", 0, 9),
        ("", None, None),
        (256, 1, None),
        (9, 0, 9),
        (139, 0, 11),
        ({"return_code": {"set": True, "infinite": False, "number": 3}, "signal": {"id": {"set": False}}}, 3, None),
        ({"return_code": {"set": True, "number": 0}, "signal": {"id": {"set": True, "number": 15}}}, 0, 15),
        ({"return_code": 2, "signal": {"signal_id": 6}}, 2, 6),
        (None, None, None),
    ],
)
def test_an_exit_is_a_code_and_a_signal(value: object, code: int | None, signal: int | None) -> None:
    assert exit_of(value) == (code, signal)


def test_names_are_a_hostlist_or_a_list_of_them() -> None:
    assert names_of("n[1-2],x") == ("n1", "n2", "x") and names_of(["n[1-2]", "x"]) == ("n1", "n2", "x")
    assert names_of("(null)") == names_of(None) == names_of([]) == names_of("None assigned") == ()
    with pytest.raises(RecordError, match="never closed"):
        names_of("n[1")


def test_words_are_a_list_or_a_text() -> None:
    assert words_of(["h100", "ib"]) == words_of("h100,ib") == ("h100", "ib")
    assert words_of("(null)") == words_of(None) == ()


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ("RUNNING", "RUNNING"),
        (["RUNNING"], "RUNNING"),
        (["RUNNING", "CONFIGURING"], "CONFIGURING"),
        (["CANCELLED", "COMPLETING"], "COMPLETING"),
        (["COMPLETING", "NODE_FAIL"], "COMPLETING"),
        (["PENDING", "REQUEUED"], "PENDING"),
        (["PENDING", "REQUEUE_HOLD"], "REQUEUE_HOLD"),
        (["PENDING", "COMPLETING", "REQUEUED"], "PENDING"),
        (["NODE_FAIL", "REQUEUED"], "NODE_FAIL"),
        (["OUT_OF_MEMORY"], "OUT_OF_MEMORY"),
        ("CANCELLED by 1000", "CANCELLED"),
        ([], "UNKNOWN"),
        (None, "UNKNOWN"),
        (["SOMETHING_NEW"], "SOMETHING_NEW"),
    ],
)
def test_a_jobs_state_is_one_word(said: object, state: str) -> None:
    assert job_state(said) == state


@pytest.mark.parametrize(
    ("record", "base", "flags"),
    [
        ({"state": "idle", "state_flags": ["DRAIN"]}, "idle", {"DRAIN"}),
        ({"state": ["IDLE", "DRAIN"]}, "idle", {"DRAIN"}),
        ({"state": ["DOWN", "DRAIN", "NOT_RESPONDING"]}, "down", {"DRAIN", "NOT_RESPONDING"}),
        ({"state": ["MIXED", "CLOUD", "RESERVED", "DYNAMIC_NORM"]}, "mixed", {"CLOUD", "RESERVED", "DYNAMIC_NORM"}),
        ({"state": ["INVALID_REG", "DOWN"]}, "down", {"INVALID_REG"}),
        ({"state": ["PLANNED", "IDLE"]}, "idle", {"PLANNED"}),
        ({"state": "mixed+drain"}, "mixed", {"DRAIN"}),
        ({}, "unknown", set()),
    ],
)
def test_a_nodes_state_is_the_same_in_every_json(record: dict[str, object], base: str, flags: set[str]) -> None:
    assert node_state(record) == (base, frozenset(flags))
