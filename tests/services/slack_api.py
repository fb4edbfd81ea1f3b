"""Slack's Web API as far as a bot needs it, on loopback: messages with threads and metadata, and Slack's refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

from tests.services.slack_sink import complaint


class SlackApi:
    """The rules of a workspace. ``lacks``: methods whose scope the token does not have. ``posts``: as they stand.

    ``hangs_up``: called once, when the next post has been taken, before its answer.
    """

    def __init__(self) -> None:
        self.posts: list[dict[str, Any]] = []
        self.lacks: set[str] = set()
        self.hangs_up: Callable[[], object] | None = None

    def __call__(self, path: str, raw: bytes) -> tuple[int, Any]:
        method = path.rpartition("/")[2]
        if method in self.lacks:
            return 200, {"ok": False, "error": "missing_scope"}
        if method.startswith("conversations."):
            return 200, self._look(method, {name: values[0] for name, values in parse_qs(raw.decode()).items()})
        if wrong := complaint(raw):
            return 200, {"ok": False, "error": wrong}
        body = json.loads(raw)
        if method == "chat.update":
            return 200, self._update(body)
        if body.get("thread_ts") and not self._find(body["thread_ts"]):
            return 200, {"ok": False, "error": "thread_not_found"}
        self.posts.append({**body, "ts": f"{1794451928 + len(self.posts)}.000100"})
        if self.hangs_up is not None:
            hang_up = self.hangs_up
            self.hangs_up = None
            hang_up()
        return 200, {"ok": True, "channel": body["channel"], "ts": self.posts[-1]["ts"]}

    def _find(self, ts: str) -> dict[str, Any] | None:
        return next((post for post in self.posts if post["ts"] == ts), None)

    def _update(self, body: dict[str, Any]) -> dict[str, Any]:
        post = self._find(body["ts"])
        if post is None:
            return {"ok": False, "error": "message_not_found"}
        post.update(body)
        return {"ok": True, "ts": post["ts"]}

    def _look(self, method: str, asked: dict[str, str]) -> dict[str, Any]:
        root = asked.get("ts", "")
        found = [p for p in self.posts if (root in (p["ts"], p.get("thread_ts")) if root else not p.get("thread_ts"))]
        return {"ok": True, "messages": [{"ts": p["ts"], "metadata": p["metadata"]} for p in found]}
