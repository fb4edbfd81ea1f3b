"""Lines of NVIDIA's driver: Xid in all its spellings, and the loss on PCIe that it tells without a number."""

from __future__ import annotations

import re
from collections.abc import Mapping

from detectors.kernel.code import ADDRESS, KernelCode, kept, pci_of
from detectors.kernel.head import KERNEL, starts
from detectors.kernel.nvlink import decode, registers

LITERALS = ("Xid (", "Xid  (", "fallen off the bus")
VERSION_LITERALS = ("NVRM: loading NVIDIA UNIX", "amdgpu version: ")
_LOADING = re.compile(
    r"NVRM: loading NVIDIA UNIX (?:[\w-]{1,16} Kernel Module|Open Kernel Module for [\w-]{1,16}) {1,4}"
    r"(\d{3}\.\d{1,4}(?:\.\d{1,4})?)"
    r"|(?:\[drm\] )?amdgpu version: (\d{1,3}\.\d{1,3}(?:\.\d{1,4})?)"
)

_UUID = r"GPU-[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"
#: ``Xid (PCI:0000:0f:00): 94``; behind the address there may be a MIG instance or a UUID, or the UUID stands alone.
_XID = re.compile(
    rf"(?:NVRM:\s{{0,4}})?Xid\s{{0,4}}\(\s?(?:(?:PCI:)?({ADDRESS})([^)]{{0,80}})|({_UUID}))\)\s{{0,4}}:\s{{0,4}}"
    r"([0-9]{1,5})(?![0-9])"
)
_IN_UUID = re.compile(_UUID)
_PID = re.compile(r"pid='?([0-9]{1,10}|<unknown>)'?,?\s{0,4}")
_NAME = re.compile(r"name=([^,]{0,64}),?\s{0,4}")
_ACTION = re.compile(r"changed from 0x[0-9A-Fa-f]{1,8} \([^)]{0,60}\) to 0x([0-9A-Fa-f]{1,8}) \(([^)]{0,60})\)")
_WHERE = re.compile(r"\(GPC\s{1,2}(\d{1,3}),\s{0,2}TPC\s{1,2}(\d{1,3})(?:,\s{0,2}SM\s{1,2}(\d{1,3}))?\)")
_LOST = "fallen off the bus"
#: An address only counts where the text says that it is a GPU's: clock times look like addresses.
_GPU_AT = re.compile(rf"(?:GPU(?:\s+at)?\s+|PCI:|nvidia )(?:PCI:)?({ADDRESS})")
_NAMED = "The NVIDIA GPU "
_DRIVER = ("NVRM", "GPU", "nvidia")

#: DCGM field 1523 and the number in an Xid 154 line mean the same.
ACTIONS: Mapping[int, str] = {0: "none", 1: "reset_gpu", 2: "reboot", 3: "drain_p2p", 4: "drain_and_reset"}


def read(line: str, driver: int = 0) -> KernelCode | None:
    """The Xid of one line; 79 for the words that stand for it. A line that only quotes one has none. driver: its major
    version, which says how the registers of NVLink5 are laid out; 0 = not known."""
    return _xid(line, driver) or _lost(line)


def version(line: str) -> KernelCode | None:
    """``version driver`` of the line with which the driver begins; it is no fault, but says how to read the others."""
    for at, program in starts(line):
        found = _LOADING.match(line, at) if program in KERNEL else None
        if found is not None:
            return KernelCode("version", "driver", "", kept(line[at:]), {"version": found[1] or found[2]})
    return None


def _xid(line: str, driver: int) -> KernelCode | None:
    if "Xid" not in line:
        return None
    for at, program in starts(line):
        found = _XID.match(line, at) if program in KERNEL else None
        if found is not None and int(found[7]):
            code = str(int(found[7]))
            attrs = _attrs(code, line[found.end() : found.end() + 600], driver)
            if uuid := _IN_UUID.search(found[5] or found[6] or ""):
                attrs["uuid"] = uuid[0]
            pci = pci_of(*found.group(2, 3, 4)) if found[3] else ""
            return KernelCode("xid", code, pci, kept(line[at:]), attrs)
    return None


def _attrs(code: str, rest: str, driver: int) -> dict[str, str]:
    """What follows the number: process, then what belongs to the code."""
    attrs: dict[str, str] = {}
    rest = rest.lstrip(", ")
    for key, pattern in (("pid", _PID), ("name", _NAME)):
        found = pattern.match(rest)
        if found:
            attrs[key] = kept(found[1])
            rest = rest[found.end() :]
    if code == "154" and (action := _ACTION.search(rest)):
        attrs["action"] = ACTIONS.get(int(action[1], 16), kept(action[2]).lower())
    if code == "74":
        attrs |= registers(rest)
    if code in ("13", "31") and (where := _WHERE.search(rest)):
        attrs |= {key: value for key, value in zip(("gpc", "tpc", "sm"), where.groups(), strict=True) if value}
    return attrs | decode(int(code), rest, driver)


def _lost(line: str) -> KernelCode | None:
    place = line.find(_LOST)
    if place < 0:
        return None
    for at, program in starts(line):
        if program not in KERNEL or not at <= place <= at + 400 or not line.startswith(_DRIVER, at):
            continue
        before = line[at:place]
        addresses = list(_GPU_AT.finditer(before))
        if not addresses and _NAMED in before:
            return None  # it names the card, and the name cannot be read: a torn line proves nothing
        # The last address stands nearest to what is said of it.
        pci = pci_of(*addresses[-1].group(2, 3, 4)) if addresses else ""
        return KernelCode("xid", "79", pci, kept(line[at:]), {"said": "text"})
    return None
