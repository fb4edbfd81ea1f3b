"""The product's own `serve`, with one difference: it dies by kill -9 when it reaches a named point."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from backend.clock import SystemClock
from backend.commands.server import listen, run, settings_of, with_port
from backend.registry import build


def main(arguments: list[str]) -> int:
    config, point = Path(arguments[0]), arguments[1]
    settings = settings_of(config)
    listener = listen(settings.server)
    parts = build(with_port(settings, listener), SystemClock())

    def die(reached: str) -> None:
        if reached == point:
            os.kill(os.getpid(), signal.SIGKILL)

    for watch in parts.watches.values():
        watch.reached = die
    return run(parts, listener)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
