"""Alerts of an Alertmanager (webhook version 4, or a list as its API takes) as events, the same ones once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import orjson
from pydantic import AliasChoices, Field, ValidationError

from backend.clients.hostlist import is_host
from backend.facts import Batch, RawEvent
from backend.ingest.base import SourceError
from backend.ingest.rows import MaybeMoment, Reject, Rejects, Row, clean, loaded, problem_of

NAMESPACE = "alert"
#: Where an alert says which node it is about, best first; of ``instance`` the port is left out.
NODE_LABELS = ("node", "nodename", "hostname", "Hostname", "host", "kubernetes_node", "exported_node", "instance")
#: Where it says which job of the scheduler: ``job`` is Prometheus' own, the name of a scrape.
JOB_LABELS = ("slurm_job", "slurm_job_id", "job_id", "jobid", "hpc_job")
#: Alerts of one body at most, and characters of a text.
MOST, TEXT = 10_000, 600
#: One that began earlier is news all the same when it first comes: it is told as of now, with its own time beside it.
FRESH_S = 1800.0
#: Times before are Go's zero time: no end yet.
ZERO = "0001-01-01"


class Alert(Row):
    labels: dict[str, str]
    annotations: dict[str, str] = Field(default_factory=dict)
    status: str = ""
    started: MaybeMoment = Field(None, validation_alias=AliasChoices("startsAt", "starts_at"))
    ended: MaybeMoment = Field(None, validation_alias=AliasChoices("endsAt", "ends_at"))
    fingerprint: str = Field("", max_length=200)


def alerts_batch(body: bytes, now: float, known: Callable[[str], bool]) -> tuple[Batch, tuple[Reject, ...]]:
    """Events of one body and what was not taken. ``now`` in unix s; ``known``: whether a name is one of our nodes.

    Our own alerts, which an Alertmanager may send back, are left out. Raises SourceError(permanent=True) where nothing
    can be read.
    """
    rejects, dropped = Rejects(), 0
    events: list[RawEvent] = []
    for place, document in enumerate(_alerts(body)):
        try:
            alert = Alert.model_validate(_without_zero(document))
        except ValidationError as error:
            rejects.add(place, *problem_of(error))
            continue
        if _ours(alert):
            dropped += 1
            continue
        if not alert.labels.get("alertname"):
            rejects.add(place, "labels.alertname", "is missing")
            continue
        events.append(_event(alert, now, known))
    counts = {"alerts that could not be read": rejects.count, "alerts of our own": dropped}
    batch = Batch("alertmanager", now, now, events=tuple(events), dropped={k: n for k, n in counts.items() if n})
    return batch, tuple(rejects.told)


def timeless(event: RawEvent) -> bool:
    """Whether its ``dedupe`` holds no time, so that it cannot tell one firing from the next."""
    return event.dedupe.endswith(":?")


def in_turn(batch: Batch, last: Mapping[str, tuple[str, str]], hold_s: float) -> Batch:
    """Alerts that came without their times: each that changes the state of its alert is another, one that repeats it
    is the same. ``last``: by fingerprint, (code, dedupe) of the newest event of the last ``hold_s``; what was told
    before that stands no more."""
    known, events = dict(last), []
    for event in batch.events:
        fingerprint = event.attrs["fingerprint"]
        code, before = known.get(fingerprint, ("", f"{event.at // hold_s:.0f}"))
        if timeless(event):
            follows = hashlib.sha256(before.encode()).hexdigest()[:16]
            event = replace(event, dedupe=before if code == event.code else f"{event.dedupe}:{follows}")
        known[fingerprint] = event.code, event.dedupe
        events.append(event)
    return replace(batch, events=tuple(events))


def _alerts(body: bytes) -> list[Any]:
    try:
        found, _ = loaded(body)
    except orjson.JSONDecodeError as error:
        raise SourceError(
            f"The body is not JSON: {error}. Send what Alertmanager's webhook sends.", permanent=True
        ) from error
    alerts = found.get("alerts") if isinstance(found, dict) else found
    if not isinstance(alerts, list):
        raise SourceError('The body has no "alerts": send what Alertmanager\'s webhook sends.', permanent=True)
    if len(alerts) > MOST:
        raise SourceError(f"The body has {len(alerts):,} alerts; send at most {MOST:,} at once.", permanent=True)
    return alerts


def _without_zero(document: Any) -> Any:
    """Go writes a time that is not set as the year 1."""
    if not isinstance(document, dict):
        return document
    return {name: None if str(value).startswith(ZERO) else value for name, value in document.items()}


def _ours(alert: Alert) -> bool:
    return alert.labels.get("alertname", "").startswith("Watchkeeper") and "incident" in alert.labels


def _event(alert: Alert, now: float, known: Callable[[str], bool]) -> RawEvent:
    """``dedupe`` holds the fingerprint and when this firing began or ended, so that repeats are the same event."""
    labels = {name: clean(value) for name, value in alert.labels.items()}
    over = alert.status == "resolved" or (not alert.status and alert.ended is not None and alert.ended <= now)
    at = (alert.ended if over else alert.started) or now
    node, job = _host(labels, known), next((labels[name] for name in JOB_LABELS if labels.get(name)), "")
    fingerprint = alert.fingerprint or _fingerprint(labels)
    told = "resolved" if over else "firing"
    began = f"{alert.started:.3f}" if alert.started is not None else "?"
    moment = f":{at:.3f}" if over and alert.ended is not None else ""
    notes = alert.annotations
    text = notes.get("summary") or notes.get("message") or notes.get("description") or labels["alertname"]
    return RawEvent(
        at=at if now - FRESH_S <= at <= now else now,
        host=node,
        namespace=NAMESPACE,
        code=told,
        text=" ".join(clean(text).split())[:TEXT],
        dedupe=f"alert:{fingerprint[:150]}:{told}:{began}{moment}",
        job=job,
        attrs={
            "alert": labels["alertname"][:120],
            "fingerprint": fingerprint[:64],
            "severity": labels.get("severity", "")[:40],
            "instance": labels.get("instance", "")[:200],
            "began": began,
        },
    )


def _host(labels: Mapping[str, str], known: Callable[[str], bool]) -> str:
    """The first label that names one of our nodes; "" = the alert is about the cluster."""
    for name in NODE_LABELS:
        host = labels.get(name, "")
        for each in (host, host.rpartition(":")[0], host.partition(".")[0]):
            if each and is_host(each) and known(each):
                return each
    return ""


def _fingerprint(labels: Mapping[str, str]) -> str:
    """For senders that give none: the same labels, the same alert."""
    told = "\0".join(f"{name}\0{labels[name]}" for name in sorted(labels))
    return hashlib.sha256(told.encode("utf-8", "replace")).hexdigest()[:32]
