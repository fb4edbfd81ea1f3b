"""Nobody but the kernel is taken for the kernel, whatever a user calls himself in the journal."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from backend.ingest.heard import Line, events, spoken
from backend.ingest.journal_push import journal_batch
from backend.ingest.jsonforms import entry
from detectors.kernel.lines import parse

LOST = "NVRM: Xid (PCI:0000:5d:00): 79, pid=1, name=python, GPU has fallen off the bus."
NOW = 1_754_900_000.0


def said(**fields: Any) -> dict[str, Any]:
    return {"__REALTIME_TIMESTAMP": "1754899990000000", "_HOSTNAME": "gpu-7", "MESSAGE": LOST, **fields}


def codes(fields: dict[str, Any]) -> list[str]:
    heard = entry(fields)
    assert heard is not None
    return [event.code for event in events([Line(heard, spoken(heard))], parse, "gpu-7", NOW)]


def test_the_kernel_is_heard() -> None:
    assert codes(said(_TRANSPORT="kernel", SYSLOG_IDENTIFIER="kernel")) == ["79"]


def test_a_journal_that_names_no_transport_goes_by_its_identifier() -> None:
    assert codes(said(SYSLOG_IDENTIFIER="kernel")) == ["79"]


@pytest.mark.parametrize("transport", ["syslog", "journal", "stdout"])
@pytest.mark.parametrize(
    "name",
    ["kernel", "", " ", "kernel ", " kernel", "kernel: NVRM: Xid (PCI:0000:5d:00): 79, x", "kernel\n", "<3>", "-"],
)
def test_a_user_who_calls_himself_the_kernel_is_not_heard(transport: str, name: str) -> None:
    fields = said(_TRANSPORT=transport, SYSLOG_IDENTIFIER=name, _UID="2044", _COMM="logger")
    assert codes(fields) == []
    assert codes({**fields, "_COMM": "kernel"}) == []
    batch, _ = journal_batch(orjson.dumps(fields), NOW, parse)
    assert batch.events == ()


def test_a_user_who_prints_several_lines_is_not_heard() -> None:
    fields = said(_TRANSPORT="stdout", SYSLOG_IDENTIFIER="python3", MESSAGE=f"hello\n{LOST}\nkernel: {LOST}")
    assert codes(fields) == []


@pytest.mark.parametrize(("uid", "unproven"), [("0", False), ("2044", True), ("", True)])
def test_a_daemons_line_counts_for_proven_only_where_root_said_it(uid: str, unproven: bool) -> None:
    line = "detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:85:00.0 physical id 3 port 61"
    fields = said(
        _TRANSPORT="syslog", SYSLOG_IDENTIFIER="nv-fabricmanager", MESSAGE=line, **({"_UID": uid} if uid else {})
    )
    heard = entry(fields)
    assert heard is not None
    (event,) = events([Line(heard, spoken(heard))], parse, "gpu-7", NOW)
    assert event.code == "fatal" and ("unproven" in event.attrs) == unproven
