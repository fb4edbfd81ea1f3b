"""The one-sentence answers."""

from __future__ import annotations

import pytest

from frontend import sentences

LOST = "GPU 3 of gpu-0412 is lost on PCIe (Xid 79). The driver asks for a reboot of the node."


def test_what_waits_comes_first_and_for_whom() -> None:
    said = sentences.now_answer([LOST], 5, 384, 380, 0, mine=True)
    assert said == "One thing waits for you: GPU 3 of gpu-0412 is lost on PCIe (Xid 79)."
    assert "waits for an approver" in sentences.now_answer([LOST], 5, 384, 380, 0, mine=False)


def test_a_calm_fleet_says_so_only_when_every_gpu_is_seen() -> None:
    assert sentences.now_answer([], 0, 384, 384, 0, mine=True) == "All is well: 384 of 384 GPUs are healthy."
    assert sentences.now_answer([], 0, 384, 368, 16, mine=True).endswith("but 16 of 384 GPUs send no data.")
    assert "out on purpose" in sentences.now_answer([], 0, 384, 376, 0, mine=True)


def test_no_gpu_is_no_healthy_fleet() -> None:
    assert sentences.now_answer([], 0, 0, 0, 0, mine=True).startswith("Nothing is watched yet")
    assert sentences.fleet_answer(0, 0, 0, []) == "No GPU has been heard of yet."


def test_an_answer_is_short() -> None:
    long = "x" * 300
    assert len(sentences.now_answer([long, long], 2, 9, 1, 0, mine=True)) <= 110


def test_the_fleet_names_what_needs_a_decision() -> None:
    said = sentences.fleet_answer(4096, 3974, 17, ["GPU 3 of gpu-0412"])
    assert said == "122 of 4,096 GPUs are not healthy, on 17\u00a0nodes. One needs a decision: GPU 3 of gpu-0412."


@pytest.mark.parametrize("state", ["proposed", "observed", "approved", "automatic", "rejected", "nothing"])
def test_every_decision_says_what_it_means(state: str) -> None:
    assert sentences.helps(state, ["drain"], "gpu-0412", ["48213"], 1).endswith(".")


def test_a_late_loop_costs_trust_and_a_dark_source_is_a_blind_spot() -> None:
    assert sentences.system_answer(["tick"], [], [], 5).startswith("Do not trust")
    said = sentences.system_answer([], [("loki", "02:58")], [], 5)
    assert said == "You can trust Watchkeeper now, with one blind spot: loki is silent since 02:58."
    assert sentences.system_answer([], [], [], 0) == "Watchkeeper has not beaten yet: nothing is judged."
