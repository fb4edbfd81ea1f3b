"""Pushed journals: both formats, values that are no text, broken entries; the events are those of the journal."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.ingest.base import SourceError
from backend.ingest.journal_push import NO_HOST, UNREADABLE, from_export, journal_batch
from detectors.kernel.lines import parse
from tests.backend.ingest.test_journal import AT, XID, Journal, entry, read, source


def exported(fields: dict[str, bytes | str]) -> bytes:
    out = b""
    for name, value in fields.items():
        raw = value.encode() if isinstance(value, str) else value
        if b"\n" in raw or not raw.isascii():
            out += name.encode() + b"\n" + len(raw).to_bytes(8, "little") + raw + b"\n"
        else:
            out += name.encode() + b"=" + raw + b"\n"
    return out + b"\n"


def fields(n: int, **more: bytes | str) -> dict[str, bytes | str]:
    return {name: str(value) for name, value in json.loads(entry(n)).items()} | more


def test_both_formats_give_the_events_of_the_journal_itself() -> None:
    (own,) = read(source(Journal(entry(1)))).events
    for body in (exported(fields(1)), entry(1).encode() + b"\n"):
        batch, counted = journal_batch(body, AT, parse)
        (event,) = batch.events
        assert (event.at, event.host, event.code, event.dedupe) == (own.at, own.host, own.code, own.dedupe)
        assert counted == 0 and not batch.dropped


def test_values_of_several_lines_and_bytes_are_read() -> None:
    body = exported(fields(1, MESSAGE=b"one\n\n" + XID.encode() + b"\xff", OTHER=b"\n\n\n")) + exported(fields(2))
    found = list(from_export(body))
    assert [one is not None for one in found] == [True, True]
    assert found[0] is not None and found[0]["MESSAGE"] == f"one\n\n{XID}\ufffd"


def test_a_broken_entry_costs_only_itself() -> None:
    broken = b"__CURSOR=x\nMESSAGE\n\xff\xff\xff\xff\xff\xff\xff\x7fabc\n\n"
    batch, counted = journal_batch(broken + exported(fields(2)), AT, parse)
    assert len(batch.events) == 1 and batch.dropped == {UNREADABLE: 1} and counted == 0
    batch, counted = journal_batch(f"{entry(1)}\nnonsense\n{entry(2, 'usb')}\n".encode(), AT, parse)
    assert len(batch.events) == 1 and batch.dropped == {UNREADABLE: 1} and counted == 1


def test_entries_without_their_host_are_named() -> None:
    body = exported(fields(1, _HOSTNAME="")) + exported(fields(2))
    batch, _ = journal_batch(body, AT, parse)
    assert batch.dropped == {NO_HOST: 1} and len(batch.events) == 1


@pytest.mark.parametrize("body", [b"", b"\n\n", b"hello", b"{}", b"[]", b"MESSAGE=x\n\n"])
def test_a_body_that_is_no_journal_is_refused(body: bytes) -> None:
    with pytest.raises(SourceError, match="journalctl -o export") as caught:
        journal_batch(body, AT, parse)
    assert caught.value.permanent


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.binary(max_size=30) | st.sampled_from([exported(fields(1))[:50], b"\n\n", b"A=\n", b"A\n"]), max_size=8)
)
def test_no_body_raises_anything_else_and_reading_ends(parts: list[bytes]) -> None:
    for body in (b"".join(parts), exported(fields(1)) + b"".join(parts)):
        list(from_export(body))
        try:
            journal_batch(body, AT, parse)
        except SourceError as error:
            assert error.permanent
