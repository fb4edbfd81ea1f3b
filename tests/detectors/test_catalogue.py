"""The packaged tables hold together."""

from __future__ import annotations

import numpy as np
import pytest

from detectors.catalogue import TableError, load
from detectors.model import Severity

CATALOGUE = load()
RUNGS = {"record", "notify", "exclude", "restart_job", "requeue", "reset_gpu"}
RUNGS |= {"drain_after_job", "drain_now", "reboot", "check", "ticket", "replace"}
AUTHORITIES = {"code", "vote", "state", "trend", "rate", "rule", "band"}


def test_every_spelling_of_a_metric_leads_to_one_canonical_name() -> None:
    for old, new in (
        ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS"),
        ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS"),
        ("DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR"),
        ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"),
    ):
        assert CATALOGUE.alias[old] == CATALOGUE.alias[new]
    assert CATALOGUE.alias["up"] == "node_up"
    assert CATALOGUE.alias["gpu_junction_temperature"] == "temperature_c"
    assert set(CATALOGUE.alias.values()) == set(CATALOGUE.metrics)


def test_the_last_xid_is_neither_a_count_nor_a_level() -> None:
    assert CATALOGUE.metrics["xid_last"].kind == "last_code"
    assert "xid_last" not in CATALOGUE.gauges("gpu")


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        ("utilisation_pct", 4294967295.0),
        ("utilisation_pct", 2147483634.0),
        ("temperature_c", 9.223372036854775794e18),
        ("nvlink_bytes", 9.223372036854775792e18),
        ("nvlink_bytes", 140737488355328.0),
        ("nvlink_bytes", 1.40737488355328e16),
        ("pcie_replay", 2147483632.0),
        ("power_w", -1.0),
        ("power_w", np.nan),
        ("power_w", np.inf),
    ],
)
def test_impossible_values_and_blanks_are_no_values(metric: str, value: float) -> None:
    assert CATALOGUE.metrics[metric].valid(np.array([value, 1.0])).tolist() == [False, True]


def test_a_counter_of_a_node_may_be_any_unsigned_number() -> None:
    interrupts = CATALOGUE.metrics["node_interrupts"]
    assert interrupts.valid(np.array([2147483634.0, 1.8e19, -1.0])).tolist() == [True, True, False]


def test_every_xid_has_a_kind_a_rung_and_a_severity_no_louder_than_its_kind() -> None:
    assert set(range(1, 177)) | {185} == set(CATALOGUE.xids)
    for xid in CATALOGUE.xids.values():
        assert xid.action in RUNGS, xid
        assert xid.severity <= CATALOGUE.kinds[xid.kind].severity, xid
        assert xid.name and xid.source, xid
        assert not (xid.app and xid.hard), f"{xid}: the application's doing is never held against the GPU"


def test_what_the_application_did_never_excludes_a_node() -> None:
    for code in (13, 31, 43, 45):
        xid = CATALOGUE.xids[code]
        assert xid.severity is Severity.INFO
        assert CATALOGUE.kinds[xid.kind].exclude == "never"


def test_kinds_speak_the_common_vocabulary() -> None:
    for kind in CATALOGUE.kinds.values():
        assert set(kind.ladder) <= RUNGS, kind
        assert set(kind.authorities) <= AUTHORITIES, kind
        assert kind.scopes, kind
    assert CATALOGUE.kinds["gpu_bus_loss"].ladder == ("exclude", "drain_now", "reboot", "ticket")


def test_every_threshold_has_a_unit_and_a_source() -> None:
    for threshold in CATALOGUE.thresholds.values():
        assert threshold.unit and threshold.source, threshold


def test_a_site_shadows_a_code_and_a_threshold() -> None:
    row = {"code": "63", "name": "repair", "severity": "high", "kind": "gpu_hardware_other", "action": "check"}
    site = load([row], {"peers_z": 7.0})
    assert site.xids[63].severity is Severity.HIGH
    assert site.xids[64] == CATALOGUE.xids[64]
    assert (site.limit("peers_z"), site.thresholds["peers_z"].source) == (7.0, "site")


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"code": "x", "name": "", "severity": "high", "kind": "gpu_bus_loss", "action": "check"}, "code x"),
        ({"code": "7", "name": "", "severity": "loud", "kind": "gpu_bus_loss", "action": "check"}, "LOUD"),
        ({"code": "7", "name": "", "severity": "high", "kind": "no_such", "action": "check"}, "no kind 'no_such'"),
        ({"code": "7", "severity": "high"}, "code 7"),
    ],
)
def test_a_wrong_row_says_which_and_what(row: dict[str, str], says: str) -> None:
    with pytest.raises(TableError, match=says):
        load([row])


def test_a_threshold_that_does_not_exist_is_named() -> None:
    with pytest.raises(TableError, match="peers_zz"):
        load(thresholds={"peers_zz": 1.0})
