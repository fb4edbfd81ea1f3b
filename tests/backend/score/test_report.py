"""What people and programs read: every number with its n and interval, none of them made up."""

from __future__ import annotations

import json
from typing import Any

from backend.score.as_data import as_json
from backend.score.report import as_table
from tests.backend.score.world import DAY, START, fault, finding, incident, scored

#: A long list of faults and false incidents on long names.
MANY = [
    fault(f"F{i}", entity=f"n{i % 6}/gpu{i}", kind="gpu_ecc_uncorrectable", run=f"r{i % 12}", first_xid=START + 3700)
    for i in range(120)
]
LOUD = [
    incident(i, entity=f"n{i % 6}/gpu{i}", run=f"r{i % 12}", exclude=["n9"], findings=["a"]) for i in range(0, 240, 3)
]


def line(table: str, label: str) -> list[str]:
    return next(row.split("  ") for row in table.splitlines() if row.startswith(label))


def test_the_table_fits_in_100_columns() -> None:
    for table in (
        as_table(scored(MANY, LOUD, [finding("a")], gpus=1)),
        as_table(scored([fault(kind="fabric_manager_not_ready")], [incident(kind="fabric_manager_not_ready")] * 1)),
        as_table(scored([], [])),
    ):
        assert max(map(len, table.splitlines())) <= 100


def test_a_line_has_value_interval_and_n() -> None:
    cells = [
        c.strip()
        for c in line(as_table(scored([fault(), fault("F2", entity="n4")], [incident()])), "Faults found")
        if c
    ]
    assert cells == ["Faults found", "50.0 %", "9.5 to 90.5 %", "1 of 2"]


def test_what_has_no_n_says_so_and_no_percentage() -> None:
    table = as_table(scored([], [], gpus=0))
    lines = [row for row in table.splitlines() if "n = 0" in row]
    assert len(lines) == 24
    assert "%" not in "".join(lines).replace(", 90 %", "")


def test_what_was_left_out_is_said() -> None:
    late = fault("F2", kind="gremlins", start=START + 2 * DAY, first_visible=START + 2 * DAY, end=START + 3 * DAY)
    table = as_table(scored([fault(), late], []))
    assert "Left out, as outside of this time: 1 faults" in table
    assert "Kinds that the catalogue has not: gremlins" in table


def test_wrong_exclusions_say_why() -> None:
    table = as_table(scored([fault(nodes=["n0", "n1"])], [incident(exclude=["n0", "n1", "n5"])]))
    assert "Wrong exclusions: 1 victim, 1 no fault" in table


def numbers(found: Any) -> list[dict[str, Any]]:
    if isinstance(found, dict):
        own = [found] if "n" in found or "exposure" in found else []
        return own + [n for value in found.values() for n in numbers(value)]
    return [n for value in found for n in numbers(value)] if isinstance(found, list) else []


def test_json_holds_every_figure_with_n_and_interval() -> None:
    found = as_json(scored(MANY, LOUD, [finding("a")]))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert {"ci95", "band95"} & set(found["faults"]["recall"])
    for number in numbers(found):
        assert {"ci95", "band95"} & set(number)
    assert found["faults"]["recall"]["by_run_ci95"] is not None
    assert found["faults"]["touch"]["named"] == 40
    assert found["each_fault"][0]["incident"] == 0
    assert found["each_incident"][0]["exclusions"] == {"n9": "no_fault"}


def test_json_of_nothing_is_null_never_zero() -> None:
    found = as_json(scored([], []))
    assert found["faults"]["recall"] == {"value": None, "k": 0, "n": 0, "ci95": None, "runs": 0, "by_run_ci95": None}
    assert found["incidents"]["precision"]["value"] is None
    assert found["faults"]["chance"]["mean"] is None


def test_two_scores_of_one_output_are_byte_identical() -> None:
    once, again = (json.dumps(as_json(scored(MANY, LOUD, [finding("a")]))) for _ in range(2))
    assert once == again
