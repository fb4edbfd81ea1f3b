"""A process that stays for what the child left running: it passes on what that prints, until it ends."""

from __future__ import annotations

import os
import select
import signal

from backend.wrap.streams import GONE, Log, Stream, pass_on, read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence


def serve(streams: Sequence[Stream], log: Log) -> None:
    """Fork; the parent returns at once. The copying threads of these streams have ended, the log's too."""
    try:
        if os.fork():
            for stream in streams:
                os.close(stream.source)
            return
    except OSError:
        return
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        _copy({stream.source: stream for stream in streams}, log.fd)
    finally:
        os._exit(0)


def _copy(open_ones: dict[int, Stream], log: int) -> None:
    poll = select.poll()
    for fd in open_ones:
        poll.register(fd, select.POLLIN)
    while open_ones:
        for fd, _ in poll.poll():
            chunk = read(fd)
            if log >= 0 and chunk:
                pass_on(log, chunk)
            if not chunk or pass_on(open_ones[fd].sink, chunk) == GONE:
                poll.unregister(fd)
                os.close(fd)
                del open_ones[fd]
