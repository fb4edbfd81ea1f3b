"""Rows of a kernel detector as findings: the sentence, the evidence, what a secondary code adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from detectors.catalogue import Catalogue
from detectors.kernel.codes import APP_RETURNS, Code, Codes, sxid_name
from detectors.kernel.nvlink import MEANS_74, NEW_LAYOUT
from detectors.kernel.rows import Row
from detectors.model import Entity, Evidence, FaultKind, Finding, Fleet, Grade, Severity
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
#: What NVIDIA's catalogue asks to look into, where that is not this card.
LOOKS: Mapping[str, str] = {
    "investigate_peer_device": "Look at the device at the other end of the link first.",
    "investigate_link_si": "Look at the signal of the link.",
    "investigate_link_si_and_cables": "Look at the signal of the link and at its cables.",
    "investigate_sw_user": "Software or a person took the link down.",
    "investigate_sw_user_link_si": "Software or a person took the link down, or its signal is weak.",
    "investigate_host": "Look at the host.",
}
#: Confidence that the finding names the fault: a code that stops the device, one that may pass, a record, a follower.
HARD, SOFT, RECORD, FOLLOWER = 0.99, 0.8, 0.5, 0.3
FOLLOWERS_SHOWN = 3
#: What evidence says of where a line came from: from the kernel, or from where anybody may speak in its name.
KERNEL_LOG, UNPROVEN_LOG = "kernel log", "log that anybody may write to"
#: From this many clients on a file server is the suspect, not its clients.
MANY_CLIENTS = "kernel_many_clients"
CLIENTS_SHOWN = 8


def findings_of(
    told: Sequence[Row], fleet: Fleet, catalogue: Catalogue, codes: Codes, detector: str
) -> tuple[Finding, ...]:
    """One finding per entity and kind, by key. A secondary code names nothing while another stands on its node."""
    groups: dict[tuple[str, str, FaultKind], list[Row]] = {}
    for row in told:
        if not row.secondary or not _led(row, told):
            groups.setdefault((*row.owner, row.kind), []).append(row)
    followers = [row for row in told if row.secondary and _led(row, told)]
    found = [_finding(rows, followers, fleet, catalogue, codes, detector) for rows in groups.values()]
    return tuple(sorted(found, key=lambda finding: finding.key))


def _led(row: Row, told: Sequence[Row]) -> bool:
    return any(other.node == row.node and not other.secondary for other in told)


def _finding(
    rows: list[Row], followers: list[Row], fleet: Fleet, catalogue: Catalogue, codes: Codes, detector: str
) -> Finding:
    top = max(rows, key=lambda row: (row.severity, row.hard, not row.secondary, -row.since))
    entity = top.entity(fleet)
    shown = sorted(rows, key=lambda row: row is not top)
    clients = sorted({row.node for row in rows}) if entity.kind == "fs" else []
    if len(clients) == 1:  # what one client alone says of a server may as well be the client: it is told of its node
        entity = replace(entity, node=clients[0])
    evidence = [piece for row in shown[:CLIENTS_SHOWN] for piece in _evidence(row)]
    evidence += [_follower(row, fleet) for row in followers if row.node == top.node][:FOLLOWERS_SHOWN]
    many = len(clients) >= catalogue.limit(MANY_CLIENTS)
    return Finding(
        detector=detector,
        kind=top.kind,
        entity=entity,
        severity=max(Severity(top.severity), Severity.HIGH) if many and top.severity else Severity(top.severity),
        score=_score(top),
        since=min(row.since for row in rows),
        reason=_sentence(top, entity, catalogue, codes, clients),
        evidence=tuple(evidence),
    )


def _score(row: Row) -> float:
    if row.secondary:
        return FOLLOWER
    if row.hard:
        return HARD
    return RECORD if row.severity == Severity.INFO else SOFT


def _sentence(row: Row, entity: Entity, catalogue: Catalogue, codes: Codes, clients: Sequence[str]) -> str:
    ask = f" The driver asks for {ASKS.get(row.action, row.action)}." if row.action else ""
    if row.namespace == "xid" and row.says != APP_RETURNS:
        return f"{_xid(row, entity, catalogue)}{ask}"
    code = codes.named(row.namespace, row.code, row.device, row.word)
    more = f" ({named})" if (named := ", ".join(filter(None, (_number(row), row.detail)))) else ""
    others = f"; so do {counted(len(clients) - 1, 'other node')}" if len(clients) > 1 else ""
    return f"{_who(row, entity, code)} {code.says}{more}{others}.{ask}"


def _who(row: Row, entity: Entity, code: Code) -> str:
    if entity.kind == "nic":
        return f"Network port {entity.id.rpartition('/nic:')[2]} of {row.node}"
    if entity.kind == "gpu" or (code.scope == "gpu" and entity.kind == "node"):
        return subject(entity, row.place)
    return row.node or str(entity)


def _number(row: Row) -> str:
    """The number of a code that has one, with the name its maker gave it."""
    if row.namespace == "afid":
        return f"AFID {row.code}"
    if row.namespace != "sxid":
        return ""
    name = sxid_name(row.code)
    return f"SXid {row.code}: {name}" if name else f"SXid {row.code}, not in the table"


def _xid(row: Row, entity: Entity, catalogue: Catalogue) -> str:
    who, number = subject(entity, row.place), int(row.code) if row.code.isdigit() else -1
    xid = catalogue.xids.get(number)
    if row.kind == "nvlink_error":
        word = f"a {row.word}" if row.word else "an"
        where = f", link {row.detail}" if row.detail and not row.detail.startswith("-") else ""
        look = f" {_looks(row.look)}" if row.look else ""
        return f"{who} has {word} NVLink error (Xid {row.code}{where}).{look}"
    if xid is not None and xid.again is not None:
        often = "again " if row.hard and row.count > 1 else ""
        return f"{who} has a {xid.name.split(',')[0]} {often}(Xid {row.code})."
    if row.kind in SAYS and not row.secondary:
        return f"{who} {SAYS[row.kind]} (Xid {row.code})."
    name = xid.name if xid is not None else "a code that the table does not know"
    return f"{who} reports Xid {row.code}: {name}."


def _looks(look: str) -> str:
    """What the catalogue asks for; both of its readings where the driver's version is not known."""
    if "|" not in look:
        return LOOKS.get(look, "")
    old, new = (_reading(*part.split(" ", 1)) for part in look.split("|", 1))
    return f"The driver's version is not known: before {NEW_LAYOUT} this asks {old}, from {NEW_LAYOUT} on {new}."


def _reading(asks: str, look: str) -> str:
    first = ASKS.get(asks, "what its Xid 154 says" if asks == "verdict" else "nothing at once")
    return f"for {first}" + (f", then to {look.replace('_', ' ')}" if look not in ("", "none") else "")


def _evidence(row: Row) -> list[Evidence]:
    ref = f"event:{row.seq}"
    grade: Grade = "inferred" if row.unproven else "observed"
    found = [Evidence(UNPROVEN_LOG if row.unproven else KERNEL_LOG, row.text, ref=ref, grade=grade)]
    if row.look in MEANS_74:
        found.append(Evidence("registers of Xid 74", MEANS_74[row.look], ref=ref, grade="derived"))
    if row.action:
        found.append(Evidence("driver's verdict (Xid 154)", ASKS.get(row.action, row.action), ref=ref))
    if row.count > 1:
        found.append(Evidence("occurrences", str(row.count), expected="0", ref=ref))
    return found


def _follower(row: Row, fleet: Fleet) -> Evidence:
    who = subject(row.entity(fleet), row.place)
    label = f"Xid {row.code}" if row.namespace == "xid" else row.code.replace("_", " ")
    what = f"{label} on {who}, {counted(row.count, 'time')}"
    return Evidence(what, row.text, ref=f"event:{row.seq}", grade="derived")
