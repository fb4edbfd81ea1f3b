"""One real Xid 79, from its kernel line to the GPU's return: detectors, fuse and correlate, tick by tick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from backend.facts import HypothesisFacts, IncidentFacts
from backend.incidents.correlate import Fold, correlate
from detectors.catalogue import load
from detectors.fuse import Suspicion, fuse
from detectors.model import Event, Finding, Severity, Tick
from detectors.registry import detectors
from tests.detectors.fleets import T0, boot, fleet_of, kernel, telemetry, xid

GPU3 = "gpu-0001/gpu3"
LINE = "[812345.678] NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


class Watch:
    """The detectors over one small fleet (two nodes of one job, one idle node), and the incidents that follow."""

    def __init__(self) -> None:
        self.catalogue = load()
        self.fleet = fleet_of(3, jobs={"48213": (0, 1)})
        self.detectors = detectors(self.catalogue)
        self.states: list[Any] = [detector.start(self.fleet) for detector in self.detectors]
        self.incidents: list[IncidentFacts] = []
        self.findings: list[Finding] = []
        self.folds: tuple[Fold, ...] = ()

    def look(self, at: float, silent: Sequence[str] = (), *events: Event) -> tuple[Suspicion, ...]:
        tick = telemetry(self.fleet, at, silent)
        return self.step(replace(tick, events=events))

    def hear(self, *events: Event) -> tuple[Suspicion, ...]:
        return self.step(Tick(max(e.at for e in events), events=events))

    def step(self, tick: Tick) -> tuple[Suspicion, ...]:
        pairs = zip(self.detectors, self.states, strict=True)
        judged = [detector.step(state, tick, self.fleet) for detector, state in pairs]
        self.findings = [finding for each in judged for finding in each.findings]
        suspicions = fuse(self.findings, self.fleet, self.catalogue)
        self.folds = correlate(suspicions, self.incidents, tick.at, 2100.0)
        for fold in self.folds:
            self.keep(fold, tick.at)
        return suspicions

    def keep(self, fold: Fold, at: float) -> None:
        keys = frozenset(f.key for f in fold.suspicion.findings)
        if fold.incident is not None:
            known = self.incidents[fold.incident - 1]
            self.incidents[fold.incident - 1] = replace(known, keys=known.keys | keys)
        else:
            assert fold.opens_with is None
            self.incidents.append(_opened(len(self.incidents) + 1, fold.suspicion, keys, at))


def _opened(number: int, suspicion: Suspicion, keys: frozenset[str], at: float) -> IncidentFacts:
    h = suspicion.cause
    lead = HypothesisFacts(h.kind, str(h.entity), h.entity.kind, h.entity.host, h.score, h.reason, h.authority)
    return IncidentFacts(
        id=number,
        cluster="main",
        kind=h.kind,
        severity=suspicion.severity,
        state="open",
        entity=str(h.entity),
        entity_kind=h.entity.kind,
        entity_id=h.entity.id,
        node=h.entity.host,
        job=suspicion.job,
        opened_at=at,
        closed_at=None,
        hypotheses=(lead,),
        keys=keys,
    )


def test_the_life_of_one_xid_79() -> None:
    watch = Watch()
    for step in range(4):
        assert watch.look(T0 + 15 * step) == (), "a quiet fleet"

    fell_at = T0 + 50.0
    (suspicion,) = watch.hear(kernel(watch.fleet, GPU3, fell_at, LINE, seq=501))
    assert suspicion.cause.reason == "GPU 3 of gpu-0001 is lost on PCIe (Xid 79)."
    assert (suspicion.cause.authority, suspicion.severity) == ("code", Severity.CRITICAL)
    assert (suspicion.node, suspicion.job) == ("gpu-0001", "48213")
    assert [fold.incident for fold in watch.folds] == [None], "the line alone opens the incident"

    watch.look(T0 + 60, [GPU3])
    (suspicion,) = watch.look(T0 + 75, [GPU3])
    assert suspicion.cause.keys == {
        "kernel/xid|gpu_bus_loss|gpu:GPU-0000-3",
        "telemetry/silence|gpu_bus_loss|gpu:GPU-0000-3",
    }, "its silence agrees"
    assert suspicion.cause.score > 0.99 and suspicion.cause.authority == "code"

    torn_down = [xid(watch.fleet, f"gpu-0001/gpu{g}", T0 + 80, 45, seq=510 + g) for g in range(8) if g != 3]
    watch.hear(*torn_down)
    assert len(watch.incidents) == 1, "Xid 45 on its neighbours is no fault of theirs"

    watch.hear(xid(watch.fleet, "gpu-0002/gpu1", T0 + 400, 43, seq=530))
    assert watch.folds[-1].victim and watch.folds[-1].incident == 1, "the rest of the job follows late, and folds"

    for step in range(50, 60):
        watch.look(T0 + 15 * step, ["gpu-0001"])
        assert all(fold.incident == 1 for fold in watch.folds), (
            "its node in the dark for the reboot is the same incident"
        )
    assert {f.kind for f in watch.findings} >= {"gpu_bus_loss", "telemetry_dark"}

    back_at = T0 + 15 * 60
    suspicions = watch.look(back_at, (), boot(watch.fleet, "gpu-0001", back_at - 20))
    assert [s.cause.kind for s in suspicions] == ["gpu_bus_loss"], "back, but not yet trusted"
    watch.look(back_at + 45)
    assert watch.findings != []
    watch.look(back_at + 60)
    assert watch.findings == [], "seen, whole and quiet: nothing holds any more"
    assert len(watch.incidents) == 1
    assert watch.incidents[0].entity == GPU3


def test_without_the_kernel_line_the_silence_opens_the_incident_and_the_line_joins_it_later() -> None:
    watch = Watch()
    watch.look(T0)
    watch.look(T0 + 15, [GPU3])
    (suspicion,) = watch.look(T0 + 30, [GPU3])
    assert (suspicion.cause.kind, suspicion.cause.authority) == ("gpu_bus_loss", "rule")
    (suspicion,) = watch.hear(kernel(watch.fleet, GPU3, T0 + 40, LINE))
    assert suspicion.cause.authority == "code"
    assert len(watch.incidents) == 1


def test_an_application_that_faults_on_every_gpu_opens_nothing() -> None:
    watch = Watch()
    watch.look(T0)
    names = watch.fleet.axes["gpu"].names[:16]
    suspicions = watch.hear(*(xid(watch.fleet, name, T0 + 1, 31, seq=n) for n, name in enumerate(names)))
    assert len(suspicions) == 16 and not any(s.opens for s in suspicions)
    assert watch.incidents == []
