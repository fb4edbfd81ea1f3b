"""Files that TensorBoard and W&B write themselves: `WATCHKEEPER_TEST_INSTALL=1 make test-training`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from backend.ingest.step_files import Reader
from backend.ingest.steplines import Patterns
from detectors.training.signals import load

WRITE = """
import os, sys
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
writer = EventFileWriter(sys.argv[1] + "/board")
for step in range(5):
    summary = Summary(value=[Summary.Value(tag="train/loss", simple_value=2.0 - step / 8)])
    writer.add_event(Event(wall_time=1772366400.0 + step, step=step, summary=summary))
writer.close()
os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true")
import wandb
run = wandb.init(project="p", name="atlas", dir=sys.argv[1])
for step in range(5):
    run.log({"train/loss": 2.0 - step / 8, "nested": {"a": step}})
run.finish()
"""


@pytest.mark.slow
def test_what_the_tools_write_is_read(tmp_path: Path) -> None:
    if os.environ.get("WATCHKEEPER_TEST_INSTALL") != "1":
        pytest.skip("installs tensorboard and wandb into a folder of its own: WATCHKEEPER_TEST_INSTALL=1")
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True, timeout=120)
    subprocess.run([python, "-m", "pip", "-q", "install", "tensorboard", "wandb"], check=True, timeout=600)
    out = tmp_path / "out"
    out.mkdir()
    subprocess.run([python, "-c", WRITE, str(out)], check=True, timeout=180)
    signals = load()
    read = Reader(signals, Patterns.of(signals)).read
    (board,), (offline,) = out.rglob("*.tfevents.*"), out.rglob("*.wandb")
    for file in (board, offline):
        assert [(row.step, row.loss) for row in read(file)] == [(n, 2.0 - n / 8) for n in range(5)]
    assert next(iter(read(offline))).run == "atlas"
