"""Flags and counters: what lasts becomes a level, what flickers does not, and what is not seen is neither."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from detectors.catalogue import TableError, load
from detectors.model import Finding, Fleet, Severity, Tick
from detectors.telemetry import levels
from detectors.telemetry.levels import Levels, rules_of
from tests.detectors.fleets import T0, USUAL, fleet_of

CATALOGUE = load()
FLAGS = Levels("telemetry/flags", "gpu", rules_of(CATALOGUE, "gpu"), CATALOGUE)
NAN = float("nan")


def told(rows: Sequence[Mapping[str, float]], step_s: float = 15.0, fleet: Fleet | None = None) -> list[list[Finding]]:
    """Findings after each look at GPU 0 of one node; its neighbours are well."""
    fleet = fleet or fleet_of(1, 2)
    state = FLAGS.start(fleet)
    found = []
    for place, row in enumerate(rows):
        values = {}
        for metric in {*USUAL, *row, "throttle_mask"}:
            column = np.full(len(fleet.axes["gpu"]), USUAL.get(metric, 0.0), np.float32)
            column[0] = row.get(metric, USUAL.get(metric, 0.0))
            values[("gpu", metric)] = column
        found.append(list(FLAGS.step(state, Tick(T0 + place * step_s, values), fleet).findings))
    return found


def kinds(found: Sequence[Finding]) -> list[str]:
    return [one.kind for one in found]


HOT = {"throttle_mask": 0x40, "temperature_c": 91.0}


def test_a_thermal_mask_counts_once_it_has_lasted_and_ends_once_it_has_been_gone() -> None:
    found = told([HOT] * 9 + [{}] * 22)
    assert [bool(f) for f in found[:9]] == [False] * 4 + [True] * 5
    assert kinds(found[4]) == ["thermal_throttle"] and found[4][0].since == T0
    assert found[4][0].severity is Severity.HIGH and "GPU 0 of gpu-0001" in found[4][0].reason
    assert found[28] and not found[29], "300 s after the first look without it"


def test_a_mask_that_flickers_is_the_cards_normal_work() -> None:
    assert not any(told([HOT, HOT, HOT, {}] * 12))


def test_a_thermal_mask_on_a_cool_card_is_another_cards_trouble() -> None:
    assert not any(told([{"throttle_mask": 0x40, "temperature_c": 40.0}] * 20))


def test_the_idle_and_the_software_power_cap_bits_are_no_fault() -> None:
    assert not any(told([{"throttle_mask": 0x1 | 0x4}] * 20))


def test_a_power_brake_is_told_apart_from_heat() -> None:
    assert kinds(told([{"throttle_mask": 0x80 | 0x8}] * 10)[-1]) == ["power_brake"]


def test_a_failed_remapping_counts_at_the_first_look() -> None:
    (first,) = told([{"remap_failure": 1.0}])[0]
    assert first.kind == "gpu_ecc_uncorrectable" and first.severity is Severity.CRITICAL


def test_of_two_rules_of_one_kind_the_louder_speaks() -> None:
    (first,) = told([{"remap_failure": 1.0, "ecc_dbe_volatile": 0.2}])[0]
    assert first.severity is Severity.CRITICAL


def test_few_remaps_in_a_day_are_wear_and_many_are_a_trend() -> None:
    def day(remaps: int) -> list[list[Finding]]:
        looks: list[dict[str, float]] = [{"remap_correctable": 0.0} for _ in range(480)]
        for place in range(remaps):
            looks[20 + place * 20]["remap_correctable"] = 1 / 60  # one row in the minute before
        return told(looks, 60.0)

    assert not any(day(6))
    assert kinds(day(12)[-1]) == ["gpu_remap_trend_loss"]


def test_remaps_spread_over_weeks_are_no_trend() -> None:
    looks = [{"remap_correctable": (1 / 600 if place % 72 == 0 else 0.0)} for place in range(2000)]
    assert not any(told(looks, 600.0)), "two a day"


def test_what_is_not_seen_neither_begins_nor_ends_a_level_and_is_blind() -> None:
    fleet = fleet_of(1, 2)
    state = FLAGS.start(fleet)

    def look(at: float, mask: float) -> tuple[bool, bool]:
        values = {("gpu", "throttle_mask"): np.array([mask, 0], np.float32)}
        values[("gpu", "temperature_c")] = np.array([91, 60], np.float32)
        judged = FLAGS.step(state, Tick(T0 + at, values), fleet)
        return bool(judged.findings), bool(judged.blind["gpu"][0])

    for place in range(10):
        look(place * 15.0, 0x40)
    assert look(150.0, NAN) == (True, True)
    assert all(look(165.0 + 15 * place, NAN) == (True, True) for place in range(40))
    assert look(900.0, 0) == (True, False)
    assert look(1200.0, 0) == (False, False)


def test_a_counter_after_a_long_gap_is_not_taken_for_the_whole_gap() -> None:
    looks: list[dict[str, float]] = [{"remap_correctable": 0.0}, {"remap_correctable": 0.01}]
    assert not any(told(looks, 86_400.0)), "ten minutes of that rate are believed, 6 rows; not a day, 864 rows"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"metric": "warmth"}, "no metric 'warmth'"),
        ({"kind": "gpu_sad"}, "no kind 'gpu_sad'"),
        ({"test": "near"}, "no test 'near'"),
        ({"hold_s": "a_while"}, "no threshold 'a_while'"),
        ({"test": "above"}, "no limit"),
        ({"severity": "loud"}, "LOUD"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_rule_that_cannot_be_used_is_named(change: dict[str, str], word: str) -> None:
    row = {
        "axis": "gpu",
        "metric": "throttle_mask",
        "test": "bits",
        "bits": 1,
        "kind": "power_brake",
        "severity": "high",
        "score": 0.5,
        "what": "mask",
        "says": "{who}",
        "source": "test",
    }
    with pytest.raises(TableError, match=f"levels.toml, mine: .*{word}"):
        levels._rule("mine", row | change, CATALOGUE)


@pytest.mark.parametrize(
    ("well", "ill", "kind"),
    [
        ({"pcie_width_lanes": 16.0}, {"pcie_width_lanes": 8.0}, "pcie_width_downgrade"),
        ({"fabric_health": 1.0}, {"fabric_health": 2.0}, "fabric_manager_not_ready"),
        ({"fabric_manager_state": 3.0}, {"fabric_manager_state": 4.0}, "fabric_manager_not_ready"),
        ({"recovery_action": 0.0}, {"recovery_action": 1.0}, "gpu_hardware_other"),
        ({"health_amd": 1.0}, {"health_amd": 0.0}, "gpu_hardware_other"),
    ],
)
def test_a_state_that_turned_bad_counts_in_two_looks(
    well: Mapping[str, float], ill: Mapping[str, float], kind: str
) -> None:
    found = told([well] * 3 + [ill] * 3, step_s=30.0)
    assert not any(found[:4])
    assert kinds(found[4]) == [kind]


def test_a_state_that_was_never_better_is_not_a_fall() -> None:
    assert not any(told([{"pcie_width_lanes": 8.0, "health_amd": 0.0}] * 6, step_s=30.0))


def test_a_few_link_errors_are_noise_and_many_within_an_hour_are_a_bad_link() -> None:
    assert not any(told([{"nvlink_crc_flit": 0.01}] * 20, step_s=30.0))
    assert kinds(told([{"nvlink_crc_flit": 2.0}] * 6, step_s=30.0)[-1]) == ["nvlink_error"]


def hosts(metric: str, *looks: Sequence[float]) -> list[Finding]:
    """Findings at the last of some looks at nodes, 30 s apart."""
    rules = Levels("telemetry/host_flags", "node", rules_of(CATALOGUE, "node"), CATALOGUE)
    fleet = fleet_of(len(looks[0]), 1)
    state = rules.start(fleet)
    found: tuple[Finding, ...] = ()
    for place, row in enumerate(looks):
        tick = Tick(T0 + 30.0 * place, {("node", metric): np.array(row, np.float32)})
        found = rules.step(state, tick, fleet).findings
    return list(found)


def test_a_clock_is_wrong_where_it_differs_from_those_of_the_others() -> None:
    apart = [0.4, 0.5, 0.4, -30.0]
    (found,) = hosts("node_clock_behind_s", apart, apart, apart)
    assert (found.kind, str(found.entity)) == ("clock_skew", "gpu-0004")
    late = [30.4, 30.5, 30.4, 30.3]
    assert not hosts("node_clock_behind_s", late, late, late), "it is the scraper that is wrong"


def test_memory_that_corrects_itself_again_and_again_wears_out() -> None:
    assert not hosts("node_edac_ce", *[[0.02, 0.0, 0.0]] * 20)
    assert kinds(hosts("node_edac_ce", *[[1.0, 0.0, 0.0]] * 8)) == ["host_hardware"]


def test_a_kill_for_lack_of_memory_is_told() -> None:
    assert kinds(hosts("node_oom_kills", [0.0, 0.0], [1 / 30, 0.0])) == ["host_oom"]
