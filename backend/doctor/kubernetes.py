"""A Kubernetes cluster: reachable, and which of the rights that we need we have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from backend.clients.kubernetes import KubeClient, KubeError
from backend.clients.kubernetes_rights import lacking, version
from backend.doctor.line import Line, failed, off, ok, warning
from backend.settings import Mode

MANIFEST = "Apply what `watchkeeper kubernetes-manifest` prints"
OLDEST = (1, 20)


def reached(name: str, client: KubeClient) -> Iterator[Line]:
    try:
        found = version(client)
    except KubeError as error:
        yield failed(name, str(error), "See that kubectl get nodes works here with the same kubeconfig and context.")
        return
    numbers = tuple(int(part) for part in found.lstrip("v").split(".")[:2] if part.isdigit())
    text = f"{client.where} answers, Kubernetes {found}"
    if numbers and numbers < OLDEST:
        yield warning(name, text, "Use Kubernetes 1.20 or later: older ones were never tried.")
    else:
        yield ok(name, text)


def nodes(name: str, client: KubeClient) -> Iterator[Line]:
    try:
        count = sum(len(items) for items, _ in client.pages("/api/v1/nodes"))
    except KubeError as error:
        yield failed(name, str(error), f"{MANIFEST} --observe.")
        return
    if count:
        yield ok(name, f"{count} may be read")
    else:
        yield warning(name, "the cluster has none", "Check context: it may be another cluster.")


def to_see(name: str, client: KubeClient, namespaces: Sequence[str]) -> Iterator[Line]:
    """Told by access reviews: nothing is tried."""
    yield from _said(name, client, namespaces, act=False, mode="observe")


def to_act(name: str, client: KubeClient, namespaces: Sequence[str], mode: Mode) -> Iterator[Line]:
    """Told by access reviews: nothing is tried."""
    yield from _said(name, client, namespaces, act=True, mode=mode)


def _said(name: str, client: KubeClient, namespaces: Sequence[str], *, act: bool, mode: Mode) -> Iterator[Line]:
    try:
        found = lacking(client, act, namespaces)
        before = lacking(client, False, namespaces) if act else []
    except KubeError as error:
        yield failed(name, str(error), "Ask for the right to create selfsubjectaccessreviews (system:basic-user).")
        return
    found = [one for one in found if one not in before]
    if not found:
        yield ok(name, "every right that is needed; nothing was tried")
        return
    needed = [one for one in found if one[0].needed]
    places = {right.resource: f" in {place}" if place else "" for right, _, place in found}
    wanted = "; ".join(
        f"may not {', '.join(verb for right, verb, _ in found if right.resource == resource)} {resource}{place}"
        for resource, place in places.items()
    )
    if act and mode == "observe":
        yield off(name, f"{wanted}; observe needs none", f"{MANIFEST}, before mode becomes propose or act.")
    elif needed:
        yield failed(name, wanted, f"{MANIFEST}{'' if act else ' --observe'}.")
    else:
        why = ", ".join(dict.fromkeys(right.why for right, _, _ in found))
        yield warning(name, f"{wanted}: it cannot {why}", f"{MANIFEST}{'' if act else ' --observe'}.")
