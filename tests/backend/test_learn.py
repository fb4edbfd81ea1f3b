"""From labels to a model: what teaches, what does not and why, and that a verdict then uses it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlmodel import select

from backend import learn
from backend.clock import ManualClock
from backend.facts import AttemptFacts
from backend.ingest.job_verdicts import Verdicts
from backend.ingest.joblogs import JobFile
from backend.model.events import Event
from backend.model.learning import Label, ModelArtifact
from backend.model.work import Attempt
from backend.store import models
from backend.store.engine import Store
from detectors.catalogue import load
from detectors.joblog.learned import LEAST
from detectors.joblog.reading import Rules
from detectors.packaged import log_rules
from tests.conftest import NOW
from tests.detectors.joblog.failures import SAYINGS, failure, failures

RULES = Rules.of(log_rules())
CLASSES = RULES.table.classes
KINDS = learn.kinds_of(load().kinds)
VAGUE = "unknown_insufficient_evidence"


def judged(store: Store, job: str, excerpt: str, code: str = VAGUE) -> int:
    """The event of a verdict."""
    row = Event(
        cluster="main",
        at=NOW,
        received_at=NOW,
        namespace="log",
        code=code,
        entity_kind="job",
        entity_id=job,
        entity_name=f"job:{job}",
        job=job,
        dedupe=f"verdict {job}",
        attrs={"excerpt": excerpt} if excerpt else {},
    )
    with store.write() as session:
        session.add(row)
        session.flush()
        return row.id or 0


def said(store: Store, event: int | None, job: str, cause: str = "", by: str = "ada", **more: Any) -> None:
    values: dict[str, Any] = {"right": False, "job": job, "cause": cause, "event_id": event, **more}
    with store.write() as session:
        session.add(Label(cluster="main", at=NOW, by=by, **values))


def taught(store: Store, each: int = 8, causes: Sequence[str] = tuple(SAYINGS)) -> None:
    for number, one in enumerate(failures(each, tuple(causes))):
        said(store, judged(store, str(number), one.excerpt), str(number), one.cause)


def lessons(store: Store) -> learn.Lessons:
    with store.read() as session:
        return learn.lessons(session, "main", CLASSES, KINDS)


def turn(store: Store, clock: ManualClock, verdicts: Verdicts) -> learn.Learnt | None:
    assert learn.step(store, clock, "main", verdicts, KINDS) is False
    with store.read() as session:
        return learn.learnt(session, "main")


def test_without_labels_nothing_is_fitted_and_it_is_silent(sqlite_store: Store, clock: ManualClock) -> None:
    verdicts = Verdicts(RULES)
    assert turn(sqlite_store, clock, verdicts) is None and verdicts.learned is None
    assert "silent" in learn.words(None)


def test_too_few_labels_show_past_failures_answer_nothing_and_say_what_is_missing(
    sqlite_store: Store, clock: ManualClock
) -> None:
    taught(sqlite_store, LEAST - 1)
    verdicts = Verdicts(RULES)
    found = turn(sqlite_store, clock, verdicts)
    assert found is not None and not found.used and found.missing["network_link_error"] == 1
    assert "1 more of network link error" in learn.words(found) and found.low is None
    assert verdicts.learned is not None and verdicts.learned.classify(failure("user_code_exception", 99)) is None
    assert verdicts.learned.nearest(failure("user_code_exception", 99))


def test_enough_labels_answer_where_no_rule_fires_with_a_measured_accuracy(store: Store, clock: ManualClock) -> None:
    taught(store, 10)
    verdicts = Verdicts(RULES)
    found = turn(store, clock, verdicts)
    assert found is not None and found.used and found.version == 1 and found.n == found.held == 30
    assert found.low is not None and found.high is not None and found.low <= found.right / found.answered <= found.high
    assert f"{found.right} of {found.answered} answers right on 30 held-out failures" in learn.words(found)
    log = failure("network_link_error", 700).replace("  ", "").encode() + b"\n"
    verdicts.hear(JobFile("99", 0, "/logs/99.out"), log, "8:1:0", 0.0)
    (event,) = verdicts.ended(AttemptFacts("99", 0, state="FAILED", start=1.0, end=2.0), (), 3.0)
    assert event.code == "network_link_error" and event.attrs["by"] == "resemblance" and event.attrs["model"] == "1"


def test_news_makes_a_new_version_silence_makes_none_and_few_old_ones_stay(
    sqlite_store: Store, clock: ManualClock
) -> None:
    verdicts = Verdicts(RULES)
    for number in range(models.KEPT + 2):
        said(sqlite_store, judged(sqlite_store, f"j{number}", failure("user_code_exception", number)), f"j{number}")
        found = turn(sqlite_store, clock, verdicts)
        assert found is not None and found.version == number + 1
        assert turn(sqlite_store, clock, verdicts) == found
    with sqlite_store.read() as session:
        kept = [row.version for row in session.exec(select(ModelArtifact))]
    assert sorted(kept) == [3, 4, 5] and verdicts.learned is not None and verdicts.learned.version == 5
    other = Verdicts(RULES)
    learn.take_up(sqlite_store, "main", other)
    assert other.learned is not None and other.learned.version == 5


def test_a_label_teaches_the_cause_that_it_names_by_class_or_by_kind(sqlite_store: Store) -> None:
    text = failure("user_code_exception", 1)
    event = Event(code="disk_full", attrs={"excerpt": text}, **BLANK)
    for right, cause, taught_as in (
        (True, "", "disk_full"),
        (False, "", None),
        (False, "cuda_oom", "cuda_oom"),
        (False, "gpu_bus_loss", "gpu_fallen_off_bus"),
        (False, "clock_skew", None),
        (False, VAGUE, ""),
    ):
        row = Label(cluster="main", at=NOW, by="ada", right=right, cause=cause)
        assert learn.truth(row, event, set(CLASSES), KINDS) == taught_as, cause


BLANK: dict[str, Any] = {
    "cluster": "main",
    "at": NOW,
    "received_at": NOW,
    "namespace": "log",
    "entity_kind": "job",
    "entity_id": "7",
    "entity_name": "job:7",
    "job": "7",
    "dedupe": "7",
}


def test_what_teaches_nothing_is_left_out_and_counted(sqlite_store: Store) -> None:
    store, text = sqlite_store, failure("user_code_exception", 1)
    said(store, None, "", "disk_full", incident_id=7)
    said(store, judged(store, "a", ""), "a", "disk_full")
    said(store, judged(store, "b", "! CUDA out of memory"), "b", "disk_full")
    split = judged(store, "c", text)
    said(store, split, "c", "disk_full")
    said(store, split, "c", "cuda_oom", by="bob")
    said(store, judged(store, "d", text), "d")
    mended = judged(store, "e", text)
    said(store, mended, "e", "cuda_oom")
    said(store, mended, "e", "disk_full")
    found = lessons(store)
    assert [(one.ref, one.cause) for one in found.examples] == [("job:e", "disk_full")]
    assert sorted(found.left_out.values()) == [1, 1, 1, 1, 1]
    assert found.labels_to == 8


def test_retries_of_a_run_and_copies_of_a_log_are_one_group(sqlite_store: Store) -> None:
    with sqlite_store.write() as session:
        for job in ("a", "b"):
            session.add(Attempt(cluster="main", job=job, restart=0, run="llama", start=NOW, end=NOW + timedelta(60)))
    texts = {"a": failure("user_code_exception", 1), "b": failure("user_code_exception", 2)}
    texts |= {"c": texts["a"], "d": failure("user_code_exception", 3)}
    for job, text in texts.items():
        said(sqlite_store, judged(sqlite_store, job, text), job, "user_code_exception")
    groups = {one.ref: one.group for one in lessons(sqlite_store).examples}
    assert groups["job:a"] == groups["job:b"] and groups["job:a"] == groups["job:c"] != groups["job:d"]


def test_similar_failures_name_where_they_stand_and_never_the_failure_itself(
    sqlite_store: Store, clock: ManualClock
) -> None:
    text = failure("user_code_exception", 1)
    event = judged(sqlite_store, "a", text)
    said(sqlite_store, event, "a", "user_code_exception", incident_id=7)
    said(sqlite_store, judged(sqlite_store, "b", failure("user_code_exception", 2)), "b", "user_code_exception")
    verdicts = Verdicts(RULES)
    turn(sqlite_store, clock, verdicts)
    with sqlite_store.read() as session:
        row = session.get_one(Event, event)
        (other,) = learn.similar(verdicts.learned, row, 7)
        assert (other["job"], other["incident"], other["cause"]) == ("b", None, "user_code_exception")
        assert [one["incident"] for one in learn.similar(verdicts.learned, row)][0] == 7
        assert not learn.similar(None, row) and not learn.similar(verdicts.learned, None)
