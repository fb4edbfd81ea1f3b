"""Kill -9 at any moment: a watch that starts again finds what an undisturbed one finds, and judges no event twice."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlmodel import select

from backend.model.events import Event, Finding
from backend.replay.files import every_incident, incident_row
from backend.replay.run import own_store
from backend.store.engine import Store, open_store
from tests.backend.replay.mortal import Mortal, story

ROOT = Path(__file__).resolve().parents[3]


def told(store: Store) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Every finding and every incident, word for word. Events go by what they say: a line that is sent again may take a
    number for nothing. The numbers in a hypothesis are of the moment it was folded in: after a restart lines come
    before the ticks that are judged again, and see a total of some ticks earlier."""
    with store.read() as session:
        said = {f"event:{row.id}": row.dedupe for row in session.exec(select(Event)).all()}
        findings = [row.model_dump() for row in session.exec(select(Finding)).all()]
        for piece in (piece for row in findings for piece in row["evidence"]):
            piece["ref"] = said.get(piece["ref"], piece["ref"])
        incidents = [incident_row(session, row) for row in every_incident(session, "main")]
        for ranked in (ranked for row in incidents for ranked in row["hypotheses"]):
            ranked["reason"] = re.sub(r"\b\d+ replays", "so many replays", ranked["reason"])
        return findings, incidents


def compare(folder: Path, seed: int, kills: int) -> int:
    steps = story(random.Random(seed))
    (folder / "a").mkdir()
    (folder / "b").mkdir()
    with own_store(folder / "a") as calm, own_store(folder / "b") as wild:
        undisturbed = Mortal(calm, 0, random.Random(seed))
        undisturbed.run(steps)
        mortal = Mortal(wild, kills, random.Random(seed))
        mortal.run(steps)
        expected, found = told(calm), told(wild)
        assert [row["key"] for row in found[0]] == [row["key"] for row in expected[0]]
        assert found == expected
        assert set(mortal.judged.values()) == {1}, "an event was judged twice"
        assert len(mortal.judged) == len(undisturbed.judged)
        assert len(expected[1]) >= 2
    return mortal.kills


@pytest.mark.parametrize("seed", range(2))
def test_twenty_kills_leave_no_trace(tmp_path: Path, seed: int) -> None:
    assert compare(tmp_path, seed, 20) == 20


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 20))
def test_two_hundred_kills_leave_no_trace(tmp_path: Path, seed: int) -> None:
    assert compare(tmp_path, seed, 20) == 20


@pytest.mark.slow
def test_ten_real_kills_leave_no_trace(tmp_path: Path) -> None:
    """Ten processes die of SIGKILL, each some steps after it began, in the middle of whatever it did."""
    seed, dice, position = 7, random.Random(7), 0
    for kill in range(11):
        words = [sys.executable, "-m", "tests.backend.replay.mortal", str(tmp_path / "s"), str(seed), str(position)]
        child = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        wanted = position + dice.randint(3, 6) if kill < 10 else 10_000
        for said in child.stdout:
            if said.strip() == "done":
                break
            position = int(said)
            if position >= wanted:
                child.kill()
                position = max([position, *(int(more) for more in child.stdout if more.strip().isdigit())])
                break
        assert child.wait(60) == (-9 if kill < 10 else 0)
        child.stdout.close()
    with own_store(tmp_path / "calm") as calm:
        Mortal(calm, 0, random.Random(seed)).run(story(random.Random(seed)))
        expected = told(calm)
    wild = open_store("", tmp_path / "s")
    assert told(wild) == expected
    wild.close()
