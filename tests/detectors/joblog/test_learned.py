"""Past failures by resemblance: calibrated answers where people taught it, silence everywhere else."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.joblog.excerpt import NAMED, PLAIN
from detectors.joblog.fitting import fit, folds_of
from detectors.joblog.learned import LEAST, Artefact, Example, Model, classify, features
from tests.detectors.joblog.failures import COMMON, SAYINGS, failure, failures, line

NOVEL = (
    "frobnicator: gasket {n} lost at {h}, stopping",
    "watercool: flow below {n}, shutting {h} down",
    "gasket {n} lost again, pump {p} failed",
)


@pytest.fixture(scope="module")
def taught() -> Artefact:
    return fit(list(failures(12)))


@pytest.fixture(scope="module")
def model(taught: Artefact) -> Model:
    return Model.of(taught, version=3)


def test_failures_in_other_words_of_a_taught_cause_are_named_with_a_calibrated_confidence(model: Model) -> None:
    unseen = list(failures(20, start=500))
    said = [(model.classify(one.excerpt), one.cause) for one in unseen]
    answered = [(found, cause) for found, cause in said if found is not None]
    assert len(answered) >= 0.8 * len(unseen)
    assert sum(found.log_class == cause for found, cause in answered) >= 0.95 * len(answered)
    assert all(found.probability <= model.facts["surest"] < 1.0 and found.alike >= 2 for found, _ in answered)


def test_what_nobody_ever_labelled_is_not_answered(model: Model) -> None:
    assert not any(model.classify(failure("novel", seed, NOVEL)) for seed in range(40))
    common = "\n".join("  " + line(random.Random(7), wording) for wording in COMMON)
    assert model.classify(common) is None and model.classify("") is None


def test_without_labels_it_is_silent_and_says_what_is_missing() -> None:
    for examples in ([], list(failures(LEAST - 1)), list(failures(30, ("user_code_exception",)))):
        found = fit(examples)
        assert not found.facts["used"] and found.facts["missing"]
        assert Model.of(found).classify(failure("user_code_exception", 900)) is None
    few = fit(list(failures(LEAST - 1))).facts["missing"]
    assert few["user_code_exception"] == 1


def test_labels_that_tell_nothing_apart_teach_nothing() -> None:
    causes = [one.cause for one in failures(15)]
    random.Random(1).shuffle(causes)
    shuffled = [replace(one, cause=cause) for one, cause in zip(failures(15), causes, strict=True)]
    found = fit(shuffled)
    assert not found.facts["used"] and Model.of(found).classify(shuffled[0].excerpt) is None


def test_a_rare_cause_and_one_that_cannot_be_known_are_learnt_as_silence() -> None:
    rare = [Example(failure("novel", n, NOVEL), "disk_full", f"rare {n}", f"job:r{n}") for n in range(LEAST - 1)]
    hidden = [Example(failure("dark", n, NOVEL), "", f"dark {n}", f"job:d{n}") for n in range(8)]
    found = fit([*failures(10), *rare, *hidden])
    asked = Model.of(found)
    assert found.facts["missing"] == {"disk_full": 1} and "disk_full" not in found.facts["classes"]
    assert not any(asked.classify(failure("novel", seed, NOVEL)) for seed in range(50, 80))
    assert asked.classify(failure("user_code_exception", 900)) is not None


def test_accuracy_is_measured_on_failures_that_were_held_out_whole_groups_at_a_time(taught: Artefact) -> None:
    facts = taught.facts
    assert facts["held"] == facts["n"] == 36 and facts["right"] <= facts["answered"] <= facts["held"]
    groups = ["a", "a", "b", "c", "b", "d", "e", "f"]
    folds = folds_of(groups, np.array([0, 0, 1, 0, 1, 1, 0, 1], np.int64))
    assert folds[0] == folds[1] and folds[2] == folds[4]
    # Thirty retries of one run are one failure: they cannot vouch for each other.
    same = [replace(one, group=one.cause) for one in failures(30)]
    assert not fit(same).facts["used"] and fit(same).facts["missing"]


def test_the_nearest_past_failures_are_shown_with_their_causes_one_a_run(model: Model) -> None:
    found = model.nearest(failure("network_link_error", 900))
    assert [past.cause for past in found] == ["network_link_error"] * 3
    assert found[0].cosine >= found[1].cosine >= found[2].cosine > 0.15 and len({past.ref for past in found}) == 3
    own = next(failures(1))
    assert own.ref not in {past.ref for past in model.nearest(own.excerpt, without=[own.ref])}
    retried = Model.of(fit([replace(one, group="one run") for one in failures(5, ("user_code_exception",))]))
    assert len(retried.nearest(failure("user_code_exception", 3))) == 1


def test_lines_that_rules_name_teach_nothing() -> None:
    assert features(f"{NAMED}torch.OutOfMemoryError: CUDA out of memory").size == 0
    assert features(f"{PLAIN}shard refused").tolist() == features(f"{NAMED}OOM\n{PLAIN}shard refused").tolist()


def test_the_same_examples_give_the_same_bytes_and_the_artefact_is_arrays_and_json(taught: Artefact) -> None:
    again = fit(list(failures(12)))
    assert all(np.array_equal(again.arrays[name], taught.arrays[name]) for name in taught.arrays)
    assert not any(array.dtype.hasobject for array in taught.arrays.values())
    read = Artefact(taught.arrays, json.loads(json.dumps(taught.facts)))
    asked = failure("user_code_exception", 900)
    assert classify(read, asked) == classify(taught, asked) is not None


@pytest.mark.parametrize("broken", [{"format": 0}, {"format": None}, {}])
def test_an_artefact_of_another_layout_is_refused(taught: Artefact, broken: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="format"):
        Model.of(Artefact(taught.arrays, broken))
    with pytest.raises(ValueError, match="without"):
        Model.of(Artefact({}, taught.facts))


def test_asking_needs_no_scikit_learn() -> None:
    code = "import sys, detectors.joblog.learned, detectors.joblog.fitting; assert 'sklearn' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=400))
def test_no_text_breaks_it(text: str) -> None:
    model = KNOWN
    found = model.classify(text)
    assert found is None or found.log_class in SAYINGS
    assert all(0 <= past.cosine <= 1 for past in model.nearest(text))


KNOWN = Model.of(fit(list(failures(6))))


def test_a_past_failure_is_shown_by_its_own_line_not_by_what_every_job_prints() -> None:
    found = Model.of(fit([replace(one, line="") for one in failures(12)]))
    own = {"storage_service_error": "blobgate", "network_link_error": "ring", "user_code_exception": "stage"}
    shown = [past.line for past in found.past]
    said = sum(own[past.cause] in past.line or "sampler" in past.line for past in found.past)
    assert said >= 0.9 * len(shown)
