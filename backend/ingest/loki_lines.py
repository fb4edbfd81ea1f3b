"""One line of Loki, read or pushed: whose it is by its labels and its text, and whether that can be believed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from backend.clients.loki import Entry
from backend.facts import RawEvent
from backend.ingest.files import Where
from backend.ingest.heard import UNPROVEN, Line, Parse, events, proven, spoken
from backend.ingest.jsonforms import program
from backend.ingest.lineforms import PLAIN, Form, read_line, sniff
from backend.ingest.linetimes import Origin
from backend.ingest.said import Said
from backend.ingest.tails import TailLine, Tails

HOSTS = ("host", "hostname", "nodename", "node_name", "node", "instance")
PROGRAMS = ("syslog_identifier", "identifier", "SYSLOG_IDENTIFIER", "unit", "app")
TRANSPORTS = ("transport", "__journal__transport", "_TRANSPORT")
CONTAINERS = ("container", "container_name", "pod", "pod_name", "container_id")
FILES = ("filename", "__path__", "path")
FACILITIES = ("facility", "syslog_facility")
#: Forms that are remembered, one for each set of labels.
MOST_FORMS = 10_000
_NS = 1_000_000_000


class LokiLines:
    """Remembers the form of each stream. ``job_label``: the label that holds the job whose line it is, "" = none.
    ``trusted``: whoever can write to the loggers may speak for the kernel."""

    def __init__(self, parse: Parse, where: Where, job_label: str = "", *, trusted: bool = False) -> None:
        self._parse, self._where, self._job_label, self._trusted = parse, where, job_label, trusted
        self._forms: dict[str, Form] = {}

    def heard(self, entries: Iterable[Entry], now: float, tails: Tails | None = None) -> Iterator[RawEvent]:
        """Events by host, for lines of several belong together only within one; lines of jobs go into their tails.
        ``now`` in unix s."""
        by_host: dict[str, list[Line]] = {}
        for entry in entries:
            line = self.line(entry, now)
            job = entry.labels.get(self._job_label, "") if self._job_label else ""
            if job and tails is not None:
                said, rank = line.said, entry.labels.get("rank", "")
                tails.keep(job, TailLine(entry.ns / _NS, said.text, "", said.host, rank, key_of(entry).hex()))
            elif said_by_container(entry.labels):
                continue
            else:
                by_host.setdefault(line.said.host, []).append(line)
        for lines in by_host.values():
            yield from events(lines, self._parse, self._where.host, now)

    def line(self, entry: Entry, now: float) -> Line:
        """A line with the time of its entry, and host and program of its labels where it does not say them itself."""
        origin = Origin(self._where.host, now, self._where.zone)
        text = entry.line.rstrip("\r\n")
        form = self._form(entry, text, origin)
        inner = read_line(form, text, origin)
        host = inner.host or host_of(entry.labels)
        attrs = inner.attrs if self._believed(entry.labels, inner, form) else {**inner.attrs, UNPROVEN: "1"}
        if speaker := _user_program(entry.labels):
            said = Said(entry.ns / _NS, text, host, speaker, attrs)
            return Line(said, spoken(said), key_of(entry).hex())
        said = Said(entry.ns / _NS, inner.text, host, inner.source or _program(entry.labels), attrs)
        said = replace(said, attrs={name: value for name, value in said.attrs.items() if name != "facility"})
        return Line(said, spoken(said) if form is PLAIN or text.startswith("{") else text, key_of(entry).hex())

    def _believed(self, labels: Mapping[str, str], inner: Said, form: Form) -> bool:
        """By the journal's word for where it came from, by the kernel's facility, or by the file it was read from."""
        if self._trusted or first(labels, FACILITIES) in ("kern", "0"):
            return True
        if transport := first(labels, TRANSPORTS):
            return transport == "kernel"
        return proven(inner, form.name, os.path.basename(first(labels, FILES)))

    def _form(self, entry: Entry, text: str, origin: Origin) -> Form:
        key = json.dumps(sorted(entry.labels.items()))[:500]
        form = self._forms.get(key)
        if form is None:
            if len(self._forms) > MOST_FORMS:
                self._forms.clear()
            form = self._forms[key] = sniff([text], origin)
        return form


def said_by_container(labels: Mapping[str, str]) -> bool:
    """Whether a program in a container printed it, so that it is never the kernel's word."""
    return any(labels.get(name) for name in CONTAINERS)


def host_of(labels: Mapping[str, str]) -> str:
    return first(labels, HOSTS).partition(":")[0]


def first(labels: Mapping[str, str], names: Sequence[str]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")


def key_of(entry: Entry) -> bytes:
    """The same for the same line of the same stream and time."""
    said = f"{entry.ns}\0{sorted(entry.labels.items())}\0{entry.line}"
    return hashlib.blake2b(said.encode(errors="replace"), digest_size=12).digest()


def _program(labels: Mapping[str, str]) -> str:
    """The program of a stream; "" where it is the kernel's, or nobody says whose."""
    if "kernel" in [labels.get(name) for name in TRANSPORTS]:
        return "kernel"
    return first(labels, PROGRAMS).removesuffix(".service")


def _user_program(labels: Mapping[str, str]) -> str:
    """The program of a stream of the journal that is not the kernel's; what it prints names no other speaker."""
    transport = first(labels, TRANSPORTS)
    return program(first(labels, PROGRAMS).removesuffix(".service")) if transport not in ("", "kernel") else ""
