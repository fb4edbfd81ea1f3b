"""A faithful fake of a kube-apiserver: lists in pages, watches with bookmarks, versions, conflicts, rights, evictions.

``tests/contracts/kube_api.py`` holds it to what a real one does. It keeps objects as they are given and runs no
controller; tests are the kubelet and the controllers.
"""

from __future__ import annotations

import copy
import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from backend.clients.kubernetes_access import Access

#: What the server serves: (group, version) to its resources and their kinds; those of CLUSTER_WIDE have no namespace.
CORE = {"nodes": "Node", "pods": "Pod", "events": "Event", "namespaces": "Namespace"}
API: dict[tuple[str, str], dict[str, str]] = {
    ("", "v1"): CORE,
    ("batch", "v1"): {"jobs": "Job"},
    ("policy", "v1"): {"poddisruptionbudgets": "PodDisruptionBudget"},
    ("apps", "v1"): {"replicasets": "ReplicaSet", "statefulsets": "StatefulSet", "deployments": "Deployment"},
    ("authorization.k8s.io", "v1"): {"selfsubjectaccessreviews": "SelfSubjectAccessReview"},
}
CLUSTER_WIDE = frozenset({"nodes", "namespaces", "selfsubjectaccessreviews"})
ADMIN = "admin-token"
Key = tuple[str, str, str, str]  # group, resource, namespace, name
Object = dict[str, Any]


class Refused(Exception):
    """An answer other than 2xx, as a Status object."""

    def __init__(self, code: int, reason: str, message: str, causes: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.code, self.reason, self.causes = code, reason, causes


@dataclass(frozen=True)
class Asked:
    """A request that was understood."""

    verb: str
    group: str
    version: str
    resource: str
    namespace: str
    name: str
    sub: str
    params: Mapping[str, str]
    user: str
    manager: str


@dataclass
class FakeKube:
    """The server's state. ``calls`` counts what was asked for, as (verb, group, resource/sub)."""

    api: dict[tuple[str, str], dict[str, str]] = field(default_factory=lambda: dict(API))
    tokens: dict[str, str] = field(default_factory=lambda: {ADMIN: "admin"})
    #: user to what it may: (verb, group, resource/sub); a user without an entry may everything.
    rules: dict[str, set[tuple[str, str, str]]] = field(default_factory=dict)
    calls: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    objects: dict[Key, Object] = field(default_factory=dict)
    #: Answers given before anything is looked at: (status, headers), each once.
    instead: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    #: (namespace, pod, container) to what it printed: (time in ns, line).
    printed: dict[tuple[str, str, str], list[tuple[int, str]]] = field(default_factory=dict)
    url: str = ""
    eviction: str = "v1"
    #: A watch ends after this many seconds at the latest, so that tests of many reads do not wait for each.
    longest_watch_s: float = 3600.0

    def __post_init__(self) -> None:
        self.lock = threading.Condition()
        self.version = 1000
        self.oldest = 0
        self.log: list[tuple[int, str, Key, Object]] = []
        self.answers = threading.Event()
        self.answers.set()

    def access(self, token: str = ADMIN) -> Access:
        return Access(self.url, None, lambda: token)

    # --- what tests do ----------------------------------------------------------------------------------------------

    def compact(self) -> None:
        """The server forgets all versions before now, as etcd does after five minutes."""
        with self.lock:
            self.log.clear()
            self.oldest = self.version

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Inside the block connections are taken, and nobody is answered."""
        self.answers.clear()
        try:
            yield
        finally:
            self.answers.set()

    # --- verbs ------------------------------------------------------------------------------------------------------

    def answer(self, asked: Asked, body: Object, kind: str) -> Object:
        what = asked.resource + (f"/{asked.sub}" if asked.sub else "")
        self.calls[(asked.verb, asked.group, what)] += 1
        if asked.resource == "selfsubjectaccessreviews":
            return self._review(asked, body)
        if not self.may(asked.user, asked.verb, asked.group, what):
            where = f' in the namespace "{asked.namespace}"' if asked.namespace else " at the cluster scope"
            told = f'User "{asked.user}" cannot {asked.verb} resource "{asked.resource}"'
            told += f' in API group "{asked.group}"{where}'
            raise Refused(403, "Forbidden", f'{asked.resource} "{asked.name}" is forbidden: {told}')
        with self.lock:
            match asked.verb:
                case "list":
                    return self._list(asked)
                case "get" if asked.sub == "log":
                    return self._printed(asked)
                case "get":
                    return copy.deepcopy(self._known(asked))
                case "create" if asked.sub == "eviction":
                    return self._evict(asked, body)
                case "create":
                    return self._create(asked, body)
                case "patch":
                    return self._patch(asked, body, kind)
                case "delete":
                    return self._delete(asked, body)
        raise Refused(405, "MethodNotAllowed", f"{asked.verb} is not allowed here")

    def may(self, user: str, verb: str, group: str, what: str) -> bool:
        return user not in self.rules or (verb, group, what) in self.rules[user]

    def _review(self, asked: Asked, body: Object) -> Object:
        wanted = body.get("spec", {}).get("resourceAttributes", {})
        what = wanted.get("resource", "") + (f"/{wanted['subresource']}" if wanted.get("subresource") else "")
        allowed = self.may(asked.user, wanted.get("verb", ""), wanted.get("group", ""), what)
        return {**body, "status": {"allowed": allowed}}

    def _list(self, asked: Asked) -> Object:
        limit, start, version = int(asked.params.get("limit") or 0), 0, self.version
        if token := asked.params.get("continue"):
            start, version = json.loads(token)
            if version < self.oldest:
                raise Refused(410, "Expired", "The provided continue parameter is too old to display a consistent list")
        named = sorted(key for key in self.objects if _within(key, asked) and _chosen(self.objects[key], asked.params))
        shown = named[start : start + limit] if limit else named[start:]
        meta: Object = {"resourceVersion": str(version)}
        if limit and start + limit < len(named):
            meta["continue"] = json.dumps([start + limit, version])
        kind = self.api[(asked.group, asked.version)][asked.resource]
        items = [_bare(self.objects[key]) for key in shown]
        return {"kind": f"{kind}List", "apiVersion": _api_version(asked), "metadata": meta, "items": items}

    def _known(self, asked: Asked) -> Object:
        key = (asked.group, asked.resource, asked.namespace, asked.name)
        if key not in self.objects:
            raise Refused(404, "NotFound", f'{asked.resource} "{asked.name}" not found')
        return self.objects[key]

    def _printed(self, asked: Asked) -> Object:
        """The log of a pod: since a whole second, cut where it is too long, as the kubelet does it."""
        self._known(asked)
        container = asked.params.get("container", "")
        lines = self.printed.get((asked.namespace, asked.name, container))
        if lines is None:
            told = f'container "{container}" in pod "{asked.name}" is waiting to start: ContainerCreating'
            raise Refused(400, "BadRequest", told)
        since = asked.params.get("sinceTime", "1970-01-01T00:00:00Z")
        first = int(datetime.fromisoformat(since).timestamp()) * 1_000_000_000
        shown = "".join(f"{_nano(ns)} {line}\n" for ns, line in lines if ns >= first)
        return {"text": shown[: int(asked.params.get("limitBytes", "1000000000"))]}

    def _create(self, asked: Asked, body: Object) -> Object:
        made = copy.deepcopy(body)
        meta = made.setdefault("metadata", {})
        name = meta.get("name") or meta.get("generateName", "") + uuid.uuid4().hex[:5]
        key = (asked.group, asked.resource, asked.namespace, name)
        if key in self.objects:
            raise Refused(409, "AlreadyExists", f'{asked.resource} "{name}" already exists')
        meta |= {"name": name, "uid": str(uuid.uuid4()), "creationTimestamp": meta.get("creationTimestamp") or _now()}
        if asked.namespace:
            meta["namespace"] = asked.namespace
        made |= {"kind": self.api[(asked.group, asked.version)][asked.resource], "apiVersion": _api_version(asked)}
        _sign(made, {}, asked.manager)
        return self._put(key, made, "ADDED")

    def _patch(self, asked: Asked, body: Object, kind: str) -> Object:
        before = self._known(asked)
        if kind != "application/merge-patch+json":
            raise Refused(415, "UnsupportedMediaType", f"the fake knows no {kind}")
        wanted = body.get("metadata", {}).get("resourceVersion")
        if wanted is not None and wanted != before["metadata"]["resourceVersion"]:
            told = "the object has been modified; please apply your changes to the latest version and try again"
            raise Refused(409, "Conflict", f'Operation cannot be fulfilled on {asked.resource} "{asked.name}": {told}')
        body = (
            {"status": body.get("status", {})}
            if asked.sub == "status"
            else {k: v for k, v in body.items() if k != "status"}
        )
        after = _merged(before, body)
        for fixed in ("uid", "creationTimestamp", "resourceVersion", "managedFields", "deletionTimestamp"):
            if fixed in before["metadata"]:
                after["metadata"][fixed] = before["metadata"][fixed]
        if asked.resource == "nodes":
            _mirror_cordon(after)
        if after == before:
            return copy.deepcopy(before)  # nothing changed: no new version, no new signature, no event
        _sign(after, before, asked.manager)
        return self._put((asked.group, asked.resource, asked.namespace, asked.name), after, "MODIFIED")

    def _delete(self, asked: Asked, body: Object) -> Object:
        found = self._known(asked)
        key = (asked.group, asked.resource, asked.namespace, asked.name)
        _check_uid(found, body, asked)
        grace = str(body.get("gracePeriodSeconds", asked.params.get("gracePeriodSeconds")))
        if asked.resource == "pods":
            if "deletionTimestamp" in found["metadata"] and grace != "0":
                return copy.deepcopy(found)
            going = copy.deepcopy(found)  # the kubelet ends it, and then deletes it with no grace
            going["metadata"] |= {"deletionTimestamp": _now(), "deletionGracePeriodSeconds": 0 if grace == "0" else 30}
            found = self._put(key, going, "MODIFIED")
            if found.get("spec", {}).get("nodeName") and grace != "0":
                return found
        del self.objects[key]
        self._log("DELETED", key, copy.deepcopy(found))
        return copy.deepcopy(found)

    def _evict(self, asked: Asked, body: Object) -> Object:
        """Refused while a disruption budget that selects the pod allows none (policy/v1 semantics)."""
        pod = self._known(asked)
        if body.get("apiVersion") != f"policy/{self.eviction}" or body.get("kind") != "Eviction":
            raise Refused(400, "BadRequest", "no kind Eviction is registered for this version")
        _check_uid(pod, body.get("deleteOptions", {}), asked)
        over = pod.get("status", {}).get("phase") in ("Succeeded", "Failed", "Pending")
        for key, budget in [] if over else list(self.objects.items()):
            if key[1:3] == ("poddisruptionbudgets", asked.namespace) and _selected(budget, pod):
                status = budget.get("status", {})
                if status.get("disruptionsAllowed", 0) < 1:
                    told = "Cannot evict pod as it would violate the pod's disruption budget."
                    wants, has = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
                    cause = f"The disruption budget {key[3]} needs {wants} healthy pods and has {has} currently"
                    raise Refused(429, "TooManyRequests", told, (cause,))
        self._delete(asked, body.get("deleteOptions", {}))
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}

    def _put(self, key: Key, made: Object, change: str) -> Object:
        made["metadata"]["resourceVersion"] = str(self.version + 1)
        self.objects[key] = made
        self._log(change, key, copy.deepcopy(made))
        return copy.deepcopy(made)

    def _log(self, change: str, key: Key, shown: Object) -> None:
        self.version += 1
        shown["metadata"]["resourceVersion"] = str(self.version)
        self.log.append((self.version, change, key, shown))
        self.lock.notify_all()

    # --- watching ---------------------------------------------------------------------------------------------------

    def watch(self, asked: Asked) -> Iterator[Object]:
        """Changes after the given version, until ``timeoutSeconds``; a bookmark ends it where asked for."""
        what = asked.resource
        self.calls[("watch", asked.group, what)] += 1
        if not self.may(asked.user, "watch", asked.group, what):
            raise Refused(403, "Forbidden", f'{what} is forbidden: User "{asked.user}" cannot watch resource "{what}"')
        since = int(asked.params.get("resourceVersion") or 0)
        end = time.monotonic() + min(float(asked.params.get("timeoutSeconds") or 60), self.longest_watch_s)
        if since < self.oldest:
            told = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 410}
            yield {
                "type": "ERROR",
                "object": {**told, "reason": "Expired", "message": f"too old resource version: {since}"},
            }
            return
        while time.monotonic() < end:
            with self.lock:
                fresh = [entry for entry in self.log if entry[0] > since]
                if not fresh:
                    self.lock.wait(max(0.0, end - time.monotonic()))
            for version, change, key, shown in fresh:
                since = version
                if _within(key, asked) and _chosen(shown, asked.params):
                    yield {"type": change, "object": shown}
        if asked.params.get("allowWatchBookmarks") == "true":
            kind = self.api[(asked.group, asked.version)][what]
            mark = {"kind": kind, "apiVersion": _api_version(asked), "metadata": {"resourceVersion": str(since)}}
            yield {"type": "BOOKMARK", "object": mark}

    # --- discovery --------------------------------------------------------------------------------------------------

    def discover(self, path: str) -> Object | None:
        if path == "/version":
            return {"major": "1", "minor": "31", "gitVersion": "v1.31.0"}
        if path == "/apis":
            named = sorted({group for group, _ in self.api if group})
            return {"kind": "APIGroupList", "groups": [self._group(name) for name in named]}
        parts = path.strip("/").split("/")
        place = (
            ("", "v1") if path == "/api/v1" else tuple(parts[1:3]) if parts[0] == "apis" and len(parts) == 3 else None
        )
        if place is None or place not in self.api:
            return None
        found = [
            {"name": name, "kind": kind, "namespaced": name not in CLUSTER_WIDE, "verbs": ["get", "list", "watch"]}
            for name, kind in self.api[place].items()
        ]
        if path == "/api/v1":
            evict = {"name": "pods/eviction", "kind": "Eviction", "namespaced": True, "verbs": ["create"]}
            found.append(evict | {"group": "policy", "version": self.eviction})
        return {"kind": "APIResourceList", "groupVersion": "/".join(filter(None, place)), "resources": found}

    def _group(self, name: str) -> Object:
        versions = [{"groupVersion": f"{name}/{v}", "version": v} for group, v in self.api if group == name]
        return {"name": name, "versions": versions, "preferredVersion": versions[0]}


# --- objects --------------------------------------------------------------------------------------------------------


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _api_version(asked: Asked) -> str:
    return f"{asked.group}/{asked.version}" if asked.group else asked.version


def _within(key: Key, asked: Asked) -> bool:
    return key[:2] == (asked.group, asked.resource) and asked.namespace in ("", key[2])


def _bare(found: Object) -> Object:
    """Items of a list carry no kind and no apiVersion."""
    return {k: copy.deepcopy(v) for k, v in found.items() if k not in ("kind", "apiVersion")}


def _merged(before: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    after = copy.deepcopy(before) if isinstance(before, dict) else {}
    for key, said in patch.items():
        if said is None:
            after.pop(key, None)
        else:
            after[key] = _merged(after.get(key), said)
    return after


def _mirror_cordon(node: Object) -> None:
    """An empty list of taints and a false unschedulable are not stored."""
    spec = node.get("spec", {})
    for key in ("taints", "unschedulable"):
        if key in spec and not spec[key]:
            del spec[key]


def _sign(after: Object, before: Object, manager: str) -> None:
    """managedFields of the one field that matters here: who set spec.unschedulable."""
    now, then = after.get("spec", {}).get("unschedulable"), before.get("spec", {}).get("unschedulable")
    entries = [one for one in before.get("metadata", {}).get("managedFields", []) if now == then]
    if now != then and now is not None:
        fields: Object = {"f:spec": {"f:unschedulable": {}}}
        made = {"manager": manager, "operation": "Update", "apiVersion": "v1", "time": _now()}
        entries.append({**made, "fieldsType": "FieldsV1", "fieldsV1": fields})
    after["metadata"].pop("managedFields", None)
    if entries:
        after["metadata"]["managedFields"] = entries


def _check_uid(found: Object, options: Object, asked: Asked) -> None:
    wanted = options.get("preconditions", {}).get("uid")
    if wanted and wanted != found["metadata"]["uid"]:
        told = f"the UID in the precondition ({wanted}) does not match the UID in record ({found['metadata']['uid']})"
        raise Refused(409, "Conflict", f'Operation cannot be fulfilled on {asked.resource} "{asked.name}": {told}')


def _selected(budget: Object, pod: Object) -> bool:
    wanted = budget.get("spec", {}).get("selector", {}).get("matchLabels", {})
    labels = pod["metadata"].get("labels", {})
    return bool(wanted) and all(labels.get(key) == said for key, said in wanted.items())


def _chosen(found: Object, params: Mapping[str, str]) -> bool:
    labels = found["metadata"].get("labels", {})
    for term in filter(None, params.get("labelSelector", "").split(",")):
        key, _, said = term.replace("==", "=").partition("=")
        if labels.get(key) != said:
            return False
    for term in filter(None, params.get("fieldSelector", "").split(",")):
        differs = "!=" in term
        path, _, said = term.replace("!=", "=").replace("==", "=").partition("=")
        here: Any = found
        for part in path.split("."):
            here = here.get(part, "") if isinstance(here, dict) else ""
        if (str(here) == said) == differs:
            return False
    return True


def _nano(ns: int) -> str:
    """RFC 3339 as Go writes it: without the zeros at the end of the fraction."""
    whole = datetime.fromtimestamp(ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f"{ns % 1_000_000_000:09}".rstrip("0")
    return f"{whole}.{fraction}Z" if fraction else f"{whole}Z"
