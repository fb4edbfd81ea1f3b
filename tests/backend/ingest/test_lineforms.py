"""Each form of log line is told by its first lines and read for time, host, source and text; none raises or is slow."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.ingest.lineforms import FORMS, PLAIN, joined_parts, read_line, sniff
from backend.ingest.linetimes import Origin, from_iso, from_parts, from_seconds
from backend.ingest.said import Said

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC).timestamp()
AT = datetime(2026, 3, 2, 10, 11, 12, tzinfo=UTC).timestamp()
BOOT = datetime(2026, 3, 1, tzinfo=UTC).timestamp()
HERE = Origin("gpu-1", NOW, UTC, BOOT, "b00t")
XID = "NVRM: Xid (PCI:0000:9d:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."

CASES = [
    ("kmsg", f"4,1234,123456789,-;{XID}", BOOT + 123.456789, "", "kernel"),
    ("kmsg", f"4,1234,123456789,-,caller=T12;{XID}", BOOT + 123.456789, "", "kernel"),
    ("dmesg", f"[  123.456789] {XID}", BOOT + 123.456789, "", "kernel"),
    ("dmesg", f"<4>[  123.456789] {XID}", BOOT + 123.456789, "", "kernel"),
    ("dmesg", f"[  123.456789] [   T77] {XID}", BOOT + 123.456789, "", "kernel"),
    ("dmesg", f"kern  :warn  : [  123.456789] {XID}", BOOT + 123.456789, "", "kernel"),
    ("dmesg", f"[  123.456789 <    0.000012>] {XID}", BOOT + 123.456789, "", "kernel"),
    ("dmesg -T", f"[Mon Mar  2 10:11:12 2026] {XID}", AT, "", "kernel"),
    ("dmesg -H", f"[Mar 2 10:11] {XID}", AT - 12, "", "kernel"),
    ("dmesg -H", f"[  +0.000012] {XID}", None, "", "kernel"),
    ("dmesg iso", f"2026-03-02T11:11:12,345678+01:00 {XID}", AT + 0.345678, "", "kernel"),
    ("rfc3164", f"Mar  2 10:11:12 gpu-7 kernel: {XID}", AT, "gpu-7", "kernel"),
    ("rfc3164", f"Mar 02 10:11:12.345678 gpu-7 kernel: [  12.345] {XID}", AT + 0.345678, "gpu-7", "kernel"),
    ("rfc3164", f"<4>Mar  2 10:11:12 gpu-7.example.org kernel: {XID}", AT, "gpu-7.example.org", "kernel"),
    ("rfc3164", f"Mar  2 2026 10:11:12 gpu-7 kernel: {XID}", AT, "gpu-7", "kernel"),
    ("rfc3164", f"Mar  2 10:11:12 gpu-7 slurmd[812]: {XID}", AT, "gpu-7", "slurmd"),
    ("iso syslog", f"2026-03-02T10:11:12.345678+00:00 gpu-7 kernel: [ 9.1] {XID}", AT + 0.345678, "gpu-7", "kernel"),
    ("iso syslog", f"2026-03-02T11:11:12+0100 gpu-7 kernel: {XID}", AT, "gpu-7", "kernel"),
    ("rfc5424", f"<4>1 2026-03-02T10:11:12.5Z gpu-7 kernel - - - {XID}", AT + 0.5, "gpu-7", "kernel"),
    ("rfc5424", f'<4>1 2026-03-02T10:11:12Z gpu-7 kernel - - [a@1 x="]\\""][b] \ufeff{XID}', AT, "gpu-7", "kernel"),
    ("journal short-full", f"Mon 2026-03-02 10:11:12 UTC gpu-7 kernel: {XID}", AT, "gpu-7", "kernel"),
    ("journal short-unix", f"{AT:.6f} gpu-7 kernel: {XID}", AT, "gpu-7", "kernel"),
    ("journal short-monotonic", f"[  123.456789] gpu-7 kernel: {XID}", BOOT + 123.456789, "gpu-7", "kernel"),
    ("cri", f"2026-03-02T10:11:12.345678901Z stdout F {XID}", AT + 0.345678, "", "stdout"),
    ("slurm", f"[2026-03-02T10:11:12.345] {XID}", AT + 0.345, "", ""),
    ("fabric manager", f"[Mar 02 2026 10:11:12] {XID}", AT, "", "fabricmanager"),
    ("docker", json.dumps({"log": XID + "\n", "stream": "err", "time": "2026-03-02T10:11:12.5Z"}), AT + 0.5, "", "err"),
    ("bundle", json.dumps({"ts": AT, "host": "gpu-7", "source": "kernel", "line": XID}), AT, "gpu-7", "kernel"),
    ("json", json.dumps({"@timestamp": "2026-03-02T10:11:12Z", "message": XID, "hostname": "gpu-7"}), AT, "gpu-7", ""),
    ("json", json.dumps({"date": AT, "log": XID, "host": "gpu-7", "ident": "kernel"}), AT, "gpu-7", "kernel"),
    ("stamped", f"2026-03-02 10:11:12,345 - {XID}", AT + 0.345, "", ""),
    ("plain", XID, None, "", ""),
]  # fmt: skip


@pytest.mark.parametrize(("name", "line", "at", "host", "source"), CASES)
def test_each_form_is_told_and_read(name: str, line: str, at: float | None, host: str, source: str) -> None:
    form = sniff([line] * 3, HERE)
    assert form.name == name
    said = read_line(form, line, HERE)
    assert (said.text, said.host, said.source) == (XID, host, source)
    assert said.at == (None if at is None else pytest.approx(at, abs=2e-6))


def test_an_entry_of_the_journal_keeps_boot_and_the_kernels_own_time() -> None:
    fields = {
        "__CURSOR": "s=1;i=2", "__REALTIME_TIMESTAMP": str(int(AT * 1e6)), "_BOOT_ID": "b00t", "_TRANSPORT": "kernel",
        "_SOURCE_MONOTONIC_TIMESTAMP": "123456789", "_HOSTNAME": "gpu-7", "PRIORITY": "4",
        "MESSAGE": list(XID.encode() + b"\xff"), "SYSLOG_IDENTIFIER": "kernel",
    }  # fmt: skip
    form = sniff([json.dumps(fields)], HERE)
    assert form.name == "journal json"
    said = read_line(form, json.dumps(fields), HERE)
    assert (said.at, said.host, said.source, said.text) == (AT, "gpu-7", "kernel", XID + "\ufffd")
    assert said.attrs == {"boot": "b00t", "monotonic_us": "123456789", "level": "4"}


def test_a_record_of_kmsg_keeps_its_number_and_its_boot() -> None:
    said = read_line(FORMS[0], "6,77,5000000,-;a\\x0ab", HERE)
    assert said.text == "a\nb" and said.attrs == {"seq": "77", "monotonic_us": "5000000", "level": "6", "boot": "b00t"}
    assert read_line(FORMS[0], " SUBSYSTEM=pci", HERE) == Said(None, " SUBSYSTEM=pci")


def test_without_a_known_boot_the_kernels_seconds_are_no_time() -> None:
    assert read_line(FORMS[0], "6,77,5000000,-;a", Origin("x", NOW)).at is None


def test_a_few_strange_lines_do_not_hide_a_form() -> None:
    lines = ["-- Boot 1234 --", *[f"Mar  2 10:11:12 gpu-7 kernel: {XID}"] * 4, "   continued"]
    assert sniff(lines, HERE).name == "rfc3164"
    assert sniff([], HERE) is PLAIN and sniff(["", "step 1", "step 2"], HERE) is PLAIN


def test_parts_of_a_long_line_of_a_container_are_one_line() -> None:
    lines = [
        f"2026-03-02T10:11:12Z stdout {flag} {text}" for flag, text in (("P", "a"), ("P", "b"), ("F", "c"), ("F", "d"))
    ]
    said = joined_parts(read_line(sniff(lines, HERE), line, HERE) for line in lines)
    assert [one.text for one in said] == ["abc", "d"]


# --- times ------------------------------------------------------------------------------------------------------------


def test_a_time_without_a_year_is_of_the_last_year_in_which_it_is_not_ahead() -> None:
    january = Origin("x", datetime(2026, 1, 1, 0, 5, tzinfo=UTC).timestamp(), UTC)
    assert from_parts(january, "Dec", "31", "23:59:59") == datetime(2025, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()
    december = Origin("x", datetime(2025, 12, 31, 23, 59, 50, tzinfo=UTC).timestamp(), UTC)
    assert from_parts(december, "Jan", "1", "00:00:01") == datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC).timestamp()
    assert from_parts(december, "Feb", "29", "00:00:00") == datetime(2024, 2, 29, tzinfo=UTC).timestamp()
    assert from_parts(december, "Feb", "30", "00:00:00") is None and from_parts(december, "Foo", "1", "0:0:0") is None
    leap = Origin("x", datetime(2028, 3, 1, tzinfo=UTC).timestamp(), UTC)
    assert from_parts(leap, "Feb", "29", "00:00:00") == datetime(2028, 2, 29, tzinfo=UTC).timestamp()


def test_local_times_are_of_the_zone_of_the_log_and_an_hour_that_comes_twice_is_never_ahead() -> None:
    zone = ZoneInfo("Europe/Berlin")
    summer = Origin("x", datetime(2025, 7, 1, 12, tzinfo=UTC).timestamp(), zone)
    assert from_iso("2025-07-01T12:00:00", summer) == datetime(2025, 7, 1, 10, tzinfo=UTC).timestamp()
    first, second = (datetime(2025, 10, 26, hour, 30, tzinfo=UTC).timestamp() for hour in (0, 1))
    assert from_iso("2025-10-26 02:30:00", Origin("x", first + 5, zone)) == first
    assert from_iso("2025-10-26 02:30:00", Origin("x", second + 5, zone)) == second


def test_seconds_and_their_thousandths_are_told_by_their_size() -> None:
    assert {from_seconds(f"{int(AT)}{zeros}") for zeros in ("", "000", "000000", "000000000")} == {float(int(AT))}
    assert from_seconds("12") is None and from_seconds("nan") is None and from_seconds("x") is None


@pytest.mark.parametrize(
    "text", ["", "relative", "16:10:48", "0001-01-01T00:00:00", "1970-01-01T00:00:00Z", "2026-13-01"]
)
def test_what_is_no_time_is_none(text: str) -> None:
    assert from_iso(text, HERE) is None


# --- properties -------------------------------------------------------------------------------------------------------

PIECES = [line[:n] for _, line, *_ in CASES for n in (5, 20, 40, 60)]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(max_size=12) | st.sampled_from(PIECES) | st.sampled_from('{}[]<>:;,." \\\x00٣'), max_size=8))
def test_no_line_raises_in_any_form(parts: list[str]) -> None:
    line = "".join(parts)
    for form in FORMS:
        said = form.read(line, HERE)
        assert said is None or isinstance(said.text, str)
    sniff([line], HERE)


@pytest.mark.parametrize(
    "part", ["[", "<", "<4>1 ", " ", "a:", "a[", '"', "\\", "1.", "[ 1.1]", "{", '{"a":', "0", "Mar 2 ", "-"]
)
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_time_grows_with_the_line_and_no_faster(form: object, part: str) -> None:
    read = next(one.read for one in FORMS if one is form)
    for begin in ("", *{line[:30] for name, line, *_ in CASES if name == getattr(form, "name", "")}):
        line = begin + part * (200_000 // len(part))
        began = time.process_time()
        read(line, HERE)
        assert time.process_time() - began < 0.5
