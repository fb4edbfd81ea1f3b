"""Files are read whole or refused with file, line and what would be right."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.score.rows import ScoreError, assertion_of, fault_of, incident_of, read_output, read_topology, read_truth
from tests.backend.score.world import fault, finding, incident


def written(path: Path, *rows: object) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_truth_is_read_with_fields_that_it_does_not_know(tmp_path: Path) -> None:
    rows = read_truth(written(tmp_path / "truth.jsonl", fault(variant="abrupt"), "", fault("F2", job=727751)))
    assert [row["id"] for row in rows] == ["F1", "F2"]
    assert fault_of(rows[1]).job == "727751"


def test_a_replays_folder_is_read(tmp_path: Path) -> None:
    written(tmp_path / "findings.jsonl", finding("a"), finding("a", state="cleared"))
    written(tmp_path / "incidents.jsonl", incident())
    output = read_output(tmp_path)
    assert (len(output.findings), len(output.incidents)) == (2, 1)
    assert [assertion_of(row) is None for row in output.findings] == [False, True]


def test_a_missing_file_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(ScoreError, match=r"findings\.jsonl cannot be read .*--out"):
        read_output(tmp_path)
    with pytest.raises(ScoreError, match=r"truth\.jsonl cannot be read"):
        read_truth(tmp_path / "truth.jsonl")


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("{", "line 2: no JSON"),
        ("[]", "line 2: a line holds one JSON object"),
        (fault(entity=""), "line 2: entity must be a text, is ''"),
        (fault(start="now"), "line 2: start must be a number of unix seconds, is 'now'"),
        (fault(start=True), "line 2: start must be a number"),
        (fault(start=math.nan), "line 2: start must be a number of unix seconds, is nan"),
        (fault(exclude="yes"), "line 2: exclude must be true or false, is 'yes'"),
        (fault(nodes="n0"), "line 2: nodes must be a list of texts, is 'n0'"),
        (fault(job=1.5), "line 2: job must be a text or a number, is 1.5"),
        (fault(end=0), "line 2: end 0.0 is before start 1003600.0"),
        ({k: v for k, v in fault().items() if k != "first_visible"}, "line 2: first_visible is missing"),
    ],
)
def test_a_bad_line_of_truth_is_named(tmp_path: Path, row: object, says: str) -> None:
    path = written(tmp_path / "truth.jsonl", fault("F0"), row)
    with pytest.raises(ScoreError) as refused:
        read_truth(path)
    assert f"{path}, {says}" in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "says"),
    [({"id": "1"}, "id must be a whole number"), ({"severity": "loud"}, "severity must be one of info, warning, high")],
)
def test_a_bad_incident_is_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ScoreError, match=says):
        incident_of(incident(**fields))


def test_a_finding_of_no_known_state_is_refused() -> None:
    with pytest.raises(ScoreError, match="state must be raised, changed or cleared, is 'gone'"):
        assertion_of(finding("a", state="gone"))


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "truth.jsonl").write_bytes(b"\xff\xfe\n")
    with pytest.raises(ScoreError, match="is no UTF-8 text"):
        read_truth(tmp_path / "truth.jsonl")


def test_exclude_ok_follows_exclude_where_it_is_missing() -> None:
    row = {k: v for k, v in fault(exclude=True).items() if k != "exclude_ok"}
    assert fault_of(row).exclude_ok


def test_a_topology_gives_what_stands_above_a_node_and_counts_gpus(tmp_path: Path) -> None:
    nodes = [{"name": "n0", "rack": "r1", "switch": ["s1", "s2"], "gpus": [{}, {}]}, {"name": "n1", "gpus": [{}]}]
    path = tmp_path / "topology.json"
    path.write_text(json.dumps({"nodes": nodes}))
    assert read_topology(path) == ({"n0": ("rack:r1", "switch:s1", "switch:s2"), "n1": ()}, 3)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"nodes": [1]}', '{"nodes": [{}]}', '{"nodes": 3}'])
def test_a_bad_topology_says_what_it_should_hold(tmp_path: Path, text: str) -> None:
    path = tmp_path / "topology.json"
    path.write_text(text)
    with pytest.raises(ScoreError, match="it holds"):
        read_topology(path)


values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.text(max_size=3))


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([fault(), incident(), finding("a")]), st.data())
def test_any_row_is_read_or_refused_in_words(row: dict[str, Any], draw: st.DataObject) -> None:
    changed = {**row, draw.draw(st.sampled_from(sorted(row))): draw.draw(values)}
    for check in (fault_of, incident_of, assertion_of):
        try:
            check(changed)
        except ScoreError as error:
            assert str(error)
