"""Glyph and word of every state that pages show: one table a vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from frontend.contexts import Chip
from frontend.words import STATE_WORDS

DEVICE: Final[Mapping[str, Chip]] = {state: Chip(state, word) for state, word in STATE_WORDS.items()}
SEVERITY: Final[Mapping[str, Chip]] = {word: Chip(word, word) for word in ("info", "warning", "high", "critical")}
INCIDENT: Final[Mapping[str, Chip]] = {
    "open": Chip("suspect", "open"),
    "acknowledged": Chip("info", "acknowledged"),
    "mitigated": Chip("draining", "mitigated"),
    "resolved": Chip("done", "resolved"),
}
WAITS: Final = Chip("you", "waits for you")
WAITS_ELSE: Final = Chip("you", "waits for an approver")
ORDER: Final[Mapping[str, Chip]] = {
    "waiting": Chip("info", "waiting"),
    "claimed": Chip("draining", "in progress"),
    "sent": Chip("draining", "in progress"),
    "done": Chip("done", "done"),
    "refused": Chip("failed", "refused"),
    "failed": Chip("failed", "failed"),
    "uncertain": Chip("unknown", "uncertain"),
    "cancelled": Chip("excluded", "cancelled"),
}
DECISION: Final[Mapping[str, Chip]] = {
    "observed": Chip("info", "observe mode"),
    "approved": Chip("done", "approved"),
    "automatic": Chip("done", "by act mode"),
    "rejected": Chip("excluded", "rejected"),
    "superseded": Chip("info", "withdrawn"),
    "nothing": Chip("info", "no action"),
}
#: Verdict of a check.
CHECK: Final[Mapping[str, Chip]] = {
    "pass": Chip("done", "passed"),
    "warn": Chip("warning", "passed with a warning"),
    "fail": Chip("failed", "failed"),
    "unknown": Chip("unknown", "no verdict"),
}
#: Health of a loop, of a source and of a detector.
LOOP: Final[Mapping[str, Chip]] = {
    "fine": Chip("ok", "on time"),
    "late": Chip("suspect", "late"),
    "failing": Chip("failed", "failing"),
    "never": Chip("unknown", "no beat yet"),
}
SOURCE: Final[Mapping[str, Chip]] = {
    "fine": Chip("ok", "fresh"),
    "late": Chip("unknown", "silent"),
    "failing": Chip("unknown", "silent"),
    "never": Chip("unknown", "never heard"),
}
DETECTOR: Final[Mapping[str, Chip]] = {
    "fine": Chip("ok", "works again"),
    "late": Chip("ok", "works again"),
    "failing": Chip("failed", "failing"),
    "never": Chip("failed", "failing"),
}
#: What kind of line stands on a timeline; anything else is plain news.
ENTRY: Final[Mapping[str, Chip]] = {
    "opened": Chip("suspect", "opened"),
    "evidence": Chip("observed", "evidence"),
    "folded": Chip("derived", "folded"),
    "decision": Chip("info", "decision"),
    "approved": Chip("you", "approved"),
    "rejected": Chip("excluded", "rejected"),
    "acknowledged": Chip("you", "acknowledged"),
    "note": Chip("you", "note"),
    "label": Chip("you", "label"),
    "resolving": Chip("you", "resolving"),
    "mitigated": Chip("done", "mitigated"),
    "closed": Chip("done", "closed"),
    "order_done": Chip("done", "done"),
    "order_refused": Chip("failed", "refused"),
    "order_failed": Chip("failed", "failed"),
    "order_uncertain": Chip("unknown", "uncertain"),
    "order_cancelled": Chip("excluded", "cancelled"),
}


def entry(what: str) -> Chip:
    return ENTRY.get(what, Chip("info", what.replace("_", " ")))
