"""One line of kernel log to one code: literals first, then the few readers that know them; and joining what belongs
together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache

from detectors.kernel import amd, fabric, hardware, nvidia
from detectors.kernel.code import KernelCode as KernelCode
from detectors.kernel.code import kept
from detectors.kernel.code import normal_pci as normal_pci
from detectors.kernel.head import KERNEL, starts
from detectors.kernel.rules import packaged
from detectors.scan import Scanner

#: Kernel records are at most a few KiB; what stands behind this is not looked at, so no line costs more than this.
MAX_CHARS = 65_536
_BOOT = re.compile(r"Linux version [0-9]{1,3}\.[0-9]{1,4}\S{0,120} \(")
_UPTIME = re.compile(r"\[\s{0,12}([0-9]{1,10})\.[0-9]{3,6}\]|^[0-9]{1,3},[0-9]{1,20},([0-9]{1,20}),")
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,16}m")
_BOOT_LITERAL = "Linux version "
#: How many lines a message of several may have.
MOST_JOINED = 40
_APEI = re.compile(r"\{\d{1,6}\}\[Hardware Error\]:")

Reader = Callable[[str], KernelCode | None]


def parse(line: str) -> KernelCode | None:
    """The code in one line, whatever stands before it (syslog, dmesg, kmsg, journal), or None.

    Never raises; time grows linearly with the line and stops at MAX_CHARS.
    """
    found = scanner().which(line[:MAX_CHARS].encode(errors="replace"))
    return _read(line, found) if found else None


def _read(line: str, found: Iterable[int]) -> KernelCode | None:
    """What the readers of these literals make of a line."""
    line = line[:MAX_CHARS]
    if "\x1b" in line:
        line = _COLOUR.sub("", line)
    _, places, readers = _kit()
    for place in sorted({place for index in found for place in places[index]}):
        code = readers[place](line)
        if code is not None:
            return _timed(code, line)
    return None


def _timed(code: KernelCode, line: str) -> KernelCode:
    """A link that is down means another thing while its node comes up: with how long the kernel had run, in s."""
    found = _UPTIME.search(line[:160]) if code.namespace == "nic" else None
    up = found and (found[1] or str(int(found[2]) // 1_000_000))
    return replace(code, attrs={**code.attrs, "uptime_s": up}) if up else code


def scanner() -> Scanner:
    """Finds the lines of a chunk that ``parse`` may know; all others it does not."""
    return _kit()[0]


@cache
def _kit() -> tuple[Scanner, tuple[tuple[int, ...], ...], tuple[Reader, ...]]:
    """One scanner for the literals of all readers, the places of the readers of each literal, and the readers."""
    own = tuple((module.LITERALS, module.read) for module in (nvidia, fabric, hardware, amd))
    table = ((rule.literals, rule.read) for rule in packaged())
    wanted: list[tuple[tuple[str, ...], Reader]] = [
        *own,
        ((_BOOT_LITERAL,), _boot),
        *table,
        (nvidia.VERSION_LITERALS, nvidia.version),
    ]
    places: dict[str, list[int]] = {}
    for place, (literals, _) in enumerate(wanted):
        for literal in literals:
            places.setdefault(literal, []).append(place)
    return Scanner(places), tuple(map(tuple, places.values())), tuple(reader for _, reader in wanted)


def codes(pieces: Iterable[bytes]) -> Iterator[KernelCode]:
    """What all lines of a log say, of one that comes in pieces that end behind newlines (``scan.chunks``)."""
    look = scanner().lines
    for piece in pieces:
        for start, end, found in look(piece):
            code = _read(piece[start : min(end, start + 4 * MAX_CHARS)].decode(errors="replace"), found)
            if code is not None:
                yield code


def joined(lines: Iterable[str]) -> Iterator[str]:
    """Lines of one host in order, with messages that the kernel prints over several lines made one again: the loss on
    PCIe, and the records of the firmware's error source."""
    held: list[str] = []
    ends: Callable[[list[str], str], bool] = _never
    for line in lines:
        if held and not ends(held, line) and len(held) < MOST_JOINED:
            held.append(line)
            continue
        yield from _told(held)
        held, ends = [line], _joiner(line)
    yield from _told(held)


def _never(held: list[str], line: str) -> bool:
    return True


def _joiner(line: str) -> Callable[[list[str], str], bool]:
    """When a message that begins with this line has ended: asked with the lines held and the next one."""
    if "NVRM: The NVIDIA GPU " in line and nvidia.LITERALS[-1] not in line:
        return lambda held, more: "NVRM" not in more or len(held) == 4 or nvidia.LITERALS[-1] in held[-1]
    apei = _APEI.search(line[:400])
    if apei is not None:
        return lambda held, more: apei[0] not in more[:400]
    return _never


def _told(held: list[str]) -> Iterator[str]:
    if len(held) < 2:
        yield from held
    elif _APEI.search(held[0][:400]) or nvidia.LITERALS[-1] in held[-1]:
        yield "\n".join(held)
    else:
        yield from held


def _boot(line: str) -> KernelCode | None:
    """The kernel's first line, where it opens the message: text that only quotes it proves no boot."""
    for at, program in starts(line):
        if program in KERNEL and _BOOT.match(line, at):
            return KernelCode("boot", "boot", "", kept(line[at:]))
    return None
