"""Alert quality: things count once, disputes in neither, and each share carries its n and interval."""

from __future__ import annotations

import pytest

from backend.reliability.alerts import Word, alert_quality


def test_each_kind_has_its_share_with_n_and_wilsons_interval() -> None:
    words = [Word(f"incident {n}", "gpu_bus_loss", n < 9) for n in range(10)] + [Word("job 7", "disk_full", True)]
    disk, bus = alert_quality(words)
    assert (bus.said, bus.right, bus.n, bus.disputed) == ("gpu_bus_loss", 9, 10, 0)
    assert bus.interval is not None and bus.interval.low == pytest.approx(0.5958, abs=1e-4)
    assert bus.interval.high == pytest.approx(0.9821, abs=1e-4)
    assert (disk.right, disk.n) == (1, 1)


def test_many_people_on_one_incident_are_one_and_a_dispute_counts_in_neither() -> None:
    words = [Word("incident 1", "job_hang", True)] * 3 + [
        Word("incident 2", "job_hang", right) for right in (True, False)
    ]
    (found,) = alert_quality(words)
    assert (found.right, found.n, found.disputed) == (1, 1, 1)
    (only,) = alert_quality(words[3:])
    assert only.n == 0 and only.interval is None and only.disputed == 1


def test_what_wrong_ones_really_were_is_told_most_first() -> None:
    causes = ["network_link_error", "network_link_error", "disk_full", ""]
    words = [Word(f"incident {n}", "job_hang", False, cause) for n, cause in enumerate(causes)]
    words.append(Word("incident 9", "job_hang", True, "job_hang"))
    (found,) = alert_quality(words)
    assert found.really == (("network_link_error", 2), ("disk_full", 1)) and (found.right, found.n) == (1, 5)
    assert alert_quality([]) == ()
