"""Lines of the NVSwitch driver: SXid. The word Fatal or Non-fatal in the line is its own; a table only fills in."""

from __future__ import annotations

import re

from detectors.kernel.code import ADDRESS, KernelCode, kept, pci_of
from detectors.kernel.head import KERNEL, starts

LITERALS = ("SXid (", "SXid  (")

_SXID = re.compile(
    r"(?:nvidia-nvswitch(?P<switch>\d{0,4}):\s{0,4}|NVRM:\s{0,4})?(?:nvidia-nvswitch\d{0,4}:\s{0,4})?"
    rf"SXid\s{{0,4}}\(\s?(?:PCI:)?(?P<at>{ADDRESS})[^)]{{0,80}}\)\s{{0,4}}:\s{{0,4}}(?P<code>[0-9]{{5}})(?![0-9])"
)
_WORD = re.compile(r"[\s,]{1,8}(Non-?fatal|Fatal)\b", re.IGNORECASE)
#: The second line of an error says it by number, and the ones behind it only give registers.
_NUMBER = re.compile(r",\s{0,4}Severity\s{1,4}([01])\b")
_REGISTERS = re.compile(r",\s{0,4}Data\s{0,4}\{")
_LINK = re.compile(r"\bLink\s{1,4}([0-9]{1,3})\b")


def read(line: str) -> KernelCode | None:
    """The SXid of one line. attrs: severity (fatal, nonfatal) where the line says it, link, switch (its
    number), part (registers) where the line only adds to one before it."""
    if "SXid" not in line:
        return None
    for at, program in starts(line):
        found = _SXID.match(line, at) if program in KERNEL else None
        if found is None:
            continue
        rest, attrs = line[found.end() : found.end() + 400], {}
        if word := _WORD.match(rest):
            attrs["severity"] = word[1].lower().replace("-", "")
        elif number := _NUMBER.match(rest):
            attrs["severity"] = "fatal" if number[1] == "1" else "nonfatal"
        elif _REGISTERS.match(rest):
            attrs["part"] = "registers"
        if link := _LINK.search(rest):
            attrs["link"] = link[1]
        if found["switch"]:
            attrs["switch"] = found["switch"]
        return KernelCode("sxid", found["code"], pci_of(*found.group(3, 4, 5)), kept(line[at:]), attrs)
    return None
