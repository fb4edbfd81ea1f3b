"""Public labelled lines beside the repository, where they are: read right, every one. Checked, never tuned to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from detectors.kernel.lines import codes, joined, parse

SHELF = Path(__file__).resolve().parents[4] / "shared/data"
pytestmark = [
    pytest.mark.samples,
    pytest.mark.skipif(not (SHELF / "xid-gpud").is_dir(), reason="the shared samples are not here"),
]


def rows(name: str) -> Iterator[dict[str, str]]:
    for line in (SHELF / "xid-gpud" / name).read_text(encoding="utf-8").splitlines():
        yield json.loads(line)


@pytest.mark.parametrize("namespace", ["xid", "sxid"])
def test_every_labelled_line_has_its_number(namespace: str) -> None:
    labelled = [row for row in rows(f"{namespace}_labelled.jsonl") if row[namespace].isdigit()]
    assert len(labelled) >= 7
    for row in labelled:
        code = parse(row["line"])
        got = code.code if code is not None and code.namespace == namespace else "0"
        assert got == row[namespace], row


def test_every_labelled_device_and_link_is_read() -> None:
    for row in rows("xid_labelled.jsonl"):
        code = parse(row["line"])
        if row["device"] and row["xid"] != "0":
            assert code is not None and code.pci == row["device"].removeprefix("PCI:").removesuffix(".0").lower(), row
        if row["link"]:
            assert code is not None and code.attrs["link"].lstrip("0") == row["link"].lstrip("0"), row


def test_problems_of_the_kernel_are_told_by_their_family() -> None:
    folder = SHELF / "npd-kernel/test/kernel_log_generator/problems"
    told = {
        "oom_kill": ("oom", "memcg"),
        "readonly_filesystem": ("fs", "read_only"),
        "docker_hung": ("kernel", "hung_task"),
        "null_pointer": ("kernel", "oops"),
        "divide_zero": ("kernel", "oops"),
    }
    for name, (namespace, code) in told.items():
        found = [parse(line) for line in joined((folder / name).read_text().splitlines())]
        assert (namespace, code) in {(c.namespace, c.code) for c in found if c is not None}, name


def test_real_records_of_a_kernel_say_nothing_loud_where_nothing_broke() -> None:
    text = (SHELF / "gpud-raw/pkg/kmsg/testdata/kmsg.1.log").read_bytes()
    assert {code.namespace for code in codes([text])} <= {"nic", "boot"}
