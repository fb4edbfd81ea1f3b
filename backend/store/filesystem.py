"""Which file system a folder lies on, and whether SQLite's locks hold there."""

from __future__ import annotations

import re
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")

# fmt: off
#: Types whose locks or shared memory reach other machines. SQLite's WAL needs shared memory on one host
#: (sqlite.org/wal.html).
NETWORK = frozenset({
    "9p", "acfs", "afs", "beegfs", "beegfs_nodev", "ceph", "cifs", "coda", "fhgfs", "gfs", "gfs2", "glusterfs", "gpfs",
    "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb2", "smb3", "smbfs", "wekafs",
})
#: FUSE says its real type after a dot; these carry a remote store.
NETWORK_FUSE = frozenset({
    "beegfs", "ceph", "ceph-fuse", "cephfs", "cvmfs2", "gcsfuse", "glusterfs", "goofys", "hdfs", "hf3fs", "juicefs",
    "lustre", "mfs", "moosefs", "rclone", "s3fs", "s3ql", "seaweedfs", "smbnetfs", "sshfs", "weed",
})
# fmt: on


def network_type(folder: Path, mounts: Path = MOUNTS) -> str:
    """The type of the network file system that ``folder`` lies on; "" where it is local or cannot be told."""
    try:
        table = mounts.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
    kind = type_of(folder.resolve(), table)
    return kind if is_network(kind) else ""


def is_network(kind: str) -> bool:
    """True for ``nfs4``, ``fuse.sshfs`` and their like."""
    family, _, inner = kind.lower().partition(".")
    return inner in NETWORK_FUSE if family in ("fuse", "fuseblk") else family in NETWORK


def type_of(folder: Path, table: str) -> str:
    """The type of the mount with the longest prefix of ``folder``; of two on one place the later one covers."""
    best, found = -1, ""
    for line in table.splitlines():
        left, _, right = line.partition(" - ")
        fields, tail = left.split(), right.split()
        if len(fields) < 5 or not tail:
            continue
        place = Path(_unescaped(fields[4]))
        if (place == folder or place in folder.parents) and len(place.parts) >= best:
            best, found = len(place.parts), tail[0]
    return found


def _unescaped(text: str) -> str:
    """The kernel writes space, tab, newline and backslash as octal."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
