"""Who keeps a node out of new work, and why: our own mark, and the signs of everybody else's."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from backend.clients.kubernetes import MANAGER
from backend.clients.kubernetes_conventions import Conventions, HoldRule, first
from backend.clients.kubernetes_json import flag, objects, table, text, texts
from backend.facts import TAG

#: What we write on a node: its reason field, the order and incident behind it, whether the cordon is ours too, and a
#: digest of what others had left there already. The taint says the same to schedulers.
REASON, ORDER, INCIDENT = "watchkeeper/reason", "watchkeeper/order", "watchkeeper/incident"
CORDON, BEFORE, SINCE = "watchkeeper/cordon", "watchkeeper/before", "watchkeeper/since"
ANNOTATIONS = (REASON, ORDER, INCIDENT, CORDON, BEFORE, SINCE)
TAINT = "watchkeeper/drained"
#: Taints with these effects keep new work away.
HARD = frozenset({"NoSchedule", "NoExecute"})
#: Longest reason that is kept, in characters.
LONGEST = 300


@dataclass(frozen=True, slots=True)
class Hold:
    """Somebody's word that a node is to get no work. ``sign`` is what says so: ``taint karpenter.sh/disrupted``."""

    owner: str
    reason: str
    sign: str


@dataclass(frozen=True, slots=True)
class Held:
    """All that keeps one node out. ``ours`` is our reason while our mark is on it, "" = we hold nothing.

    cordoned: spec.unschedulable; our_cordon: it was us who set that, and nobody set it anew since.
    """

    ours: str
    others: tuple[Hold, ...]
    cordoned: bool
    our_cordon: bool

    @property
    def out(self) -> bool:
        return self.cordoned or bool(self.ours) or bool(self.others)

    @property
    def reason(self) -> str:
        return self.others[0].reason if self.others else self.ours

    @property
    def owner(self) -> str:
        return self.others[0].owner if self.others else (MANAGER if self.ours else "")


def held(node: Mapping[str, Any], known: Conventions) -> Held:
    """Who holds the node. Somebody else's sign beside ours is somebody else's hold."""
    annotations = texts(node, "metadata", "annotations")
    cordoned = flag(node, "spec", "unschedulable")
    marks = [text(taint, "value") for taint in objects(node, "spec", "taints") if text(taint, "key") == TAINT]
    ours = annotations.get(REASON, "") if marks or cordoned else ""
    if marks and not ours:  # somebody took our note off and left our taint
        ours = f"{TAG} taint without its note, {marks[0].replace('-', '=', 1)}"
    manager, since = cordoned_by(node) if cordoned else ("", "")
    our_cordon = cordoned and bool(ours) and annotations.get(CORDON) == "true" and manager in ("", MANAGER)
    found = list(_signs(node, known, cordoned))
    if cordoned and not our_cordon and not found:
        when = f" at {since}" if since else ""
        by = manager if manager not in ("", MANAGER) else "someone"
        found.append(Hold(by, f"cordoned{f' with {manager}' if manager else ''}{when}", "cordon"))
    return Held(ours, tuple(found), cordoned, our_cordon)


def cordoned_by(node: Mapping[str, Any]) -> tuple[str, str]:
    """(program that set spec.unschedulable, when), as the API server wrote it down; "" where it did not."""
    for entry in objects(node, "metadata", "managedFields"):
        if "f:unschedulable" in table(entry, "fieldsV1", "f:spec"):
            return text(entry, "manager")[:100], text(entry, "time")
    return "", ""


def leftovers(node: Mapping[str, Any], known: Conventions) -> str:
    """A digest of notes about cordons that stand on the node: those that were there before ours are nobody's hold."""
    annotations = texts(node, "metadata", "annotations")
    rules = [rule for rule in known.holds if rule.with_cordon]
    notes = sorted((k, v) for k, v in annotations.items() if k not in ANNOTATIONS and _any(rules, k))
    return hashlib.sha256(json.dumps(notes).encode()).hexdigest()[:16] if notes else ""


def _any(rules: list[HoldRule], key: str) -> bool:
    return any(rule.where == "annotation" and rule.key.fullmatch(key) for rule in rules)


# --- signs of others ------------------------------------------------------------------------------------------------


def _signs(node: Mapping[str, Any], known: Conventions, cordoned: bool) -> Iterator[Hold]:
    annotations, labels = texts(node, "metadata", "annotations"), texts(node, "metadata", "labels")
    foreign = {key: said for key, said in annotations.items() if key not in ANNOTATIONS}
    stale = REASON in annotations and annotations.get(BEFORE, "") == leftovers(node, known)
    notes = labels | foreign
    seen = set[str]()
    for rule in known.holds:
        if rule.with_cordon and (not cordoned or stale):
            continue
        for key, value, message in _places(node, rule, foreign, labels):
            sign = f"{rule.where} {key}"
            if sign not in seen and rule.key.fullmatch(key) and rule.value.fullmatch(value):
                seen.add(sign)
                yield _hold(rule, sign, value, message, notes)
    for taint in objects(node, "spec", "taints"):
        key, value = text(taint, "key"), text(taint, "value")
        if f"taint {key}" not in seen and takes_out(taint, known):
            owner = key.partition("/")[0] if "/" in key else "someone"
            yield Hold(owner, _clean(f"taint {key}{f'={value}' if value else ''}"), f"taint {key}")


def takes_out(taint: Mapping[str, Any], known: Conventions) -> bool:
    """Whether a taint keeps all new work away because something is wrong, and not because of what the node is for."""
    key, value = text(taint, "key"), text(taint, "value")
    if text(taint, "effect") not in HARD or known.benign.fullmatch(key):
        return False
    return bool(known.out.fullmatch(key) or known.out.fullmatch(value))


def _places(
    node: Mapping[str, Any], rule: HoldRule, annotations: Mapping[str, str], labels: Mapping[str, str]
) -> Iterator[tuple[str, str, str]]:
    """(key, value, message) of each place where this rule looks."""
    match rule.where:
        case "annotation":
            yield from ((key, value, "") for key, value in annotations.items())
        case "label":
            yield from ((key, value, "") for key, value in labels.items())
        case "taint":
            hard = (taint for taint in objects(node, "spec", "taints") if text(taint, "effect") in HARD)
            yield from ((text(taint, "key"), text(taint, "value"), "") for taint in hard)
        case "condition":
            for one in objects(node, "status", "conditions"):
                if text(one, "status") == "True":
                    yield text(one, "type"), "True", text(one, "message") or text(one, "reason")


def _hold(rule: HoldRule, sign: str, value: str, message: str, notes: Mapping[str, str]) -> Hold:
    because = first(notes, rule.because)
    if rule.said:
        return Hold(_clean(because) or rule.owner, _clean(value), sign)
    owner = _clean(value) if rule.named and value.lower() not in ("true", "") else rule.owner
    return Hold(owner, _clean(because or message or rule.text or sign), sign)


def _clean(said: str) -> str:
    """One printable line of bounded length: it goes to pages, mail and logs."""
    return " ".join("".join(c if c.isprintable() else " " for c in said[: 4 * LONGEST]).split())[:LONGEST]
