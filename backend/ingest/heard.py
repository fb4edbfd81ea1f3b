"""Lines that were read, as events: what the kernel said, with a key that is the same wherever the line was read."""

from __future__ import annotations

import hashlib
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from backend.clients.hostlist import is_host
from backend.facts import RawEvent
from backend.ingest.logs import JOB_SOURCES, KEPT_CHARS
from backend.ingest.rows import MAX_AHEAD_S, clean
from backend.ingest.said import Said
from detectors.kernel.lines import KernelCode, joined

Parse = Callable[[str], KernelCode | None]
#: Lines of programs, not of the kernel, that may still say what its driver said.
_OWN = frozenset({"", "kernel"})


@dataclass(frozen=True, slots=True)
class Boot:
    """The boot of a host: since when (unix s) and its id."""

    at: float
    id: str


#: Forms whose lines name their speaker as anybody may: ``logger -t kernel`` writes what the kernel would.
MIXED = frozenset(
    {"rfc3164", "rfc5424", "iso syslog", "journal short-full", "journal short-unix", "journal short-monotonic"}
    | {"json", "stamped", "plain"}
)
#: Files into which a logger lets nothing but the kernel, or the fabric manager alone: by facility, or as their own.
_OWN_FILE = re.compile(r"kern|dmesg|kmsg|console|fabric-?manager", re.IGNORECASE)
#: The attribute of an event whose speaker nobody can vouch for.
UNPROVEN = "unproven"


def proven(said: Said, form: str, file: str) -> bool:
    """Whether a line is surely of whom it names: by its form, by the kernel's facility, or by the file (its bare name)
    that holds nobody else's lines."""
    return form not in MIXED or said.attrs.get("facility") == "0" or _OWN_FILE.search(file) is not None


def this_host() -> str:
    return socket.gethostname()


def this_boot(proc: Path = Path("/proc")) -> Boot | None:
    """The running boot of this machine; None where it does not say."""
    try:
        found = re.search(r"^btime (\d{1,12})$", (proc / "stat").read_text(encoding="ascii"), re.MULTILINE)
        boot = (proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return Boot(float(found[1]), boot.replace("-", "")) if found else None


@dataclass(frozen=True, slots=True)
class Line:
    """One line, where it stood, and how it may be read: ``whole`` with all that its own form put before the text."""

    said: Said
    whole: str
    place: str = ""


def spoken(said: Said) -> str:
    """The text under the name of the program that said it, so that nobody is taken for the kernel."""
    return said.text if said.source in _OWN else f"{said.source}: {said.text}"


def events(lines: Sequence[Line], parse: Parse, host: str, now: float) -> Iterator[RawEvent]:
    """What ``parse`` knows of the lines of one file or stream, in order. ``host``: whose lines they are where they do
    not say; ``now`` (unix s): the time of lines that bear none, and the latest that a line may have."""
    said = [
        (line, part) for line in lines if line.said.source not in JOB_SOURCES for part in _parts(line) if part.strip()
    ]
    place = 0
    for text in joined(part for _, part in said):
        line, _ = said[place]
        place += text.count("\n") + 1
        code = parse(text)
        if code is not None:
            yield event(line, text, code, host, now)


def _parts(line: Line) -> Iterator[str]:
    """The lines of a message of several, each under the name of the program that said it."""
    first, *more = line.whole.split("\n")
    yield first
    for part in more:
        yield spoken(replace(line.said, text=part)) if part.strip() else part


def event(line: Line, text: str, code: KernelCode, host: str, now: float) -> RawEvent:
    """The event of one line."""
    said = line.said
    where = said.host if is_host(said.host) else host
    at = now if said.at is None or said.at > now + MAX_AHEAD_S else said.at
    attrs = {**code.attrs, "source": said.source or "file", **_kept(said)}
    return RawEvent(
        at=at,
        host=where,
        namespace=code.namespace,
        code=code.code,
        text=clean(text)[:KEPT_CHARS],
        dedupe=key(line, where, text, code),
        pci=code.pci,
        job=said.attrs.get("job", ""),
        attrs=attrs,
    )


def key(line: Line, host: str, text: str, code: KernelCode) -> str:
    """The same for the same line, whatever it was read from: a record of the kernel by boot and its own clock, any
    other by host and time, and one without a time by where it stands."""
    said = line.said
    boot, since = said.attrs.get("boot", ""), said.attrs.get("monotonic_us", "")
    if boot and since:
        return f"kernel:{_hash(f'{host}|{boot}|{since}|{code.namespace}|{code.code}|{code.pci}|{said.text}')}"
    if said.at is not None:
        return f"line:{_hash(f'{host}|{said.source}|{said.at:.6f}|{text}')}"
    return f"place:{_hash(f'{line.place}|{text}')}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:40]


def _kept(said: Said) -> dict[str, str]:
    return {
        name: said.attrs[name] for name in ("boot", "seq", "monotonic_us", "rank", UNPROVEN) if said.attrs.get(name)
    }
