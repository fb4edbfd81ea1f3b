"""Whom a kernel line is held against: the card, the network port, the node, the file server or the job."""

from __future__ import annotations

import re

from detectors.kernel.codes import Code
from detectors.model import Entity, Event, Fleet

#: Slurm and Kubernetes name the job in the path of its control group.
_JOB = re.compile(r"/job_(\d{1,12})(?:/|$)")


def owner_of(event: Event, code: Code, fleet: Fleet) -> Entity:
    """The entity of an event by the scope of its code, as far as the line and the fleet name one; else its node."""
    here = event.entity
    host = here.host
    if code.scope == "gpu":
        uuid = ("gpu", event.attrs.get("uuid", ""))
        return fleet.entity("gpu", fleet.slots[uuid]) if here.kind == "node" and uuid in fleet.slots else here
    if code.scope == "fs" and (server := event.attrs.get("server", "")):
        return Entity(here.cluster, "fs", server[:200], f"fs:{server}")
    if code.scope == "job" and (job := job_of(event)):
        return Entity(here.cluster, "job", job, f"job:{job}")
    if not host:
        return here
    if code.scope == "nic" and (port := port_of(event)):
        name = f"{host}/nic:{port}"
        return Entity(here.cluster, "nic", name, name, host)
    if here.kind == "gpu":
        slot = fleet.slots.get(("node", host))
        return fleet.entity("node", slot) if slot is not None else Entity(here.cluster, "node", host, host, host)
    return here


def job_of(event: Event) -> str:
    """The job whose limit was met: from the control group, else where the line came with one."""
    found = _JOB.search(event.attrs.get("cgroup", "") or event.attrs.get("limited", ""))
    return found[1] if found else event.entity.id if event.entity.kind == "job" else ""


def port_of(event: Event) -> str:
    """The network port of a line: by the name that telemetry has for it, where the inventory joined the two; by its PCI
    address where that is said, so that names may differ; else its name."""
    attrs = event.attrs
    if joined := attrs.get("nic", ""):
        return joined
    pci, function = attrs.get("pci", ""), attrs.get("function", "")
    if pci:
        return f"{pci}.{function}" if function else pci
    named = (attrs.get(key, "") for key in ("device", "name", "port", "ready", "hfi"))
    return next((name for name in named if name and not name.isdigit()), "")
