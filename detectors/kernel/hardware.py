"""Machine checks and the records of the firmware's error source: the bits and fields that say how bad it was."""

from __future__ import annotations

import re

from detectors.kernel.code import KernelCode, kept, normal_pci
from detectors.kernel.head import KERNEL, starts

LITERALS = ("Machine Check", "[Hardware Error]: event severity: ")

_CHECK = re.compile(
    r"(?:mce: )?(?:\[Hardware Error\]: )?CPU (?P<cpu>\d{1,5}):? Machine Check(?: Exception)?:? "
    r"[0-9a-fx]{1,4} Bank (?P<bank>\d{1,3}): (?P<status>[0-9a-fA-F]{1,16})"
)
#: MCi_STATUS: VAL 63, UC 61, PCC 57 (Intel SDM vol. 3B, 16.3.2.2; AMD APM vol. 2, 9.3.2.1).
_VALID, _UNCORRECTED, _CORRUPT = 63, 61, 57
_APEI = re.compile(
    r"\{\d{1,6}\}\[Hardware Error\]: event severity: (?P<severity>fatal|recoverable|corrected|info)", re.I
)
_SECTION = re.compile(r"section_type: ([A-Za-z ]{1,40})")
_DEVICE = re.compile(r"device_id: ([0-9A-Fa-f:.]{7,16})")
_VENDOR = re.compile(r"vendor_id: 0x([0-9A-Fa-f]{4})")
VENDORS = {"10de": "gpu", "1002": "gpu", "15b3": "nic"}
#: How the firmware's words and those of PCIe match.
_PCIE = {"fatal": "fatal", "recoverable": "nonfatal", "corrected": "corrected", "info": "corrected"}
_MEMORY = {"fatal": "fatal", "recoverable": "uncorrected", "corrected": "corrected", "info": "corrected"}


def read(line: str) -> KernelCode | None:
    """A machine check: mce corrected, uncorrected or fatal, by its status. A record of the firmware: the same, or aer
    corrected, nonfatal or fatal where it is about PCIe. It may be one line or all of its lines joined."""
    for at, program in starts(line):
        if program not in KERNEL:
            continue
        if found := _CHECK.match(line, at):
            status = int(found["status"], 16)
            corrected = not status >> _UNCORRECTED & 1
            code = "corrected" if corrected else "fatal" if status >> _CORRUPT & 1 else "uncorrected"
            attrs = {"cpu": found["cpu"], "bank": found["bank"], "status": found["status"]}
            return KernelCode("mce", code, "", kept(line[at:]), attrs) if status >> _VALID & 1 else None
        if found := _APEI.search(line[at : at + 4000]):
            return _record(line[at:], found["severity"].lower())
    return None


def _record(text: str, severity: str) -> KernelCode:
    section = _SECTION.search(text)
    attrs = {"section": kept(section[1])} if section else {}
    if section is None or "PCIe" not in section[1]:
        return KernelCode("mce", _MEMORY[severity], "", kept(text), attrs)
    device, vendor = _DEVICE.search(text), _VENDOR.search(text)
    if vendor is not None:
        attrs["device_class"] = VENDORS.get(vendor[1].lower(), "other")
    return KernelCode("aer", _PCIE[severity], normal_pci(device[1]) if device else "", kept(text), attrs)
