"""What lies in a bundle's folder: its description, its parts and their files, and which parts are missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import orjson
from pydantic import Field, ValidationError

from backend.ingest.base import SourceError
from backend.ingest.rows import MaybeMoment, Name, Row, problem_of

#: Parts of a bundle and where their files lie (DESIGN, the replay bundle).
PARTS: Mapping[str, tuple[str, ...]] = {
    "topology": ("topology.json",),
    "jobs": ("jobs/sacct.txt",),
    "logs": ("logs/*.jsonl",),
    "telemetry": ("telemetry/*.om", "telemetry/*.om.gz"),
    "job_logs": ("jobs/logs/*/*.log",),
    "training": ("training/*.jsonl",),
    "checkpoints": ("checkpoints.jsonl",),
}
#: In which order everything came, in a bundle that a running watch recorded (``recorded``).
ARRIVALS = "arrivals.jsonl"
#: Files that describe a bundle or judge it, and are no part of what is replayed.
ASIDE = frozenset({"bundle.json", "truth.jsonl", ARRIVALS})
VERSION = 1


class BundleError(SourceError):
    """A bundle cannot be read at all: what is wrong, where, and how to mend it."""

    def __init__(self, what: str, where: Path | str, fix: str) -> None:
        super().__init__(f"{where}: {what}. {fix}", permanent=True)
        self.what = what
        self.where = str(where)
        self.fix = fix


@dataclass(frozen=True, slots=True)
class PartFile:
    """One file of a part; ``name`` is its path inside the bundle with ``/``, by which ties are broken."""

    name: str
    path: Path
    size: int


class Description(Row):
    """``bundle.json``. Times are unix s or RFC 3339; ``timezone`` is what naive times of sacct are written in.

    interval_s, lateness_s: distance of ticks and how long they wait, where a recording knows them.
    """

    version: int = VERSION
    cluster: Name = "main"
    start: MaybeMoment = None
    end: MaybeMoment = None
    timezone: str = Field("UTC", min_length=1)
    interval_s: float | None = Field(None, ge=1)
    lateness_s: float | None = Field(None, ge=0)


def described(folder: Path) -> tuple[Description, tzinfo]:
    """The description of a bundle and its time zone; without a bundle.json the defaults. Raises BundleError."""
    path = folder / "bundle.json"
    try:
        found = Description.model_validate(orjson.loads(path.read_bytes()) if path.exists() else {})
    except OSError as error:
        raise BundleError(f"cannot be read: {error.strerror}", path, "Check its rights.") from error
    except orjson.JSONDecodeError as error:
        raise BundleError(f"is no JSON: {error}", path, 'Write {"version": 1, "cluster": "main"}.') from error
    except ValidationError as error:
        name, problem = problem_of(error)
        raise BundleError(f"{name}: {problem}", path, "Mend it, or leave it out.") from error
    if found.version != VERSION:
        raise BundleError(f"version {found.version} is not known", path, f"This release reads version {VERSION}.")
    if found.start is not None and found.end is not None and found.end < found.start:
        raise BundleError("end lies before start", path, "Exchange them, or leave one out.")
    return found, _zone(found.timezone, path)


def _zone(name: str, path: Path) -> tzinfo:
    if name.upper() in ("UTC", "ETC/UTC", "Z"):
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        fix = "Write an IANA name such as Europe/Berlin, and check that the system has its tzdata."
        raise BundleError(f"timezone {name[:60]!r} is not known here", path, fix) from error


def found_parts(folder: Path) -> tuple[dict[str, tuple[PartFile, ...]], tuple[str, ...]]:
    """Files by part, sorted by name, parts without files left out; and names of the files that belong to no part.

    Raises BundleError where there is no such folder, or nothing in it that could be replayed.
    """
    if not folder.is_dir():
        what = "is no folder" if folder.exists() else "does not exist"
        raise BundleError(what, folder, "Give the folder that holds telemetry/, logs/ or jobs/.")
    try:
        parts = {part: _files(folder, patterns) for part, patterns in PARTS.items()}
        known = ASIDE | {one.name for files in parts.values() for one in files}
        every = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        ignored = tuple(sorted(set(every) - known))
    except OSError as error:
        raise BundleError(f"cannot be listed: {error.strerror}", folder, "Check its rights.") from error
    present = {part: files for part, files in parts.items() if files}
    if not present and not (folder / ARRIVALS).is_file():
        wanted = ", ".join(pattern for patterns in PARTS.values() for pattern in patterns)
        raise BundleError("holds no part of a bundle", folder, f"Put any of these there: {wanted}.")
    return present, ignored


def _files(folder: Path, patterns: tuple[str, ...]) -> tuple[PartFile, ...]:
    found = [path for pattern in patterns for path in folder.glob(pattern) if path.is_file()]
    return tuple(sorted((part_file(folder, path) for path in found), key=lambda one: one.name))


def part_file(folder: Path, path: Path) -> PartFile:
    return PartFile(path.relative_to(folder).as_posix(), path, path.stat().st_size)
