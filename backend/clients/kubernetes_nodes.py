"""A node's JSON as facts: state and who holds it, GPUs, place, versions, conditions, announced work."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import Any

from backend.clients.hostlist import is_host
from backend.clients.kubernetes_conventions import Conventions, NoticeRule, first
from backend.clients.kubernetes_holds import HARD, Held, held
from backend.clients.kubernetes_json import EARLIEST, LATEST, at, objects, quantity, table, text, texts
from backend.facts import NodeFacts

#: Labels that are kept as NodeFacts.labels beside what has a field of its own; the rest is noise by the hundred.
KEPT = re.compile(
    r"(node-role\.kubernetes\.io|topology\.|.*\.topology\.|.*\.?topograph\.run|nvidia\.com/(mig|gpu)\.).*"
)
MOST_LABELS = 40


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a node that is bad news; ``since``: unix s, None = not said."""

    type: str
    status: str
    reason: str
    message: str
    since: float | None


@dataclass(frozen=True, slots=True)
class Notice:
    """Work on the node that somebody announced. ``start``: unix s, None = not said."""

    sign: str
    text: str
    start: float | None


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """What one node's JSON says. ``facts`` lacks who works there (``with_work``).

    usable_gpus: what its device plugin still gives out, None = not said. versions: item to value.
    """

    facts: NodeFacts
    uid: str
    version: str
    boot_id: str
    held: Held
    usable_gpus: int | None
    versions: Mapping[str, str]
    problems: tuple[Condition, ...]
    notices: tuple[Notice, ...]
    ready: Condition


def node_of(found: Any, known: Conventions, read_at: float) -> NodeRecord | None:
    """One node; None where it has no name that a host can have."""
    name = text(found, "metadata", "name")
    if not is_host(name):
        return None
    labels, conditions = texts(found, "metadata", "labels"), [*_conditions(found)]
    ready = next((one for one in conditions if one.type == "Ready"), Condition("Ready", "", "", "", None))
    holds = held(found, known)
    state, flags, silence = _state(ready)
    notices = tuple(_notices(found, labels, known))
    count, usable = _gpus(found, labels, known)
    flags |= {"DRAIN"} if holds.out else set()
    facts = NodeFacts(
        name=name,
        state=state,
        flags=frozenset(flags),
        reason=holds.reason or silence,
        reason_owner=holds.owner,
        rack=known.label(labels, "rack"),
        switch=known.label(labels, "switch"),
        model=known.label(labels, "model"),
        expected_gpus=count,
        read_at=read_at,
        clique=known.label(labels, "clique"),
        partitions=tuple(filter(None, (known.label(labels, "pool"),))),
        labels=_kept(found, labels, known),
    )
    return NodeRecord(
        facts,
        text(found, "metadata", "uid"),
        text(found, "metadata", "resourceVersion"),
        text(found, "status", "nodeInfo", "bootID"),
        holds,
        usable,
        _versions(found, labels, known),
        tuple(one for one in conditions if known.is_problem(one.type, one.status)),
        notices,
        ready,
    )


def read_again(record: NodeRecord, read_at: float) -> NodeRecord:
    """The same node, found unchanged at a later read."""
    return replace(record, facts=replace(record.facts, read_at=read_at))


def with_work(record: NodeRecord, jobs: tuple[str, ...], used: int, ending: bool) -> NodeFacts:
    """The node with the jobs that hold it and how many of its GPUs they hold; ``ending``: pods are being ended."""
    facts = record.facts
    state, now = facts.state, facts.read_at
    if state == "idle" and jobs:
        state = "allocated" if used >= facts.expected_gpus else "mixed"
    flags = facts.flags | ({"COMPLETING"} if ending else set())
    flags |= {"MAINTENANCE"} if any(n.start is None or n.start <= now for n in record.notices) else set()
    return replace(facts, state=state, jobs=jobs, flags=flags)


def _conditions(found: Any) -> Iterator[Condition]:
    for one in objects(found, "status", "conditions"):
        words = (text(one, "type"), text(one, "status"), text(one, "reason"), text(one, "message")[:1000])
        yield Condition(*words, at(one, "lastTransitionTime"))


def _state(ready: Condition) -> tuple[str, set[str], str]:
    """(state, flags, what to say of it) by the Ready condition: the node's kubelet speaks, or nobody does."""
    said = f": {ready.message}" if ready.message else ""
    match ready.status:
        case "True":
            return "idle", set(), ""
        case "False":
            return "down", set(), f"Not ready{said}"[:300]
        case "Unknown":
            return "down", {"NOT_RESPONDING"}, f"Not responding{said}"[:300]
    return "unknown", set(), ""


def _gpus(found: Any, labels: Mapping[str, str], known: Conventions) -> tuple[int, int | None]:
    """(GPUs that are built in, GPUs that may be used). A label counts cards; a resource may count shares of them."""
    listed = known.label(labels, "count")
    there, usable = (_units(table(found, "status", kind), known) for kind in ("capacity", "allocatable"))
    counted = int(listed) if re.fullmatch(r"[0-9]{1,4}", listed) else 0
    if counted and there and counted != there:  # time slicing, or MIG: shares, not cards
        return counted, None
    return counted or there or 0, usable


def _units(resources: Mapping[str, Any], known: Conventions) -> int | None:
    """Whole GPUs among resources; None where no resource of that kind is named."""
    found = [quantity(said) for name, said in resources.items() if known.is_whole(name)]
    return int(max(count or 0 for count in found)) if found else None


def _versions(found: Any, labels: Mapping[str, str], known: Conventions) -> dict[str, str]:
    told = table(found, "status", "nodeInfo")
    names = {"kernel": "kernelVersion", "kubelet": "kubeletVersion", "runtime": "containerRuntimeVersion"}
    versions = {item: text(told, key) for item, key in (names | {"os": "osImage"}).items()}
    versions |= {item: first(labels, patterns) for item, patterns in known.versions.items()}
    if not versions.get("driver"):
        parts = [labels.get(f"nvidia.com/cuda.driver.{part}", "") for part in ("major", "minor", "rev")]
        versions["driver"] = ".".join(part for part in parts if part)
    return {item: said[:200] for item, said in versions.items() if said}


def _kept(found: Any, labels: Mapping[str, str], known: Conventions) -> dict[str, str]:
    named = {kind: known.label(labels, kind) for kind in ("zone", "region", "instance_type")}
    named |= {"boot_id": text(found, "status", "nodeInfo", "bootID"), "uid": text(found, "metadata", "uid")}
    more = sorted((key, said) for key, said in labels.items() if KEPT.fullmatch(key))[:MOST_LABELS]
    return {key: said[:200] for key, said in [*named.items(), *more] if said}


# --- announced work -------------------------------------------------------------------------------------------------


def _notices(found: Any, labels: Mapping[str, str], known: Conventions) -> Iterator[Notice]:
    for rule in known.notices:
        for key, value, message, since in _told(found, labels, rule):
            if rule.key.fullmatch(key) and rule.value.fullmatch(value):
                said = {"value": value, "message": message}.get(rule.start, "")
                yield Notice(f"{rule.where} {key}", (message or rule.text or key)[:300], moment(said) or since)


def _told(found: Any, labels: Mapping[str, str], rule: NoticeRule) -> Iterator[tuple[str, str, str, float | None]]:
    """(key, value, message, since) of each place where this rule looks."""
    match rule.where:
        case "label":
            yield from ((key, value, "", None) for key, value in labels.items())
        case "taint":
            for taint in objects(found, "spec", "taints"):
                if text(taint, "effect") in HARD:
                    yield text(taint, "key"), text(taint, "value"), "", at(taint, "timeAdded")
        case "condition":
            for one in objects(found, "status", "conditions"):
                if text(one, "status") == "True":
                    yield text(one, "type"), "", text(one, "message"), at(one, "lastTransitionTime")


_WEEKDAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d{1,2} \w{3} \d{4} \d\d:\d\d:\d\d (?:GMT|UTC|[+-]\d{4})"
_STAMP = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)"


def moment(said: str) -> float | None:
    """The first time in a text: unix seconds, RFC 3339 with a zone, or the form of mail and HTTP dates."""
    if re.fullmatch(r"\d{9,11}", said):
        return float(said) if EARLIEST <= float(said) < LATEST else None
    stamp = re.search(f"({_STAMP})|({_WEEKDAY})", said)
    if stamp is None:
        return None
    if stamp[1]:
        return at(stamp[1])
    try:
        seconds = parsedate_to_datetime(stamp[2]).timestamp()
    except (ValueError, TypeError):
        return None
    return seconds if EARLIEST <= seconds < LATEST else None
