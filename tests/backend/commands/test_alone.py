"""Two watches never work with one data folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from backend.commands.alone import take_alone
from backend.store.engine import StoreError

HOLD = "import sys; from pathlib import Path; from backend.commands.alone import take_alone; "
WORDS = HOLD + "lock = take_alone(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"


def test_a_second_watch_of_a_folder_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    with take_alone(tmp_path), pytest.raises(StoreError, match=f"process {os.getpid()}"):
        take_alone(tmp_path)
    take_alone(tmp_path).close()


def test_a_killed_watch_leaves_no_lock_behind(tmp_path: Path) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", WORDS, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout is not None and other.stdin is not None
    assert other.stdout.readline() == b"held\n"
    with pytest.raises(StoreError, match=f"process {other.pid}"):
        take_alone(tmp_path)
    other.kill()
    other.wait(10)
    other.stdin.close()
    other.stdout.close()
    take_alone(tmp_path).close()
