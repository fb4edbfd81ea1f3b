"""Rows of the kernel detector as findings: the sentence, the evidence, what a secondary code adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from detectors.catalogue import Catalogue
from detectors.kernel.rows import Row
from detectors.model import Entity, Evidence, FaultKind, Finding, Fleet, Severity
from detectors.wording import counted, subject

SAYS: Mapping[FaultKind, str] = {
    "gpu_bus_loss": "is lost on PCIe",
    "gpu_ecc_uncorrectable": "has an uncorrectable memory error",
    "gpu_ecc_row_remap": "has a memory repair that waits for a reset",
    "gsp_timeout": "has a system processor that does not answer",
    "gpu_memory_fault_app": "stopped work on a fault of the application",
}
ASKS: Mapping[str, str] = {
    "reset_gpu": "a reset of the GPU",
    "reboot": "a reboot of the node",
    "drain_p2p": "a drain of its peer traffic",
    "drain_and_reset": "a drain and a reset of the GPU",
}
#: Confidence that the finding names the fault: a code that stops the device, one that may pass, a record, a follower.
HARD, SOFT, RECORD, FOLLOWER = 0.99, 0.8, 0.5, 0.3
FOLLOWERS_SHOWN = 3


def findings_of(told: Sequence[Row], fleet: Fleet, catalogue: Catalogue, detector: str) -> tuple[Finding, ...]:
    """One finding per entity and kind, by key. A secondary code names nothing while another stands on its node."""
    groups: dict[tuple[str, str, FaultKind], list[Row]] = {}
    for row in told:
        if not row.secondary or not _led(row, told):
            groups.setdefault((*row.owner, row.kind), []).append(row)
    followers = [row for row in told if row.secondary and _led(row, told)]
    found = [_finding(rows, followers, fleet, catalogue, detector) for rows in groups.values()]
    return tuple(sorted(found, key=lambda finding: finding.key))


def _led(row: Row, told: Sequence[Row]) -> bool:
    return any(other.node == row.node and not other.secondary for other in told)


def _finding(rows: list[Row], followers: list[Row], fleet: Fleet, catalogue: Catalogue, detector: str) -> Finding:
    top = max(rows, key=lambda row: (row.severity, row.hard, not row.secondary, -row.since))
    entity = top.entity(fleet)
    evidence = [piece for row in sorted(rows, key=lambda row: row is not top) for piece in _evidence(row)]
    evidence += [_follower(row, fleet) for row in followers if row.node == top.node][:FOLLOWERS_SHOWN]
    return Finding(
        detector=detector,
        kind=top.kind,
        entity=entity,
        severity=Severity(top.severity),
        score=_score(top),
        since=min(row.since for row in rows),
        reason=_sentence(top, entity, catalogue),
        evidence=tuple(evidence),
    )


def _score(row: Row) -> float:
    if row.secondary:
        return FOLLOWER
    if row.hard:
        return HARD
    return RECORD if row.severity == Severity.INFO else SOFT


def _sentence(row: Row, entity: Entity, catalogue: Catalogue) -> str:
    who, xid = subject(entity, row.place), catalogue.xids.get(row.code)
    ask = f" The driver asks for {ASKS.get(row.action, row.action)}." if row.action else ""
    if row.kind == "nvlink_error":
        word = f"a {row.word}" if row.word else "an"
        return f"{who} has {word} NVLink error (Xid {row.code}).{ask}"
    if xid is not None and xid.again is not None:
        often = "again " if row.hard and row.count > 1 else ""
        return f"{who} has a {xid.name.split(',')[0]} {often}(Xid {row.code}).{ask}"
    if row.kind in SAYS and not row.secondary:
        return f"{who} {SAYS[row.kind]} (Xid {row.code}).{ask}"
    name = xid.name if xid is not None else "a code that the table does not know"
    return f"{who} reports Xid {row.code}: {name}.{ask}"


def _evidence(row: Row) -> list[Evidence]:
    ref = f"event:{row.seq}"
    found = [Evidence("kernel log", row.text, ref=ref)]
    if row.action:
        found.append(Evidence("driver's verdict (Xid 154)", ASKS.get(row.action, row.action), ref=ref))
    if row.count > 1:
        found.append(Evidence("occurrences", str(row.count), expected="0", ref=ref))
    return found


def _follower(row: Row, fleet: Fleet) -> Evidence:
    who = subject(row.entity(fleet), row.place)
    what = f"Xid {row.code} on {who}, {counted(row.count, 'time')}"
    return Evidence(what, row.text, ref=f"event:{row.seq}", grade="derived")
