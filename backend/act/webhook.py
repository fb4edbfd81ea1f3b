"""Orders to a site's own service: a signed POST under the order's id, and a question after it where a crash hid it.

The site answers 200 for done, 202 for accepted (then it is asked again), 4xx for no. ``GET url/id`` tells of an order:
200 as above, 404 = it never came. A site that has no such question makes every doubt uncertain, never a second send.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from backend.act.base import ActionError
from backend.clients.slurm_http import Answer, Send, send_bounded
from backend.clock import Clock, unix
from backend.facts import OrderFacts, Outcome, Verb
from backend.security.redact import redact

#: Longest words of a site that are kept.
WORDS = 500
Body = Callable[[OrderFacts], dict[str, Any]]


def signature(secret: bytes, at: str, body: bytes) -> str:
    """``sha256=...`` over the time, a dot and the body (HMAC-SHA256): an old body cannot be sent again as a new one."""
    return "sha256=" + hmac.new(secret, at.encode() + b"." + body, hashlib.sha256).hexdigest()


def key_of(order: OrderFacts) -> str:
    """The id of an order for others: ``main-45``. The same order always has the same."""
    return f"{order.cluster}-{order.id}"


def told(order: OrderFacts) -> dict[str, Any]:
    """What a site is told of an order."""
    return {
        "id": key_of(order),
        "cluster": order.cluster,
        "verb": order.verb.value,
        "node": order.node,
        "job": order.job,
        "kind": order.kind,
        "incident": order.incident,
        "reason": redact(order.reason),
        "exclude": list(order.exclude),
    }


class WebhookHand:
    """A Hand that asks a site's service. ``body``: what it is told, as JSON."""

    def __init__(
        self,
        name: str,
        url: str,
        secret: bytes,
        can: frozenset[Verb],
        clock: Clock,
        timeout_s: float = 10.0,
        body: Body = told,
        send: Send = send_bounded,
    ) -> None:
        self._name, self._url, self._secret, self._can = name, url.rstrip("/"), secret, can
        self._clock, self._timeout_s, self._body, self._send = clock, timeout_s, body, send

    @property
    def name(self) -> str:
        return self._name

    @property
    def can(self) -> frozenset[Verb]:
        return self._can

    def witness(self, order: OrderFacts) -> dict[str, str]:
        return {"key": key_of(order)}

    def perform(self, order: OrderFacts) -> Outcome:
        known = self._known(order)  # an order that came before, under the same id, is never sent again
        if known is not None:
            return known
        answer = self._ask("POST", self._url, json.dumps(self._body(order), sort_keys=True).encode(), key_of(order))
        if answer.status == 202:
            raise ActionError(f"{self._name} accepted order {key_of(order)}, and has not said yet that it is done")
        return self._outcome(order, answer)

    def settle(self, order: OrderFacts) -> Outcome | None:
        answer = self._ask("GET", f"{self._url}/{quote(key_of(order), safe='')}", b"", key_of(order))
        if answer.status == 404:
            return None
        if answer.status == 202:
            raise ActionError(f"{self._name} is still at order {key_of(order)}")
        if answer.status in (405, 501):
            why = f"{self._name} cannot be asked after an order; whether {key_of(order)} came, nothing tells"
            raise ActionError(why, permanent=True)
        return self._outcome(order, answer)

    def _known(self, order: OrderFacts) -> Outcome | None:
        answer = self._ask("GET", f"{self._url}/{quote(key_of(order), safe='')}", b"", key_of(order))
        if answer.status == 200:
            found = self._outcome(order, answer)
            return Outcome(False, f"{found.text} It was already so.", found.attrs)
        if answer.status == 202:
            raise ActionError(f"{self._name} is still at order {key_of(order)}")
        return None

    def _outcome(self, order: OrderFacts, answer: Answer) -> Outcome:
        """200: done, whatever it says in words. Raises ActionError for every other answer."""
        words, attrs = _words(answer.body)
        if answer.status in (200, 201, 204):
            done = words or f"{self._name} did {order.verb} {order.node or order.job}."
            return Outcome(True, done, {"by": self._name} | attrs)
        soon = answer.status in (408, 425, 429) or answer.status >= 500
        raise ActionError(f"{self._name} answered {answer.status}: {words or 'no words'}", permanent=not soon)

    def _ask(self, method: str, url: str, body: bytes, key: str) -> Answer:
        at = f"{unix(self._clock.now()):.0f}"
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": key,
            "X-Watchkeeper-Timestamp": at,
            "X-Watchkeeper-Signature": signature(self._secret, at, body),
        }
        try:
            return self._send(method, url, headers, body, self._timeout_s)
        except OSError as lost:  # TimeoutError is one
            raise ActionError(f"{self._name} did not answer: {str(lost) or type(lost).__name__}") from lost


def _words(body: bytes) -> tuple[str, dict[str, str]]:
    """The words of an answer, and what else it says (ticket, url), each short; anything but JSON is text."""
    try:
        found = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        return redact(body[:WORDS].decode("utf-8", "replace")).strip(), {}
    if not isinstance(found, dict):
        return "", {}
    text = found.get("text") or found.get("detail") or found.get("error") or ""
    rest = {key: str(found[key])[:WORDS] for key in ("ticket", "url", "state") if isinstance(found.get(key), str | int)}
    return redact(str(text)[:WORDS]), rest
