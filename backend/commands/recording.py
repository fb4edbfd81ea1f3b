"""serve --record: what comes in is written as a bundle, for a replay of what happened."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from backend.registry import Parts
from backend.replay.record import Recorder
from backend.watch import Watch

MIB = 1024 * 1024


class RecordError(Exception):
    """A recording that cannot begin: why, and how to mend it."""


@contextmanager
def recording(parts: Parts, folder: Path | None, most_mib: int) -> Iterator[None]:
    """Record every watch while the block runs: in ``folder``, or in a folder of it for each of several clusters.
    ``most_mib`` bounds all of them together. Raises RecordError."""
    with ExitStack() as open_ones:
        if folder is not None:
            if parts.role != "all":
                raise RecordError("--record needs --role all: a process that only observes does not see every event")
            for name, watch in parts.watches.items():
                into = folder if len(parts.watches) == 1 else folder / name
                recorder = _begun(into, most_mib * MIB // len(parts.watches), watch)
                open_ones.callback(_end, recorder, into)
        yield


def _begun(folder: Path, most_bytes: int, watch: Watch) -> Recorder:
    try:
        return Recorder(watch, folder, most_bytes)
    except FileExistsError as error:
        raise RecordError(f"{folder} holds a recording already: name a new folder with --record") from error
    except OSError as error:
        raise RecordError(f"{folder} cannot be written: {error.strerror or error}") from error


def _end(recorder: Recorder, folder: Path) -> None:
    recorder.close()
    lost = recorder.left_out
    left_out = f"; {lost:,} samples left out of metrics that have no name in the catalogue" if lost else ""
    print(f"Recorded {recorder.bytes / MIB:,.1f} MiB in {folder}: {recorder.ended}{left_out}.", file=sys.stderr)
    print(f"Run it again with: watchkeeper replay {folder} --out DIR", file=sys.stderr)
