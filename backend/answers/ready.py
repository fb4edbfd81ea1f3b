"""A snapshot made ready to be asked thousands of times a second: answers as the bytes that leave, and their marks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

import orjson

from backend.answers import verdicts
from backend.answers.verdicts import NOBODY, Answer, Snapshot, Verdict

#: What comes after the name of a node of which nothing but good is known, and the mark of that answer.
FINE = b'"verdict":"ok","binding":false,"score":0.0,"reasons":[],"incidents":[],"until":null'
FINE_MARK = b'W/"ok"'


class Page(NamedTuple):
    """One answer: its body, and a weak ETag that changes with what it says, not with when it was read."""

    body: bytes
    mark: bytes


class Ready:
    """Thread-safe: at worst two threads make the same page. Pages are kept for known nodes only, so that made-up
    names cost no memory."""

    __slots__ = ("_lists", "_pages", "_tail", "_verdicts", "seen")

    def __init__(self, seen: Snapshot) -> None:
        self.seen = seen
        self._tail = b',"as_of":' + orjson.dumps(seen.as_of) + b"}"
        self._verdicts: dict[str, Verdict] = {}
        self._pages: dict[str, Page] = {}
        self._lists: dict[frozenset[str], Page] = {}

    def page(self, node: str, scopes: frozenset[str] = NOBODY) -> Page:
        """The verdict of one node; ``scopes``: of work by which job, run, account or partition."""
        if scopes and self.seen.scoped:
            return self._made(node, scopes)
        kept = self._pages.get(node)
        if kept is None:
            kept = self._made(node, NOBODY)
            if node in self.seen.nodes:
                self._pages[node] = kept
        return kept

    def _made(self, node: str, scopes: frozenset[str]) -> Page:
        if node in self.seen.fine:
            return Page(b'{"node":' + orjson.dumps(node) + b"," + FINE + self._tail, FINE_MARK)
        said = orjson.dumps(written(verdicts.verdict(self.seen, node, scopes)))
        return Page(said[:-1] + self._tail, mark_of((said,)))

    def reply(self, nodes: Iterable[str], *, advisory: bool = False, scopes: frozenset[str] = NOBODY) -> Page:
        """Which of these nodes to leave out."""
        fine, scopes = self.seen.fine, scopes if self.seen.scoped else NOBODY
        few = dict.fromkeys(node for node in nodes if node not in fine)
        asked = [self.verdict(node) if not scopes else verdicts.verdict(self.seen, node, scopes) for node in few]
        return self.listed(replied(verdicts.drawn(self.seen, asked, advisory)))

    def verdict(self, node: str) -> Verdict:
        """The word on one node, for everybody's work."""
        kept = self._verdicts.get(node)
        if kept is None:
            kept = verdicts.verdict(self.seen, node)
            if node in self.seen.nodes:
                self._verdicts[node] = kept
        return kept

    def every(self, words: frozenset[str] = frozenset()) -> Page:
        """The verdict of each known node, in order of name; only of these words, where there are any."""
        kept = self._lists.get(words)
        if kept is None:
            named = sorted(self.seen.nodes) if not words or "ok" in words else self._not_fine()
            pages = {node: self.page(node) for node in named}
            if words:
                pages = {node: page for node, page in pages.items() if self.verdict(node).verdict in words}
            marks = (part for node, page in pages.items() for part in (node.encode(), page.mark))
            body = b'{"items":[' + b",".join(page.body for page in pages.values()) + b"]" + self._tail
            kept = self._lists[words] = Page(body, mark_of(marks))
        return kept

    def _not_fine(self) -> list[str]:
        return sorted(self.seen.nodes.keys() - self.seen.fine)

    def listed(self, rows: Mapping[str, Any]) -> Page:
        """Any other answer of this snapshot, as of when it was read."""
        said = orjson.dumps(rows)
        return Page(said[:-1] + self._tail, mark_of((said,)))


def written(verdict: Verdict) -> dict[str, Any]:
    """All but when it was read, which comes last."""
    return {
        "node": verdict.node,
        "verdict": verdict.verdict,
        "binding": verdict.binding,
        "score": verdict.score,
        "reasons": verdict.reasons,
        "incidents": verdict.incidents,
        "until": verdict.until,
    }


def replied(reply: Answer) -> dict[str, Any]:
    """As above, for a question about many nodes."""
    return {
        "exclude": reply.exclude,
        "avoid": reply.avoid,
        "unknown": reply.unknown,
        "hostlist": reply.hostlist,
        "binding": reply.binding,
        "reasons": reply.reasons,
    }


def mark_of(parts: Iterable[bytes]) -> bytes:
    """A weak ETag (RFC 9110, 8.8.3) of what was said."""
    digest = blake2b(digest_size=9)
    for part in parts:
        digest.update(part)
    return b'W/"' + digest.hexdigest().encode() + b'"'


def is_known(mark: bytes, asked: bytes) -> bool:
    """Whether If-None-Match names this answer: a list of ETags, compared weakly, or * (RFC 9110, 13.1.2)."""
    if not asked:
        return False
    if asked == mark or asked.strip() == b"*":
        return True
    plain = mark.removeprefix(b"W/")
    return any(one.strip().removeprefix(b"W/") == plain for one in asked.split(b","))
