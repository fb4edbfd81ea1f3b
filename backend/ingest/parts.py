"""Ports and mounts of a node as exporters label them: which of them are hardware or storage, and which only pass by."""

from __future__ import annotations

import re
from collections.abc import Mapping

from backend.facts import DeviceLabel

#: Network interfaces of hardware, as the kernel names them. Left out: bridges, tunnels, pairs of containers, VLANs.
_INTERFACE = re.compile(r"(?:en[opsx]\w+|eth\d+|em\d+|p\d+p\d+\w*|ib\w+|hsn\d+|bond\d+|rdma\d+|roce\w*|net\d+)")
#: Virtual functions come and go with the containers that they are given to.
_VIRTUAL = re.compile(r".*v(?:f)?\d+")
#: RDMA devices, as ``ibv_devices`` lists them; without those made of software.
_RDMA = re.compile(r"(?!rxe|siw)[A-Za-z][\w-]{0,30}")
#: File systems that hold no data of their own, or live as long as a container.
PASSING = frozenset({"autofs", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "efivarfs"})
PASSING |= {"fusectl", "hugetlbfs", "iso9660", "mqueue", "nsfs", "overlay", "proc", "pstore", "ramfs", "rpc_pipefs"}
PASSING |= {"securityfs", "selinuxfs", "squashfs", "sysfs", "tmpfs", "tracefs", "fuse.lxcfs", "fuse.portal"}
_PASSING_AT = re.compile(r"/(?:dev|proc|run|sys|snap|var/lib/(?:docker|containers|containerd|kubelet|rancher))(?:/.*)?")
#: The calls of an NFS client that say how its server does; the others are rare, or follow these.
OPERATIONS = frozenset({"READ", "WRITE", "COMMIT", "GETATTR", "LOOKUP", "OPEN", "ACCESS", "CREATE"})
#: Longest name that is kept, in characters.
MAX_NAME = 160


def part_label(axis: str, node: str, labels: Mapping[str, str]) -> DeviceLabel | None:
    """The port, mount or NFS call that ``labels`` name; None for what is none, or what only passes by."""
    if axis == "nic":
        return _nic(node, labels)
    if axis == "mount":
        return _mount(node, labels)
    return _call(node, labels) if axis == "mount_op" else None


def _nic(node: str, labels: Mapping[str, str]) -> DeviceLabel | None:
    device, port = labels.get("device", ""), labels.get("port", "")
    if port:
        name = device if port == "1" else f"{device}:{port}"
        return DeviceLabel("nic", node, index=name) if _RDMA.fullmatch(device) and port.isdecimal() else None
    hardware = _INTERFACE.fullmatch(device) and not _VIRTUAL.fullmatch(device)
    return DeviceLabel("nic", node, index=device) if hardware and len(device) <= MAX_NAME else None


def _mount(node: str, labels: Mapping[str, str]) -> DeviceLabel | None:
    point, kind = labels.get("mountpoint", ""), labels.get("fstype", "")
    passing = kind in PASSING or _PASSING_AT.fullmatch(point) is not None
    if passing or not _kept(point):
        return None
    return DeviceLabel("mount", node, index=point, export=_kept(labels.get("device", "")))


def _call(node: str, labels: Mapping[str, str]) -> DeviceLabel | None:
    export, operation = _kept(labels.get("export", "")), labels.get("operation", "")
    if not export or operation not in OPERATIONS:
        return None
    return DeviceLabel("mount_op", node, index=_kept(labels.get("mountpoint", "")), export=export, operation=operation)


def _kept(text: str) -> str:
    return text if len(text) <= MAX_NAME and text.isprintable() else ""
