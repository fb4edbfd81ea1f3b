"""Logs of jobs that nobody wrapped: followed while they run, read to their end after it, within a budget."""

from __future__ import annotations

import os
import pwd
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

from backend.facts import AttemptFacts, Batch, RawEvent
from backend.ingest.base import SourceError
from backend.ingest.files import Where
from backend.ingest.follow import BYTES, STATS, Budget, Follower, Piece
from backend.ingest.lineforms import PLAIN, Form, read_line, sniff
from backend.ingest.linetimes import Origin
from backend.ingest.tails import KEPT_CHARS, TailLine, Tails
from detectors.model import Need

#: Looks, bytes and files that shared file systems bear: a turn every few seconds, nothing held open.
BUDGET = Budget(stats=200, bytes=4_194_304, open_files=0, quiet_s=60.0, backlog_bytes=16_777_216)
MOST_FILES = 2_000
#: Which attempts run is asked this often, and files of one that ended are read for this long, in seconds.
CHOOSE_S, LINGER_S = 10.0, 3_600.0
#: A file that ended is let be when nothing more came for this long, in seconds: network file systems show late.
GRACE_S = 30.0
#: After a restart so much of a log is read again, for the listener remembers nothing.
AGAIN_BYTES = 262_144
#: Lines of one chunk that go into the tail of a job; those before them are only counted.
TAIL_LINES = 200
#: Marks of attempts whose end was told.
_TOLD = "ended "
#: Forms in which a container runtime wraps what a job printed.
WRAPPED = frozenset({"cri", "docker"})
#: What is no place for a job's log.
_NEVER = ("/proc/", "/sys/", "/dev/", "/run/")
_RANKS = (
    re.compile(r"/attempt_\d{1,4}/(\d{1,6})/(?:stdout|stderr)\.log$"),
    re.compile(r"(?:rank|task|proc|worker)[._-]?(\d{1,6})(?!\d)[^/]{0,40}$", re.IGNORECASE),
    re.compile(r"[._-](\d{1,5})\.(?:out|err|log|stdout|stderr)\.?(?:txt)?$"),
)


@dataclass(frozen=True, slots=True)
class JobFile:
    """One log of one attempt. ``rank`` as far as the path tells, "" = not."""

    job: str
    restart: int
    path: str
    rank: str = ""


class Listener(Protocol):
    """What makes events of what jobs print; none of it is ever the kernel's word."""

    def hear(self, file: JobFile, chunk: bytes, place: str, now: float) -> Sequence[RawEvent]:
        """Whole lines of one log, as they come. ``place`` is the same for the same chunk read twice."""
        ...

    def ended(self, attempt: AttemptFacts, files: Sequence[JobFile], now: float) -> Sequence[RawEvent]:
        """All logs of an attempt were read to their end; ``files`` are those that no later attempt writes."""
        ...


class Streams(Protocol):
    """Logs that are no files: those of pods. An output that begins with ``scheme`` is one of them."""

    @property
    def scheme(self) -> str: ...

    def place(self, output: str) -> str:
        """What is read for an output; of several with the same place only the newest attempt's can be read."""
        ...

    def read(self, output: str, after: str, most_bytes: int) -> tuple[bytes, str]:
        """Whole lines after the position ``after`` ("" = from the start, or what is left of it), and the new position.
        Raises SourceError."""
        ...


def uid_of(user: str) -> int | None:
    """The number of an account, which schedulers print where they know no name; None where it is not known here."""
    if user.isascii() and user.isdecimal():
        return int(user) if len(user) < 11 else None
    try:
        return pwd.getpwnam(user).pw_uid if user else None
    except (KeyError, ValueError):
        return None


class JobLogSource:
    """``attempts`` gives those that run or ended lately, ``tails`` keeps their last lines. One belongs to one loop.

    A job may name any file as its log, so only those that belong to the account that runs it are read: none where that
    account is not known here, and none of the accounts in ``never`` (numbers; None: root and ours).
    """

    def __init__(
        self,
        attempts: Callable[[float], Sequence[AttemptFacts]],
        tails: Tails,
        where: Where,
        budget: Budget = BUDGET,
        most_files: int = MOST_FILES,
        listener: Listener | None = None,
        streams: Streams | None = None,
        uid: Callable[[str], int | None] = uid_of,
        never: frozenset[int] | None = None,
        name: str = "job logs",
    ) -> None:
        self._name, self._attempts, self._tails, self._where = name, attempts, tails, where
        self._budget, self._most_files, self._uid = budget, most_files, uid
        self._listener, self._streams = listener, streams
        self._never = frozenset({0, os.geteuid()}) if never is None else never
        self._follower = Follower(budget, GRACE_S, rotates=False)
        self._files: dict[str, JobFile] = {}
        self._pods: dict[str, JobFile] = {}
        self._turns: deque[str] = deque()
        self._after: dict[str, str] = {}
        self._moved: dict[str, str | None] = {}
        self._ended: dict[tuple[str, int], AttemptFacts] = {}
        self._mine: dict[tuple[str, int], list[JobFile]] = {}
        self._told: set[tuple[str, int]] = set()
        self._forms: dict[str, Form] = {}
        self._chosen: float | None = None
        self._began = False
        self._counts: Counter[str] = Counter()
        self._left_out = self._nobodys = 0

    @property
    def name(self) -> str:
        return self._name

    def resume(self, marks: Mapping[str, str]) -> None:
        """Go on from what was committed last."""
        scheme = self._streams.scheme if self._streams is not None else "\0"
        told = {name: mark for name, mark in marks.items() if name.startswith(_TOLD)}
        self._told = {(job, int(restart)) for name in told for job, _, restart in (name[len(_TOLD) :].rpartition("/"),)}
        self._after = {name: mark for name, mark in marks.items() if name.startswith(scheme)}
        others = {name: mark for name, mark in marks.items() if name not in told and name not in self._after}
        self._follower.resume(others, 0 if self._began or self._listener is None else AGAIN_BYTES)
        self._began = True
        self._chosen, self._moved = None, {}

    def counts(self) -> Mapping[str, float]:
        """What it read, and the load it put on shared file systems, since the start."""
        problems = Counter(self._follower.problems.values())
        there = problems.total() - problems["is not there"]
        shown = {name: float(n) for name, n in self._follower.counts.items() if name not in (STATS, BYTES)}
        return {
            "files": self._follower.files + len(self._pods),
            "files over the limit": self._left_out,
            "files of accounts that are not known here": self._nobodys,
            "not readable": there,
            "looks": self._follower.counts[STATS],
            "bytes": self._follower.counts[BYTES] + self._counts["bytes of pods"],
            **shown,
            **self._counts,
        }

    def read(self, needs: Set[Need], start: float, end: float) -> Batch:
        """Events of what jobs printed since, up to the budget: what it leaves comes with the next turn, so that the
        load is bounded in time too."""
        self._choose(end)
        found: list[RawEvent] = []
        with closing(self._follower.turn(end)) as pieces:
            for piece in pieces:
                found += self._heard(piece, end)
        found += self._pods_heard(end)
        found += self._endings(end)
        self._tails.flush()
        marks = {**self._follower.moved(), **self._moved}
        self._moved = {}
        return Batch(self._name, end, end, events=tuple(found), marks=marks)

    # --- which files ------------------------------------------------------------------------------------------------

    def _choose(self, now: float) -> None:
        """Ask which attempts run, and follow their logs; the newest owner of a path has it."""
        if self._chosen is not None and 0 <= now - self._chosen < CHOOSE_S:
            return
        self._chosen = now
        attempts = sorted(self._attempts(now), key=lambda one: (one.end is None, one.start or 0.0), reverse=True)
        wanted: dict[str, AttemptFacts] = {}
        for attempt in attempts:
            for output in attempt.outputs:
                wanted.setdefault(output, attempt)
        may_be = [one for one in self._newest(wanted) if self._may_be(one[0])]
        owned = [one for one in may_be if self._is_pod(one[0]) or self._owner(one[1]) is not None]
        chosen = dict(owned[: self._most_files])
        self._nobodys = len(may_be) - len(owned)
        self._left_out = len(wanted) - len(chosen) - self._nobodys
        pods = {path for path in chosen if self._is_pod(path)}
        self._files = {path: _file(one, path) for path, one in chosen.items() if path not in pods}
        self._pods = {path: _file(one, path) for path, one in chosen.items() if path in pods}
        self._follow(chosen, now)
        keys = {(one.job, one.restart) for one in attempts}
        self._mine = {}
        for file in self._files.values():
            self._mine.setdefault((file.job, file.restart), []).append(file)
        heard = self._listener is not None
        over = {(one.job, one.restart): one for one in attempts if one.end is not None and (one.outputs or heard)}
        self._ended = {key: one for key, one in over.items() if key not in self._told}
        for job, restart in self._told - keys:
            self._moved[f"{_TOLD}{job}/{restart}"] = None
        self._told &= keys

    def _follow(self, chosen: Mapping[str, AttemptFacts], now: float) -> None:
        """Files of those that run, and of those that ended to their end; no others."""
        for path in self._follower.paths:
            if path not in self._files:
                self._follower.forget(path)
                self._forms.pop(path, None)
        for path in self._files:
            owner, runs = self._owner(chosen[path]), chosen[path].end is None
            if owner is not None:
                self._follower.want(path, owner=owner, again=runs)
            if not runs:
                self._follower.end(path, now)
        for path in [path for path in self._after if path not in self._pods]:
            del self._after[path]
            self._moved[path] = None
        self._turns = deque([*(path for path in self._turns if path in self._pods)])
        self._turns.extend(path for path in self._pods if path not in self._turns)

    def _owner(self, attempt: AttemptFacts) -> int | None:
        """Whose files may be read for an attempt; None: nobody's."""
        uid = self._uid(attempt.user)
        return None if uid in self._never else uid

    def _newest(self, wanted: Mapping[str, AttemptFacts]) -> Iterator[tuple[str, AttemptFacts]]:
        """Without the streams of which only a later one can be read."""
        places: set[str] = set()
        for output, attempt in wanted.items():
            if self._streams is not None and self._is_pod(output):
                place = self._streams.place(output)
                if place in places:
                    continue
                places.add(place)
            yield output, attempt

    def _is_pod(self, output: str) -> bool:
        return self._streams is not None and output.startswith(self._streams.scheme)

    def _may_be(self, output: str) -> bool:
        plain = "/" + os.path.normpath(output).lstrip("/")  # POSIX keeps two slashes at the beginning
        return self._is_pod(output) or os.path.isabs(output) and "\0" not in output and not plain.startswith(_NEVER)

    # --- lines --------------------------------------------------------------------------------------------------------

    def _heard(self, piece: Piece, now: float) -> Sequence[RawEvent]:
        file = self._files.get(piece.path)
        if file is None:
            return ()
        self._keep(file, piece.chunk, piece.place, piece.offset, now)
        if self._listener is None:
            return ()
        return self._listener.hear(file, piece.chunk, f"{piece.place}:{piece.offset}", now)

    def _keep(self, file: JobFile, chunk: bytes, place: str, offset: int, now: float) -> None:
        """The last lines of a chunk go into the tail of their job. ``offset``: where it stands in ``place``."""
        count = chunk.count(b"\n") + (not chunk.endswith(b"\n"))
        self._counts["lines"] += count
        self._tails.lines += max(0, count - TAIL_LINES)
        origin = Origin(self._where.host, now, self._where.zone)
        form = self._forms.get(file.path)
        if form is None or form is PLAIN:
            form = self._forms[file.path] = sniff(chunk[:16_384].decode(errors="replace").splitlines(), origin)
        rows = chunk.removesuffix(b"\n").rsplit(b"\n", TAIL_LINES)
        offset += len(rows[0]) + 1 if len(rows) > TAIL_LINES else 0
        for raw in rows[-TAIL_LINES:]:
            text = raw[: 4 * KEPT_CHARS].decode(errors="replace").rstrip("\r")
            said = read_line(form, text, origin)
            at = said.at if said.at is not None and said.at <= now else now
            shown = said.text if form.name in WRAPPED or file.path in self._pods else text
            self._tails.keep(file.job, TailLine(at, shown, file.path, said.host, file.rank, f"{place}:{offset}"))
            offset += len(raw) + 1

    def _pods_heard(self, now: float) -> Iterator[RawEvent]:
        """A few pods a turn, in turn. One that cannot be read costs no other."""
        left = self._budget.bytes
        for _ in range(min(len(self._turns), max(1, self._budget.stats // 10))):
            if left <= 0 or self._streams is None:
                return
            output = self._turns[0]
            self._turns.rotate(-1)
            after = self._after.get(output, "")
            try:
                chunk, position = self._streams.read(output, after, min(left, self._budget.chunk_bytes))
            except SourceError as error:
                self._counts["pods not readable"] += 1
                self._follower.problems[output] = str(error)
                continue
            self._follower.problems.pop(output, None)
            self._counts["looks at pods"] += 1
            self._counts["bytes of pods"] += len(chunk)
            left -= len(chunk)
            if position != after:
                self._after[output] = self._moved[output] = position
            if chunk:
                self._keep(self._pods[output], chunk, f"{output}:{after}", 0, now)
                if self._listener is not None:
                    yield from self._listener.hear(self._pods[output], chunk, f"{output}:{after}", now)

    def _endings(self, now: float) -> Iterator[RawEvent]:
        """Once for each attempt that ended, when all of its own logs were read."""
        for key, attempt in list(self._ended.items()):
            mine = self._mine.get(key, [])
            if not all(self._follower.done(file.path) for file in mine):
                continue
            if attempt.end is not None and now - attempt.end < GRACE_S:
                continue
            del self._ended[key]
            self._told.add(key)
            self._moved[f"{_TOLD}{attempt.job}/{attempt.restart}"] = "told"
            if self._listener is not None:
                yield from self._listener.ended(attempt, mine, now)


def rank_of(path: str) -> str:
    """The rank that the name of a log tells: torchrun's folders, ``rank3``, ``-t_3``, ``job.3.out``; "" = none."""
    for pattern in _RANKS:
        found = pattern.search(path)
        if found is not None:
            return str(int(found[1]))
    return ""


def _file(attempt: AttemptFacts, path: str) -> JobFile:
    rank = rank_of(path)
    return JobFile(attempt.job, attempt.restart, path, "" if rank == attempt.job.partition("_")[0] else rank)
