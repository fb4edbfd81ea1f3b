"""The pulse to the outside: an address is asked while all is well, and warns when the asking stops."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import requests
from sqlmodel import Session

from backend.model.system import Beat
from backend.notify.base import NotifyError
from backend.notify.outgoing import said
from backend.store import messages, system

#: Longest wait for the other side, in seconds.
TIMEOUT_S = 10.0
#: A loop that has not beaten for this long, or for three of its own intervals, is dead.
DEAD_S = 60.0
#: A message that waits longer than this says that people cannot be reached.
STUCK_S = 900.0


def why_not(session: Session, clusters: Sequence[str], now: datetime) -> str:
    """Why the pulse must stop: nobody judges, or messages do not leave. Empty: all is well."""
    for cluster in clusters:
        beats = system.beats(session, cluster)
        if not any((beat.kind, beat.name) == ("loop", "observe") for beat in beats):
            return f"the loop observe of {cluster} has never beaten"
        for beat in beats:
            if beat.kind == "loop" and beat.name in ("observe", "alerts") and _dead(beat, now):
                return f"the loop {beat.name} of {cluster} does not beat"
        stuck = {c: at for c, at in messages.oldest_waiting(session, cluster).items() if _age_s(at, now) > STUCK_S}
        if stuck:
            return f"messages by {', '.join(sorted(stuck))} have waited for over {STUCK_S / 60:g} min"
    return ""


def ask(url: str, http: requests.Session | None = None) -> str:
    """GET the address; what it answered. Raises NotifyError, which never holds the address (it may be a secret)."""
    try:
        answer = (http or requests).get(url, timeout=TIMEOUT_S, allow_redirects=False)
    except requests.RequestException as error:
        raise NotifyError(f"no answer from the heartbeat address ({type(error).__name__})") from error
    if not answer.ok:
        raise NotifyError(f"the heartbeat address says {answer.status_code}: {said(answer.content, [url])}")
    return f"{answer.status_code}"


def _dead(beat: Beat, now: datetime) -> bool:
    newest = max((at for at in (beat.ok_at, beat.at) if at is not None), default=None)
    failing = beat.failing_since is not None and _age_s(beat.failing_since, now) > DEAD_S
    return failing or newest is None or _age_s(newest, now) > max(DEAD_S, 3 * beat.every_s)


def _age_s(at: datetime, now: datetime) -> float:
    return (now - at).total_seconds()
