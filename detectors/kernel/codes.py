"""What a code means: one row for each (namespace, code, sort of device), from the tables of codes, SXid and Xid."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from detectors.catalogue import Catalogue, Xid
from detectors.model import Event, FaultKind, Severity
from detectors.packaged import TableError, table

#: Xids that end another: the power circuit that gave up is at work again (NVIDIA's Xid catalogue, 162 and 163).
XID_ENDS: Mapping[str, str] = {"162": "163"}
#: The driver's own verdict on another code.
VERDICT = "154"
#: Application faults of one GPU in several jobs, while its neighbours have none.
APP_RETURNS = ("xid", "app_returns")
#: Bits of Xid 74 that need no care, on the cards whose registers are listed.
HARMLESS = frozenset({"harmless", "corrected_often"})
HOPPER = ("H100", "H200", "H800", "H20", "GH100", "GH200")


@dataclass(frozen=True, slots=True)
class Code:
    """One code of one sort of device (blank = any).

    scope: gpu, nic, node, fs or job. hard: holds until mended. secondary: follows another code. app: the
    application's own doing. again: its severity once it came ``again_n`` times within ``again_s``; again_code: a code
    of the same namespace that this adds then. hold_s: how long it stands without coming again. delay_s: how long it
    must stand before it is told. ends: (namespace, code) of what is over once this is said.
    """

    namespace: str
    code: str
    device: str
    says: str
    kind: FaultKind
    severity: Severity
    action: str
    scope: str
    hard: bool
    secondary: bool
    app: bool
    again: Severity | None
    again_code: str
    again_n: int
    again_s: float
    hold_s: float
    delay_s: float
    ends: frozenset[tuple[str, str]]
    source: str

    @property
    def repeats(self) -> bool:
        """Does it matter how often it comes?"""
        return self.again is not None or bool(self.again_code)

    @property
    def remember_s(self) -> float:
        return max(self.hold_s, self.again_s) if self.repeats else self.hold_s


class Codes:
    """The tables as one question: what does this event mean? ``catalogue`` brings a site's Xids and thresholds."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._rows = _table(catalogue.limit("kernel_soft_s"))

    def of(self, event: Event, model: str = "") -> Code:
        """model: the card's, where it is known. A code that no table has is a fault worth a look, never dropped."""
        device = "gpu" if event.entity.kind == "gpu" else event.attrs.get("device_class", "")
        return self.named(event.namespace, event.code, device, _word(event, model))

    def named(self, namespace: str, code: str, device: str = "", word: str = "") -> Code:
        """word: fatal, nonfatal or harmless where the line itself says so, for codes whose lines do."""
        if namespace == "xid" and (namespace, code, "") not in self._rows:
            return self._xid(code, word)
        if namespace == "sxid":
            code = word or _sxids().get(code, ("", "unsaid"))[1]
        if namespace == "afid" and (namespace, word, "") in self._rows:
            code = word
        for key in ((namespace, code, device), (namespace, code, ""), (namespace, "*", "")):
            if key in self._rows:
                return self._rows[key]
        return _unknown(namespace, code, self._catalogue.limit("kernel_soft_s"))

    def _xid(self, code: str, word: str) -> Code:
        number = int(code) if code.isascii() and code.isdigit() and len(code) < 10 else 0
        xid = self._catalogue.xids.get(number)
        soft_s = self._catalogue.limit("kernel_soft_s")
        if xid is None:
            return _unknown("xid", code, soft_s)
        severity, hard = xid.severity, xid.hard
        if word == "fatal":
            severity, hard = self._catalogue.kinds[xid.kind].severity, True
        if word in ("nonfatal", "harmless"):
            severity, hard = Severity.INFO, False
        ends = frozenset({("xid", XID_ENDS[code])} if code in XID_ENDS else ())
        repeat_s = self._catalogue.limit("kernel_repeat_s")
        return _of_xid(xid, severity, ends, hard=hard, soft_s=soft_s, repeat_s=repeat_s)


def sxid_name(code: str) -> str:
    """The switch driver's own name for an SXid; empty for one that no table has."""
    return _sxids().get(code, ("", ""))[0]


def _word(event: Event, model: str) -> str:
    word = event.attrs.get("severity", "")
    if event.attrs.get("part") == "registers" and _sxids().get(event.code, ("", "unsaid"))[1] == "unsaid":
        return "nonfatal"  # the line before it said how bad it was
    if event.namespace == "xid" and event.code == "74":
        meanings = set(event.attrs.get("meanings", "").split())
        harmless = bool(meanings) and meanings <= HARMLESS and "unlisted" not in event.attrs
        return "harmless" if harmless and any(name in model for name in HOPPER) else ""
    return word


def _of_xid(
    xid: Xid, severity: Severity, ends: frozenset[tuple[str, str]], *, hard: bool, soft_s: float, repeat_s: float
) -> Code:
    return Code(
        namespace="xid",
        code=str(xid.code),
        device="",
        says="",
        kind=xid.kind,
        severity=severity,
        action=xid.action,
        scope="gpu",
        hard=hard,
        secondary=xid.secondary,
        app=xid.app,
        again=xid.again,
        again_code=APP_RETURNS[1] if xid.code in (13, 31) else "",
        again_n=2,
        again_s=repeat_s,
        hold_s=soft_s,
        delay_s=0.0,
        ends=ends,
        source=xid.source,
    )


def _unknown(namespace: str, code: str, soft_s: float) -> Code:
    row = {"namespace": namespace, "code": code, "says": f"reports {namespace} {code}, which no table knows"}
    row |= {"kind": "gpu_hardware_other", "severity": "warning", "action": "check", "scope": "gpu"}
    return _code(row, soft_s)


@cache
def _table(soft_s: float) -> Mapping[tuple[str, str, str], Code]:
    lines = (line for line in table("kernel_codes.csv") if not line.startswith("#"))
    codes = [_code(row, soft_s) for row in csv.DictReader(lines)]
    return {(code.namespace, code.code, code.device): code for code in codes}


@cache
def _sxids() -> Mapping[str, tuple[str, str]]:
    """Name and severity (fatal, nonfatal, unsaid) by number."""
    lines = (line for line in table("sxid.csv") if not line.startswith("#"))
    return {row["code"]: (row["name"], row["severity"]) for row in csv.DictReader(lines)}


def _code(row: Mapping[str, str], soft_s: float) -> Code:
    where = f"kernel_codes.csv, {row.get('namespace')} {row.get('code')}"
    trait, again = row.get("trait", ""), row.get("again", "")
    if trait not in ("", "hard", "secondary", "app"):
        raise TableError(f"{where}: trait {trait!r} is none of hard, secondary, app")
    try:
        return Code(
            namespace=row["namespace"],
            code=row["code"],
            device=row.get("device", ""),
            says=row["says"],
            kind=row["kind"],
            severity=Severity.of(row["severity"]),
            action=row["action"],
            scope=row["scope"],
            hard=trait == "hard",
            secondary=trait == "secondary",
            app=trait == "app",
            again=Severity.of(again) if again else None,
            again_code=row.get("again_code", ""),
            again_n=int(row.get("again_n") or 2),
            again_s=float(row.get("again_s") or 0.0),
            hold_s=float(row.get("hold_s") or soft_s),
            delay_s=float(row.get("delay_s") or 0.0),
            ends=frozenset(_pair(text) for text in row.get("cancels", "").split(";") if text),
            source=row.get("source", ""),
        )
    except (KeyError, ValueError) as error:
        raise TableError(f"{where}: {error} cannot be read") from error


def _pair(text: str) -> tuple[str, str]:
    namespace, code = text.split()
    return namespace, code
