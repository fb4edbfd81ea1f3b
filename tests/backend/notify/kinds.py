"""One message of every kind, as the product words them: what the reviewed snapshots and the pictures are made of."""

from __future__ import annotations

import math
from dataclasses import replace

from backend.tidings import MessageFacts
from detectors.model import Severity
from tests.backend.notify.story import CHANGED, CLOSED, OPENED

AT = OPENED.at
READINGS = tuple((AT - 600 + 15 * n, 1690 + 8 * (n % 5)) for n in range(40)) + tuple(
    (AT + 15 * n, math.nan) for n in range(8)
)
BUSY = tuple((AT - 600 + 15 * n, 97.0 - (n % 3)) for n in range(40)) + tuple((AT + 15 * n, 0.0) for n in range(8))
FIGURED = replace(
    OPENED,
    curves=(("Series of GPU 3", "samples/min", READINGS), ("Tensor activity of job 48213", "%", BUSY)),
    moments=((AT, "Xid 79, GPU 3 of gpu-0412"), (AT + 8, "its series stop"), (AT + 41, "job 48213 stands still")),
    decision=12,
    fault="gpu_bus_loss",
    node="gpu-0412",
    job="48213",
)
#: About no incident.
BARE = replace(OPENED, incident=0, url="", evidence=(), advice="", facts=(), subject="")

KINDS: dict[str, MessageFacts] = {
    "opened": FIGURED,
    "escalated": replace(
        FIGURED,
        id="main-inc-812-escalated-1",
        kind="escalated",
        why="Nobody acknowledged it for 15 min. Job 48213 still stands still: 512 GPUs, 128 GPU-hours so far.",
        at=AT + 900,
    ),
    "proposal": replace(
        FIGURED, id="main-inc-812-proposal-2", kind="proposal", why="Every guard holds. The plan waits for an approver."
    ),
    "changed": CHANGED,
    "closed": CLOSED,
    "silenced": replace(
        OPENED,
        id="main-inc-812-silenced-1",
        kind="silenced",
        severity=Severity.WARNING,
        why="jana silences gpu-0412 until 2026-11-12 08:00 UTC: riser swap, ticket 4711.",
        advice="Nothing is told of it until then. End the silence on the Alerts page to hear of it again.",
    ),
    "owner": replace(
        OPENED,
        id="main-job-48213-owner-0",
        thread="main-job-48213",
        kind="owner",
        incident=0,
        severity=Severity.INFO,
        headline="Hardware stopped job 48213, not your code.",
        why="GPU 3 of gpu-0412 fell off the bus (Xid 79) at 02:52:08 UTC. Rank 27 was on it; the others waited for it.",
        facts=(
            ("Whose fault", "the hardware's"),
            ("Safe to resubmit", "yes; gpu-0412 is kept from new work"),
            ("Lost", "500 s of steps since the save of step 4,200; 71 GPU-hours in all"),
            ("Restart from", "step 4,200, saved 02:43:48 UTC"),
        ),
        evidence=("rank 27: CUDA error: unspecified launch failure (train.err, line 8812)",),
        advice="Submit it again. It goes on from step 4,200.",
        url="/runs/llama-70b",
        subject="",
    ),
    "digest": replace(
        BARE,
        id="main-digest-20261112",
        thread="main-digest-20261112",
        kind="digest",
        severity=Severity.INFO,
        headline="3 quiet incidents since 2026-11-11 08:00 UTC; none waits for you.",
        why="Two ended by themselves. gpu-0077 shows rising row remaps and is worth a look this week.",
    ),
    "lost": replace(
        BARE,
        id="main-lost-slack-1",
        thread="main-lost-slack",
        kind="lost",
        severity=Severity.HIGH,
        headline="Slack takes nothing since 02:41 UTC. 7 messages wait.",
        why="Slack refuses chat.postMessage: token_revoked; check [slack] bot_token_file.",
    ),
    "report": replace(
        BARE,
        id="watchkeeper-main-report-202646",
        thread="watchkeeper-main-report-202646",
        kind="report",
        severity=Severity.INFO,
        headline="9 failures this week, 6 of them hardware's; 412 to 440 GPU-hours lost.",
        why="Most went to gpu bus loss: 288 GPU-hours in 3 failures.",
    ),
    "test": replace(
        BARE,
        id="watchkeeper-test-1",
        thread="watchkeeper-test-1",
        kind="test",
        severity=Severity.INFO,
        headline="This is a test of Watchkeeper. Nothing happened, nothing is to be done.",
        why="Somebody ran watchkeeper notify test. Messages of incidents come this way too.",
    ),
}
