"""A thousand followed files cost the same few bytes each, however often they rotate, shrink or are copied away."""

from __future__ import annotations

import gc
import shutil
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.ingest.follow import Budget, Follower
from backend.ingest.job_verdicts import HEAD, Verdicts
from backend.ingest.joblogs import JobFile
from detectors.joblog.reading import Rules
from detectors.packaged import log_rules

FILES, LAPS = 1_000, 4
#: What a followed file may cost, in bytes: its place, its two prints and the last look at it.
MOST_A_FILE = 2_048
BUDGET = Budget(chunk_bytes=65_536, open_files=64)


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def held() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def changed(path: Path, place: int) -> None:
    """What happens to a file between two rounds: nothing, rotation, copytruncate or truncation."""
    if place % 4 == 1:
        path.replace(path.with_name(f"{path.name}.1"))
    elif place % 4 == 2:
        shutil.copyfile(path, path.with_name(f"{path.name}.1"))
        path.write_bytes(b"")
    elif place % 4 == 3:
        path.write_bytes(b"")


def test_a_thousand_files_hold_the_same_few_bytes_through_rotation_and_truncation(tmp_path: Path, traced: None) -> None:
    paths = [tmp_path / f"d{n % 20}" / f"{n}.log" for n in range(FILES)]
    for folder in {path.parent for path in paths}:
        folder.mkdir()
    before = held()
    follower, now, seen = Follower(BUDGET, grace_s=5.0), 0.0, 0
    after = []
    for lap in range(LAPS):
        for place, path in enumerate(paths):
            if lap:
                changed(path, place)
            with path.open("ab") as file:
                file.write(f"lap {lap} of {place}\n".encode() * 3)
            follower.want(str(path))
        for _ in range(4):
            now += 3.0
            seen += sum(piece.chunk.count(b"\n") for piece in follower.turn(now))
            follower.moved()
        after.append((held() - before) / FILES)
    assert seen == LAPS * 3 * FILES
    assert follower.files == FILES, "what left its path was let go"
    assert after[-1] <= MOST_A_FILE, f"bytes a file after each lap: {after}"
    assert after[-1] <= 1.1 * after[1], f"bytes a file after each lap: {after}"


def test_readers_of_many_small_logs_hold_a_bounded_head_each(traced: None) -> None:
    """Not what they were fed: 20 kB each."""
    verdicts, line = Verdicts(Rules.of(log_rules())), b"step 100 loss 2.31 tokens 4194304\n"
    verdicts.hear(JobFile("warm", 0, "/logs/warm.out"), line, "1:0", 0.0)
    before = held()
    for n in range(40):
        for _ in range(2):
            verdicts.hear(JobFile(str(n), 0, f"/logs/{n}.out"), line * 300, "1:0", 0.0)
    each = (held() - before) / 40
    assert each <= 3 * HEAD, f"{each:.0f} bytes a reader"
