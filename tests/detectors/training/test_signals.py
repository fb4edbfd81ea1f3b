"""The table of what training jobs tell of themselves."""

from __future__ import annotations

import pytest

from detectors.training.signals import load


@pytest.mark.parametrize(
    ("spelt", "name"), [("train/loss", "loss"), ("LM loss", "loss"), ("grad-norm", "grad_norm"), ("mine", "mine")]
)
def test_a_spelling_of_a_trainer_is_found_by_its_canonical_name(spelt: str, name: str) -> None:
    assert load().canonical(spelt) == name


def test_codes_are_places_in_the_table_and_text_is_never_judged_by_a_band() -> None:
    signals = tuple(load().by_name.values())
    assert [signal.code for signal in signals] == list(range(len(signals)))
    assert all(signal.harm == "none" for signal in signals if signal.scale == "text")
