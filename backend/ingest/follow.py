"""Follows files through growth, rotation, truncation and restarts: every whole line once, within a budget a turn."""

from __future__ import annotations

import os
import stat
from collections import Counter, deque
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, replace

from backend.ingest.leftovers import beside, holds, where
from backend.ingest.track import ANYONE, MAX_LINE_BYTES, TAIL_BYTES, Print, Track, cut

#: A line that nobody ends is handed on when its file has been left alone for this long, in seconds.
GRACE_S = 60.0
#: So many equal bytes make another file the same one; fewer may be alike by chance.
ALIKE_BYTES = 16
#: Two names of one file are looked at again after this, in seconds.
ALIAS_S = 30.0
#: What is counted.
STATS, BYTES, CUT, LOST = "stats", "bytes", "lines cut", "files gone before they were read"
TRUNCATED, ROTATED, PASSED = "truncations", "rotations", "bytes passed over"


@dataclass(frozen=True, slots=True)
class Budget:
    """What following may cost. stats: looks at files a turn; bytes: read a turn; chunk_bytes: of one file before
    another has its turn; open_files: held open, so that what is renamed is still read to its end; quiet_s: the longest
    time between two looks at a file that does not grow; backlog_bytes: what of a file is read at most when it is first
    seen, its end."""

    stats: int = 10_000
    bytes: int = 16_777_216
    chunk_bytes: int = 262_144
    open_files: int = 256
    quiet_s: float = 0.0
    backlog_bytes: int = 67_108_864


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole lines of one file; the last lacks its newline where its file is over or it was cut. ``place`` names the
    file and stays the same over restarts; ``offset``: of the first byte; ``at_end``: nothing stands behind it."""

    path: str
    place: str
    offset: int
    chunk: bytes
    at_end: bool = False


class Follower:
    """Owned by one loop. ``want`` says which files, ``turn`` reads, ``moved`` tells what to keep, ``resume`` goes on
    from what was kept. Memory is a few hundred bytes a file, and one chunk.

    ``rotates``: what rotation leaves beside a file belongs to it; its folder is then looked through at each rotation.
    """

    def __init__(self, budget: Budget | None = None, grace_s: float = GRACE_S, *, rotates: bool = True) -> None:
        self._budget = budget or Budget()
        self._grace_s = grace_s
        self._rotates = rotates
        self._tracks: dict[str, Track] = {}
        self._leaving: dict[str, Track] = {}
        self._by_file: dict[tuple[int, int], Track] = {}
        self._turns: deque[str] = deque()
        self._moved: dict[str, Track | None] = {}
        self._open = 0
        self.counts: Counter[str] = Counter()
        self.problems: dict[str, str] = {}
        self.more = False

    # --- which files ------------------------------------------------------------------------------------------------

    @property
    def files(self) -> int:
        return len(self._tracks) + len(self._leaving)

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(self._tracks)

    def want(self, path: str, backlog_bytes: int | None = None, *, owner: int = ANYONE, again: bool = False) -> None:
        """Follow this file from now on; ``again``: also where it had ended. What it holds when it is first seen is read
        too, up to ``backlog_bytes`` of its end; None takes the budget's. It is read only where it is ``owner``'s."""
        track = self._tracks.get(path)
        if track is None:
            backlog = self._budget.backlog_bytes if backlog_bytes is None else backlog_bytes
            track = self._tracks[path] = Track(path, backlog=backlog)
            self._turns.append(path)
        elif track.ends and again:
            track.ends, track.over, track.due = False, False, 0.0
            self._keep(track)
        track.owner = owner

    def end(self, path: str, now: float) -> None:
        """Nobody writes it any more: read the rest, hand a last line on after the grace, then let it be."""
        track = self._tracks.get(path)
        if track is not None and not track.ends:
            track.ends, track.due, track.changed_at = True, 0.0, now
            self._keep(track)

    def done(self, path: str) -> bool:
        """Whether nothing more will come of a file: it ended, or is not followed."""
        track = self._tracks.get(path)
        return track is None or track.ends and track.over

    def forget(self, path: str) -> None:
        """Follow it no more, and keep no mark of it."""
        track = self._tracks.pop(path, None)
        if track is not None:
            self._let_go(track)
            self._moved[path] = None
        self.problems.pop(path, None)

    def back(self, piece: Piece, offset: int) -> None:
        """Lines from ``offset`` on were not taken after all, for what follows them may belong to them: they come again.
        For the piece that was just handed out, at the end of a file that is at its path."""
        track = self._tracks.get(piece.path)
        if track is not None and piece.at_end and piece.offset <= offset < track.offset and not track.over:
            before = piece.chunk[: offset - piece.offset][-TAIL_BYTES:]
            track.offset, track.tail, track.look = offset, Print.of(before), None

    def resume(self, marks: Mapping[str, str], again_bytes: int = 0) -> None:
        """Go on from the marks that were kept; what was read since is forgotten. ``again_bytes``: so much of each file
        is read once more, for readers that remember nothing."""
        for track in [*self._tracks.values(), *self._leaving.values()]:
            self._close(track)
        self._tracks = {path: Track(path, backlog=track.backlog) for path, track in self._tracks.items()}
        self._leaving, self._by_file, self._moved = {}, {}, {}
        for name, mark in marks.items():
            found = Track.from_mark(name, mark)
            if found is None:
                continue
            if found.leaves:
                found.path = found.leaves
                self._leaving[name] = found
            else:
                found.rewind(again_bytes)
                found.backlog = self._tracks[name].backlog if name in self._tracks else self._budget.backlog_bytes
                self._tracks[name] = found
            if found.known:
                self._by_file[found.identity] = found
        self._turns = deque(self._tracks)

    def moved(self) -> dict[str, str | None]:
        """Marks that changed since the last call."""
        found, self._moved = self._moved, {}
        return {name: None if track is None else track.mark() for name, track in found.items()}

    # --- one turn ---------------------------------------------------------------------------------------------------

    def turn(self, now: float) -> Generator[Piece, None, None]:
        """What was written since, a chunk a file in turn, until the budget is used up. ``now`` in unix s.

        A consumer may stop at any piece: those that it took count as read.
        """
        self.more = False
        grown = list(self._looked(now))
        ready = deque(track for track in [*self._leaving.values()] if self._look_leaving(track, now))
        ready.extend(grown)
        try:
            yield from self._read(ready, now)
        finally:
            if ready:
                self.more = True
                first = dict.fromkeys(track.path for track in ready if not track.leaves)
                self._turns = deque([*first, *(path for path in self._turns if path not in first)])

    def _looked(self, now: float) -> Iterator[Track]:
        """Those of the files whose turn it is that have something to read."""
        left = self._budget.stats
        for _ in range(len(self._turns)):
            path = self._turns[0]
            track = self._tracks.get(path)
            if track is not None and track.due <= now:
                if left <= 0:
                    return
                left -= 1
                if self._look(track, now):
                    yield track
            self._turns.popleft()
            if track is not None:
                self._turns.append(path)

    def _read(self, ready: deque[Track], now: float) -> Iterator[Piece]:
        left = self._budget.bytes
        while ready and left > 0:
            track = ready.popleft()
            before = self.counts[BYTES]
            try:
                piece, more = self._chunk(track, now)
            except OSError as error:
                self._problem(track, error, now)
                continue
            left -= max(self.counts[BYTES] - before, 1)
            if more:
                ready.append(track)
            if piece is not None:
                yield piece

    # --- looking ----------------------------------------------------------------------------------------------------

    def _look(self, track: Track, now: float) -> bool:
        """Stat one file; whether there is something to read."""
        self.counts[STATS] += 1
        try:
            found = os.stat(track.path)
        except FileNotFoundError:
            return self._missing(track, now)
        except OSError as error:
            self._problem(track, error, now)
            return False
        if not stat.S_ISREG(found.st_mode):
            self._problem(track, OSError(22, "is no regular file"), now)
            return False
        self.problems.pop(track.path, None)
        if not track.known:
            if not self._begin(track, found, now):
                return False
        elif not track.is_at(found) and not self._replaced_by_a_copy(track, found):
            self._rotated(track, found, now)
        elif found.st_size < max(track.offset, track.look[0] if track.look else 0):
            self._emptied(track, found, now)
        track.see(found, now)
        return self._due(track, now)

    def _due(self, track: Track, now: float) -> bool:
        """Whether to read now. A file that does not grow is looked at less and less often."""
        if not track.at_end:
            return True
        if (track.ends or track.leaves) and not track.over:
            return now - track.changed_at >= self._grace_s
        if track.over and track.ends:
            track.due = float("inf")
        elif self._budget.quiet_s:
            track.due = now + min(self._budget.quiet_s, (now - track.changed_at) / 10)
        return False

    def _begin(self, track: Track, found: os.stat_result, now: float) -> bool:
        """A file that was not there before: from its beginning, or from a line near its end where it is long. One that
        is followed under another name is not read twice."""
        other = self._by_file.get((found.st_dev, found.st_ino))
        if other is not None and other is not track and other.is_at(found):
            if not other.leaves and self._still_at(other):
                self.problems[track.path] = f"is the same file as {other.path}"
                track.due = now + ALIAS_S
                return False
            self._renamed(other, track)
            return True
        start = max(0, found.st_size - track.backlog)
        track.take(found, now, max(0, start - 1))
        self._by_file[track.identity] = track
        self.counts[PASSED] += start
        self._keep(track)
        return True

    def _still_at(self, track: Track) -> bool:
        try:
            return track.is_at(os.stat(track.path))
        except OSError:
            return False

    def _renamed(self, old: Track, track: Track) -> None:
        """A file that was followed under another name stands at this path now."""
        for name in ("device", "inode", "offset", "head", "tail", "skips", "fd", "look", "at_end", "over"):
            setattr(track, name, getattr(old, name))
        old.fd = -1
        if old.leaves:
            self._leaving.pop(old.name, None)
            self._moved[old.name] = None
        else:
            old.device = old.inode = old.offset = 0
            self._keep(old)
        self._by_file[track.identity] = track
        self._keep(track)

    def _replaced_by_a_copy(self, track: Track, found: os.stat_result) -> bool:
        """Whether the other file there holds what was read: a copy put in its place, or the same one under another
        device number after a mount. Where the old file still exists, it was rotated."""
        if track.fd >= 0 and os.fstat(track.fd).st_nlink:
            return False
        if track.head.length < ALIKE_BYTES or not holds(track, track.path, found):
            return False
        if self._rotates and any(track.is_at(at) for _, at in beside(track)):
            return False
        self._let_go(track)
        track.device, track.inode = found.st_dev, found.st_ino
        self._by_file[track.identity] = track
        self._keep(track)
        return True

    def _rotated(self, track: Track, found: os.stat_result, now: float) -> None:
        """Another file stands at the path."""
        self.counts[ROTATED] += 1
        if not self._leave(track, now) and not track.over:
            self.counts[LOST] += 1
        other = self._by_file.get((found.st_dev, found.st_ino))
        if other is not None and other.leaves and other.is_at(found):
            self._unlist(track)
            self._renamed(other, track)
            return
        self._anew(track, found, now)

    def _emptied(self, track: Track, found: os.stat_result, now: float) -> None:
        """The file was truncated or written anew: what a copy of it holds beyond our place is read from there."""
        self.counts[TRUNCATED] += 1
        self._leave(track, now, emptied=True)
        self._anew(track, found, now)

    def _anew(self, track: Track, found: os.stat_result, now: float) -> None:
        self._unlist(track)
        track.take(found, now)
        self._by_file[track.identity] = track
        self._keep(track)

    def _missing(self, track: Track, now: float) -> bool:
        """Nothing at the path: between two files of a rotation, or over. What is open, or found beside it, is still
        read; its place is remembered, for it may come back."""
        self.problems[track.path] = "is not there"
        if track.fd < 0 and track.known and self._rotates and not track.over:
            self._find(track)
        if track.fd < 0:
            if track.known and self._rotates and not (track.at_end or track.over):
                self.counts[LOST] += 1
            track.over = track.over or track.known
            if track.ends and now - track.changed_at >= self._grace_s:
                track.over, track.due = True, float("inf")
            elif self._budget.quiet_s:
                track.due = now + self._budget.quiet_s
            return False
        track.see(os.fstat(track.fd), now)
        if track.at_end and not track.over:
            return now - track.changed_at >= self._grace_s
        return not track.at_end

    # --- files that left their path -----------------------------------------------------------------------------------

    def _leave(self, track: Track, now: float, *, emptied: bool = False) -> bool:
        """Go on with the file that was at the path, by its open descriptor or where it is found beside it, and with
        those that came and went in between; where it was ``emptied``, with a copy. Whether it was found."""
        if not track.known or not self._rotates:
            self._let_go(track)
            return not track.known
        near = [one for one in beside(track) if not (emptied and track.is_at(one[1]))]
        base = track.leaves or track.path
        old = replace(track, leaves=base, look=None, at_end=False, over=False, changed_at=now)
        old.fd = -1 if emptied else track.fd
        since, found = track.written_ns, where(track, near)
        if track.fd >= 0 and not emptied:
            since, track.fd = os.fstat(track.fd).st_mtime_ns, -1
            self._add_leaving(old)
        elif found is not None:
            old.path, since = found[0], found[1].st_mtime_ns
            old.ends = not track.is_at(found[1])
            old.device, old.inode = found[1].st_dev, found[1].st_ino
            self._add_leaving(old)
        for path, at in near:
            if at.st_mtime_ns > since and (at.st_dev, at.st_ino) not in self._by_file and path != track.real:
                self._add_leaving(Track(path, at.st_dev, at.st_ino, leaves=base, changed_at=now))
        return old.name in self._leaving

    def _add_leaving(self, track: Track) -> None:
        self._leaving[track.name] = self._by_file[track.identity] = track
        self.more = True
        self._keep(track)

    def _look_leaving(self, track: Track, now: float) -> bool:
        """Whether a file that left its path has more, or is to be let go."""
        self.counts[STATS] += 1
        self._find(track)
        if track.fd < 0:
            self.counts[LOST] += 1
            self._drop(track)
            return False
        track.see(os.fstat(track.fd), now)
        return self._due(track, now)

    def _find(self, track: Track) -> None:
        """Open a file that is not at its path, under whatever name it has by now."""
        if track.fd >= 0:
            return
        near = (path for path, at in beside(track) if track.is_at(at))
        for path in dict.fromkeys((track.path, *near) if track.leaves else near):
            here, track.path = track.path, path
            try:
                self._hold(track)
            except OSError:
                continue
            finally:
                track.path = path if track.leaves else here
            return

    # --- reading ----------------------------------------------------------------------------------------------------

    def _chunk(self, track: Track, now: float) -> tuple[Piece | None, bool]:
        """The next whole lines of one file, and whether there may be more. Raises OSError."""
        self._hold(track)
        if not track.same(track.fd):
            return None, self._changed_within(track, now)
        chunk = os.pread(track.fd, self._budget.chunk_bytes, track.offset)
        self.counts[BYTES] += len(chunk)
        taken, start = cut(chunk, track.skips), track.offset
        piece = None
        if taken.next:
            over = len(chunk) < self._budget.chunk_bytes
            piece = self._piece(track, start + taken.start, chunk[taken.start : taken.end], over)
            self.counts[CUT] += taken.too_long
            self.counts[PASSED] += taken.next - (taken.end - taken.start)
            track.read_to(start + taken.next, chunk[max(0, taken.next - TAIL_BYTES) : taken.next])
            track.skips = taken.skips
            self._keep(track)
        if len(chunk) == self._budget.chunk_bytes:
            return piece, True
        if track.at_end and not taken.next:
            return self._last(track), False
        track.at_end = True
        if self._open > self._budget.open_files and not track.leaves:
            self._close(track)
        return piece, False

    def _changed_within(self, track: Track, now: float) -> bool:
        """The file no longer holds what was read of it: it was written anew in its place. Whether to read on."""
        if track.leaves and track.ends:  # the copy of another turn
            self._drop(track)
            return False
        self._emptied(track, os.fstat(track.fd), now)
        return True

    def _last(self, track: Track) -> Piece | None:
        """The file was left alone for the grace: its last line is handed on as it is."""
        rest = b"" if track.skips else os.pread(track.fd, MAX_LINE_BYTES, track.offset)
        piece = self._piece(track, track.offset, rest)
        if track.leaves:
            self._drop(track)
            return piece
        if rest:
            track.read_to(track.offset + len(rest), rest)
        track.over = True
        self._keep(track)
        self._close(track)
        return piece

    @staticmethod
    def _piece(track: Track, offset: int, chunk: bytes, at_end: bool = False) -> Piece | None:
        path = track.leaves or track.path
        return Piece(path, str(track.inode), offset, chunk, at_end and not track.leaves) if chunk else None

    # --- keeping ----------------------------------------------------------------------------------------------------

    def _hold(self, track: Track) -> None:
        if track.fd < 0:
            track.open()
            self._open += 1

    def _close(self, track: Track) -> None:
        if track.fd >= 0:
            track.close()
            self._open -= 1

    def _let_go(self, track: Track) -> None:
        """Close it, and forget that its file is followed."""
        self._close(track)
        self._unlist(track)

    def _unlist(self, track: Track) -> None:
        if self._by_file.get(track.identity) is track:
            del self._by_file[track.identity]

    def _keep(self, track: Track) -> None:
        self._moved[track.name] = track

    def _drop(self, track: Track) -> None:
        self._let_go(track)
        self._leaving.pop(track.name, None)
        self._moved[track.name] = None

    def _problem(self, track: Track, error: OSError, now: float) -> None:
        self._close(track)
        self.problems[track.leaves or track.path] = error.strerror or str(error)
        if track.leaves:
            self._drop(track)
        elif track.ends and now - track.changed_at >= self._grace_s:
            track.over, track.due = True, float("inf")
        elif self._budget.quiet_s:
            track.due = now + self._budget.quiet_s
