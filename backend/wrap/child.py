"""The child: started as a shell would, told every signal that we are told, and waited for."""

from __future__ import annotations

import errno
import os
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, NoReturn, Sequence

#: Exit codes of a shell for a command that is there and cannot be run, and for one that is not there.
CANNOT, NOT_FOUND, BY_SIGNAL = 126, 127, 128
#: Said by the kernel itself (``siginfo.h``, SI_KERNEL): a key of the terminal, which the whole group hears.
SI_KERNEL = 128
#: Signals that are handed on. What stops or ends us unasked (KILL, STOP) and what our own faults raise is not.
HANDED_ON = (
    "SIGHUP SIGINT SIGQUIT SIGTERM SIGUSR1 SIGUSR2 SIGALRM SIGVTALRM SIGPROF SIGWINCH SIGURG SIGIO SIGPWR SIGXCPU "
    "SIGTSTP SIGCONT".split()
)
ASKS_TO_END = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM")
#: What the interpreter ignores for itself, and a program expects to find as it was.
RESTORED = ("SIGPIPE", "SIGXFSZ")


def handed_on() -> list[int]:
    """Their numbers, real-time ones too, without those that whoever started us has us ignore (nohup)."""
    numbers = [int(getattr(signal, name)) for name in HANDED_ON if hasattr(signal, name)]
    numbers += range(int(signal.SIGRTMIN), int(signal.SIGRTMAX) + 1)
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


def hold_standard_streams() -> None:
    """A standard stream that is closed would lend its number to a pipe of ours; nothing stands in for it."""
    while True:
        fd = os.open(os.devnull, os.O_RDWR)
        if fd > 2:
            os.close(fd)
            return
        os.set_inheritable(fd, True)


class Child:
    """One child process. Signals to hand on are blocked in us from before it starts, so that none is lost."""

    def __init__(self, command: Sequence[str]) -> None:
        self.command = command
        self.pid = 0
        self.status: int | None = None
        self.began = self.ended = time.time()
        self.told: list[tuple[float, str]] = []
        self.numbers = handed_on()
        self._errors = -1
        self._failure: int | None = None

    def start(self, out: int, err: int) -> None:
        """Fork and run the command with ``out`` and ``err`` as its standard streams."""
        ignored = signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
        if ignored:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {*self.numbers, signal.SIGCHLD})
        self._errors, report = os.pipe()
        self.began = time.time()
        self.pid = os.fork()
        if self.pid:
            os.close(report)
            return
        try:
            os.dup2(out, 1)
            os.dup2(err, 2)
            for name in RESTORED:
                signal.signal(getattr(signal, name), signal.SIG_DFL)
            if ignored:
                signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            execute(self.command, report)
        finally:
            os._exit(CANNOT)

    def next_signal(self, timeout_s: float | None) -> int:
        """Wait for one signal, and deal with it. 0 when none came in time."""
        every = [*self.numbers, signal.SIGCHLD]
        got = signal.sigwaitinfo(every) if timeout_s is None else signal.sigtimedwait(every, max(0.0, timeout_s))
        if got is None:
            return 0
        if got.si_signo == signal.SIGCHLD:
            self._reap()
        elif self.status is None:
            self._hand_on(got.si_signo, got.si_code)
        return int(got.si_signo)

    def _hand_on(self, number: int, code: int) -> None:
        """A key of the terminal reached the child already."""
        by_key = code == SI_KERNEL and number != signal.SIGHUP
        if len(self.told) < 64 and number not in (signal.SIGWINCH, signal.SIGCONT):
            self.told.append((time.time(), _name(number)))
        if not by_key:
            self._kill(number)
        if number == signal.SIGTSTP:
            os.kill(os.getpid(), signal.SIGSTOP)
            self._kill(signal.SIGCONT)

    def _kill(self, number: int) -> None:
        try:
            os.kill(self.pid, number)
        except OSError:  # it changed its user, or has just ended
            pass

    def _reap(self) -> None:
        """Every child that ended; as process 1 of a container we also get those of others."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid == self.pid:
                self.status, self.ended = status, time.time()

    def wait(self, woken: Callable[[], object]) -> None:
        """Until the child has ended."""
        while self.status is None:
            self.next_signal(None)
            woken()
        self._failure = int(os.read(self._errors, 8) or b"0")
        os.close(self._errors)

    @property
    def ran(self) -> bool:
        """False where the command could not be run at all."""
        return not self._failure

    @property
    def signal(self) -> int:
        """The signal that ended it, or 0."""
        return os.WTERMSIG(self.status) if self.status is not None and os.WIFSIGNALED(self.status) else 0

    @property
    def code(self) -> int:
        """As a shell gives it."""
        if self.signal or self.status is None:
            return BY_SIGNAL + self.signal
        return os.WEXITSTATUS(self.status)

    @property
    def asked_to_end(self) -> bool:
        """Whether somebody asked us to end before it did."""
        return any(name in ASKS_TO_END for _, name in self.told)


def execute(command: Sequence[str], report: int = -1) -> NoReturn:
    """Become the command. A file that no kernel can run is a script, as in a shell; where it cannot be, the exit code
    is that of a shell, and it is written to ``report``."""
    try:
        try:
            os.execvp(command[0], list(command))
        except OSError as error:
            path = _found(command[0])
            if error.errno != errno.ENOEXEC or not path:
                raise
            os.execv("/bin/sh", ["sh", path, *command[1:]])
    except (OSError, ValueError) as error:
        code = NOT_FOUND if isinstance(error, FileNotFoundError) or not command[0] else CANNOT
        why = "command not found" if code == NOT_FOUND else getattr(error, "strerror", None) or str(error)
        if report >= 0:
            os.write(report, b"%d" % code)
        os.write(2, f"watchkeeper wrap: {command[0]}: {why}\n".encode("utf-8", "replace"))
        os._exit(code)


def asks_to_end(number: int) -> bool:
    """Is this a signal that asks a program to end?"""
    return _name(number) in ASKS_TO_END


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def _found(word: str) -> str:
    """The file that a command names, looked up as a shell does; "" where none can be run."""
    places = [""] if "/" in word else os.get_exec_path()
    paths = (os.path.join(place, word) for place in places)
    return next((path for path in paths if os.access(path, os.X_OK) and os.path.isfile(path)), "")
