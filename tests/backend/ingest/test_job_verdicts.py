"""What jobs print becomes one verdict when they ended; nothing while they run, nothing for those that ended well."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from backend.facts import AttemptFacts, RawEvent
from backend.ingest import job_verdicts
from backend.ingest.job_verdicts import Verdicts
from backend.ingest.joblogs import JobFile
from detectors.joblog.fitting import fit
from detectors.joblog.learned import Model
from detectors.joblog.reading import LEAST_HITS, Room, Rules
from detectors.packaged import log_rules
from tests.detectors.joblog.failures import failures

RULES = Rules.of(log_rules())
OOM = b"step 10 loss 2.31\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.\n"
STRANGE = (
    b"2026-03-01 10:00:00 curriculum: stage 12 has an empty mixture, sampler stuck\n"
    b"sampler: mixture weights of stage 12 sum to zero, cannot draw from /scratch/p/1\n"
    b"launcher: rank 3 left with status 1, signalling the others\n"
    b"export HF_TOKEN=hf_abcdefghijklmnopqrstuvwx failed\n"
)
ECC = b"RuntimeError: CUDA error: uncorrectable ECC error encountered\n"


def attempt(state: str = "FAILED", nodes: tuple[str, ...] = ("gpu-0001",), exit_code: int | None = 1) -> AttemptFacts:
    return AttemptFacts("71", 1, state=state, start=1_000.0, end=2_000.0, nodes=nodes, exit_code=exit_code)


def heard(
    made: AttemptFacts, *chunks: tuple[str, bytes], offset: int = 0, learned: Model | None = None
) -> Sequence[RawEvent]:
    listener = Verdicts(RULES, learned=learned)
    for path, chunk in chunks:
        assert not listener.hear(JobFile("71", 1, path), chunk, f"8:12:{offset}", 1_500.0)
    found = listener.ended(made, [JobFile("71", 1, path) for path, _ in chunks], 2_030.0)
    assert not listener.readers and not listener.partly
    return found


def test_a_failed_job_gets_one_verdict_stamped_with_its_end() -> None:
    (event,) = heard(attempt(), ("/logs/71.out", OOM))
    assert (event.namespace, event.code, event.at, event.job) == ("log", "cuda_oom", 2_000.0, "71")
    assert event.attrs["whose"] == "yours" and event.attrs["exclude"] == "no"
    assert "CUDA out of memory" in event.attrs["first"] and event.attrs["line"] == "2"


def test_the_same_attempt_is_told_under_the_same_key_and_the_next_one_is_not() -> None:
    (first,), (again,) = heard(attempt(), ("/logs/71.out", OOM)), heard(attempt(), ("/logs/71.out", OOM))
    assert first.dedupe == again.dedupe


@pytest.mark.parametrize("state", ["COMPLETED", "PREEMPTED", "CANCELLED by 1000", "TIMEOUT"])
def test_an_end_that_is_nobodys_fault_tells_nothing(state: str) -> None:
    assert not heard(attempt(state), ("/logs/71.out", OOM))


@pytest.mark.parametrize("state", ["TIMEOUT", "CANCELLED by 1000"])
def test_a_job_that_hung_on_broken_hardware_until_it_was_ended_is_told(state: str) -> None:
    (event,) = heard(attempt(state), ("/logs/71.out", ECC))
    assert event.code == "ecc_uncorrectable" and event.attrs["state"] == state.split(" ")[0]
    assert not heard(attempt("COMPLETED", exit_code=0), ("/logs/71.out", ECC))


def test_a_job_without_logs_is_judged_by_its_end_state() -> None:
    (event,) = heard(attempt("NODE_FAIL"))
    assert event.code == "node_fail" and event.attrs["state"] == "NODE_FAIL"


def test_a_log_that_was_not_heard_from_its_start_says_so() -> None:
    (event,) = heard(attempt(), ("/logs/71.out", OOM), offset=4096)
    assert event.attrs["partly"] == "yes"


def test_a_node_is_named_only_where_it_is_one_of_the_jobs() -> None:
    log = (b"[gpu-0002.example:rank3] start\n" * 3) + ECC
    (event,) = heard(attempt(nodes=("gpu-0001", "gpu-0002")), ("/logs/gpu-0002/rank_3.log", log))
    (other,) = heard(attempt(nodes=("gpu-0009",)), ("/logs/gpu-0002/rank_3.log", log))
    assert event.code == "ecc_uncorrectable" and event.host in ("", "gpu-0002") and other.host == ""


def test_readers_are_bounded_and_what_is_not_heard_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_verdicts, "MOST_READERS", 2)
    listener = Verdicts(RULES)
    for rank in range(5):
        listener.hear(JobFile("71", 1, f"/logs/{rank}.out"), OOM, "8:1:0", 1_500.0)
    assert len(listener.readers) == 2 and listener.unheard == 3


def test_the_telling_lines_are_kept_with_the_verdict_and_hold_no_secret() -> None:
    (event,) = heard(attempt(), ("/logs/71.out", STRANGE))
    assert event.code == "unknown_insufficient_evidence" and "by" not in event.attrs
    assert "empty mixture" in event.attrs["excerpt"] and "hf_abc" not in event.attrs["excerpt"]
    (named,) = heard(attempt(), ("/logs/71.out", OOM))
    assert "! torch.OutOfMemoryError" in named.attrs["excerpt"]


def test_where_no_rule_fires_past_failures_are_asked_and_nobody_is_blamed() -> None:
    learned = Model.of(fit(list(failures(12))), version=4)
    (event,) = heard(attempt(), ("/logs/71.out", STRANGE), learned=learned)
    assert event.code == "user_code_exception" and event.attrs["by"] == "resemblance" and event.attrs["model"] == "4"
    assert "by resemblance to" in event.text and f"confidence {event.attrs['confidence']}" in event.text
    assert event.attrs["exclude"] == "no" and event.host == "" and event.attrs["whose"] == "unknown"


def test_a_rule_outranks_every_resemblance_and_a_strange_log_stays_unknown() -> None:
    learned = Model.of(fit(list(failures(12))))
    (ruled,) = heard(attempt(), ("/logs/71.out", STRANGE + OOM), learned=learned)
    assert ruled.code == "cuda_oom" and "by" not in ruled.attrs
    (strange,) = heard(attempt(), ("/logs/71.out", b"gasket of pump 3 failed\n"), learned=learned)
    assert strange.code == "unknown_insufficient_evidence" and "by" not in strange.attrs


def test_all_logs_together_hold_a_bounded_number_of_hits_and_the_first_cause_stays() -> None:
    many = b"".join(
        b"rank %d: RuntimeError: broken %d\nrank %d: ValueError: no %d\n" % (n, n, n, n) for n in range(200)
    )
    listener = Verdicts(RULES, room=Room(100))
    for rank in range(20):
        listener.hear(JobFile("71", 1, f"rank{rank}.log"), OOM + b"x" * 9_000 + b"\n" + many, "8:12:0", 1_500.0)
    assert listener.room.left > -20 * LEAST_HITS
    assert listener.ended(attempt(), [], 2_030.0)[0].code == "cuda_oom"
    assert listener.room.left == 100 and not listener.readers
