"""What Kubernetes says of its nodes and pods as events: its own Events, conditions that turned bad, boots, versions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from backend.clients.kubernetes_json import at, dig, text, whole
from backend.clients.kubernetes_nodes import NodeRecord
from backend.clients.kubernetes_pods import Pod
from backend.facts import MaintenanceFacts, RawEvent, VersionFacts

#: Longest text of an event that is kept, in characters.
LONGEST = 2000
#: What the kubelet says once a node is up again, with the id of the new boot.
REBOOTED = "Rebooted"
_BOOT_ID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_NOT_CODE = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True)
class Said:
    """One Event object. Both forms are read: core/v1, and events.k8s.io/v1 with its series."""

    uid: str
    count: int
    at: float
    kind: str
    namespace: str
    name: str
    object_uid: str
    host: str
    reason: str
    message: str
    component: str
    type: str

    def event(self, nodes: Set[str], pods: Mapping[str, Pod]) -> RawEvent | None:
        """None for what concerns no node and no pod of ours."""
        pod = pods.get(self.object_uid) if self.kind == "Pod" else None
        host = self.name if self.kind == "Node" else pod.node if pod is not None else ""
        host = host or (self.host if self.host in nodes else "")
        if self.kind == "Node" and self.name not in nodes:
            return None
        if self.kind != "Node" and pod is None:
            return None
        boot = _BOOT_ID.search(self.message) if self.reason == REBOOTED else None
        if boot is not None:
            return boot_event(host, self.at, boot[0])
        told = {"kind": self.kind, "name": self.name, "count": str(self.count), "type": self.type}
        told |= {"component": self.component} if self.component else {}
        told |= {"namespace": self.namespace} if pod is not None else {}
        code = _NOT_CODE.sub("_", self.reason)[:80] or "unknown"
        words = f"{f'{self.namespace}/{self.name}: ' if pod is not None else ''}{self.message}"[:LONGEST]
        job = pod.id if pod is not None else ""
        return RawEvent(self.at, host, "k8s", code, words, f"k8s {self.uid} {self.count}", job=job, attrs=told)


def said_of(found: Any) -> Said | None:
    """One event; None where it has no uid or no time."""
    about = "involvedObject" if dig(found, "involvedObject") is not None else "regarding"
    times: tuple[tuple[str, ...], ...] = (
        ("series", "lastObservedTime"),
        ("lastTimestamp",),
        ("deprecatedLastTimestamp",),
        ("eventTime",),
    )
    times += (("firstTimestamp",), ("metadata", "creationTimestamp"))
    when = next((moment for path in times if (moment := at(found, *path)) is not None), None)
    uid = text(found, "metadata", "uid")
    if when is None or not uid:
        return None
    counts = (whole(found, "series", "count"), whole(found, "count"), whole(found, "deprecatedCount"))
    return Said(
        uid,
        next((count for count in counts if count), 1),
        when,
        text(found, about, "kind"),
        text(found, about, "namespace"),
        text(found, about, "name"),
        text(found, about, "uid"),
        text(found, "source", "host") or text(found, "deprecatedSource", "host"),
        text(found, "reason"),
        text(found, "message") or text(found, "note"),
        text(found, "source", "component") or text(found, "reportingComponent") or text(found, "reportingController"),
        text(found, "type"),
    )


def boot_event(node: str, when: float, boot_id: str) -> RawEvent:
    words = "Kubernetes reports a new boot id"
    told = {"source": "kubernetes", "boot_id": boot_id}
    return RawEvent(when, node, "boot", "boot", words, f"k8s boot {node} {boot_id}", attrs=told)


class Told:
    """What was told of nodes already: a condition, a boot, a version is news only once."""

    def __init__(self) -> None:
        self._boots: dict[str, str] = {}
        self._kept: dict[str, str] = {}
        self._conditions: set[str] = set()
        self._usable: dict[str, int] = {}
        self._versions: dict[tuple[str, str], str] = {}
        self._images: dict[tuple[str, str], str] = {}
        self._notices: dict[str, MaintenanceFacts] = {}

    def resume(self, boots: Mapping[str, str]) -> None:
        """Begin with the boot ids that were told; the rest is told again, and known as the same."""
        self._boots, self._kept = dict(boots), dict(boots)
        self._conditions, self._usable, self._versions, self._images, self._notices = set(), {}, {}, {}, {}

    def marks(self) -> dict[str, str | None]:
        """Boot ids that are new since the last call."""
        moved: dict[str, str | None] = {n: boot for n, boot in self._boots.items() if self._kept.get(n) != boot}
        moved |= {node: None for node in self._kept if node not in self._boots}
        self._kept = dict(self._boots)
        return moved

    def conditions(self, records: Sequence[NodeRecord], now: float) -> Iterator[RawEvent]:
        """Boots, conditions that turned bad, and GPUs that the device plugin no longer gives out."""
        now_bad = set[str]()
        for record in records:
            yield from self._boot(record, now)
            for event in _bad(record, now):
                now_bad.add(event.dedupe)
                if event.dedupe not in self._conditions:
                    yield event
            yield from self._gpus(record, now)
        self._conditions = now_bad
        gone = self._boots.keys() - {record.facts.name for record in records}
        for name in gone:
            self._boots.pop(name)
            self._usable.pop(name, None)

    def versions(self, records: Sequence[NodeRecord], now: float) -> Iterator[VersionFacts]:
        for record in records:
            for item, value in record.versions.items():
                key = (record.facts.name, item)
                if self._versions.get(key) != value:
                    self._versions[key] = value
                    yield VersionFacts(record.facts.name, item, value, now, source="kubernetes")

    def images(self, pods: Sequence[Pod], now: float) -> Iterator[VersionFacts]:
        """What the work on each node runs, by job."""
        seen: dict[tuple[str, str], str] = {}
        for pod in pods:
            key = (pod.node, f"image {pod.id}")
            if pod.node and pod.image and not pod.daemon and not pod.over:
                seen[key] = pod.image
                if self._images.get(key) != pod.image:
                    when = pod.started if pod.started is not None and pod.started <= now else now
                    yield VersionFacts(pod.node, "image", pod.image, when, job=pod.id, source="kubernetes")
        self._images = seen

    def notices(self, records: Sequence[NodeRecord], now: float) -> Iterator[MaintenanceFacts]:
        """Windows as they are now, and the end of those that are no longer announced."""
        found: dict[str, MaintenanceFacts] = {}
        for record in records:
            node = record.facts.name
            for one in record.notices:
                name = f"k8s {node} {one.sign}"
                before = self._notices.get(name)
                start = one.start if one.start is not None else before.start if before else now
                found[name] = MaintenanceFacts(f"{name} {start:.0f}", (node,), start, None, one.text, "kubernetes")
        for name, before in self._notices.items():
            if name not in found or found[name].name != before.name:
                end = max(now, before.start)
                yield MaintenanceFacts(before.name, before.nodes, before.start, end, before.text, before.source)
        yield from (one for name, one in found.items() if self._notices.get(name) != one)
        self._notices = found

    def _boot(self, record: NodeRecord, now: float) -> Iterator[RawEvent]:
        """A boot id that differs from the one that was known; the kubelet came up at the latest when it was ready."""
        node, boot_id = record.facts.name, record.boot_id
        known = self._boots.get(node)
        if boot_id and known != boot_id:
            self._boots[node] = boot_id
            if known is not None:
                since = record.ready.since
                yield boot_event(node, since if since is not None and since <= now else now, boot_id)

    def _gpus(self, record: NodeRecord, now: float) -> Iterator[RawEvent]:
        node, usable, there = record.facts.name, record.usable_gpus, record.facts.expected_gpus
        if usable is None:
            return
        before = self._usable.get(node, there)
        self._usable[node] = usable
        if usable < min(before, there):
            words = f"{usable} of {there} GPUs can be given out"
            dedupe = f"k8s gpus {node} {usable} {record.version}"
            yield RawEvent(now, node, "k8s", "GpuNotAllocatable", words, dedupe, attrs={"source": "kubernetes"})


def _bad(record: NodeRecord, now: float) -> Iterator[RawEvent]:
    node = record.facts.name
    for one in record.problems:
        code = "NodeNotReady" if one.type == "Ready" else _NOT_CODE.sub("_", one.type)[:80] or "unknown"
        words = ": ".join(filter(None, (one.type, one.reason, one.message)))[:LONGEST]
        since = one.since if one.since is not None and one.since <= now else now
        dedupe = f"k8s condition {node} {one.type} {one.since or one.reason}"
        attrs = {"source": "kubernetes", "condition": one.type, "reason": one.reason}
        yield RawEvent(since, node, "k8s", code, words, dedupe, attrs=attrs)
