"""Forms of log lines: one small reader a form, chosen for a file by its first lines; what stands before the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from backend.ingest import jsonforms
from backend.ingest.linetimes import Origin, from_iso, from_parts, from_seconds, since_boot
from backend.ingest.said import Said

#: Lines by which the form of a file is told.
SNIFFED = 20
KERNEL = "kernel"

_SINCE = re.compile(r"\[\s{0,12}(\d{1,10}\.\d{1,9})\]\s?")
_KMSG = re.compile(r"(\d{1,4}),(\d{1,20}),(\d{1,20}),[^;\s]{0,80};")
_ESCAPED = re.compile(r"\\x([0-9a-fA-F]{2})")
_RAW = re.compile(
    r"(?:<(\d{1,4})>)?(?:[a-z]{1,8}\s{0,3}:[a-z]{1,8}\s{0,3}:\s{0,2})?"
    r"\[\s{0,12}(\d{1,10}\.\d{1,9})(?:\s{1,4}<\s{0,12}\d{1,10}\.\d{1,9}>)?\]\s?(?:\[\s{0,12}[TC]\d{1,10}\]\s?)?"
)
_LEVELS = r"(?:[a-z]{1,8}\s{0,3}:[a-z]{1,8}\s{0,3}:\s{0,2})?"
_CTIME = re.compile(
    rf"{_LEVELS}\[[A-Z][a-z]{{2}} ([A-Z][a-z]{{2}})\s{{1,2}}(\d{{1,2}}) (\d\d:\d\d:\d\d) (\d{{4}})\]\s?"
)
_RELATIVE = re.compile(
    rf"{_LEVELS}\[(?:([A-Z][a-z]{{2}})\s{{1,2}}(\d{{1,2}}) (\d\d:\d\d)|\s{{0,8}}\+\d{{1,8}}\.\d{{6}})\]\s?"
)
_DATE = r"\d{4}-\d\d-\d\d"
_OFFSET = r"(?:Z|[+-]\d\d:?\d\d)"
_DMESG_ISO = re.compile(rf"{_LEVELS}({_DATE}T\d\d:\d\d:\d\d,\d{{1,9}}{_OFFSET}) ")
_TAG = r"([^\s:\[]{1,80})(?:\[([^\]\s]{0,20})\])?:(?:\s|$)"
_HOST = r"([0-9A-Za-z][^\s:]{0,254}|\[[0-9a-f:]{2,40}\])"
_RFC3164 = re.compile(
    r"(?:<(\d{1,3})>)?([A-Z][a-z]{2})\s{1,2}(\d{1,2}) (?:(\d{4}) )?(\d\d:\d\d:\d\d)(?:\.(\d{1,9}))? "
    rf"{_HOST} (?:{_TAG}\s?)?"
)
_ISO_SYSLOG = re.compile(rf"(?:<(\d{{1,3}})>)?({_DATE}T\d\d:\d\d:\d\d(?:\.\d{{1,9}})?{_OFFSET}) {_HOST} {_TAG}\s?")
_FULL = re.compile(rf"[A-Z][a-z]{{2}} ({_DATE} \d\d:\d\d:\d\d(?:\.\d{{1,9}})?) ([A-Z0-9+-]{{1,6}}) {_HOST} {_TAG}\s?")
_UNIX = re.compile(rf"(\d{{9,11}}\.\d{{1,9}}) {_HOST} {_TAG}\s?")
_MONOTONIC = re.compile(
    rf"\[\s{{0,12}}(\d{{1,10}}\.\d{{6}})\] {_HOST} (?:(kernel)|([^\s:\[]{{1,80}})\[\d{{1,10}}\]):\s?"
)
_RFC5424 = re.compile(r"<(\d{1,3})>1 (-|\S{10,40}) (-|\S{1,255}) (-|\S{1,48}) (-|\S{1,128}) (-|\S{1,32}) (?=[-\[])")
_CRI = re.compile(rf"({_DATE}T\d\d:\d\d:\d\d(?:\.\d{{1,9}})?{_OFFSET}) (stdout|stderr) ([FP])(?:[^\s]{{0,20}})? ")
_SLURM = re.compile(rf"\[({_DATE}T\d\d:\d\d:\d\d(?:\.\d{{1,9}})?{_OFFSET}?)\]\s?")
_FABRIC = re.compile(r"\[([A-Z][a-z]{2}) (\d{1,2}) (\d{4}) (\d\d:\d\d:\d\d)\]\s?")
_STAMPED = re.compile(rf"\[?({_DATE}[T ]\d\d:\d\d:\d\d(?:[.,]\d{{1,9}})?\s?{_OFFSET}?)\]?[\s:|-]{{0,3}}")

Read = Callable[[str, Origin], Said | None]


@dataclass(frozen=True, slots=True)
class Form:
    """``read`` gives what a line says, or None where it is not of this form. Never raises; linear in the line."""

    name: str
    read: Read


# --- the kernel's own -----------------------------------------------------------------------------------------------


def kmsg(line: str, origin: Origin) -> Said | None:
    """A record of /dev/kmsg: ``6,1234,5678,-;text``, priority, sequence number, microseconds since boot."""
    found = _KMSG.match(line)
    if found is None:
        return None
    text = _ESCAPED.sub(lambda escape: chr(int(escape[1], 16)), line[found.end() :])
    attrs = {"seq": found[2], "monotonic_us": found[3], "level": str(int(found[1]) & 7)}
    if origin.boot_id:
        attrs["boot"] = origin.boot_id
    at = since_boot(f"{int(found[3]) / 1e6:.6f}", origin)
    return Said(at, text, "", KERNEL, attrs)


def dmesg(line: str, origin: Origin) -> Said | None:
    """``[   12.345678] text``, with ``<6>``, facility, delta or caller before it."""
    found = _RAW.match(line)
    if found is None:
        return None
    attrs = {"uptime_s": found[2]} | ({"boot": origin.boot_id} if origin.boot_id else {})
    return Said(since_boot(found[2], origin), line[found.end() :], "", KERNEL, attrs)


def dmesg_ctime(line: str, origin: Origin) -> Said | None:
    """``[Mon Mar  2 10:11:12 2026] text``: dmesg -T."""
    found = _CTIME.match(line)
    if found is None:
        return None
    at = from_parts(origin, found[1], found[2], found[3], found[4])
    return Said(at, line[found.end() :], "", KERNEL)


def dmesg_relative(line: str, origin: Origin) -> Said | None:
    """``[Mar 2 10:11] text``, then ``[  +0.000012] text``: dmesg -H; only the former bear a time."""
    found = _RELATIVE.match(line)
    if found is None:
        return None
    at = from_parts(origin, found[1], found[2], f"{found[3]}:00") if found[1] else None
    return Said(at, line[found.end() :], "", KERNEL)


def dmesg_iso(line: str, origin: Origin) -> Said | None:
    """``2026-03-02T10:11:12,345678+01:00 text``: dmesg --time-format iso."""
    found = _DMESG_ISO.match(line)
    return None if found is None else Said(from_iso(found[1], origin), line[found.end() :], "", KERNEL)


# --- syslog and the journal's outputs -------------------------------------------------------------------------------


def rfc3164(line: str, origin: Origin) -> Said | None:
    """``<34>Mar  2 10:11:12 host tag[pid]: text``, with or without the number and a fraction: syslog, journal short
    and short-precise."""
    found = _RFC3164.match(line)
    if found is None:
        return None
    at = from_parts(origin, found[2], found[3], found[5], found[4] or "", found[6] or "")
    return _logged(at, found[7], found[8] or "", line[found.end() :], found[1])


def iso_syslog(line: str, origin: Origin) -> Said | None:
    """``2026-03-02T10:11:12.345+01:00 host tag[pid]: text``: rsyslog's file format, journal short-iso."""
    found = _ISO_SYSLOG.match(line)
    if found is None:
        return None
    return _logged(from_iso(found[2], origin), found[3], found[4], line[found.end() :], found[1])


def short_full(line: str, origin: Origin) -> Said | None:
    """``Mon 2026-03-02 10:11:12 CET host tag[pid]: text``: journal short-full."""
    found = _FULL.match(line)
    if found is None:
        return None
    zone = "+00:00" if found[2] in ("UTC", "GMT", "Z") else ""
    return _logged(from_iso(found[1] + zone, origin), found[3], found[4], line[found.end() :])


def short_unix(line: str, origin: Origin) -> Said | None:
    """``1772445072.123456 host tag[pid]: text``: journal short-unix."""
    found = _UNIX.match(line)
    return None if found is None else _logged(from_seconds(found[1]), found[2], found[3], line[found.end() :])


def short_monotonic(line: str, origin: Origin) -> Said | None:
    """``[   12.345678] host kernel: text``: journal short-monotonic."""
    found = _MONOTONIC.match(line)
    if found is None:
        return None
    said = _logged(since_boot(found[1], origin), found[2], found[3] or found[4], line[found.end() :])
    return Said(said.at, said.text, said.host, said.source, {**said.attrs, "uptime_s": found[1]})


def rfc5424(line: str, origin: Origin) -> Said | None:
    """``<34>1 2026-03-02T10:11:12Z host app procid msgid [data] text``."""
    found = _RFC5424.match(line)
    if found is None:
        return None
    rest = _after_structured(line, found.end())
    if rest is None:
        return None
    at = None if found[2] == "-" else from_iso(found[2], origin)
    host, tag = ("" if part == "-" else part for part in (found[3], found[4]))
    return _logged(at, host, tag, rest.removeprefix(" ").removeprefix("\ufeff"), found[1])


def _after_structured(line: str, at: int) -> str | None:
    """What follows the structured part, which may hold escaped brackets in quotes."""
    if line[at] == "-":
        return line[at + 1 :]
    quoted = False
    while at < len(line):
        if line[at] == "\\":
            at += 1
        elif line[at] == '"':
            quoted = not quoted
        elif line[at] == "]" and not quoted and line[at + 1 : at + 2] != "[":
            return line[at + 1 :]
        at += 1
    return None


def _logged(at: float | None, host: str, tag: str, text: str, priority: str | None = None) -> Said:
    """A line of syslog; the kernel's begin with their own time as well. Loggers give nobody else its facility, 0."""
    attrs = {"facility": str(int(priority) >> 3)} if priority else {}
    found = _SINCE.match(text) if tag == KERNEL else None
    return (
        Said(at, text[found.end() :], host, KERNEL, attrs | {"uptime_s": found[1]})
        if found
        else Said(at, text, host, tag, attrs)
    )


# --- containers, daemons and the rest -------------------------------------------------------------------------------


def cri(line: str, origin: Origin) -> Said | None:
    """``2026-03-02T10:11:12.345678901Z stdout F text``: containerd and CRI-O; P is a part that goes on."""
    found = _CRI.match(line)
    if found is None:
        return None
    attrs = {"stream": found[2]} | ({"part": "1"} if found[3] == "P" else {})
    return Said(from_iso(found[1], origin), line[found.end() :], "", found[2], attrs)


def slurm(line: str, origin: Origin) -> Said | None:
    """``[2026-03-02T10:11:12.345] text``: slurmctld, slurmd, slurmdbd."""
    found = _SLURM.match(line)
    return None if found is None else Said(from_iso(found[1], origin), line[found.end() :])


def fabric_manager(line: str, origin: Origin) -> Said | None:
    """``[Mar 02 2026 10:11:12] [INFO] [tid 123] text``."""
    found = _FABRIC.match(line)
    if found is None:
        return None
    at = from_parts(origin, found[1], found[2], found[4], found[3])
    return Said(at, line[found.end() :], "", "fabricmanager")


def stamped(line: str, origin: Origin) -> Said | None:
    """A date and a time before whatever comes: most programs."""
    found = _STAMPED.match(line)
    return None if found is None else Said(from_iso(found[1], origin), line[found.end() :])


def plain(line: str, origin: Origin) -> Said | None:
    """Text that bears no time."""
    return Said(None, line)


#: The more particular before the more general.
FORMS: tuple[Form, ...] = (
    Form("kmsg", kmsg),
    Form("journal short-monotonic", short_monotonic),
    Form("dmesg", dmesg),
    Form("dmesg -T", dmesg_ctime),
    Form("dmesg -H", dmesg_relative),
    Form("dmesg iso", dmesg_iso),
    Form("cri", cri),
    Form("rfc5424", rfc5424),
    Form("iso syslog", iso_syslog),
    Form("rfc3164", rfc3164),
    Form("journal short-full", short_full),
    Form("journal short-unix", short_unix),
    Form("fabric manager", fabric_manager),
    Form("slurm", slurm),
    Form("docker", jsonforms.docker),
    Form("journal json", jsonforms.journal),
    Form("bundle", jsonforms.bundle),
    Form("json", jsonforms.anything),
    Form("stamped", stamped),
)
PLAIN = Form("plain", plain)


def sniff(lines: Iterable[str], origin: Origin) -> Form:
    """The form that most of the first lines have; of several, the most particular."""
    some = [line for line, _ in zip((one for one in lines if one.strip()), range(SNIFFED), strict=False)]
    scores = [(sum(form.read(line, origin) is not None for line in some), -place) for place, form in enumerate(FORMS)]
    best, place = max(scores, default=(0, 0))
    return FORMS[-place] if best * 3 >= len(some) and best else PLAIN


def read_line(form: Form, line: str, origin: Origin) -> Said:
    """What one line says; a line of another form keeps its whole text."""
    return form.read(line, origin) or Said(None, line)


def joined_parts(said: Iterable[Said], most: int = 65_536) -> list[Said]:
    """Parts that container runtimes cut a long line into made one again, up to ``most`` characters."""
    found: list[Said] = []
    for one in said:
        before = found[-1] if found else None
        if before is not None and before.attrs.get("part") and before.source == one.source:
            attrs: Mapping[str, str] = one.attrs
            found[-1] = Said(before.at, (before.text + one.text)[:most], before.host, before.source, attrs)
        else:
            found.append(one)
    return found
