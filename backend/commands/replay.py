"""replay: a bundle through the live pipeline, and how well that did against the truth."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from backend.backtest.both import both
from backend.backtest.compare import as_lines, sentence
from backend.backtest.span import Known, SpanError, checked_span, gather, known_of
from backend.clients.promql import PrometheusReader
from backend.clock import utc
from backend.ingest.base import SourceError
from backend.ingest.bundle.bundle import Bundle, open_bundle
from backend.ingest.bundle.folder import BundleError
from backend.ingest.prometheus import PrometheusSource
from backend.replay.run import replay as run
from backend.score.as_data import as_json
from backend.score.report import as_table
from backend.score.rows import ScoreError, read_output, read_topology, read_truth
from backend.score.scoring import score
from backend.settings import Settings, SettingsError, load
from backend.store.engine import StoreError, migrate, open_store
from detectors import catalogue, shadow

BAR = 30
#: Longest wait for one answer about a span of the past (s); nothing waits for it.
READ_S = 60.0
#: What may be wrong with what was asked for.
BROKEN = (BundleError, SettingsError, StoreError, ScoreError, SpanError, SourceError)


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
        known = catalogue.load().with_thresholds(settings.cluster[0].thresholds)
        shadow.check(settings.cluster[0].shadow, known)
        tried = thresholds(arguments.set)
        known.with_thresholds(tried)  # a wrong name costs nothing
        bundle = open_bundle(arguments.bundle or recorded(arguments, settings, known))
        if tried:
            return compared(bundle, arguments, known, settings, tried, bar)
        summary = run(bundle, arguments.out, known, settings, bar)
        bar.end()
        report = scored(bundle, arguments.out, summary, known.kinds) if arguments.score else {}
    except (*BROKEN, catalogue.TableError, OSError) as error:
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


def thresholds(words: Sequence[str]) -> dict[str, float]:
    """``NAME=VALUE`` each. Raises SpanError for what is none."""
    found: dict[str, float] = {}
    for word in words:
        name, _, value = word.partition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError as error:
            raise SpanError(f"--set {word}: give a threshold and a number, as in silence_ticks=3.") from error
    return found


def recorded(arguments: argparse.Namespace, settings: Settings, known: catalogue.Catalogue) -> Path:
    """The folder of ``--out`` with the span that was read of a Prometheus. Raises SpanError, SourceError, OSError."""
    if not (arguments.prometheus and arguments.start and arguments.end):
        raise SpanError("Name the folder of a bundle, or --prometheus URL with --start and --end.")
    span = moment(arguments.start, "--start"), moment(arguments.end, "--end")
    checked_span(*span, time.time())
    folder: Path = arguments.out / "recording"
    if folder.exists():
        raise SpanError(f"{folder} is there already: replay it as a bundle, or name a new folder with --out.")
    server = next((one for one in settings.cluster[0].prometheus if one.url == arguments.prometheus), None)
    reader = PrometheusReader(arguments.prometheus, server.headers if server else None, READ_S)
    source = PrometheusSource("prometheus", reader, known, arguments.matchers or (server.matchers if server else ""))
    bar, whole = Bar("reading"), False
    try:
        facts = remembered(settings, span) if arguments.config is not None else Known()
        gather(source, facts, span, folder, settings.cluster[0], known, lambda share: bar(round(share * 1000), 1000))
        whole = True
    finally:
        bar.end()
        if not whole:
            shutil.rmtree(folder, ignore_errors=True)  # half a span is none, and would stand in the way of the next
    return folder


def remembered(settings: Settings, span: tuple[float, float]) -> Known:
    """What the configured store knows of the span: jobs, lines, nodes that were out. Raises StoreError."""
    store = open_store(settings.store.url, settings.store.folder)
    try:
        migrate(store)
        with store.read() as session:
            return known_of(session, settings.cluster[0].name, utc(span[0]), utc(span[1]))
    finally:
        store.close()


def moment(text: str, what: str) -> float:
    """Unix s of a time with its zone; without one it is UTC. Raises SpanError."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise SpanError(f"{what} {text}: give a time, as in 2026-03-01T00:00:00Z.") from error
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()


def compared(
    bundle: Bundle,
    arguments: argparse.Namespace,
    known: catalogue.Catalogue,
    settings: Settings,
    tried: dict[str, float],
    bar: Bar,
) -> int:
    """One past under today's thresholds and under others, into folders of their own, and how they differ."""
    found = both(bundle, arguments.out, known, settings, tried, lambda share, _: bar(round(share * 1000), 1000))
    bar.end()
    document = {"thresholds": tried, "sentence": sentence(found), **asdict(found)}
    (arguments.out / "comparison.json").write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
    print(orjson.dumps(document).decode() if arguments.json else "\n".join(as_lines(found)))
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
