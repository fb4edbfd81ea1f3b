"""No node is left out for words that a job only quotes, samples, checks for or explains: the hardest law."""

from __future__ import annotations

import pytest

from tests.detectors.joblog.reads import verdict

STEPS = [f"2025-08-11 09:{n // 60:02d}:{n % 60:02d} step {5 * n} loss 2.{n:02d}\n" for n in range(0, 600, 5)]
FAILS = "Traceback (most recent call last):\n  File \"t.py\", line 3, in f\n    x\nKeyError: 'y'\n"
TOLD = (
    'sample 3: "Q: What does Xid 79 mean? A: NVRM: Xid (PCI:0000:5d:00): 79, GPU has fallen off the bus."',
    "{'text': 'kernel: NVRM: Xid (PCI:0000:5d:00): 79, pid=1, GPU has fallen off the bus.', 'label': 1}",
    "print('GPU has fallen off the bus')",
    'watchdog config: fatal_patterns=["GPU has fallen off the bus", "Xid 79", "uncorrectable ECC error"]',
    '>>> prompt: explain "NVLink: fatal error detected on link 4"',
    "In this incident report the GPU has fallen off the bus and we rebooted.",
    "CUDA error: uncorrectable ECC error encountered is documented in the CUDA manual",
    "ERROR test_case 'GPU is lost' expected failure ok",
    "generated: The user asked what happens if a GPU is lost in training.",
    "rule `HW Thermal Slowdown : Active` loaded",
    "the answer should say that the machine must be reset because the GPU is lost",
)
SAID = (
    "Aug 11 08:00:00 gpu-61 kernel: NVRM: Xid (PCI:0000:5d:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",  # noqa: E501
    "NVRM: The NVIDIA GPU 0000:5d:00.0 (PCI ID: 10de:2330) installed in this system has fallen off the bus and is not responding to commands.",  # noqa: E501
    "Unable to determine the device handle for GPU2: 0000:5D:00.0: GPU is lost.  Reboot the system to recover this GPU",
    "[rank6]: RuntimeError: CUDA error: uncorrectable ECC error encountered",
    "RuntimeError('CUDA error: uncorrectable ECC error encountered')",
    "gpu-7:11:12 [0] enqueue.cc:1 NCCL WARN Cuda failure 'uncorrectable ECC error encountered'",
    "ray.exceptions.RayTaskError(AcceleratorError): CUDA error: uncorrectable ECC error encountered",
    "terminate called: what():  CUDA error: uncorrectable NVLink error detected during the execution",
    "GPU 3 on node gpu-7 has fallen off the bus",
)  # fmt: skip


@pytest.mark.parametrize("words", TOLD)
@pytest.mark.parametrize("end", ["", FAILS], ids=["goes on", "fails"])
@pytest.mark.parametrize("steps", [2, len(STEPS)], ids=["short", "long"])
def test_words_that_are_only_told_leave_no_node_out(words: str, end: str, steps: int) -> None:
    found = verdict("".join(STEPS[: steps // 2]) + words + "\n" + "".join(STEPS[steps // 2 : steps]) + end)
    assert not found.exclude_node
    if end:
        assert found.log_class == "user_code_exception"
    elif steps > 2:
        assert found.log_class == "clean_success"


@pytest.mark.parametrize("words", SAID)
def test_what_driver_and_framework_say_still_leaves_the_node_out(words: str) -> None:
    found = verdict("".join(STEPS) + words + "\n")
    assert found.exclude_node, found


@pytest.mark.parametrize("words", SAID)
def test_a_job_that_worked_for_minutes_after_it_was_not_ended_by_it(words: str) -> None:
    assert not verdict(STEPS[0] + words + "\n" + "".join(STEPS[1:])).exclude_node


def test_a_few_buffered_steps_behind_it_prove_nothing() -> None:
    steps = "".join(f"step {n} loss 2.0\n" for n in range(40))
    found = verdict(f"step 0 loss 2.0\nRuntimeError: CUDA error: uncorrectable ECC error encountered\n{steps}")
    assert (found.log_class, found.exclude_node) == ("ecc_uncorrectable", True)
