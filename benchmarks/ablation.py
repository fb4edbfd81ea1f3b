"""What each detector adds: simulated clusters judged once, then told again without the findings of one detector.

``python -m benchmarks.ablation --help`` says how many and how large. Recall and false incidents without each.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from backend import pipeline, proposals, returns
from backend.clock import ManualClock, unix, utc
from backend.ingest.bundle.bundle import Bundle, open_bundle
from backend.reliability.intervals import Share
from backend.replay.files import Output
from backend.replay.run import Replay, own_store, watch_for
from backend.score.pool import Part, pooled
from backend.score.rows import read_output, read_topology, read_truth
from backend.score.scoring import Score, score
from backend.settings import Settings
from backend.simulate.recording.record import Wish, record
from backend.watch import Watch
from detectors.catalogue import Catalogue, load
from detectors.detector import Arrays, Detector, History, Trainable
from detectors.fuse import fuse
from detectors.model import Fleet, Judged, Need, Tick
from detectors.registry import detectors

#: Seeds of nobody's example, and not those of ``benchmarks.score``.
FIRST = 80_001


@dataclass
class Tape:
    """Every step of a replay: when, the fleet, the tick, and each detector's word."""

    clock: ManualClock
    steps: list[tuple[float, Fleet, Tick, dict[str, Judged]]] = field(default_factory=list)

    def hear(self, name: str, tick: Tick, fleet: Fleet, judged: Judged) -> None:
        if not self.steps or self.steps[-1][2] is not tick:
            self.steps.append((unix(self.clock.now()), fleet, tick, {}))
        self.steps[-1][3][name] = judged


@dataclass(frozen=True)
class Recorded:
    """A detector whose every word is taped."""

    inner: Detector[Any]
    tape: Tape

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def needs(self) -> frozenset[Need]:
        return self.inner.needs

    def start(self, fleet: Fleet) -> Any:
        return self.inner.start(fleet)

    def step(self, state: Any, tick: Tick, fleet: Fleet) -> Judged:
        judged = self.inner.step(state, tick, fleet)
        self.tape.hear(self.name, tick, fleet, judged)
        return judged

    def move(self, state: Any, old: Fleet, new: Fleet) -> Any:
        return self.inner.move(state, old, new)

    @property
    def every_s(self) -> float:
        return float(getattr(self.inner, "every_s", math.inf))

    def lesson(self, state: Any) -> History | None:
        return self.inner.lesson(state) if isinstance(self.inner, Trainable) else None

    def fit(self, history: History) -> Arrays:
        assert isinstance(self.inner, Trainable)
        return self.inner.fit(history)

    def taught(self, arrays: Arrays, version: int) -> Recorded:
        assert isinstance(self.inner, Trainable)
        return replace(self, inner=self.inner.taught(arrays, version))


def told_again(tape: Tape, watch: Watch, without: str, folder: Path) -> tuple[Any, Any]:
    """Findings and incidents of a tape without one detector ("" = with all)."""
    folder.mkdir()
    with own_store(folder) as store:
        clock = ManualClock(utc(tape.steps[0][0]))
        again = replace(
            watch, store=store, clock=clock, ledger={}, states={}, cursor=0, last_at=0.0, last_telemetry_at=None,
            stepped=lambda tick, delta: None,
        )  # fmt: skip
        output = Output(folder)
        for now, fleet, tick, said in tape.steps:
            clock.set(utc(now))
            judged = {name: one for name, one in said.items() if name != without}
            findings = [finding for one in judged.values() for finding in one.findings]
            suspicions = fuse(findings, fleet, watch.catalogue)
            again.fleet = fleet
            with again.turn() as session:
                delta = pipeline.conclude(
                    session, again, tick, fleet, judged, findings, suspicions, telemetry=bool(tick.values)
                )
            output.step(tick, delta, again.ledger, clock.now())
            if not delta.empty or tick.values:
                proposals.propose(again)
                returns.settle_returns(again)
        output.conclude(store, again.cluster, lambda session, rows: {})
        told = read_output(folder / "out")
    return told.findings, told.incidents


def parts_of(bundle: Bundle, truth: Any, catalogue: Catalogue, names: Sequence[str], work: Path) -> Mapping[str, Part]:
    """One simulated cluster scored with all detectors ("") and without each of ``names``."""
    with tempfile.TemporaryDirectory(dir=work) as own:
        needs = frozenset(need for detector in detectors(catalogue) for need in detector.needs)
        with bundle.prepare(Path(own), catalogue, needs, None) as prepared, own_store(Path(own)) as store:
            clock = ManualClock(utc(prepared.begin))
            watch = watch_for(prepared, Settings(), clock, store, catalogue)
            tape = Tape(clock)
            watch.detectors = tuple(Recorded(detector, tape) for detector in watch.detectors)
            Replay(prepared, watch, clock, Output(Path(own))).run()
            span = (prepared.begin, prepared.end)
            above, gpus = read_topology(bundle.folder / "topology.json")
            found = {}
            for name in ("", *names):
                folder = Path(own) / f"without-{name.replace('/', '-')}"
                findings, incidents = told_again(tape, watch, name, folder)
                found[name] = Part(findings, incidents, truth, above, gpus, span)
    return found


def scored(parts: Mapping[str, Part], catalogue: Catalogue) -> Score:
    whole = pooled(dict(parts))
    return score(whole.findings, whole.incidents, whole.truth, whole.above, whole.span, whole.gpus, catalogue.kinds)


def as_table(found: Mapping[str, Score]) -> str:
    """One row for each detector that is left out, the first with all of them; Markdown."""
    whole = found[""]
    n, days = whole.faults.recall.n, whole.incidents.false_rate.exposure
    lines = [
        f"{n} faults, {days:.2f} days of 500 GPUs. Changes against the first row; - = none.",
        "",
        "| without | found | by its family | exact GPU | false incidents | delay, median |",
        "|---|---|---|---|---|---|",
    ]
    first = _figures(whole)
    lines.append(f"| (nothing) | {' | '.join(first)} |")
    for name, one in found.items():
        cells = [cell if cell != same else "-" for cell, same in zip(_figures(one), first, strict=True)]
        lines += [f"| {name} | {' | '.join(cells)} |"] if name else []
    return "\n".join(lines)


def _figures(one: Score) -> list[str]:
    faults, median = one.faults, one.faults.delay_told[0].value
    return [
        *(_share(share) for share in (faults.recall, faults.fitting)),
        f"{faults.exact_gpu.k}/{faults.exact_gpu.n}",
        str(one.incidents.false_rate.count),
        "-" if median is None else f"{median:.0f} s",
    ]


def _share(one: Share) -> str:
    within = f" ({100 * one.interval.low:.0f} to {100 * one.interval.high:.0f} %)" if one.interval else ""
    return f"{one.k}/{one.n}{within}"


def main(words: list[str]) -> int:
    asked = argparse.ArgumentParser(prog="python -m benchmarks.ablation", description=__doc__)
    asked.add_argument("--seeds", type=int, default=4, help="how many clusters (default: 4)")
    asked.add_argument("--first", type=int, default=FIRST, help=f"the first seed (default: {FIRST})")
    asked.add_argument("--scenario", default="mixed", help="as for simulate (default: mixed)")
    asked.add_argument("--nodes", type=int, default=12, help="nodes of each (default: 12)")
    asked.add_argument("--hours", type=float, default=8.0, help="hours of each (default: 8)")
    asked.add_argument("--like", default="", help="only detectors whose name begins so (default: all)")
    arguments = asked.parse_args(words)
    catalogue = load()
    names = [detector.name for detector in detectors(catalogue) if detector.name.startswith(arguments.like)]
    found: dict[str, dict[str, Part]] = {name: {} for name in ("", *names)}
    with tempfile.TemporaryDirectory(prefix="watchkeeper-ablation-") as work:
        for seed in range(arguments.first, arguments.first + arguments.seeds):
            folder = Path(work) / f"seed-{seed}"
            record(folder, Wish(seed, arguments.scenario, arguments.nodes, 8, arguments.hours, 30.0), lambda a, b: None)
            truth = read_truth(folder / "truth.jsonl")
            for name, part in parts_of(open_bundle(folder), truth, catalogue, names, Path(work)).items():
                found[name][f"s{seed}"] = part
            print(f"seed {seed}: {len(truth)} faults", file=sys.stderr, flush=True)
    print(as_table({name: scored(parts, catalogue) for name, parts in found.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
