"""Checks of a node by a site's own commands: run, their verdict parsed, told; none of them changes anything."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from backend.act.base import ActionError
from backend.act.command import last_words, ran, values_of
from backend.clients.slurm import Ran, Run, run_bounded
from backend.facts import OrderFacts, Outcome, Verb

Word = Literal["pass", "warn", "fail", "unknown"]
#: Exit codes of Nagios plug-ins, of Meta's health checks, of soperator's scripts.
BY_CODE: dict[int, Word] = {0: "pass", 1: "warn", 2: "fail", 3: "unknown"}
#: What tools call their results.
WORDS: dict[str, Word] = {
    **dict.fromkeys(("pass", "passed", "ok", "success", "healthy", "info"), "pass"),
    **dict.fromkeys(("warn", "warning", "degraded"), "warn"),
    **dict.fromkeys(("fail", "failed", "error", "critical", "bad", "unhealthy"), "fail"),
    **dict.fromkeys(("skip", "skipped", "unknown", "not run"), "unknown"),
}
WORST = ("fail", "unknown", "warn", "pass")
#: Deepest nesting and most entries of a report that are looked at.
MOST_DEEP, MOST_ENTRIES = 12, 10_000


@dataclass(frozen=True, slots=True)
class Check:
    """One check of the configuration. ``command`` holds ``{node}``, a pair test also ``{peer}``. ``on``: before a node
    goes back to work (return), on idle nodes (idle), or both (any). Idle ones are due again after ``every_s``.
    ``compare``: what it computes must be the same on every node. ``kind``: as which fault a failure is told."""

    name: str
    command: tuple[str, ...]
    on: Literal["return", "idle", "any"] = "return"
    timeout_s: float = 300.0
    every_s: float = 86_400.0
    compare: bool = False
    kind: str = "gpu_hardware_other"

    @property
    def paired(self) -> bool:
        return any("{peer}" in word for word in self.command)


@dataclass(frozen=True, slots=True)
class Report:
    """What a check said. ``values``: its measurements by name. ``digest``: what it computed."""

    verdict: Word
    text: str
    values: dict[str, float] = field(default_factory=dict)
    digest: str = ""


def report_of(done: Ran) -> Report:
    """The verdict of a check that ended: its JSON where it prints some (an object with verdict, status or result, or
    a report of ``dcgmi diag -j``), else its exit code. JSON that says pass beside another exit code is not believed."""
    code: Word = BY_CODE.get(done.code, "unknown")
    for text in (done.out, *reversed(done.out.splitlines())):
        found = _object(text)
        if found is not None:
            said = _said(found)
            if said is None:
                continue
            worst = min((said, code if done.code else said), key=WORST.index)
            words = str(found.get("text") or found.get("message") or found.get("reason") or last_words(done))
            return Report(worst, words[:500], _values(found), str(found.get("digest") or "")[:200])
    return Report(code, last_words(done))


def _object(text: str) -> dict[str, Any] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _said(found: dict[str, Any]) -> Word | None:
    """The worst word of a report; a skipped test among passed ones does not count."""
    for key in ("verdict", "status", "result"):
        word = found.get(key)
        if isinstance(word, str) and word.lower() in WORDS:
            return WORDS[word.lower()]
    words = list(_statuses(found))
    told: list[Word] = [word for word in words if word != "unknown"]
    if told:
        return min(told, key=WORST.index)
    return "unknown" if words else None


def _statuses(found: object, deep: int = 0) -> Iterator[Word]:
    if deep > MOST_DEEP:
        return
    if isinstance(found, list):
        for piece in found[:MOST_ENTRIES]:
            yield from _statuses(piece, deep + 1)
    elif isinstance(found, dict):
        word = found.get("status")
        if isinstance(word, str) and word.lower() in WORDS:
            yield WORDS[word.lower()]
        for piece in found.values():
            yield from _statuses(piece, deep + 1)


def _values(found: dict[str, Any]) -> dict[str, float]:
    values = found.get("values")
    numbers = values.items() if isinstance(values, dict) else ()
    return {str(key): float(value) for key, value in numbers if isinstance(value, int | float)}


def run_check(check: Check, node: str, peer: str = "", run: Run = run_bounded) -> Report:
    """Run one check on a node now. One that does not end, or cannot be run, is unknown: never passed."""
    try:
        return report_of(ran(check.command, {"node": node, "peer": peer}, check.timeout_s, run))
    except ActionError as error:
        return Report("unknown", str(error))


#: Told of each result.
Noted = Callable[[Check, str, Report], object]


def unnoted(check: Check, node: str, found: Report) -> None:
    """Default of ``noted``: nobody keeps it."""


class CheckHand:
    """A Hand that checks a node before it goes back to work: all of its checks must pass (a warning passes). It
    changes nothing, so that one whose outcome a crash hid is simply run again."""

    def __init__(self, checks: Sequence[Check], run: Run = run_bounded, noted: Noted = unnoted) -> None:
        self._noted = noted
        self._checks = tuple(check for check in checks if check.on in ("return", "any") and not check.paired)
        self._run = run

    @property
    def name(self) -> str:
        return "checks"

    @property
    def can(self) -> frozenset[Verb]:
        return frozenset({Verb.CHECK}) if self._checks else frozenset()

    def witness(self, order: OrderFacts) -> dict[str, str]:
        return {"checks": " ".join(check.name for check in self._checks)}

    def perform(self, order: OrderFacts) -> Outcome:
        """Raises ActionError: permanent where one failed, not where one could not be told."""
        said: dict[str, str] = {}
        for check in self._checks:
            node = values_of(order)["node"]
            found = run_check(check, node, run=self._run)
            said[check.name] = found.verdict
            self._noted(check, node, found)
            if found.verdict == "fail":
                raise ActionError(f"Check {check.name} of {node} failed: {found.text}", permanent=True)
            if found.verdict == "unknown":
                raise ActionError(f"Check {check.name} of {node} gave no verdict: {found.text}")
        names = ", ".join(f"{name} {word}" for name, word in said.items())
        return Outcome(False, f"{order.node} was checked: {names}.", said)

    def settle(self, order: OrderFacts) -> Outcome | None:
        return None
