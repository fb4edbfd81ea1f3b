"""Checks of nodes: what their output means, and that nothing but a pass lets a node back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.act.base import ActionError
from backend.act.checks import WORST, Check, CheckHand, report_of, run_check
from backend.clients.slurm import Ran
from backend.facts import Verb
from tests.backend.act.test_hands import script
from tests.contracts.cluster_backend import order

DCGM = {
    "DCGM GPU Diagnostic": {
        "test_categories": [
            {"category": "Deployment", "tests": [{"name": "Denylist", "results": [{"status": "Pass"}]}]},
            {
                "category": "Hardware",
                "tests": [{"name": "Memory", "results": [{"gpu_ids": "0", "status": "Fail"}, {"status": "Skip"}]}],
            },
        ]
    }
}


@pytest.mark.parametrize(
    ("code", "out", "verdict"),
    [
        (0, "", "pass"),
        (1, "GPU WARN", "warn"),
        (2, "", "fail"),
        (3, "", "unknown"),
        (127, "", "unknown"),
        (-9, "", "unknown"),
        (0, '{"verdict": "pass", "values": {"tflops": 612.5}}', "pass"),
        (0, 'warming up\n{"status": "FAILED", "text": "GEMM of GPU 3 is 31 % slow"}', "fail"),
        (2, '{"status": "ok"}', "fail"),
        (139, '{"status": "ok"}', "unknown"),
        (0, json.dumps(DCGM), "fail"),
        (0, json.dumps(DCGM, indent=2), "fail"),
        (0, json.dumps(DCGM).replace("Fail", "Pass"), "pass"),
        (0, json.dumps(DCGM).replace("Fail", "Skip").replace("Pass", "Skip"), "unknown"),
        (0, '{"nothing": 1}', "pass"),
        (0, "[1, 2", "pass"),
    ],
)
def test_a_verdict_is_read_from_json_first_then_from_the_exit_code(code: int, out: str, verdict: str) -> None:
    assert report_of(Ran(code, out, "")).verdict == verdict


def test_values_and_words_are_kept() -> None:
    found = report_of(Ran(0, '{"verdict": "warn", "text": "slow", "values": {"gb_s": 41, "name": "x"}}', ""))
    assert (found.verdict, found.text, found.values) == ("warn", "slow", {"gb_s": 41.0})


@given(st.integers(-70, 300), st.text(max_size=400))
@settings(max_examples=150, deadline=None)
def test_no_output_breaks_the_reading_or_passes_with_a_bad_code(code: int, out: str) -> None:
    found = report_of(Ran(code, out, ""))
    assert found.verdict in WORST
    if code:
        assert found.verdict != "pass"


def test_deep_output_is_read_no_deeper_than_it_may_be() -> None:
    assert report_of(Ran(0, '{"a":' * 5000 + "1" + "}" * 5000, "")).verdict in ("pass", "unknown")


def test_a_check_that_does_not_end_is_unknown_and_never_passed(tmp_path: Path) -> None:
    slow = Check("slow", (str(script(tmp_path / "slow", "sleep 30")),), timeout_s=0.2)
    assert run_check(slow, "gpu-0001").verdict == "unknown"
    assert run_check(Check("gone", ("/no/such/program",)), "gpu-0001").verdict == "unknown"


def test_all_checks_of_a_return_must_pass_and_pair_tests_are_no_part_of_it(tmp_path: Path) -> None:
    good = Check("gemm", (str(script(tmp_path / "good", 'test "$1" = gpu-0001')), "{node}"))
    bad = Check("nvlink", (str(script(tmp_path / "bad", "echo lane 3 is down; exit 2")), "{node}"))
    mute = Check("mute", (str(script(tmp_path / "mute", "exit 3")),))
    pair = Check("pair", (str(tmp_path / "bad"), "{node}", "{peer}"), on="any")
    sent = order(Verb.CHECK, "gpu-0001")
    passed = CheckHand([good, pair]).perform(sent)
    assert (passed.changed, passed.attrs) == (False, {"gemm": "pass"})
    with pytest.raises(ActionError, match="nvlink of gpu-0001 failed: lane 3 is down") as failed:
        CheckHand([good, bad]).perform(sent)
    assert failed.value.permanent
    with pytest.raises(ActionError, match="no verdict") as unknown:
        CheckHand([mute]).perform(sent)
    assert not unknown.value.permanent
    assert CheckHand([pair]).can == frozenset()
