"""What one line of a kernel log says, in the terms of whoever said it; and addresses, read alike everywhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

#: What is kept of a line for people to read.
KEPT_CHARS = 400
#: domain:bus:device[.function], as kernels and exporters print it. The domain may have 4 to 8 digits, or be left out.
ADDRESS = r"(?:([0-9A-Fa-f]{1,8}):)?([0-9A-Fa-f]{1,2}):([0-9A-Fa-f]{1,2})(?:\.[0-7])?"
_PCI = re.compile(rf"(?<![0-9A-Fa-f:.]){ADDRESS}(?![0-9A-Fa-f:])")


@dataclass(frozen=True, slots=True)
class KernelCode:
    """What one line says. The model is open: (namespace, code) may be any, known to a table or not.

    namespace: xid, sxid, nvrm, fm, amd, afid, aer, nic, disk, fs, nfs, mce, oom, cpu, kernel, thermal or boot. pci:
    normalised, empty where the line names no device. attrs, as far as said; of the many: severity (fatal, nonfatal),
    unit, link, pid, name, action (154: none, reset_gpu, reboot, drain_p2p, drain_and_reset), said ("text" where there
    was no number), device, driver, victim, cgroup, server.
    """

    namespace: str
    code: str
    pci: str
    text: str
    attrs: Mapping[str, str] = field(default_factory=dict)


def normal_pci(text: str) -> str:
    """``00000000:9B:00.0``, ``PCI:0000:9b:00`` and ``9b:00.0`` become ``0000:9b:00``; no address becomes ``""``."""
    found = _PCI.search(text[:200].removeprefix("PCI:"))
    return pci_of(*found.groups()) if found else ""


def pci_of(domain: str | None, bus: str, device: str) -> str:
    return f"{int(domain or '0', 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}"


def function_of(text: str) -> str:
    """The function of a device that has several, as the second port of a card; empty for the first, and for none."""
    _, _, function = text.strip().rpartition(".")
    return function if function in set("1234567") else ""


def kept(text: str) -> str:
    """Printable, on one line, short: the text goes into databases and mails."""
    text = text[:KEPT_CHARS]
    if text.isprintable():
        return text.strip()
    return "".join(c if c.isprintable() else " " for c in text).strip()
