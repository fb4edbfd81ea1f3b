"""Incident 812 as it is told: the three messages of its thread, and what a hostile cluster would put into them."""

from __future__ import annotations

from dataclasses import replace

from backend.tidings import MessageFacts
from detectors.model import Severity

OPENED = MessageFacts(
    id="main-inc-812-opened-0",
    thread="main-inc-812",
    kind="opened",
    cluster="main",
    incident=812,
    severity=Severity.CRITICAL,
    headline="GPU 3 of gpu-0412 is lost on PCIe (Xid 79). Draining this one node frees job 48213.",
    why="The kernel said so first. The GPU's 20 series stopped within 8 s, and its 7 neighbours still report.",
    facts=(
        ("Node", "gpu-0412"),
        ("Job", "48213, 512 GPUs stand still"),
        ("Since", "2026-11-12 02:52:08 UTC"),
        ("Dark sources", "Loki, silent since 02:58"),
    ),
    evidence=(
        "NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus. (kernel/xid)",
        "0 of 20 series of GPU 3 arrive; its 7 neighbours still report. (telemetry/silence)",
    ),
    advice="Exclude gpu-0412 for 7 days, drain it now, requeue job 48213. It waits for an approver.",
    url="/incidents/812",
    at=1794451928.0,
    subject="GPU 3 of gpu-0412 is lost on PCIe (Xid 79). Draining this one node frees job 48213.",
)
CHANGED = replace(
    OPENED,
    id="main-inc-812-changed-3",
    kind="changed",
    headline="gpu-0412 is drained. Job 48213 runs again on other nodes.",
    why="jana approved the drain at 03:14:40. The job waited 22 min.",
    facts=(("Node", "gpu-0412"), ("State", "mitigated, was open"), ("Order", "91, drain, done")),
    evidence=("sinfo: gpu-0412 drained, [watchkeeper] gpu_bus_loss gpu=3 inc=812",),
    advice="Nothing now. The node returns when its series are back and its check passes.",
    at=1794453300.0,
)
CLOSED = replace(
    OPENED,
    id="main-inc-812-closed-0",
    kind="closed",
    headline="GPU 3 of gpu-0412 is back. The node takes work again.",
    why="All 160 series have been back for 30 min and no new code came.",
    facts=(("Node", "gpu-0412"), ("Repaired in", "41 min"), ("Cost", "288 GPU-hours")),
    evidence=(),
    advice="Nothing more to do.",
    at=1794454388.0,
)
THREAD = (OPENED, CHANGED, CLOSED)

#: What names and lines of a cluster may hold; each is text, and must arrive as text.
HOSTILE = (
    "node\r\nBcc: everybody@example.com\r\n\r\nhello",
    "<script>alert(1)</script></table>",
    '"><img src=x onerror=alert(1)>',
    "<!channel> <@U123> <https://evil.example|click>",
    "*bold* _under_ ~gone~ `code` :fire: 0000:9b:00",
    "{{ 7*7 }} {% raw %} &amp; &lt;",
    "gpu-\u202e2140-upg",
    "nul\x00 bell\x07 escape\x1b[31m",
    "lone \ud800 surrogate",
    "日本語 Ünïcode 🚒 שלום",
)


def hostile(text: str, kind: str = "opened") -> MessageFacts:
    """A message with ``text`` wherever the world can put some."""
    return replace(
        OPENED if kind == "opened" else CLOSED,
        headline=text,
        why=text,
        facts=((text, text),),
        evidence=(text, text),
        advice=text,
        subject=text,
    )
