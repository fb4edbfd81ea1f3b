"""A wrapped run from its first moment to its exit: log, child, report, and the child's own exit code."""

from __future__ import annotations

import errno
import os
import select
import signal
import stat
import sys
import time

from backend.wrap.child import RESTORED, Child, asks_to_end, execute, hold_standard_streams
from backend.wrap.place import Place, oom_kills
from backend.wrap.streams import Copying, Log, begin
from backend.wrap.words import USAGE, Options, WordError, leave, read, said

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn, Sequence

#: A stream that nothing came from for this long after the child ended is held by something it left behind.
LEFT_S = 0.25
#: How much longer than the patience the last words may take; and the reading of the log, on a busy node. Seconds.
LAST_S, READING_S = 0.5, 30.0
#: Longest wait for a log that a slow disk still has to take, in seconds.
SLOW_DISK_S = 10.0


def main(words: Sequence[str] | None = None) -> NoReturn:
    """Never returns: ends the process with the child's exit code, 2 for words that cannot be read."""
    words = sys.argv[1:] if words is None else words
    if words[:1] == ["--help"] or words[:1] == ["-h"]:
        leave(0, USAGE)
    try:
        options = read(words, os.environ)
    except WordError as error:
        leave(2, f"watchkeeper wrap: {error}\n\n{USAGE}")
    os._exit(run(options))


def run(options: Options) -> int:
    """The child's exit code. Where a run cannot be watched it is run all the same."""
    kills = oom_kills()
    try:
        place, child, copying, (folder, path), terminals = begun(options)
    except (OSError, AttributeError, ValueError) as error:
        said(f"{options.command[0]} runs unwatched: {type(error).__name__}: {error}")
        instead(options.command)
    child.wait(lambda: resize(copying, terminals))
    try:
        settle(child, copying)
        if child.code or options.tells:
            report(options, place, child, copying.log, folder, path, oom_kills() - kills)
    except Exception as error:  # noqa: BLE001 - the bulkhead: the exit code is the child's, whatever fails here
        said(f"the report failed: {type(error).__name__}: {error}")
    return child.code


def begun(options: Options) -> tuple[Place, Child, Copying, tuple[str, str], list[int]]:
    """The log, then the child, then the threads that copy. Raises what keeps a child from being watched."""
    for module, name in ((signal, "sigwaitinfo"), (select, "poll")):
        getattr(module, name)  # not every system has them
    hold_standard_streams()
    place = Place(os.environ, options.command, options.job, options.name)
    folder, path, fd = new_log(options.log_dir, place)
    terminals = [] if options.no_pty else [number for number in (1, 2) if os.isatty(number)]
    (out, child_out), (err, child_err) = channel(1 in terminals), channel(2 in terminals)
    child = Child(options.command)
    copying = Copying((out, err), (1, 2), Log(fd))
    child.start(child_out, child_err)
    os.close(child_out)
    os.close(child_err)
    copying.start()
    return place, child, copying, (folder, path), terminals


def instead(command: Sequence[str]) -> NoReturn:
    """Become the command."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for name in RESTORED:
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    execute(command)


def channel(terminal: bool) -> tuple[int, int]:
    """(to read, for the child): a pipe, or a pseudo-terminal of the same size that changes nothing of what passes."""
    if terminal:
        from backend.wrap.terminal import pair

        return pair()
    return os.pipe()


def resize(copying: Copying, terminals: Sequence[int]) -> None:
    if terminals:
        from backend.wrap.terminal import same_size

        for stream in copying.streams:
            if stream.sink in terminals and not stream.ended:
                same_size(stream.sink, stream.source)


def new_log(log_dir: str, place: Place) -> tuple[str, str, int]:
    """(folder, path, descriptor) of a log that was not there before; -1 where no folder takes one."""
    job = place.job or time.strftime("%Y%m%dT%H%M%S", time.localtime()) + f"-{os.getpid()}"
    name = "".join(c if c.isalnum() or c in "._+@=-" else "_" for c in f"{place.name}-{job}").lstrip(".")[:200]
    name += f"-restart-{place.restart}" if place.restart else ""
    why = ""
    spare = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"watchkeeper-logs-{os.getuid()}")  # nosec B108: see own()
    for base in (log_dir, spare):
        folder = os.path.join(base, name)
        try:
            if base is spare:
                own(spare)
            os.makedirs(folder, exist_ok=True)
            for number in range(1000):
                more = f".again-{number}" if number else ""
                path = os.path.join(folder, f"{place.label}{more}.log")
                try:
                    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o666)
                except FileExistsError:
                    continue
                if why:
                    said(f"{why}; the log is {path}")
                return folder, path, fd
        except OSError as error:
            why = why or f"{log_dir} takes no log ({error.strerror})"
    said(f"{why}; there is no log")
    return "", "", -1


def own(folder: str) -> None:
    """Make a folder where everybody may make folders; OSError where another account made it, or may write into it."""
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise PermissionError(errno.EPERM, "not a folder of this account alone", folder) from None


def settle(child: Child, copying: Copying) -> None:
    """The child has ended: pass on what it left in its streams. What it left running keeps them, and is served by a
    process of its own."""
    while not copying.all_ended():
        if copying.quiet(time.monotonic(), LEFT_S):
            copying.stop()
            while not copying.all_ended():
                child.next_signal(0.05)
            stay_behind(copying)
            break
        if asks_to_end(child.next_signal(LEFT_S / 5)):
            break
    until = time.monotonic() + SLOW_DISK_S
    while not copying.logged and copying.all_ended() and time.monotonic() < until:
        if asks_to_end(child.next_signal(0.05)):
            break


def stay_behind(copying: Copying) -> None:
    """Daemons of the child go on printing; another process passes that on until they end."""
    from backend.wrap.lingering import serve

    serve([stream for stream in copying.streams if not stream.closed], copying.log)


def report(options: Options, place: Place, child: Child, log: Log, folder: str, path: str, kills: int) -> None:
    """Say what happened, within the patience. A second word to end cuts it short; the report is on disk by then."""
    done: list[bool] = []
    kept: list[bool] = []
    until = time.monotonic() + options.patience_s

    def work() -> None:
        try:
            look_again()
            from backend.wrap.telling import tell

            tell(options, place, child, log, folder, path, kills, until, lambda: kept.append(True))
        except Exception as error:  # noqa: BLE001 - the same bulkhead, in this thread
            said(f"the report failed: {type(error).__name__}: {error}")

    begin(work, lambda: done.append(True))
    while not done and time.monotonic() < until + (LAST_S if kept else READING_S):
        if asks_to_end(child.next_signal(LAST_S)):
            said("told to end; the report is not sent any further")
            return


def look_again() -> None:
    """Our one file may have been replaced by a newer one while the child ran: what was remembered of where things stand
    in it is forgotten."""
    archive = sys.modules.get("zipimport")
    if archive is not None:
        sys.path_importer_cache.clear()
        getattr(archive, "_zip_directory_cache", {}).clear()
