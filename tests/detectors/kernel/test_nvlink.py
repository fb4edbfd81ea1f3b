"""NVLink errors read to the end: by unit and by bits, before and from driver 575; the registers of Xid 74."""

from __future__ import annotations

import pytest

from detectors.catalogue import load
from detectors.kernel.levels import family
from detectors.kernel.lines import parse
from detectors.kernel.nvidia import read
from detectors.kernel.nvlink import _table, decode, registers
from detectors.model import Event, Tick
from tests.detectors.fleets import T0, fleet_of

CATALOGUE, FLEET = load(), fleet_of(2)


def word(bits: str) -> int:
    """An information word from its 32 bits as the catalogue prints them, don't-care as 0."""
    return int(bits.replace("-", "0"), 2)


@pytest.mark.parametrize(
    ("unit", "old", "new", "status", "asks", "look"),
    [
        (
            "RLW_SRC_TRACK",
            "------000000----------0011100010",
            "------000000-------------0000111",
            1,
            "reset_gpu",
            "contact_support",
        ),
        (
            "RLW_REMAP",
            "------000000----------0010000010",
            "------000000-------------0000100",
            4,
            "verdict",
            "check_nvlink_failure_flow",
        ),
        (
            "RLW_RXPIPE",
            "------000000---------10011000010",
            "------000000------------10000110",
            2,
            "reset_gpu",
            "contact_support",
        ),
        (
            "RLW_RXPIPE",
            "------000000---------00011000010",
            "------000000------------00000110",
            2,
            "none",
            "contact_support",
        ),
    ],
)
@pytest.mark.parametrize("driver", [0, 550, 580])
def test_a_sub_code_is_read_by_the_layout_of_the_driver(
    unit: str, old: str, new: str, status: int, asks: str, look: str, driver: int
) -> None:
    code = 145
    for bits, fits in ((old, driver != 580), (new, driver != 550)):
        attrs = decode(code, f"{unit} Nonfatal XC0 i0 Link 07 (0x{word(bits):08x} 0x{status:08x})", driver)
        assert (attrs["unit"], attrs["severity"], attrs["link"]) == (unit, "nonfatal", "07")
        if fits and "old" in attrs:
            assert driver == 0 and f"{asks} {look}" in (attrs["old"], attrs["new"])
        elif fits:
            assert (attrs["asks"], attrs["look"]) == (asks, look)


@pytest.mark.parametrize(
    ("subcode", "look"),
    [(0b100101, "investigate_peer_device"), (0b000010, "investigate_link_si"), (0b101000, "investigate_host")],
)
def test_a_link_that_went_down_says_where_to_look(subcode: int, look: str) -> None:
    low = word("0111000110")
    found = parse(
        "NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 02 "
        f"(0x{subcode << 20 | low:08x} 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)"
    )
    assert found is not None
    assert (found.attrs["subcode"], found.attrs["look"]) == (str(subcode), look)


def test_the_word_of_the_line_is_kept_where_no_row_fits() -> None:
    attrs = decode(145, "RLW_FUTURE Fatal XC0 i0 Link 1 (0xffffffff 0xffffffff)")
    assert attrs["severity"] == "fatal" and "asks" not in attrs


def test_every_row_of_the_table_is_found_again() -> None:
    for row in _table():
        status = 0 if row.status is None else row.status
        for driver, mask in ((550, row.old), (580, row.new)):
            unit = sorted(row.units)[0]
            attrs = decode(row.code, f"{unit} Fatal XC0 i0 Link 1 (0x{mask[1]:08x} 0x{status:08x})", driver)
            assert attrs["asks"] in ("none", "reset_gpu", "verdict")


@pytest.mark.parametrize(
    ("numbers", "meaning"),
    [
        ("0x10, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", "parity"),
        ("0x100000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", "secondary"),
        ("0x200000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", "signal"),
        ("0x10100, 0x0, 0x0, 0x20000, 0x0, 0x0, 0x0", "connection"),
        ("0x0, 0x0, 0x2000, 0x0, 0x0, 0x0, 0x0", "unexpected"),
        ("0x0, 0x0, 0x0, 0x40000, 0x0, 0x0, 0x0", "secondary"),
        ("0x0, 0x0, 0x0, 0x0, 0x40000, 0x0, 0x0", "parity"),
        ("0x0, 0x0, 0x0, 0x0, 0x100000, 0x0, 0x0", "corrected_often"),
        ("0x1, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", "harmless"),
    ],
)
def test_the_seven_registers_of_74_say_what_it_was(numbers: str, meaning: str) -> None:
    found = parse(
        f"NVRM: Xid (PCI:0000:3b:00): 74, pid=4242, name=python3, NVLink: fatal error detected on link 14({numbers})"
    )
    assert found is not None
    assert (found.attrs["link"], found.attrs["meaning"]) == ("14", meaning)
    assert "unlisted" not in found.attrs


def test_bits_that_no_list_explains_are_told() -> None:
    attrs = registers("NVLink: fatal error detected on link 2(0x80000000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)")
    assert attrs["unlisted"] == "yes" and "meaning" not in attrs


def test_registers_that_are_not_seven_mean_nothing() -> None:
    assert registers("NVLink: fatal error detected on link 2(0x1, 0x0)") == {"link": "2", "said_severity": "fatal"}


# --- the version of the driver ----------------------------------------------------------------------------------------


#: Bits that ask for a reset where the word is laid out as before driver 575, and for nothing from there on.
EITHER = f"RLW_RXPIPE Nonfatal XC0 i0 Link 07 (0x{int('10011000010', 2):08x} 0x00000002)"


def test_without_the_drivers_version_both_readings_are_told_and_with_it_one() -> None:
    unknown, old, new = (decode(145, EITHER, driver) for driver in (0, 550, 580))
    assert old["asks"] != new["asks"]
    assert unknown["old"] == f"{old['asks']} {old['look']}" and unknown["new"] == f"{new['asks']} {new['look']}"
    assert "old" not in old and "new" not in new


def test_the_sentence_says_both_readings_until_the_driver_is_known() -> None:
    line = f"NVRM: Xid (PCI:0000:4b:00): 145, {EITHER}"
    detector = family("kernel/xid", CATALOGUE)

    def told(driver: int) -> str:
        found = read(line, driver)
        assert found is not None
        gpu = FLEET.entity("gpu", 0)
        event = Event(T0, gpu, found.namespace, found.code, found.text, 1, attrs=found.attrs)
        return detector.step(detector.start(FLEET), Tick(T0, events=(event,)), FLEET).findings[0].reason

    assert "before 575" in told(0) and "from 575 on" in told(0)
    assert "575" not in told(550) and "575" not in told(580)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.144.03  Mon Dec 30 17:44:08 UTC 2024", "550.144.03"),
        ("kernel: NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build", "570.86.15"),
        ("NVRM: loading NVIDIA UNIX aarch64 Kernel Module  580.65.06", "580.65.06"),
        ("[drm] amdgpu version: 6.10.5", "6.10.5"),
        ("python3[7]: NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.144.03", ""),
    ],
)
def test_the_driver_says_its_version_when_it_begins(line: str, said: str) -> None:
    found = parse(line)
    assert (found.attrs["version"] if found else "") == said
