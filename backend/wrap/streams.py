"""What the child prints goes on at once, each stream by itself, and into one log by whole lines.

A thread a stream, and one for the log: a terminal that stands still, or a disk, holds up nobody else.
"""

from __future__ import annotations

import _thread
import errno
import os
import select
import signal
import time
from _queue import Empty, SimpleQueue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

#: Bytes of one read; a pipe holds 64 KiB unless somebody made it larger.
CHUNK = 1 << 16
#: Bytes that may wait for the log, and how long it may take none of them before they are left out.
MOST_WAITING, HUNG_S = 8 << 20, 10.0
#: A line without an end is waited for this long before the other stream is let in, and for this much of it.
WHOLE_S, MOST_HELD = 0.05, 1 << 16
#: Of what was printed, this much of the start and of the end is kept in memory, for a log that cannot be read back.
HEAD, TAIL = 1 << 16, 1 << 18
OUT, ERR = 0, 1


class Log:
    """One log of both streams, line by line in the order of arrival. It never raises: what a disk does not take is
    counted, and the run goes on."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.queue: SimpleQueue[Any] = SimpleQueue()
        self.put = 0
        self.taken = 0
        self.lost = 0
        self.size = 0
        self.trouble = ""
        self.head = bytearray()
        self.tail: list[tuple[int, bytes]] = []
        self._tail_bytes = 0
        self._open = -1
        self._at = 0.0
        self._held = [b"", b""]

    def take(self, stream: int, chunk: bytes) -> None:
        """Called by the stream's thread. Waits for a slow disk, not for one that hangs."""
        if self.put - self.taken > MOST_WAITING and not self._room():
            self.lost += len(chunk)
            self.trouble = self.trouble or "the disk takes nothing"
            return
        self.put += len(chunk)
        self.queue.put((stream, chunk))

    def _room(self) -> bool:
        before, until = self.taken, time.monotonic() + HUNG_S
        while self.put - self.taken > MOST_WAITING:
            if self.taken != before:
                before, until = self.taken, time.monotonic() + HUNG_S
            if time.monotonic() > until or self.trouble == "the disk takes nothing":
                return False
            time.sleep(0.005)
        return True

    def write(self, streams: int) -> None:
        """The body of the log's thread: until so many streams have ended, each by a chunk that is None."""
        while streams:
            waiting = self._held[OUT] or self._held[ERR]
            try:
                stream, chunk = self.queue.get(True, WHOLE_S) if waiting else self.queue.get()
            except Empty:
                self._let_in()
                continue
            if chunk is None:
                streams -= 1
                continue
            self._place(stream, chunk)
            self.taken += len(chunk)
        for stream in (OUT, ERR):
            self._append(stream, self._held[stream])
            self._held[stream] = b""

    def _place(self, stream: int, chunk: bytes) -> None:
        if self._open in (-1, stream):
            self._append(stream, chunk)
            if self._open == -1 and self._held[1 - stream]:
                self._let_in()
            return
        self._held[stream] += chunk
        if len(self._held[stream]) > MOST_HELD or time.monotonic() - self._at > WHOLE_S:
            self._let_in()

    def _let_in(self) -> None:
        """The other stream waited long enough; a line that is still open is ended, as on a terminal of its own."""
        for stream in (OUT, ERR):
            held, self._held[stream] = self._held[stream], b""
            if held:
                self._append(stream, b"\n" + held if self._open == 1 - stream else held)

    def _append(self, stream: int, text: bytes) -> None:
        if not text:
            return
        self._open = -1 if text.endswith(b"\n") else stream
        self._at = time.monotonic()
        if len(self.head) < HEAD:
            self.head += text[: HEAD - len(self.head)]
        self.tail.append((stream, text))
        self._tail_bytes += len(text)
        while self._tail_bytes - len(self.tail[0][1]) > TAIL:
            self._tail_bytes -= len(self.tail.pop(0)[1])
        rest = memoryview(text)
        while self.fd >= 0 and rest:
            try:
                done = os.write(self.fd, rest)
            except OSError as error:
                self.trouble = error.strerror or str(error)
                self.lost += len(rest)
                return
            self.size += done
            rest = rest[done:]
        self.lost += len(rest)


class Stream:
    """One stream of the child, copied on by its own thread."""

    def __init__(self, which: int, source: int, sink: int, log: Log) -> None:
        self.which = which
        self.source = source
        self.sink = sink
        self.log = log
        self.ended = False
        #: The source reached its end (True), or somebody still holds it (False).
        self.closed = False
        #: Since when nothing came (monotonic s), 0.0 while something is being passed on.
        self.idle_since = 0.0
        self.bytes = 0
        self.trouble = ""

    def copy(self, stop: int) -> None:
        """Until the source ends, or ``stop`` can be read. A reader that went away closes the source: the child learns
        of it as it would without us."""
        poll = select.poll()
        poll.register(self.source, select.POLLIN)
        poll.register(stop, select.POLLIN)
        while True:
            self.idle_since = time.monotonic()
            ready = [fd for fd, _ in poll.poll()]
            self.idle_since = 0.0
            if self.source not in ready:
                return
            chunk = read(self.source)
            if not chunk:
                self.closed = True
                return
            self.bytes += len(chunk)
            self.log.take(self.which, chunk)
            self.trouble = pass_on(self.sink, chunk) or self.trouble
            if self.trouble == GONE:
                self.closed = True
                return


#: What ``pass_on`` says of a reader that went away.
GONE = "its reader went away"


def read(fd: int) -> bytes:
    """b"" at the end; a pseudo-terminal says EIO there."""
    try:
        return os.read(fd, CHUNK)
    except OSError:
        return b""


def pass_on(fd: int, chunk: bytes) -> str:
    """Write it all. Returns what stood in the way, "" for nothing: a full disk costs its bytes and no more."""
    rest = memoryview(chunk)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:  # somebody made it so; it is theirs too
            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            poll.poll(1000)
        except OSError as error:
            return GONE if error.errno == errno.EPIPE else error.strerror or str(error)
    return ""


def begin(work: Callable[[], object], done: Callable[[], object]) -> None:
    """Run ``work`` in a thread; ``done`` comes after it, and then the main thread is woken."""

    def body() -> None:
        try:
            work()
        finally:
            done()
            os.kill(os.getpid(), signal.SIGCHLD)

    _thread.start_new_thread(body, ())


class Copying:
    """Both streams and the log, going on by themselves."""

    def __init__(self, sources: tuple[int, int], sinks: tuple[int, int], log: Log) -> None:
        self.log = log
        self.streams = [Stream(which, sources[which], sinks[which], log) for which in (OUT, ERR)]
        self.logged = False
        self._stop_read, self._stop = os.pipe()

    def start(self) -> None:
        for stream in self.streams:
            begin(lambda s=stream: s.copy(self._stop_read), lambda s=stream: self._ended(s))  # type: ignore[misc]
        begin(lambda: self.log.write(len(self.streams)), self._logged)

    def _ended(self, stream: Stream) -> None:
        if stream.closed:
            os.close(stream.source)
        stream.ended = True
        self.log.queue.put((stream.which, None))

    def _logged(self) -> None:
        self.logged = True

    def all_ended(self) -> bool:
        return all(stream.ended for stream in self.streams)

    def quiet(self, now: float, for_s: float) -> bool:
        """Nothing comes any more, though somebody still holds a stream. ``now``: monotonic s."""
        waiting = [stream for stream in self.streams if not stream.ended]
        return all(stream.idle_since and now - stream.idle_since > for_s for stream in waiting)

    def stop(self) -> None:
        """End the threads that wait for more."""
        os.close(self._stop)
