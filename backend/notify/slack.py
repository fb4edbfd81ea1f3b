"""Slack: by a bot one thread an incident whose first message is kept up to date, else by an incoming webhook."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

from backend.notify.base import NotifyError
from backend.notify.blocks import blocks, buttons, fallback
from backend.notify.http import Endpoint, address_secrets
from backend.notify.outgoing import link, outgoing
from backend.settings import Slack
from backend.tidings import MessageFacts, Receipt

#: Where Slack takes incoming webhooks.
HOSTS = frozenset({"hooks.slack.com", "hooks.slack-gov.com"})
#: Of an answer of the API this much is read: a page of a thread with its metadata.
ANSWER_BYTES = 4_000_000
#: Errors of the API that a later try may cure; every other one is permanent.
PASSING = frozenset({
    "ratelimited", "rate_limited", "internal_error", "fatal_error", "service_unavailable", "request_timeout",
    "team_added_to_org", "org_login_required", "external_channel_migrating", "message_limit_exceeded",
})  # fmt: skip
#: The root of a thread that can no longer be changed: a new one is begun.
GONE = frozenset({"message_not_found", "thread_not_found", "cant_update_message", "edit_window_closed"})
#: Where we may not look, a message goes without looking.
UNSEEN = frozenset(
    {"missing_scope", "not_in_channel", "channel_not_found", "thread_not_found", "not_allowed_token_type"}
)
#: Name of our metadata, and messages that one look reads.
EVENT, LOOK = "watchkeeper_message", 100


class SlackNotifier:
    """By the webhook of the settings, whose URL is a secret: it stands in no error and no log."""

    kind = "slack"

    def __init__(self, settings: Slack, url: str) -> None:
        self._webhook = settings.webhook_url.get_secret_value() if settings.webhook_url else ""
        self._url = url
        secrets = address_secrets(self._webhook)
        self._endpoint = Endpoint("Slack", "[slack] webhook_url", settings.timeout_s, secrets)

    def send(self, message: MessageFacts) -> Receipt:
        """One try. Raises NotifyError: permanent for 4xx, with ``retry_after_s`` where Slack named a time; not
        permanent for 429, 5xx, time-outs and no connection."""
        body = json.dumps(payload(message, self._url)).encode()
        answer = self._endpoint.post(self._webhook, body, {"Content-Type": "application/json"})
        return Receipt(self._endpoint.taken(answer))


class SlackBot:
    """By an app's token. Receipts hold the ts of the thread's root by channel, as ``ts:C0123``."""

    kind = "slack"

    def __init__(self, settings: Slack, url: str) -> None:
        self._settings = settings
        self._url = url
        self._token = settings.bot_token.get_secret_value() if settings.bot_token else ""
        self._endpoint = Endpoint("Slack", "[slack] api_url", settings.timeout_s, [self._token])

    def send(self, message: MessageFacts) -> Receipt:
        """Posts, or answers in the thread and brings its root up to date first: that one can be done twice, so what
        cannot stands last. Raises NotifyError."""
        attrs: dict[str, str] = {}
        words = []
        for channel in message.to or (self._settings.channel,):
            ts, text = self._tell(channel, message)
            attrs[f"ts:{channel}"] = ts
            words.append(text)
        return Receipt("; ".join(words), attrs)

    def _tell(self, channel: str, message: MessageFacts) -> tuple[str, str]:
        """One channel: the ts of the thread's root, and what was done."""
        shown = outgoing(message)
        root = message.earlier.get(f"ts:{channel}", "")
        if message.again and (found := self._seen(channel, root, message)):
            return root or found, f"Slack has it already ({found})"
        body = payload(message, self._url, pressable=self._settings.signing_secret is not None)
        body |= {"channel": channel, "metadata": metadata(shown)}
        if root and self._renew(root, body):
            self._call("chat.postMessage", {**answered(body), "thread_ts": root} | broadcast(message))
            return root, f"Slack keeps its thread ({root})"
        posted = self._call("chat.postMessage", body)
        return str(posted.get("ts", "")), f"Slack took it ({posted.get('ts', 'no ts')})"

    def _renew(self, root: str, body: Mapping[str, Any]) -> bool:
        """Bring the thread's first message up to date; False where it is gone. Its own id stays in its metadata."""
        told = {name: value for name, value in body.items() if name not in ("metadata", "unfurl_links")}
        return self._call("chat.update", {**told, "ts": root}, GONE).get("ok") is True

    def _seen(self, channel: str, root: str, message: MessageFacts) -> str:
        """The ts of this very message where an earlier try arrived, "" where none did or we may not look."""
        asked = {"channel": channel, "limit": LOOK, "include_all_metadata": "true"}
        if root:
            asked |= {"ts": root, "oldest": root}
        else:
            asked |= {"oldest": f"{message.at - 60:.6f}"}
        method = "conversations.replies" if root else "conversations.history"
        for _ in range(10):
            page = self._call(method, asked, UNSEEN, form=True)
            for each in page.get("messages", []):
                told = each.get("metadata", {})
                if told.get("event_type") == EVENT and told.get("event_payload", {}).get("id") == message.id:
                    return str(each.get("ts", ""))
            more = page.get("response_metadata", {}).get("next_cursor", "")
            if not more:
                return ""
            asked["cursor"] = more
        return ""

    def _call(
        self, method: str, body: Mapping[str, Any], forgiven: frozenset[str] = frozenset(), *, form: bool = False
    ) -> dict[str, Any]:
        """One method of the API. Errors in ``forgiven`` are answered, others raise NotifyError."""
        kind = "application/x-www-form-urlencoded" if form else "application/json; charset=utf-8"
        raw = urlencode(body).encode() if form else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        answer = self._endpoint.post(f"{self._settings.api_url.rstrip('/')}/{method}", raw, headers, ANSWER_BYTES)
        self._endpoint.taken(answer)
        try:
            told = json.loads(answer.body)
        except ValueError:
            told = None
        if not isinstance(told, dict):
            raise NotifyError(f"Slack's answer to {method} cannot be read; it may have the message")
        error = str(told.get("error", ""))
        if told.get("ok") is True or error in forgiven:
            return told
        what = self._endpoint.said(error or "no reason")
        raise NotifyError(f"Slack refuses {method}: {what}{hint(error)}", permanent=error not in PASSING)


def slack_of(settings: Slack, url: str) -> SlackNotifier | SlackBot:
    """The bot where there is a token, else the webhook."""
    return SlackBot(settings, url) if settings.bot_token is not None else SlackNotifier(settings, url)


def payload(message: MessageFacts, url: str, *, pressable: bool = False) -> dict[str, Any]:
    """What is posted: blocks, and the line that notifications and old clients show. ``pressable``: with buttons."""
    shown = outgoing(message)
    made = blocks(shown, link(shown, url)) + (buttons(shown) if pressable else [])
    return {"text": fallback(shown), "blocks": made, "unfurl_links": False}


def answered(body: Mapping[str, Any]) -> dict[str, Any]:
    """The same as an answer in the thread: buttons stand once, under the root."""
    return {**body, "blocks": [block for block in body["blocks"] if block["type"] != "actions"]}


def broadcast(message: MessageFacts) -> dict[str, Any]:
    """What nobody took up is shown in the channel too, not in its thread only."""
    return {"reply_broadcast": True} if message.kind in ("escalated", "proposal") else {}


def metadata(shown: MessageFacts) -> dict[str, Any]:
    """By this an earlier try is found again."""
    told = {"id": shown.id, "thread": shown.thread, "cluster": shown.cluster, "incident": shown.incident}
    return {"event_type": EVENT, "event_payload": told}


def hint(error: str) -> str:
    """What mends the errors that people meet when they set it up."""
    return {
        "not_in_channel": "; invite the app into the channel",
        "channel_not_found": "; set [slack] channel to its id, and invite the app",
        "invalid_auth": "; check [slack] bot_token_file",
        "token_revoked": "; check [slack] bot_token_file",
        "missing_scope": "; give the app chat:write",
    }.get(error, "")


def wrong_shape(webhook: str) -> str:
    """What about the address is not as Slack gives it out, without showing it; "" where it looks right."""
    parts = urlsplit(webhook)
    if parts.scheme != "https":
        return "it does not begin with https"
    if parts.hostname not in HOSTS:
        return "its host is not Slack's"
    if not re.fullmatch(r"/services/T\w+/B\w+/\w+", parts.path):
        return "its path is not /services/T.../B.../key"
    return ""
