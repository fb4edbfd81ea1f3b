"""Files of trainers: what they hold comes out as steps, whole or up to where they are still being written.

The files are written here, byte by byte in their formats.
"""

from __future__ import annotations

import io
import json
import os
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.cli import main
from backend.facts import StepFacts
from backend.ingest import tensorboard, wandb
from backend.ingest.base import SourceError
from backend.ingest.step_files import Reader
from backend.ingest.steplines import Patterns
from detectors.training.signals import load
from tests.backend.ingest.packing import chunk, fixed, whole

T = 1_772_366_400.0
SIGNALS = load()


def read(path: Path, heard: list[Path] | None = None) -> list[StepFacts]:
    return list(Reader(SIGNALS, Patterns.of(SIGNALS), timeless=(heard if heard is not None else []).append).read(path))


def event(at: float, step: int, **values: float) -> bytes:
    summary = b"".join(chunk(1, chunk(1, k.encode()) + fixed(2, struct.pack("<f", v))) for k, v in values.items())
    return framed(fixed(1, struct.pack("<d", at)) + whole(2, step) + chunk(5, summary))


def framed(record: bytes) -> bytes:
    head = struct.pack("<Q", len(record))
    return head + struct.pack("<I", tensorboard.masked(head)) + record + struct.pack("<I", tensorboard.masked(record))


def test_the_checksum_is_castagnolis_masked() -> None:
    crc = (tensorboard.masked(b"123456789") - 0xA282EAD8) & 0xFFFFFFFF
    assert (crc >> 17 | crc << 15) & 0xFFFFFFFF == 0xE3069283  # the check value of CRC-32C


def test_an_event_file_is_a_row_a_step(tmp_path: Path) -> None:
    double = chunk(8, whole(1, 2) + chunk(4, struct.pack("<d", 0.25)))
    tensor = framed(
        fixed(1, struct.pack("<d", T + 2)) + whole(2, 2) + chunk(5, chunk(1, chunk(1, b"train/grad_norm") + double))
    )
    file = tmp_path / "atlas" / "events.out.tfevents.1772366400.host"
    file.parent.mkdir()
    head = framed(fixed(1, struct.pack("<d", T)) + chunk(3, b"brain.Event:2"))
    body = head + event(T + 1, 1, loss=2.5, lr=0.125) + event(T + 2, 2, loss=2.25) + tensor
    file.write_bytes(body + event(T + 3, 3, loss=1.0)[:-7])  # the last is still being written
    rows = read(tmp_path)
    assert [(row.run, row.at, row.step, row.loss, row.grad_norm) for row in rows] == [
        ("atlas", T + 1, 1, 2.5, None), ("atlas", T + 2, 2, 2.25, 0.25),
    ]  # fmt: skip
    assert rows[0].attrs == {"lr": 0.125}
    broken = bytearray(body)
    broken[len(head) + 20] ^= 1
    file.write_bytes(bytes(broken))
    with pytest.raises(SourceError, match=f"byte {len(head)}: the CRC"):
        read(file)


def offline(records: list[bytes]) -> bytes:
    """A LevelDB log as wandb writes it: records are cut where a block ends."""
    out = bytearray(wandb.HEAD)
    for record in records:
        rest, first = record, True
        while True:
            room = wandb.BLOCK - len(out) % wandb.BLOCK
            if room < 7:
                out += bytes(room)
                room = wandb.BLOCK
            part, rest = rest[: room - 7], rest[room - 7 :]
            kind = (wandb.WHOLE if first else wandb.LAST) if not rest else (wandb.FIRST if first else wandb.MIDDLE)
            out += struct.pack("<IHB", zlib.crc32(part, zlib.crc32(bytes([kind]))), len(part), kind) + part
            first = False
            if not rest:
                break
    return bytes(out)


def logged(step: int, **values: object) -> bytes:
    items = b"".join(chunk(1, chunk(1, k.encode()) + chunk(16, json.dumps(v).encode())) for k, v in values.items())
    return whole(1, step + 1) + chunk(2, items + chunk(2, whole(1, step)))


def test_an_offline_log_of_wandb_is_read_over_its_blocks(tmp_path: Path) -> None:
    run = chunk(17, chunk(1, b"a1b2c3") + chunk(8, b"atlas"))
    big = logged(1, loss=float("nan"), _timestamp=T + 1, note="x" * 90_000)
    file = tmp_path / "run-a1b2c3.wandb"
    file.write_bytes(
        offline(
            [
                run,
                logged(0, loss=2.5, _timestamp=T),
                big,
                *[logged(n, loss=1.0, _timestamp=T + n) for n in range(2, 900)],
            ]
        )
    )
    rows = read(file)
    assert [row.step for row in rows] == list(range(900))
    assert (rows[0].run, rows[0].at, rows[0].loss) == ("atlas", T, 2.5)
    assert rows[1].loss != rows[1].loss


def test_sheets_and_documents_are_read_by_their_heads(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "ts,step,train/loss,rank\n1772366400,5,2.5,3\n2026-03-01T12:00:01Z,6,nan,3\nx,,1,\n"
    )
    (tmp_path / "b.jsonl").write_text(
        '{"_timestamp": 1772366400.5, "_step": 7, "loss": NaN}\nnot json\n{"step": "x"}\n'
    )
    (tmp_path / "c-tag-loss.csv").write_text("Wall time,Step,Value\n1772366400.5,8,2.0\n")
    rows = read(tmp_path)
    assert [(row.step, row.rank) for row in rows] == [(5, 3), (6, 3), (7, None), (8, None)]
    assert rows[0].loss == 2.5
    assert rows[3].loss == 2.0


def test_rows_without_times_are_said_to_have_none(tmp_path: Path) -> None:
    state = tmp_path / "trainer_state.json"
    state.write_text(json.dumps({"log_history": [{"step": 10, "loss": 2.0}, {"step": 20, "loss": 1.5, "epoch": 0.1}]}))
    os.utime(state, (T, T))
    heard: list[Path] = []
    assert [(row.at, row.step, row.loss) for row in read(state, heard)] == [(T - 1, 10, 2.0), (T, 20, 1.5)]
    assert heard == [state]


def test_the_command_prints_rows_that_ingest_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "rank_2.log"
    log.write_text(
        "2026-03-01 12:00:00,5 iter 3: loss 2.5, time 500.00ms\n2026-03-01 12:00:01 Schritt 4 Verlust 2.25\n"
    )
    assert main(["steps", str(log), "--run", "r", "--teach", "Schritt {step=1} Verlust {loss=2.5}"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["run"], row["step"], row["loss"], row["rank"]) for row in rows] == [
        ("r", 3, 2.5, 2),
        ("r", 4, 2.25, 2),
    ]
    assert main(["steps", str(tmp_path / "none.csv")]) == 1


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=90), st.integers(0, 60))
def test_no_bytes_break_a_reader(noise: bytes, cut: int) -> None:
    for body in (noise, event(T, 1, loss=1.0)[:cut] + noise, offline([logged(0, loss=1.0)])[:cut] + noise):
        for reader in (tensorboard.scalars, wandb.history):
            try:
                list(reader(io.BytesIO(body)))
            except SourceError as error:
                assert error.permanent
