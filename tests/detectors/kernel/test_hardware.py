"""Machine checks by their status, and the records of the firmware's error source, line by line or joined."""

from __future__ import annotations

import pytest

from detectors.kernel.lines import joined, parse


@pytest.mark.parametrize(
    ("status", "code"),
    [("9c00000000010090", "corrected"), ("bc00000000800400", "uncorrected"), ("be00000000800400", "fatal")],
)
@pytest.mark.parametrize(
    "line",
    [
        "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: {}",
        "[Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 9: {}",
    ],
)
def test_a_machine_check_is_as_bad_as_its_status(line: str, status: str, code: str) -> None:
    found = parse("[ 12.5] " + line.format(status))
    assert found is not None and (found.namespace, found.code) == ("mce", code)


def test_a_status_that_is_not_valid_says_nothing() -> None:
    assert parse("mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: 0000000000000000") is None


RECORD = (
    "{3}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 512",
    "{3}[Hardware Error]: event severity: recoverable",
    "{3}[Hardware Error]:  Error 0, type: recoverable",
    "{3}[Hardware Error]:   section_type: PCIe error",
    "{3}[Hardware Error]:   device_id: 0000:3b:00.0",
    "{3}[Hardware Error]:   vendor_id: 0x10de, device_id: 0x2330",
)


def test_a_record_of_the_firmware_is_one_message_about_one_device() -> None:
    lines = ["x", *(f"Feb  3 11:38:06 gpu-1 kernel: {line}" for line in RECORD), "y"]
    whole = list(joined(lines))
    assert len(whole) == 3 and "\n".join(whole).split("\n") == lines
    found = parse(whole[1])
    assert found is not None
    assert (found.namespace, found.code, found.pci) == ("aer", "nonfatal", "0000:3b:00")
    assert found.attrs["device_class"] == "gpu"


def test_two_records_are_two_messages() -> None:
    again = [line.replace("{3}", "{4}") for line in RECORD]
    assert len(list(joined([*RECORD, *again]))) == 2


def test_a_record_that_comes_in_single_lines_is_told_by_its_severity() -> None:
    found = parse(RECORD[1])
    assert found is not None and (found.namespace, found.code) == ("mce", "uncorrected")
    assert parse(RECORD[0]) is None
