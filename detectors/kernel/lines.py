"""One line of kernel log to one code: Xid in all its spellings, the loss on PCIe without a number, the boot banner."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

#: Kernel records are at most a few KiB; what stands behind this is not looked at, so no line costs more than this.
MAX_CHARS = 65_536
#: What is kept of a line for people to read.
KEPT_CHARS = 400

#: domain:bus:device[.function], as kernels and exporters print it. The domain may have 4 to 8 digits, or be left out.
_ADDRESS = r"(?:([0-9A-Fa-f]{1,8}):)?([0-9A-Fa-f]{1,2}):([0-9A-Fa-f]{1,2})(?:\.[0-7])?"
_PCI = re.compile(rf"(?<![0-9A-Fa-f:.]){_ADDRESS}(?![0-9A-Fa-f:])")
#: ``Xid (PCI:0000:0f:00): 94``; with MIG the address is followed by the instance. SXid is another matter.
_XID = re.compile(rf"Xid\s{{0,4}}\(\s?(?:PCI:)?({_ADDRESS})[^)]{{0,80}}\)\s{{0,4}}:\s{{0,4}}([0-9]{{1,5}})(?![0-9])")
_PID = re.compile(r"pid='?([0-9]{1,10}|<unknown>)'?,?\s{0,4}")
_NAME = re.compile(r"name=([^,]{0,64}),?\s{0,4}")
#: NVLink5: unit, the word that decides, then link and registers.
_WORD = re.compile(r"([A-Za-z0-9_/ ]{1,60}?)\s{1,8}(Fatal|Non-?fatal)\b", re.IGNORECASE)
_LINK = re.compile(r"\bLink\s{1,4}(-?[0-9]{1,4})\b")
_ACTION = re.compile(r"changed from 0x[0-9A-Fa-f]{1,8} \([^)]{0,60}\) to 0x([0-9A-Fa-f]{1,8}) \(([^)]{0,60})\)")
_LOST = "fallen off the bus"
#: An address only counts where the text says that it is a GPU's: clock times look like addresses.
_GPU_AT = re.compile(rf"(?:GPU(?:\s+at)?\s+|PCI:)(?:PCI:)?({_ADDRESS})")
_BOOT = re.compile(r"Linux version [0-9]{1,3}\.[0-9]{1,4}\S{0,120} \(")

#: DCGM field 1523 and the number in an Xid 154 line mean the same.
ACTIONS: Mapping[int, str] = {0: "none", 1: "reset_gpu", 2: "reboot", 3: "drain_p2p", 4: "drain_and_reset"}
#: Codes whose lines carry a severity word.
_WORDED = frozenset(str(code) for code in range(144, 151))


@dataclass(frozen=True, slots=True)
class KernelCode:
    """What one line says. namespace: xid or boot. pci: normalised, empty where the line names no device.

    attrs, as far as said: severity (fatal, nonfatal), unit, link, pid, name, action (154: none, reset_gpu, reboot,
    drain_p2p, drain_and_reset), said ("text" where there was no number).
    """

    namespace: str
    code: str
    pci: str
    text: str
    attrs: Mapping[str, str] = field(default_factory=dict)


def normal_pci(text: str) -> str:
    """``00000000:9B:00.0``, ``PCI:0000:9b:00`` and ``9b:00.0`` become ``0000:9b:00``; no address becomes ``""``."""
    found = _PCI.search(text[:200].removeprefix("PCI:"))
    return _normal(*found.groups()) if found else ""


def _normal(domain: str | None, bus: str, device: str) -> str:
    return f"{int(domain or '0', 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}"


def parse(line: str) -> KernelCode | None:
    """The code in one line, whatever stands before it (syslog, dmesg, kmsg, journal), or None.

    Never raises; time grows linearly with the line and stops at MAX_CHARS.
    """
    line = line[:MAX_CHARS]
    return _xid(line) or _lost(line) or _boot(line)


def joined(lines: Iterable[str]) -> Iterator[str]:
    """Lines of one host in order, with the loss on PCIe that the driver prints over three lines made one again."""
    held: list[str] = []
    for line in lines:
        if held and "NVRM" in line:
            held.append(line)
            if _LOST in line or len(held) == 4:
                yield "\n".join(held) if _LOST in line else held[0]
                yield from () if _LOST in line else held[1:]
                held = []
            continue
        yield from held
        held = [line] if "NVRM: The NVIDIA GPU " in line and _LOST not in line else []
        if not held:
            yield line
    yield from held


def _xid(line: str) -> KernelCode | None:
    at = line.find("Xid")
    while at >= 0:
        found = None if at and line[at - 1].isalnum() else _XID.match(line, at)
        if found and int(found[5]):
            code = str(int(found[5]))
            driver = line.rfind("NVRM", max(0, at - 8), at)
            text = line[driver if driver >= 0 else at :]
            attrs = _attrs(code, line[found.end() : found.end() + 600])
            return KernelCode("xid", code, _normal(found[2], found[3], found[4]), _kept(text), attrs)
        at = line.find("Xid", at + 3)
    return None


def _attrs(code: str, rest: str) -> dict[str, str]:
    """What follows the number: process, then for NVLink5 the unit with its word, for 154 the new action."""
    attrs: dict[str, str] = {}
    rest = rest.lstrip(", ")
    for key, pattern in (("pid", _PID), ("name", _NAME)):
        found = pattern.match(rest)
        if found:
            attrs[key] = _kept(found[1])
            rest = rest[found.end() :]
    if code in _WORDED and (word := _WORD.match(rest)):
        attrs["unit"] = word[1].strip()
        attrs["severity"] = word[2].lower().replace("-", "")
        if link := _LINK.search(rest, word.end()):
            attrs["link"] = link[1]
    if code == "154" and (action := _ACTION.search(rest)):
        attrs["action"] = ACTIONS.get(int(action[1], 16), _kept(action[2]).lower())
    return attrs


def _lost(line: str) -> KernelCode | None:
    at = line.find(_LOST)
    if at < 0:
        return None
    before = line[max(0, at - 400) : at]
    if "GPU" not in before and "NVRM" not in before:
        return None
    addresses = list(_GPU_AT.finditer(before))
    # The last address stands nearest to what is said of it.
    pci = _normal(*addresses[-1].group(2, 3, 4)) if addresses else ""
    starts = [place for word in ("NVRM", "GPU") if (place := before.find(word)) >= 0]
    return KernelCode("xid", "79", pci, _kept(before[min(starts) :] + line[at:]), {"said": "text"})


def _boot(line: str) -> KernelCode | None:
    """The kernel's first line, where it opens the message: text that only quotes it proves no boot."""
    at = line.find("Linux version ")
    if at < 0 or not _BOOT.match(line, at):
        return None
    before = line[:at].rstrip()
    if before and not before.endswith((":", "]", ";")):
        return None
    return KernelCode("boot", "boot", "", _kept(line[at:]))


def _kept(text: str) -> str:
    """Printable, on one line, short: the text goes into databases and mails."""
    return "".join(c if c.isprintable() else " " for c in text[:KEPT_CHARS]).strip()
