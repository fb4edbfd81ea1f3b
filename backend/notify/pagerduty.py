"""PagerDuty by Events API v2: one alert an incident, raised, acknowledged and resolved under one dedup_key."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from backend.clock import utc
from backend.notify.http import Endpoint
from backend.notify.outgoing import link, outgoing
from backend.settings import PagerDuty
from backend.tidings import MessageFacts, Receipt

#: Limits of the Events API v2: characters of a summary and of a dedup_key, bytes of an event.
SUMMARY, KEY, WHOLE = 1024, 255, 512_000
#: Room for what stands around the details.
RESERVE = 12_000
#: Our severities in PagerDuty's words.
SEVERITY = {"critical": "critical", "high": "error", "warning": "warning", "info": "info"}
#: What is for reading, not for waking anybody.
NOT_PAGED = frozenset({"owner", "digest", "report", "silenced"})


class PagerDutyNotifier:
    kind = "pagerduty"

    def __init__(self, settings: PagerDuty, url: str) -> None:
        self._settings = settings
        self._url = url
        self._key = settings.routing_key.get_secret_value()
        self._endpoint = Endpoint("PagerDuty", "[pagerduty] url", settings.timeout_s, [self._key])

    def send(self, message: MessageFacts) -> Receipt:
        """One event; sent again it changes nothing, because the key is the incident's. Raises NotifyError."""
        if message.kind in NOT_PAGED:
            return Receipt(f"not sent: PagerDuty is told of incidents, not of a {message.kind}")
        keys = message.to or (self._key,)
        words = ""
        for key in keys:
            event = event_of(message, key, self._url)
            body = json.dumps(event, ensure_ascii=False).encode("utf-8", "replace")
            words = self._endpoint.taken(
                self._endpoint.post(self._settings.url, body, {"Content-Type": "application/json"})
            )
        return Receipt(words, {"dedup_key": dedup_key(message.thread)})


def action_of(message: MessageFacts) -> str:
    if message.kind == "closed" or message.state == "resolved":
        return "resolve"
    acknowledged = message.state in ("acknowledged", "mitigated") and message.kind != "escalated"
    return "acknowledge" if acknowledged and message.kind != "opened" else "trigger"


def event_of(message: MessageFacts, key: str, url: str) -> dict[str, Any]:
    """The event; details that do not fit are left out from the end, and counted."""
    shown = outgoing(message)
    to = link(shown, url)
    event: dict[str, Any] = {
        "routing_key": key,
        "event_action": action_of(message),
        "dedup_key": dedup_key(message.thread),
        "client": "Watchkeeper",
        "payload": {
            "summary": summary(shown),
            "source": shown.node or shown.cluster,
            "severity": SEVERITY[shown.severity.word],
            "timestamp": utc(shown.at).isoformat(),
            "component": shown.node or shown.cluster,
            "group": shown.cluster,
            "class": shown.fault or shown.kind,
            "custom_details": details(shown, WHOLE - RESERVE),
        },
    }
    if to:
        event |= {"client_url": to, "links": [{"href": to, "text": f"Incident {shown.incident} in Watchkeeper"}]}
    return event


def summary(shown: MessageFacts) -> str:
    mark = ("TEST: " if shown.kind == "test" else "") + ("simulated: " if shown.simulated else "")
    words = mark + shown.headline
    return words if len(words) <= SUMMARY else words[: SUMMARY - 1] + "…"


def details(shown: MessageFacts, most_bytes: int) -> dict[str, Any]:
    """Everything that the message says, within so many bytes of JSON; what is left out is said."""
    told: list[tuple[str, str]] = [("headline", shown.headline), ("why", shown.why), ("what to do", shown.advice)]
    told += [(label, value) for label, value in shown.facts]
    told += [(f"seen {number}", line) for number, line in enumerate(shown.evidence, 1)]
    kept: dict[str, Any] = {"simulated": "yes, no real node is touched"} if shown.simulated else {}
    for place, (label, value) in enumerate(told):
        most_bytes -= len(json.dumps({label: value}, ensure_ascii=False).encode("utf-8", "replace"))
        if most_bytes < 0:
            return kept | {"more": f"{len(told) - place:,} more lines stand in the incident"}
        if value:
            kept[label if label not in kept else f"{label} ({place})"] = value
    return kept


def dedup_key(thread: str) -> str:
    if len(thread) <= KEY:
        return thread
    return f"{thread[:200]}-{hashlib.sha256(thread.encode('utf-8', 'replace')).hexdigest()[:32]}"
