"""A pseudo-terminal for a child whose stream would have been a terminal: progress bars and colours stay."""

from __future__ import annotations

import fcntl
import os
import termios


def pair() -> tuple[int, int]:
    """(to read, for the child). The real terminal translates line ends; this one passes all bytes as they are."""
    ours, theirs = os.openpty()
    modes = termios.tcgetattr(theirs)
    modes[1] &= ~termios.OPOST
    termios.tcsetattr(theirs, termios.TCSANOW, modes)
    for real in (1, 2, 0):
        if os.isatty(real):
            same_size(real, ours)
            break
    return ours, theirs


def same_size(real: int, ours: int) -> None:
    """Give ``ours`` the rows and columns of ``real``."""
    try:
        fcntl.ioctl(ours, termios.TIOCSWINSZ, fcntl.ioctl(real, termios.TIOCGWINSZ, b"\0" * 8))
    except OSError:  # it is gone
        pass
