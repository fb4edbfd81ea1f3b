"""Reports by HTTP: to a Watchkeeper server, tried again and kept for later where it cannot be reached; and to Slack."""

from __future__ import annotations

import http.client
import json
import os
import time
from typing import Any, Callable, Dict, Tuple
from urllib.parse import urlsplit

from backend.wrap.report import encoded, headline
from backend.wrap.streams import CHUNK

Send = Callable[[Dict[str, Any], float], str]
#: An HTTP status, when to come again (s, 0 = not said) and the start of the answer.
Answer = Tuple[int, float, str]

#: Ends of names in the folder of what could not be sent.
SPOOLED = ".report.json"
ROUTE = "/api/v1/ingest/wrap"
#: The longest that one try may take, the first pause before another one, and the longest, in seconds.
TRY_S, PAUSE_S, LONGEST_PAUSE_S = 10.0, 0.3, 4.0
#: Older reports that are sent along with a new one, and how long they may take.
MOST_LATE = 20
#: Answers that a second try may change.
AGAIN = frozenset((408, 425, 429))


class SendError(OSError):
    """An address or a token that cannot be used; the text says which."""


def sender(url: str, token_file: str, spool: str, report: dict[str, Any]) -> Send:
    """The report is kept in ``spool`` ("" = nowhere) until it was sent; the next wrapper that reaches the server sends
    what is there."""
    body = encoded(report)
    kept = keep(spool, report["id"], body)

    def send(report: dict[str, Any], until: float) -> str:
        try:
            headers = {"Content-Type": "application/x-ndjson", **authorization(token_file)}
            word = post_until(url, ROUTE, headers, body, until)
        except SendError as error:
            return f"{error}{_kept(kept)}"
        if word:
            return f"{word}{_kept(kept)}"
        if kept:
            os.unlink(kept)
            send_late(url, headers, spool, until)
        return "taken"

    return send


def _kept(path: str) -> str:
    return f"; it is kept in {path}" if path else ""


def keep(spool: str, name: str, body: bytes) -> str:
    """The file in which a report waits; "" where no disk takes it."""
    if not spool:
        return ""
    path = os.path.join(spool, "".join(c if c.isalnum() or c in ".-" else "_" for c in name)[-200:] + SPOOLED)
    try:
        os.makedirs(spool, exist_ok=True)
        with open(path + ".new", "wb") as file:
            file.write(body)
        os.replace(path + ".new", path)
    except OSError:
        return ""
    return path


def send_late(url: str, headers: dict[str, str], spool: str, until: float) -> None:
    """What earlier runs could not send. One that the server will never take is put aside."""
    names = sorted(name for name in os.listdir(spool) if name.endswith(SPOOLED))[:MOST_LATE]
    for name in names:
        path = os.path.join(spool, name)
        try:
            with open(path, "rb") as file:
                status, _, _ = post(url, ROUTE, headers, file.read(), min(TRY_S, until - time.monotonic()))
            if status < 300:
                os.unlink(path)
            elif status in (400, 413, 422):
                os.replace(path, path + ".refused")
            else:
                return
        except (OSError, http.client.HTTPException, ValueError):
            return


def authorization(token_file: str) -> dict[str, str]:
    """Raises SendError for a file that holds no token."""
    if not token_file:
        return {}
    try:
        with open(token_file, encoding="utf-8") as file:
            token = file.read(4096).strip()
    except (OSError, ValueError) as error:
        raise SendError(f"the token file {token_file} cannot be read: {error}") from error
    if not token or not token.isascii() or not token.isprintable():
        raise SendError(f"the token file {token_file} holds no token")
    return {"Authorization": f"Bearer {token}"}


def post_until(url: str, route: str, headers: dict[str, str], body: bytes, until: float) -> str:
    """ "" once it was taken, else why it was not. Tries again while that may help, ``until`` (monotonic s)."""
    pause, why = PAUSE_S, "no time is left"
    while time.monotonic() < until:
        later = 0.0
        try:
            status, later, text = post(url, route, headers, body, min(TRY_S, until - time.monotonic()))
            if status < 300:
                return ""
            why = f"{status} {text}".strip()
            if status < 500 and status not in AGAIN:
                return why
        except SendError:
            raise
        except (OSError, http.client.HTTPException) as error:
            why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        wait = max(later, pause)
        if time.monotonic() + wait >= until:
            return why
        time.sleep(wait)
        pause = min(2 * pause, LONGEST_PAUSE_S)
    return why


def post(url: str, route: str, headers: dict[str, str], body: bytes, timeout_s: float) -> Answer:
    """One try. Raises SendError, OSError or HTTPException."""
    try:
        parts = urlsplit(url if "://" in url else "http://" + url)
        host, number = parts.hostname, parts.port
    except ValueError as error:
        raise SendError(f"no address of a server: {error}") from error
    if parts.scheme not in ("http", "https") or not host:
        raise SendError("no address of a server: it is written as http://host:port")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(host, number, timeout=max(0.05, timeout_s))
    try:
        query = "?" + parts.query if parts.query else ""
        connection.request("POST", parts.path.rstrip("/") + route + query, body, headers)
        answer = connection.getresponse()
        text = answer.read(CHUNK)
        return answer.status, _seconds(answer.getheader("Retry-After")), _words(text)
    finally:
        connection.close()


def _seconds(text: str | None) -> float:
    return min(float(text), 60.0) if text and text.isdigit() and len(text) < 6 else 0.0


def _words(text: bytes) -> str:
    """What a problem document says, in one line."""
    try:
        found = json.loads(text)
    except ValueError:
        return ""
    return " ".join(str(found.get("detail", "")).split())[:200] if isinstance(found, dict) else ""


def slacker(url: str) -> Send:
    """``url``: the webhook, or file:PATH of a file that holds it."""

    def send(report: dict[str, Any], until: float) -> str:
        address = url
        if url.startswith("file:"):
            with open(url[len("file:") :], encoding="utf-8") as file:
                address = file.read(4096).strip()
        body = json.dumps({"text": slack_text(report)}).encode()
        return post_until(address, "", {"Content-Type": "application/json"}, body, until) or "taken"

    return send


def slack_text(report: dict[str, Any]) -> str:
    """A headline, a sentence and the first cause, with nothing in it that Slack reads as markup."""
    rows = [f"*{_plain(headline(report))}*", _plain(report["sentence"])]
    rows += ["```" + _plain(row["text"]).replace("`", "'") + "```" for row in report["evidence"][:1]]
    return "\n".join(rows)


def _plain(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
