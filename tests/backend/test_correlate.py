"""One incident a fault: which suspicions join, which stand alone, in whatever order they come."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from backend.facts import HypothesisFacts, IncidentFacts
from backend.incidents.correlate import Fold, correlate
from detectors.fuse import Hypothesis, Suspicion
from detectors.model import Entity, Finding, Severity

NOW = 1_770_120_000.0
FOLD_S = 2100.0
MIN = 60.0


def suspect(
    node: str,
    kind: str = "gpu_bus_loss",
    authority: str = "code",
    severity: Severity = Severity.CRITICAL,
    since: float = NOW,
    job: str = "48213",
    gpu: int | None = 3,
) -> Suspicion:
    if gpu is None:
        who = Entity("main", "node", node, node, node)
    else:
        who = Entity("main", "gpu", f"GPU-{node}-{gpu}", f"{node}/gpu{gpu}", node)
    detector = "kernel/xid" if authority == "code" else "telemetry/x"
    finding = Finding(detector, kind, who, severity, 0.9, since, f"{who} {kind}.")
    lead = Hypothesis(kind, who, 0.9, finding.reason, authority, severity, frozenset({finding.key}))
    return Suspicion((lead,), (finding,), (who,), severity, node, job, severity > Severity.INFO)


def of_job(kind: str, since: float = NOW, job: str = "48213") -> Suspicion:
    who = Entity("main", "job", job, f"job:{job}")
    finding = Finding("joblog/hang", kind, who, Severity.HIGH, 0.6, since, "Stands still.")
    lead = Hypothesis(kind, who, 0.6, finding.reason, "rule", Severity.HIGH, frozenset({finding.key}))
    return Suspicion((lead,), (finding,), (who,), Severity.HIGH, "", job)


def slow(node: str, since: float = NOW, job: str = "48213") -> Suspicion:
    return suspect(node, "silent_slow_gpu", "rule", Severity.WARNING, since, job)


def dark(node: str, since: float = NOW, job: str = "") -> Suspicion:
    return suspect(node, "telemetry_dark", "state", Severity.WARNING, since, job, None)


def app(node: str, since: float = NOW, job: str = "48213") -> Suspicion:
    return suspect(node, "gpu_memory_fault_app", "code", Severity.INFO, since, job)


class Book:
    """The incidents that folds make, kept as the pipeline keeps them: opened, joined, led anew, closed."""

    def __init__(self) -> None:
        self.incidents: dict[int, IncidentFacts] = {}
        self.victims: dict[int, set[str]] = {}

    def take(self, *suspicions: Suspicion, now: float | None = None) -> tuple[Fold, ...]:
        at = max((s.since for s in suspicions), default=NOW) if now is None else now
        folds = correlate(suspicions, list(self.incidents.values()), at, FOLD_S)
        opened: dict[int, int] = {}
        for place, fold in enumerate(folds):
            number = opened.get(fold.opens_with) if fold.opens_with is not None else fold.incident
            if number is None:
                number = opened[place] = len(self.incidents) + 1
                self.incidents[number] = self._opened(number, fold.suspicion, at)
            self._join(number, fold)
        return folds

    def _opened(self, number: int, suspicion: Suspicion, at: float) -> IncidentFacts:
        lead = suspicion.cause
        return IncidentFacts(
            number,
            lead.entity.cluster,
            lead.kind,
            suspicion.severity,
            "open",
            str(lead.entity),
            lead.entity.kind,
            lead.entity.id,
            lead.entity.host,
            suspicion.job,
            at,
            None,
            (
                HypothesisFacts(
                    lead.kind, str(lead.entity), lead.entity.kind, lead.entity.host, 0.9, "", lead.authority
                ),
            ),
        )

    def _join(self, number: int, fold: Fold) -> None:
        keys = {f.key for f in fold.suspicion.findings}
        now = self.incidents[number]
        if fold.victim:
            self.victims.setdefault(number, set()).update(keys)
        elif fold.suspicion.cause.authority == "code" and now.hypotheses[0].authority != "code":
            led = self._opened(number, fold.suspicion, now.opened_at)
            now = replace(led, keys=now.keys, state=now.state, closed_at=now.closed_at)
        self.incidents[number] = replace(now, keys=now.keys | keys)

    def clear(self, number: int, last_at: float) -> None:
        """Its levels are gone since ``last_at``: the ledger holds none of its keys any more."""
        self.incidents[number] = replace(self.incidents[number], keys=frozenset(), asserted_at=last_at)

    def close(self, number: int, at: float) -> None:
        self.incidents[number] = replace(self.incidents[number], state="resolved", closed_at=at)

    @property
    def kinds(self) -> list[str]:
        return sorted(incident.kind for incident in self.incidents.values())


@pytest.fixture
def book() -> Book:
    return Book()


def test_a_fault_opens_one_incident_and_is_the_same_incident_at_every_tick(book: Book) -> None:
    for _ in range(5):
        (fold,) = book.take(suspect("a"))
        assert not fold.victim
    assert len(book.incidents) == 1 and book.incidents[1].entity == "a/gpu3"


def test_a_record_opens_nothing_and_joins_what_it_follows(book: Book) -> None:
    assert book.take(app("b")) == ()
    book.take(suspect("a"))
    (fold,) = book.take(app("b", NOW + MIN))
    assert (fold.incident, fold.victim) == (1, True)
    assert book.take(app("z", NOW + MIN, job="other")) == ()


def test_a_nonfatal_record_of_the_job_is_nobodys_victim(book: Book) -> None:
    book.take(suspect("a"))
    assert book.take(suspect("b", "nvlink_error", "code", Severity.INFO)) == ()


# --- one node -------------------------------------------------------------------------------------------------------


def test_what_a_node_shows_within_five_minutes_is_one_incident(book: Book) -> None:
    book.take(suspect("a", gpu=3))
    book.take(suspect("a", gpu=5, since=NOW + 4 * MIN))
    assert len(book.incidents) == 1
    book.take(suspect("a", "gpu_ecc_uncorrectable", gpu=6, since=NOW + 40 * MIN))
    assert len(book.incidents) == 2


def test_two_gpus_of_a_node_in_one_tick_are_one_incident_led_by_the_first(book: Book) -> None:
    folds = book.take(suspect("a", gpu=5, since=NOW), suspect("a", gpu=3, since=NOW - 2))
    assert [(f.opens_with, f.victim) for f in folds] == [(None, False), (0, False)]
    assert book.incidents[1].entity == "a/gpu3"


def test_an_exporter_that_goes_dark_on_a_node_in_trouble_is_no_news(book: Book) -> None:
    """Hours later the node is rebooted to mend it: its exporter falls silent under the open incident."""
    book.take(suspect("a"))
    (fold,) = book.take(dark("a", NOW + 7200))
    assert (fold.incident, fold.victim) == (1, False)


def test_five_minutes_of_a_node_are_an_argument() -> None:
    incident = _incident(suspect("a"))
    late = suspect("a", gpu=5, since=NOW + 100)
    assert correlate([late], [incident], NOW + 100, FOLD_S, node_s=60.0)[0].incident is None
    assert correlate([late], [incident], NOW + 100, FOLD_S, node_s=120.0)[0].incident == 1


# --- one job --------------------------------------------------------------------------------------------------------


def test_late_victims_of_the_job_fold_for_35_minutes(book: Book) -> None:
    book.take(suspect("a"))
    for place, minutes in enumerate((1, 12, 30, 35)):
        (fold,) = book.take(slow(f"v{place}", NOW + minutes * MIN))
        assert (fold.incident, fold.victim) == (1, True)
    book.take(slow("v9", NOW + 36 * MIN))
    assert len(book.incidents) == 2


def test_victims_fold_into_an_incident_that_was_just_closed(book: Book) -> None:
    book.take(suspect("a"))
    book.close(1, NOW + 20 * MIN)
    (fold,) = book.take(of_job("job_hang", NOW + 50 * MIN))
    assert (fold.incident, fold.victim) == (1, True)
    book.take(of_job("job_hang", NOW + 56 * MIN, "48213"))
    assert len(book.incidents) == 2


def test_victims_of_one_tick_join_what_opens_in_it(book: Book) -> None:
    folds = book.take(slow("b"), suspect("a"), of_job("job_hang"), slow("c"))
    assert [(f.suspicion.cause.kind, f.opens_with, f.victim) for f in folds] == [
        ("gpu_bus_loss", None, False),
        ("job_hang", 0, True),
        ("silent_slow_gpu", 0, True),
        ("silent_slow_gpu", 0, True),
    ]


def test_two_independent_faults_in_one_job_are_two_incidents(book: Book) -> None:
    book.take(suspect("a"), suspect("b", "gpu_ecc_uncorrectable", since=NOW + 1))
    assert book.kinds == ["gpu_bus_loss", "gpu_ecc_uncorrectable"]
    book.take(suspect("c", "gsp_timeout", since=NOW + 10 * MIN))
    assert len(book.incidents) == 3


def test_heat_is_nobodys_victim(book: Book) -> None:
    book.take(suspect("a"))
    book.take(suspect("b", "thermal_throttle", "state", Severity.HIGH, NOW + MIN))
    assert book.kinds == ["gpu_bus_loss", "thermal_throttle"]


def test_a_victim_goes_to_the_hard_cause_of_its_job_not_to_the_warm_one(book: Book) -> None:
    book.take(suspect("b", "thermal_throttle", "state", Severity.HIGH))
    book.take(suspect("a", since=NOW + MIN))
    (fold,) = book.take(of_job("job_hang", NOW + 2 * MIN))
    assert book.incidents[fold.incident or 0].kind == "gpu_bus_loss"


def test_another_job_on_another_node_is_another_matter(book: Book) -> None:
    book.take(suspect("a"), slow("z", job="7"))
    assert len(book.incidents) == 2


def test_nodes_without_a_job_are_never_joined_by_it(book: Book) -> None:
    book.take(slow("a", job=""), slow("b", job=""))
    assert len(book.incidents) == 2


def test_a_cause_that_comes_after_its_symptom_takes_the_incident_over(book: Book) -> None:
    book.take(of_job("job_hang"))
    (fold,) = book.take(suspect("a", since=NOW + 2 * MIN))
    assert (fold.incident, fold.victim) == (1, False)
    assert len(book.incidents) == 1 and book.incidents[1].kind == "gpu_bus_loss"
    (again,) = book.take(of_job("job_hang"), now=NOW + 3 * MIN)
    assert (again.incident, again.victim) == (1, True), "the symptom stays, as a victim"
    book.take(suspect("b", "gpu_ecc_uncorrectable", since=NOW + 4 * MIN))
    assert len(book.incidents) == 2, "one cause is enough"


def test_a_victim_whose_own_gpu_breaks_later_is_a_fault_of_its_own(book: Book) -> None:
    book.take(suspect("a"))
    book.take(slow("b", NOW + MIN))
    broken = suspect("b", since=NOW + 20 * MIN)
    both = replace(broken, findings=broken.findings + slow("b", NOW + MIN).findings)
    (fold,) = book.take(both, now=NOW + 20 * MIN)
    assert fold.incident is None and not fold.victim


def test_a_closed_incident_is_not_opened_again_by_the_level_it_was_closed_over(book: Book) -> None:
    """A person resolves it while the code still holds: nothing new has happened."""
    book.take(suspect("a"))
    book.close(1, NOW + 10 * MIN)
    (fold,) = book.take(suspect("a"), now=NOW + 11 * MIN)
    assert fold.incident == 1


def test_a_fault_that_comes_while_its_incident_waits_to_close_is_not_swallowed_by_the_close(book: Book) -> None:
    """Its last sign was minutes ago, its level is cleared; the line was written just before the close, read after."""
    book.take(suspect("a"))
    book.clear(1, NOW + 5 * MIN)
    book.close(1, NOW + 10 * MIN)
    book.take(suspect("a", since=NOW + 10 * MIN - 1), now=NOW + 10 * MIN)
    assert len(book.incidents) == 2


def test_an_old_line_from_the_time_of_a_closed_incident_is_no_news(book: Book) -> None:
    book.take(suspect("a"))
    book.clear(1, NOW + 5 * MIN)
    book.close(1, NOW + 10 * MIN)
    (fold,) = book.take(suspect("a", since=NOW + 4 * MIN), now=NOW + 11 * MIN)
    assert fold.incident == 1


def test_a_storm_is_not_compared_pair_by_pair() -> None:
    """Eight times the incidents and suspicions take nowhere near 64 times as long."""
    took = [_took(count) for count in (500, 4000)]
    assert took[1] < 32 * took[0] + 0.2


def _took(count: int) -> float:
    storm = [suspect(f"n{i}", job=f"j{i}") for i in range(count)]
    book = Book()
    book.take(*storm)
    assert len(book.incidents) == count
    known = list(book.incidents.values())
    begun = time.process_time()
    folds = correlate(storm, known, NOW + MIN, FOLD_S)
    assert len(folds) == count and all(f.incident is not None for f in folds)
    return time.process_time() - begun


def test_the_same_fault_after_the_repair_is_a_new_incident(book: Book) -> None:
    book.take(suspect("a"))
    book.close(1, NOW + 10 * MIN)
    book.take(suspect("a", since=NOW + 12 * MIN))
    assert len(book.incidents) == 2


# --- the dark -------------------------------------------------------------------------------------------------------


def test_many_nodes_that_go_dark_at_once_are_one_incident_of_the_cluster(book: Book) -> None:
    (fold,) = book.take(*(dark(f"n{i:02d}") for i in range(12)))
    assert fold.suspicion.cause.entity == Entity("main", "cluster", "main")
    assert fold.suspicion.cause.reason.startswith("12 nodes send no GPU data at the same time: n00, n01, ")
    assert fold.suspicion.cause.reason.endswith(" and 4 more.")
    assert len(fold.suspicion.findings) == 12
    book.take(*(dark(f"n{i:02d}") for i in range(15)))
    book.take(dark("n11"), now=NOW + MIN)
    assert len(book.incidents) == 1, "more nodes or fewer, it is the same event"


def test_two_dark_nodes_are_two_incidents(book: Book) -> None:
    book.take(dark("a"), dark("b"))
    assert len(book.incidents) == 2


def test_a_node_that_was_dark_before_keeps_its_incident(book: Book) -> None:
    book.take(dark("a", NOW - 7200))
    book.take(dark("a", NOW - 7200), dark("b"), dark("c"), dark("d"))
    assert sorted(i.entity_kind for i in book.incidents.values()) == ["cluster", "node"]


@pytest.mark.parametrize(
    "other",
    [
        dark("b", NOW + MIN, "48213"),
        suspect("b", "nvlink_error", since=NOW + MIN),
        suspect("b", "driver_mismatch", severity=Severity.HIGH, since=NOW + MIN, gpu=None),
        suspect("b", "gpu_bus_loss", "rule", Severity.HIGH, NOW + MIN),
    ],
    ids=lambda s: s.cause.kind,
)
def test_a_fault_of_another_node_of_the_job_is_its_own_and_may_be_acted_on(book: Book, other: Suspicion) -> None:
    book.take(suspect("a", "gpu_ecc_uncorrectable"))
    book.take(other)
    assert len(book.incidents) == 2


def test_a_link_that_only_complains_follows_the_fault_of_its_job(book: Book) -> None:
    book.take(suspect("a"))
    (fold,) = book.take(suspect("b", "nvlink_error", severity=Severity.WARNING, since=NOW + MIN))
    assert (fold.incident, fold.victim) == (1, True)


# --- order ----------------------------------------------------------------------------------------------------------

STORY = (
    suspect("a", gpu=3),
    suspect("a", gpu=5, since=NOW + 1),
    suspect("b", "gpu_ecc_uncorrectable", since=NOW + 2),
    slow("c"),
    of_job("job_hang", NOW + 3),
    app("d"),
    dark("e"),
    suspect("f", "thermal_throttle", "state", Severity.HIGH, NOW + 1),
    suspect("z", job="7"),
)


def test_the_order_within_a_tick_has_no_effect() -> None:
    known = [_incident(suspect("y", since=NOW - MIN), 7), _incident(slow("x", NOW - MIN), 4)]
    first = correlate(STORY, known, NOW, FOLD_S)
    dice = random.Random(5)
    for _ in range(30):
        again = correlate(dice.sample(STORY, len(STORY)), dice.sample(known, 2), NOW, FOLD_S)
        assert again == first


def test_a_fold_joins_only_what_opened_before_it() -> None:
    for count in range(len(STORY) + 1):
        folds = correlate(STORY[:count], [], NOW, FOLD_S)
        for place, fold in enumerate(folds):
            if fold.opens_with is not None:
                assert fold.opens_with < place
                assert folds[fold.opens_with].opens_with is None and folds[fold.opens_with].incident is None


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_the_order_of_arrival_makes_no_difference_to_the_number_of_incidents(order: Sequence[int]) -> None:
    """A loss, two victims and the hang of one job, heard in any order: one fault, led by the loss."""
    story = (suspect("a"), slow("b", NOW + 10), of_job("job_hang", NOW + 20), slow("c", NOW + 30))
    book, held = Book(), []
    for turn, place in enumerate(order):
        held.append(story[place])
        book.take(*held, now=NOW + 30 + turn)
    assert book.kinds == ["gpu_bus_loss"]


def _incident(suspicion: Suspicion, number: int = 1) -> IncidentFacts:
    book = Book()
    book.take(suspicion)
    return replace(book.incidents[1], id=number)


def test_a_fault_of_the_next_attempt_is_no_victim_of_the_last(book: Book) -> None:
    book.take(suspect("a"))
    book.incidents[1] = replace(book.incidents[1], moved_at=NOW + MIN)
    assert book.take(app("b", NOW + 5 * MIN)) == ()


def test_a_record_before_the_cause_or_of_another_job_is_not_its_victim(book: Book) -> None:
    book.take(suspect("a", since=NOW))
    assert book.take(app("a", NOW - MIN)) == ()
    assert book.take(app("a", NOW + MIN, job="99")) == ()


def test_a_quiet_incident_of_a_node_does_not_swallow_a_louder_fault_that_comes_later() -> None:
    book = Book()
    book.take(suspect("gpu-0001", "host_oom", "rule", Severity.WARNING, NOW, gpu=None))
    later = NOW + 20 * MIN
    book.take(suspect("gpu-0001", "fabric_manager_not_ready", "state", Severity.HIGH, later, gpu=None))
    book.take(suspect("gpu-0001", "node_reboot", "state", Severity.WARNING, later + 10 * MIN, gpu=None))
    assert [one.kind for one in book.incidents.values()] == ["host_oom", "fabric_manager_not_ready"]
