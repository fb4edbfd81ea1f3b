"""Segments of steps and saves: what was taken comes back, a torn end is left out, old days go."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.facts import CheckpointFacts, StepFacts
from backend.ingest.base import SourceError
from backend.trained import Trained

DAY = 86_400.0


def test_rows_come_back_as_they_were_told(tmp_path: Path) -> None:
    kept = Trained(tmp_path)
    kept.append([StepFacts(10.0 + i, "atlas", "7", i, loss=2.0, step_time_s=1.0, rank=0) for i in range(5)])
    kept.append([StepFacts(DAY + 1, "atlas", "8", 9, replicas_live=3, replicas_total=4)])
    kept.append((), [CheckpointFacts(14.0, "atlas", 4, "save", 2.0, 1e9, "7", False)])
    table, saves = Trained(tmp_path).read(0.0, 2 * DAY)
    told = sorted(zip(table.at, table.step, (table.jobs[j] for j in table.job_of), strict=True))
    assert told == [(10.0 + i, i, "7") for i in range(5)] + [(DAY + 1, 9, "8")]
    assert saves == [CheckpointFacts(14.0, "atlas", 4, "save", 2.0, 1e9, "7", False)]
    assert len(kept.read(11.5, 13.5)[0]) == 2


def test_a_record_that_a_crash_tore_is_left_out_and_written_over(tmp_path: Path) -> None:
    kept = Trained(tmp_path)
    kept.append([StepFacts(1.0, "a", "1", 1), StepFacts(2.0, "a", "1", 2)])
    file = next(tmp_path.rglob("steps"))
    file.write_bytes(file.read_bytes()[:-7])
    assert list(kept.read(0.0, DAY)[0].step) == [1]
    kept.append([StepFacts(3.0, "a", "1", 3)])
    assert list(kept.read(0.0, DAY)[0].step) == [1, 3]


def test_whole_days_are_forgotten(tmp_path: Path) -> None:
    kept = Trained(tmp_path)
    kept.append([StepFacts(day * DAY + 5, "a", "1", day) for day in range(4)])
    assert kept.drop_before(2 * DAY + 100) == 2
    assert sorted(kept.read(0.0, 9 * DAY)[0].step) == [2, 3]


def test_a_disk_that_takes_no_more_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(SourceError, match="takes no more"):
        Trained(tmp_path / "file").append([StepFacts(1.0, "a", "1", 1)])


@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_in_a_segment_are_read_without_harm(raw: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        kept = Trained(Path(folder))
        kept.append([StepFacts(1.0, "a", "1", 1)], [CheckpointFacts(1.0, "a", 1, "save", 1.0)])
        for name in ("steps", "saves"):
            next(Path(folder).rglob(name)).write_bytes(raw)
        kept.read(0.0, DAY)
