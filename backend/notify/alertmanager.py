"""Incidents as alerts in Alertmanager (API v2): raised, kept alive by a loop, ended when they close."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

from backend.clock import utc
from backend.notify.base import NotifyError
from backend.notify.http import Endpoint
from backend.notify.outbox import facts_of
from backend.notify.outgoing import link, outgoing
from backend.settings import Alertmanager
from backend.store import messages
from backend.store.engine import Store
from backend.tidings import MessageFacts, Receipt

#: An alert that is not told again ends by itself after so many turns: a Watchkeeper that is gone keeps none alive.
TURNS = 4
#: What is for reading by people, not an alert.
NOT_ALERTS = frozenset({"owner", "digest", "report", "silenced"})
_LABEL = re.compile(r"[^a-zA-Z0-9_]")


class AlertmanagerNotifier:
    kind = "alertmanager"

    def __init__(self, settings: Alertmanager, url: str, now: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._url = url
        self._now = now
        token = settings.token.get_secret_value() if settings.token else ""
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._endpoint = Endpoint("Alertmanager", "[alertmanager] urls", settings.timeout_s, [token])

    def send(self, message: MessageFacts) -> Receipt:
        """To every Alertmanager of the settings; told twice it is the same alert, by its labels. Where its labels
        became others (its severity grew), the alert before it ends. Raises NotifyError unless one of them took it."""
        if message.kind in NOT_ALERTS:
            return Receipt(f"not sent: Alertmanager is told of incidents, not of a {message.kind}")
        shown = outgoing(message)
        alerts = [self.alert(shown)]
        before = json.loads(message.earlier.get("labels", "{}"))
        if before and before != alerts[0]["labels"]:
            alerts.append({"labels": before, "endsAt": utc(self._now()).isoformat()})
        labels = json.dumps(alerts[0]["labels"], sort_keys=True)
        return Receipt(self.post(alerts), {"labels": labels})

    def alert(self, shown: MessageFacts) -> dict[str, Any]:
        """One alert. While it stands it ends ``TURNS`` turns from now; a test ends after one."""
        now = self._now()
        over = shown.kind == "closed" or shown.state == "resolved"
        ends = now if over else now + self._settings.repeat_s * (1 if shown.kind == "test" else TURNS)
        told = {"summary": shown.headline, "description": shown.why, "what_to_do": shown.advice}
        told |= {_name(label): value for label, value in shown.facts}
        told |= {f"seen_{number}": line for number, line in enumerate(shown.evidence, 1)}
        alert: dict[str, Any] = {
            "labels": self.labels(shown),
            "annotations": {name: value for name, value in told.items() if value},
            "endsAt": utc(ends).isoformat(),
        }
        if to := link(shown, self._url):
            alert["generatorURL"] = to
            alert["annotations"]["url"] = to
        return alert

    def labels(self, shown: MessageFacts) -> dict[str, str]:
        """What makes it this alert. Empty ones are left out: Alertmanager reads them as absent."""
        told = {
            "alertname": f"Watchkeeper{_camel(shown.fault or ('incident' if shown.incident else shown.kind))}",
            "cluster": shown.cluster,
            "incident": str(shown.incident) if shown.incident else shown.thread,
            "severity": shown.severity.word,
            "node": shown.node,
            "job": shown.job,
            "simulated": "true" if shown.simulated else "",
        }
        return {name: value for name, value in {**self._settings.labels, **told}.items() if value}

    def post(self, alerts: list[dict[str, Any]]) -> str:
        """To each Alertmanager: they deduplicate among themselves. Raises the last error where none took it."""
        body = json.dumps(alerts).encode()
        taken, error = 0, NotifyError("no Alertmanager is configured", permanent=True)
        for base in self._settings.urls:
            try:
                self._endpoint.taken(self._endpoint.post(f"{base.rstrip('/')}/api/v2/alerts", body, self._headers))
                taken += 1
            except NotifyError as refused:
                error = refused
        if not taken:
            raise error
        return f"taken by {taken} of {len(self._settings.urls)} Alertmanagers"


def keep_alive(store: Store, notifier: AlertmanagerNotifier, cluster: str) -> bool:
    """One step of a loop: tell every standing alert of a cluster again, as it was told last. Raises NotifyError."""
    with store.read() as session:
        rows = messages.standing(session, cluster, notifier.kind)
        told = [facts_of(row.body) for row in rows]
    alerts = [notifier.alert(outgoing(each)) for each in told]
    if alerts:
        notifier.post(alerts)
    return False


def _name(label: str) -> str:
    """A label name of Prometheus out of words: ``Open for`` as ``open_for``."""
    name = _LABEL.sub("_", label.strip().lower()) or "fact"
    return f"_{name}" if name[0].isdigit() else name


def _camel(words: str) -> str:
    return "".join(part.capitalize() for part in re.split(r"[^A-Za-z0-9]+", words))
