"""One watch a data folder: two that judge the same store would open every incident twice."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import TextIO

from backend.store.engine import StoreError

FILE = "watchkeeper.lock"


def take_alone(folder: Path) -> TextIO:
    """The open lock of a data folder; keep it as long as the process works. The kernel lets go of it at any death.

    Raises StoreError naming the process that has it, OSError where the folder cannot be written.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = (folder / FILE).open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.seek(0)
        who = lock.read().strip() or "unknown"
        lock.close()
        raise StoreError(
            f"another Watchkeeper (process {who}) already watches with the folder {folder}",
            "Stop that one, or give this one a [store] folder and a database of its own.",
        ) from error
    lock.seek(0)
    lock.truncate()
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock
