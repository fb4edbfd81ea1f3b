"""Each rule of the score on cases worked by hand, and what holds for every input."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.score.figures import Odds
from backend.score.places import Touch
from backend.score.rows import ScoreError
from backend.score.scoring import Score
from tests.backend.score.world import DAY, FEW, SPAN, START, fault, finding, incident, scored

HOUR = START + 3600


def found(truth: list[dict[str, Any]], incidents: list[dict[str, Any]]) -> int:
    return scored(truth, incidents).faults.recall.k


def verdict(truth: list[dict[str, Any]], row: dict[str, Any]) -> str:
    return scored(truth, [row]).incident_results[0].verdict


@pytest.mark.parametrize(
    ("opened_at", "finds"),
    [(HOUR - 60.001, 0), (HOUR - 60, 1), (HOUR + 3600 + 300, 1), (HOUR + 3600 + 300.001, 0)],
)
def test_the_window_is_a_minute_before_to_five_after_both_ends_included(opened_at: float, finds: int) -> None:
    assert found([fault()], [incident(opened_at=opened_at)]) == finds


def test_a_fault_without_end_lasts_to_the_end_of_the_span() -> None:
    assert found([fault(end=None)], [incident(opened_at=SPAN[1])]) == 1


def test_a_fault_that_shows_only_long_after_its_end_cannot_be_found() -> None:
    assert found([fault(first_visible=HOUR + 3600 + 361)], [incident(opened_at=HOUR + 3600 + 301)]) == 0


def test_one_incident_counts_for_one_fault() -> None:
    both = [fault("F1"), fault("F2", entity="n0/gpu2")]
    node = incident(entity="n0")
    assert found(both, [node]) == 1
    assert found(both, [node, incident(2, entity="n0")]) == 2


def test_an_exact_incident_counts_rather_than_an_earlier_one_of_the_rack() -> None:
    rack = incident(1, entity="rack:r0", opened_at=HOUR)
    result = scored([fault()], [rack, incident(2, opened_at=HOUR + 99)]).fault_results[0]
    assert result.incident is not None and result.incident.id == 2
    assert result.edge is not None and result.edge.touch is Touch.NAMED
    assert result.opened_delay_s == 99
    assert result.incidents == 2


def test_an_incident_that_carries_the_job_finds_but_does_not_locate() -> None:
    figures = scored([fault(job=7, nodes=["n0", "n1"])], [incident(entity="n1", job="7")]).faults
    assert (figures.recall.k, figures.located.k) == (1, 0)
    assert figures.touch[Touch.JOB] == 1


def test_a_fault_that_nothing_shows_counts_in_all_and_not_in_visible() -> None:
    figures = scored(
        [fault(first_visible=None), fault("F2", entity="n1")], [incident(), incident(2, entity="n1")]
    ).faults
    assert (figures.recall.k, figures.recall.n) == (1, 2)
    assert (figures.recall_visible.k, figures.recall_visible.n) == (1, 1)


def test_an_incident_of_severity_info_finds_and_is_told_apart() -> None:
    result = scored([fault()], [incident(severity="info")])
    assert (result.faults.recall.k, result.faults.recall_loud.k) == (1, 0)
    assert (result.incidents.info, result.incidents.precision.n) == (1, 0)


def test_a_kind_of_the_family_fits_and_a_hang_does_not() -> None:
    assert scored([fault()], [incident(kind="gsp_timeout")]).faults.fitting.k == 1
    assert scored([fault()], [incident(kind="job_hang")]).faults.fitting.k == 0


def test_a_linked_finding_fits_on_the_faults_place_only() -> None:
    hang = incident(kind="job_hang", entity="job:7", job="7", findings=["a"])
    on_it, elsewhere = finding("a", entity="n0/gpu1"), finding("a", entity="n4/gpu1")
    assert scored([fault(job=7)], [hang], [on_it]).faults.fitting.k == 1
    assert scored([fault(job=7)], [hang], [elsewhere]).faults.fitting.k == 0


def test_the_fitting_incident_is_sought_even_where_another_is_nearer() -> None:
    rows = [incident(1, kind="clock_skew"), incident(2, entity="n0")]
    result = scored([fault()], rows)
    assert result.fault_results[0].edge is not None and not result.fault_results[0].edge.fits
    assert result.faults.fitting.k == 1


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({}, "right"),
        ({"entity": "n4"}, "false"),
        ({"opened_at": HOUR - 61}, "false"),
        ({"entity": "n1"}, "victim"),
        ({"entity": "n1/gpu0", "job": "7"}, "victim"),
        ({"entity": "n1", "entities": ["n1", "job:7"]}, "victim"),
        ({"entity": "n1", "entities": ["n1", "n4"]}, "false"),
        ({"entity": "job:7"}, "right"),
        ({"entity": "n1", "entities": ["n0", "n1"]}, "right"),
        ({"entity": "n5", "job": "7"}, "right"),
    ],
)
def test_an_incident_is_right_on_a_victim_or_false(fields: dict[str, Any], word: str) -> None:
    assert verdict([fault(job=7, nodes=["n0", "n1"])], incident(**fields)) == word


def test_precision_stands_with_and_without_victims() -> None:
    rows = [incident(), incident(2, entity="n1"), incident(3, entity="n4"), incident(4, entity="n4", severity="info")]
    figures = scored([fault(nodes=["n0", "n1"])], rows).incidents
    assert (figures.precision.k, figures.precision.n) == (1, 3)
    assert figures.precision_with_victims.k == 2


def test_false_incidents_are_told_per_day_of_500_gpus() -> None:
    rows = [incident(), incident(2, entity="n4"), incident(3, entity="n1")]
    figures = scored([fault(nodes=["n1"])], rows, gpus=1000, span=(START, START + 2 * DAY)).incidents
    assert figures.false_rate.value == pytest.approx(1 / 4)
    assert figures.not_right_rate.value == pytest.approx(2 / 4)
    silent = scored([fault()], [], gpus=1000).incidents.false_rate
    assert silent.value == 0 and silent.interval is not None
    assert silent.interval.high == pytest.approx(3.6889 / 2, abs=1e-4)


@pytest.mark.parametrize(
    ("fields", "exact"),
    [
        ({}, True),
        ({"entities": ["n0/gpu1", "n0/gpu2"]}, True),
        ({"entity": "n0", "entities": ["n0", "n0/gpu1"]}, True),
        ({"entity": "n0", "entities": ["n0", "n0/gpu1", "n0/gpu2"]}, False),
        ({"entity": "n0/gpu2", "entities": ["n0/gpu1", "n0/gpu2"]}, False),
        ({"entity": "n0"}, False),
    ],
)
def test_the_exact_gpu_is_the_first_named_or_the_only_one(fields: dict[str, Any], exact: bool) -> None:
    assert scored([fault()], [incident(**fields)]).faults.exact_gpu.k == exact


def test_exact_gpu_counts_gpu_faults_only() -> None:
    rows = [fault(), fault("F2", entity="n1/gpu0"), fault("F3", entity="n2")]
    figures = scored(rows, [incident(), incident(2, entity="n2")]).faults
    assert (figures.exact_gpu.k, figures.exact_gpu.n) == (1, 2)
    assert (figures.exact_gpu_found.k, figures.exact_gpu_found.n) == (1, 1)


@pytest.mark.parametrize(
    ("fields", "node", "word"),
    [
        ({}, "n0", "right"),
        ({"exclude_ok": False}, "n0", "not_allowed"),
        ({"nodes": ["n1"]}, "n1", "victim"),
        ({}, "n4", "no_fault"),
        ({"start": HOUR + 4000, "first_visible": HOUR + 4000, "end": HOUR + 5000}, "n0", "no_fault"),
        ({"first_visible": None}, "n0", "no_fault"),
    ],
)
def test_an_exclusion_is_right_only_on_an_excludable_fault_of_its_time(
    fields: dict[str, Any], node: str, word: str
) -> None:
    result = scored([fault(**fields)], [incident(exclude=[node])])
    assert result.incident_results[0].exclusions == {node: word}
    assert (result.incidents.wrong_exclusions.k, result.incidents.wrong_exclusions.n) == (int(word != "right"), 1)


def test_exclude_recall_counts_faults_that_call_for_it() -> None:
    rows = [fault(), fault("F2", entity="n1"), fault("F3", entity="n2", exclude=False)]
    share = scored(rows, [incident(exclude=["n0", "n2"])]).faults.excluded
    assert (share.k, share.n) == (1, 2)


def test_before_the_first_code_goes_by_when_it_was_told() -> None:
    truth = [fault(first_xid=HOUR + 40)]
    opened = incident(findings=["a"])
    assert scored(truth, [incident()]).faults.before_code.k == 1  # no finding says when: opened after 30 s
    assert scored(truth, [opened], [finding("a")]).faults.before_code.k == 0  # emitted after 45 s
    assert scored([fault()], [incident()]).faults.before_code.n == 0


def test_a_fault_with_a_code_that_is_missed_is_not_told_before() -> None:
    share = scored([fault(first_xid=HOUR + 40)], []).faults.before_code
    assert (share.k, share.n) == (0, 1)


def test_delays_go_from_the_first_sign_to_the_opening_and_to_the_emission() -> None:
    rows = [
        finding("a", ts=HOUR + 10, emitted_at=HOUR + 25),
        finding("a"),
        finding("a", ts=HOUR + 90, emitted_at=HOUR + 99),
    ]
    figures = scored([fault()], [incident(findings=["a"])], rows).faults
    assert [q.value for q in figures.delay_opened] == [30, 30, 30]
    assert [(q.value, q.n) for q in figures.delay_told] == [(45, 1)] * 3


def test_a_finding_asserted_before_the_opening_was_told_when_the_incident_opened() -> None:
    rows = [
        finding("a", ts=HOUR, emitted_at=HOUR + 15),
        finding("a", ts=HOUR + 60, emitted_at=HOUR + 75, state="cleared"),
    ]
    assert scored([fault()], [incident(findings=["a"])], rows).faults.delay_told[0].value == 30


def test_without_rows_of_its_findings_an_incident_has_no_told_delay() -> None:
    figures = scored([fault()], [incident(findings=["gone"])]).faults
    assert (figures.delay_told[0].n, figures.delay_opened[0].n) == (0, 1)


def test_incidents_per_fault_count_touching_and_victims_of_found_faults() -> None:
    rows = [incident(), incident(2, entity="n0"), incident(3, entity="n1"), incident(4, entity="n5")]
    figures = scored([fault(nodes=["n0", "n1"]), fault("F2", entity="n4")], rows).faults
    assert (figures.incidents.value, figures.incidents.n) == (3, 1)


def test_kinds_are_told_apart_under_the_one_matching() -> None:
    rows = [fault(), fault("F2", kind="clock_skew", entity="n3")]
    result = scored(rows, [incident(), incident(2, kind="host_oom", entity="n5")])
    assert {kind: (f.recall.k, f.recall.n) for kind, f in result.by_fault_kind.items()} == {
        "clock_skew": (0, 1),
        "gpu_bus_loss": (1, 1),
    }
    assert {kind: f.precision.k for kind, f in result.by_incident_kind.items()} == {"gpu_bus_loss": 1, "host_oom": 0}


def test_faults_outside_the_span_are_left_out_and_counted() -> None:
    late = fault("F2", start=SPAN[1] + 900, first_visible=SPAN[1] + 900, end=SPAN[1] + 999)
    result = scored([fault(), late], [])
    assert (result.faults.recall.n, result.outside) == (1, 1)


def test_kinds_that_the_catalogue_has_not_are_named_and_still_scored() -> None:
    result = scored([fault(kind="gremlins")], [incident(kind="gremlins")])
    assert result.unknown_kinds == ("gremlins",)
    assert result.faults.fitting.k == 1


def test_an_id_that_stands_twice_is_refused() -> None:
    with pytest.raises(ScoreError, match="truth, row 2: the id 'F1' stands twice"):
        scored([fault(), fault()], [])


def test_a_bad_row_is_named() -> None:
    with pytest.raises(ScoreError, match="incidents, row 1: opened_at must be a number"):
        scored([], [incident(opened_at="soon")])
    with pytest.raises(ScoreError, match="findings, row 1: emitted_at"):
        scored([], [], [finding("a", emitted_at=None)])


def test_an_empty_output_finds_nothing_and_has_no_precision() -> None:
    result = scored([fault()], [])
    assert result.faults.recall.value == 0.0
    assert result.faults.chance.mean == 0.0
    assert result.incidents.precision.value is None
    assert result.faults.delay_opened[0].value is None


def test_nothing_at_all_has_no_value_anywhere() -> None:
    result = scored([], [], span=(START, START), gpus=0)
    assert result.faults.recall.value is None and result.faults.chance.mean is None
    assert result.incidents.false_rate.value is None


entities = st.sampled_from(
    ["n0", "n0/gpu1", "n0/gpu2", "n1", "n2/nic:a", "rack:r0", "job:7", "cluster:c", "link:n0-n1"]
)
some_kinds = st.sampled_from(["gpu_bus_loss", "gsp_timeout", "clock_skew", "job_hang"])
seconds = st.integers(0, 20_000).map(lambda s: START + s)
faults = st.builds(
    lambda entity, kind, at, lasts, job: fault(
        entity=entity, kind=kind, start=at, first_visible=at, end=at + lasts, job=job, nodes=["n0", "n1"]
    ),
    entities,
    some_kinds,
    seconds,
    st.integers(0, 9000),
    st.sampled_from([None, 7]),
)
incidents = st.builds(
    lambda entity, kind, at, job, severity: incident(
        entity=entity, kind=kind, opened_at=at, job=job, severity=severity, exclude=["n0"]
    ),
    entities,
    some_kinds,
    seconds,
    st.sampled_from(["", "7"]),
    st.sampled_from(["info", "high"]),
)
worlds = st.tuples(st.lists(faults, max_size=6), st.lists(incidents, max_size=8))


def numbered(rows: list[dict[str, Any]], word: str) -> list[dict[str, Any]]:
    return [{**row, "id": f"F{at}" if word == "fault" else at} for at, row in enumerate(rows)]


def of(world: tuple[list[dict[str, Any]], list[dict[str, Any]]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    return numbered(world[0], "fault"), numbered(world[1], "incident")


@settings(max_examples=40, deadline=None)
@given(worlds, st.integers(0, 99))
def test_the_order_of_the_rows_has_no_effect(
    world: tuple[list[dict[str, Any]], list[dict[str, Any]]], seed: int
) -> None:
    truth, opened = of(world)
    dice = random.Random(seed)
    quick = Odds(draws=5, resamples=20)
    once = scored(truth, opened, odds=quick)
    assert scored(dice.sample(truth, len(truth)), dice.sample(opened, len(opened)), odds=quick) == once


@settings(max_examples=60, deadline=None)
@given(worlds)
def test_no_incident_counts_twice_and_no_stricter_recall_is_higher(
    world: tuple[list[dict[str, Any]], list[dict[str, Any]]],
) -> None:
    truth, opened = of(world)
    result = scored(truth, opened, odds=Odds(draws=2, resamples=5))
    counted = [r.incident.id for r in result.fault_results if r.incident is not None]
    assert len(counted) == len(set(counted)) == result.faults.recall.k
    f = result.faults
    assert max(f.recall_loud.k, f.located.k, f.fitting.k) <= f.recall.k == f.recall_visible.k
    assert result.incidents.precision.k <= result.incidents.precision_with_victims.k
    assert sum(result.incidents.verdicts.values()) + result.incidents.info == len(opened)


@settings(max_examples=30, deadline=None)
@given(st.lists(faults, min_size=1, max_size=8))
def test_an_oracle_scores_one(rows: list[dict[str, Any]]) -> None:
    truth = numbered(rows, "fault")
    told = [
        incident(at, entity=row["entity"], kind=row["kind"], opened_at=row["first_visible"], findings=[str(at)])
        for at, row in enumerate(truth)
    ]
    said = [
        finding(str(at), entity=row["entity"], kind=row["kind"], ts=row["start"], emitted_at=row["start"])
        for at, row in enumerate(truth)
    ]
    result: Score = scored(truth, told, said, odds=Odds(draws=2, resamples=5))
    for share in (result.faults.recall, result.faults.located, result.faults.fitting, result.incidents.precision):
        assert share.value == 1.0
    assert result.incidents.false_rate.count == 0
    assert result.faults.exact_gpu.value in (None, 1.0)


def test_output_at_random_times_scores_near_its_chance() -> None:
    dice = random.Random(3)
    nodes = [f"m{i}" for i in range(150)]
    truth, told = [], []
    for at, node in enumerate(nodes):
        begin = START + dice.uniform(3600, DAY - 18_000)
        truth.append(fault(f"F{at}", entity=node, start=begin, first_visible=begin, end=begin + 14_000))
        told.append(incident(at, entity=node, opened_at=START + dice.uniform(0, DAY)))
    figures = scored(truth, told, topology={node: ("rack:r",) for node in nodes}, odds=FEW).faults
    expected = 14_360 / DAY
    assert figures.chance.mean == pytest.approx(expected, abs=0.03)
    assert figures.recall.value == pytest.approx(expected, abs=4 * (expected * (1 - expected) / 150) ** 0.5)


def test_a_recall_that_chance_gives_too_is_shown_as_such() -> None:
    storm = [incident(at, entity="cluster:c", opened_at=START + 600 * at) for at in range(144)]
    figures = scored(
        [fault(), fault("F2", entity="n3", start=HOUR + 9000, first_visible=HOUR + 9000, end=None)], storm
    ).faults
    assert figures.recall.value == 1.0 and figures.chance.mean == 1.0
    assert figures.chance_fitting.mean == 1.0 and figures.located.value == 0.0
