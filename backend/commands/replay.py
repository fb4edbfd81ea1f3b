"""replay: a bundle through the live pipeline, and how well that did against the truth."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import orjson

from backend.ingest.bundle.bundle import Bundle, open_bundle
from backend.ingest.bundle.folder import BundleError
from backend.replay.run import replay as run
from backend.score.as_data import as_json
from backend.score.report import as_table
from backend.score.rows import ScoreError, read_output, read_topology, read_truth
from backend.score.scoring import score
from backend.settings import Settings, SettingsError, load
from backend.store.engine import StoreError
from detectors import catalogue

BAR = 30


class Bar:
    """One line on a terminal's stderr, drawn at most ten times a second; nothing where nobody looks."""

    def __init__(self, words: str) -> None:
        self._words = words
        self._shown = sys.stderr.isatty()
        self._drawn = 0.0

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if not self._shown or now - self._drawn < 0.1:
            return
        self._drawn = now
        share = min(1.0, done / total) if total else 1.0
        full = round(share * BAR)
        print(f"\r{self._words} [{'#' * full}{' ' * (BAR - full)}] {share:4.0%}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._shown:
            print("\r" + " " * (len(self._words) + BAR + 10) + "\r", end="", file=sys.stderr, flush=True)


def replay(arguments: argparse.Namespace) -> int:
    """Exit code 0 done, 1 could not, 130 cancelled: then the folder of ``--out`` is as it was before."""
    bar = Bar("replaying")
    try:
        settings = load(arguments.config, {}) if arguments.config is not None else Settings()
        bundle = open_bundle(arguments.bundle)
        known = catalogue.load().with_thresholds(settings.cluster[0].thresholds)
        summary = run(bundle, arguments.out, known, settings, bar)
        bar.end()
        report = scored(bundle, arguments.out, summary, known.kinds) if arguments.score else {}
    except (BundleError, SettingsError, StoreError, ScoreError, catalogue.TableError, OSError) as error:
        bar.end()
        print(f"watchkeeper: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        print(orjson.dumps({"summary": summary, "score": report.get("json")}).decode())
    else:
        print(words(summary, arguments.out))
        if report:
            print(f"\n{report['table']}")
    return 0


def scored(bundle: Bundle, out: Path, summary: dict[str, Any], kinds: Any) -> dict[str, Any]:
    """score.json beside the output, and the table for people. Raises ScoreError."""
    folder = bundle.folder
    above, gpus = read_topology(folder / "topology.json")
    told = read_output(out)
    span = (summary["begin"], summary["end"])
    found = score(told.findings, told.incidents, read_truth(folder / "truth.jsonl"), above, span, gpus, kinds)
    data = as_json(found)
    (out / "score.json").write_bytes(orjson.dumps(data, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    return {"json": data, "table": as_table(found)}


def words(summary: dict[str, Any], out: Path) -> str:
    """What a person wants to know of a run, in a few lines."""
    span_s = summary["end"] - summary["begin"]
    pace = span_s / summary["wall_s"] if summary["wall_s"] else 0.0
    lines = [
        f"{summary['findings']:,} findings, {summary['incidents']:,} incidents in {out}",
        f"{summary['ticks']:,} ticks, {summary['samples']:,} samples, {summary['events']:,} events; "
        f"{summary['wall_s']:.1f} s, {pace:,.0f} times real time",
    ]
    if summary["dark"]:
        lines.append(f"dark: {', '.join(summary['dark'])}")
    if summary["dropped"]:
        reasons = ", ".join(f"{n:,} {why}" for why, n in summary["dropped_by_reason"].items())
        lines.append(f"left out: {reasons}" if reasons else f"left out: {summary['dropped']:,}")
    bad = summary["bad_rows"]
    if bad["count"]:
        lines.append(f"{bad['count']:,} rows could not be read:")
        lines += [f"  {row['file']}:{row['line']}: {row['why']}" for row in bad["first"][:10]]
    return "\n".join(lines)
