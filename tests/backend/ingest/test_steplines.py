# ruff: noqa: E501 - lines of tools are as long as they are
"""Step lines as trainers print them: what each tells, what is none, and lines taught by one example.

The lines are fixtures in the formats of their tools, written by us.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.facts import PrintedFacts
from backend.ingest.steplines import Patterns, StepLines
from detectors.training.signals import load

PATTERNS = Patterns.of(load())

LINES = {
    "torchtitan": (
        "[titan] 2026-03-01 12:00:00,123 - root - INFO - \x1b[31mstep: 120  \x1b[32mloss:  3.2145  \x1b[38;2;180;60;0m"
        "grad_norm:  1.0321  \x1b[33mmemory: 51.12GiB(64.62%)  \x1b[34mtps: 7,310  \x1b[36mtflops: 377.93  "
        "\x1b[35mmfu: 38.21%\x1b[39m",
        120, {"loss": 3.2145, "grad_norm": 1.0321},
    ),
    "Megatron-LM": (
        " [2026-03-01 12:00:00] iteration      120/  500000 | consumed samples:        15360 | elapsed time per iteration "
        "(ms): 5123.4 | throughput per GPU (TFLOP/s/GPU): 402.1 | learning rate: 1.500000E-04 | global batch size:   128 | "
        "lm loss: 6.312345E+00 | load_balancing_loss: 1.0E-02 | loss scale: 1.0 | grad norm: 1.234 | number of skipped "
        "iterations:   0 | number of nan iterations:   0 |",
        120, {"loss": 6.312345, "grad_norm": 1.234, "step_time_s": 5.1234, "lr": 1.5e-4, "loss_scale": 1.0, "nonfinite": 0},
    ),
    "NeMo": (
        "Training epoch 0, iteration 119/999 | lr: 0.0003 | global_batch_size: 128 | global_step: 119 | "
        "reduced_train_loss: 4.519 | train_step_timing in s: 5.302 | consumed_samples: 15360",
        119, {"loss": 4.519, "lr": 3e-4, "step_time_s": 5.302},
    ),
    "DeepSpeed": (
        "steps: 120 loss: 6.2341 iter time (s): 1.234 samples/sec: 51.872",
        120, {"loss": 6.2341, "step_time_s": 1.234},
    ),
    "HF Trainer": (
        " 12%|#2        | 120/1000 [01:02<07:41,  1.91it/s]{'loss': 2.3451, 'grad_norm': 1.25, 'learning_rate': 4.4e-05, "
        "'epoch': 0.12}",
        120, {"loss": 2.3451, "grad_norm": 1.25, "lr": 4.4e-5},
    ),
    "nanoGPT": ("iter 120: loss 3.2145, time 512.34ms, mfu 31.20%", 120, {"loss": 3.2145, "step_time_s": 0.51234}),
    "nanoGPT's evaluation": ("step 250: train loss 1.9011, val loss 2.1034", 250, {"loss": 1.9011, "val_loss": 2.1034}),
}  # fmt: skip


@pytest.mark.parametrize("tool", LINES)
def test_the_line_of_each_tool_tells_its_step_and_signals(tool: str) -> None:
    line, step, values = LINES[tool]
    said = PATTERNS.read(line)
    assert said is not None
    assert (said.step if said.step is not None else said.bar) == step
    assert dict(said.values) == pytest.approx(values)


@pytest.mark.parametrize(
    "line",
    [
        "Saving checkpoint at step 500 to /ckpt/step-500",
        "step 3 of 7: loading shards",
        "srun: Job step 41207.0 aborted",
        "Step 2: loss function is cross entropy",
        "we lose 30 seconds each step",
        "RuntimeError: loss is nan",
        "{'eval_runtime': 12.3, 'epoch': 1.0}",
    ],
)
def test_other_lines_are_none(line: str) -> None:
    assert PATTERNS.read(line) is None


def test_a_loss_that_is_no_number_is_read() -> None:
    said = PATTERNS.read("iter 7: loss nan, time 5.00ms, mfu 1.00%")
    assert said is not None
    assert math.isnan(said.values["loss"])


def test_a_line_is_taught_by_one_example() -> None:
    patterns = Patterns.of(load(), ["[rank 0] Schritt {step=120} von 900: Verlust {loss=3.21} ({step_time_ms=512} ms)"])
    said = patterns.read("12:00:01 [rank 3] Schritt 77 von 1000: Verlust 2.5e0 (499.5 ms)")
    assert said is not None
    assert (said.step, dict(said.values)) == (77, {"loss": 2.5, "step_time_s": 0.4995})
    with pytest.raises(ValueError, match="mark the step"):
        Patterns.of(load(), ["Verlust {loss=3.21}"])


def test_lines_without_a_step_count_on_and_follow_the_bar() -> None:
    lines = StepLines(PATTERNS)
    told = "{'loss': 2.5, 'learning_rate': 1e-05, 'epoch': 0.1}"
    texts = [told, told, " 50%|#####     | 10/20 [00:12<00:10,  1.0it/s]", told, told]
    rows = lines.take(PrintedFacts(float(n), "7", "gpu-1/rank_3", text) for n, text in enumerate(texts))
    assert [row.step for row in rows] == [0, 1, 10, 11]
    assert {(row.rank, row.attrs["host"]) for row in rows} == {(3, "gpu-1")}


def test_a_job_that_pushes_its_steps_is_not_told_twice() -> None:
    lines = StepLines(PATTERNS)
    lines.pushed(["7"])
    assert lines.take([PrintedFacts(1.0, "7", "h/x", LINES["nanoGPT"][0])]) == ()


def test_logs_that_are_followed_tell_their_steps_too() -> None:
    found = StepLines(PATTERNS).heard(
        b"iter 1: loss 3.5, time 5.00ms\nnothing\niter 2: loss 3.4, time 5.00ms\n", 9.0, "7", "/rank_2"
    )
    assert [(row.step, row.loss, row.rank, row.at) for row in found] == [(1, 3.5, 2, 9.0), (2, 3.4, 2, 9.0)]


@given(st.text(max_size=300))
def test_no_text_breaks_the_reading(text: str) -> None:
    PATTERNS.read(text)
    PATTERNS.read(f"iter 5: loss {text}")
