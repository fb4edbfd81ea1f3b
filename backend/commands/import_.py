"""import: history into the configured store."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict
from datetime import UTC, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import orjson

from backend.changes import Changes
from backend.clock import SystemClock
from backend.commands.replay import Bar
from backend.ingest.bundle.folder import BundleError
from backend.ingest.bundle.sacct import moment
from backend.inventory.inventory import Inventory
from backend.registry import rules_of
from backend.replay.past import Past, Told, sources_of
from backend.ring import Ring
from backend.settings import Settings, SettingsError, load
from backend.store.cluster import ensure_cluster
from backend.store.engine import Store, StoreError, migrate, open_store
from backend.watch import Watch
from detectors.catalogue import TableError
from detectors.catalogue import load as load_catalogue

#: Bad rows that are printed.
SHOWN = 20


def import_(arguments: argparse.Namespace) -> int:
    """Exit code 0 done, 1 could not, 130 stopped: what was taken in stays, and the next run goes on behind it."""
    bar, told, code = Bar("importing"), Told(), 0
    try:
        settings = load(arguments.config, os.environ)
        zone = zone_of(arguments.timezone)
        boot = boot_of(arguments.boot, zone)
        sources, left_out = sources_of(arguments.paths, zone)
        store = open_store(settings.store.url, settings.store.folder)
        try:
            migrate(store)
            watch = lender(settings, arguments.cluster, store)
            alone = not any(c.slurm or c.kubernetes for c in settings.cluster if c.name == watch.cluster)
            past = Past(watch, arguments.host, bar, boot=boot, unfinished=alone)
            told = past.told
            told.left_out.update(left_out)
            past.take(sources)
        finally:
            store.close()
    except KeyboardInterrupt:
        code = 130
    except (BundleError, SettingsError, StoreError, TableError, ValueError) as error:
        bar.end()
        print(f"watchkeeper: {error}", file=sys.stderr)
        code = 1
    bar.end()
    say(told, code, as_json=arguments.json)
    return code


def zone_of(name: str) -> tzinfo:
    """Raises ValueError."""
    try:
        return UTC if name.upper() == "UTC" else ZoneInfo(name)
    except (ZoneInfoNotFoundError, OSError, ValueError):
        raise ValueError(f"time zone {name!r} is not known here: write an IANA name such as Europe/Berlin") from None


def boot_of(text: str, zone: tzinfo) -> float | None:
    """Unix s of ``--boot``. Raises ValueError."""
    try:
        return moment(text, zone)
    except ValueError:
        raise ValueError(f"--boot {text[:40]!r} is no time: write what `uptime -s` prints, or unix seconds") from None


def lender(settings: Settings, cluster: str, store: Store) -> Watch:
    """A watch without detectors: it knows who is who. Raises ValueError for a cluster that is not configured."""
    known = {one.name: one for one in settings.cluster}
    name = cluster or settings.cluster[0].name
    if name not in known:
        raise ValueError(f"cluster {name!r} is not configured; there is {', '.join(known)}")
    with store.write() as session:
        ensure_cluster(session, name)
    catalogue = load_catalogue()
    watch = Watch(
        cluster=name,
        rules=rules_of(settings, (), False),
        clock=SystemClock(),
        store=store,
        catalogue=catalogue,
        changes=Changes(),
        inventory=Inventory(name, hears=False),
        ring=Ring(catalogue.metrics, known[name].interval_s, known[name].interval_s),
        detectors=(),
    )
    watch.load()
    return watch


def say(told: Told, code: int, *, as_json: bool) -> None:
    bad = [{"file": row.file, "line": row.line, "why": row.why} for row in told.bad.told]
    if as_json:
        counts: dict[str, Any] = {name: value for name, value in asdict(told).items() if isinstance(value, int)}
        counts |= {"left_out": dict(+told.left_out), "bad_rows": {"count": told.bad.count, "first": bad}}
        print(orjson.dumps(counts | {"finished": code == 0}).decode())
        return
    taken = f"{told.events} events, {told.attempts} attempts, {told.outages} outages and {told.nodes} nodes imported"
    print(f"{taken}; {told.duplicates} known.")
    for reason, count in sorted((+told.left_out).items()):
        print(f"not imported: {count} {reason}")
    for row in bad[:SHOWN]:
        print(f"{row['file']}:{row['line']}: {row['why']}", file=sys.stderr)
    if told.bad.count:
        print(f"{told.bad.count} rows could not be read.", file=sys.stderr)
    if code == 130:
        print("Stopped; run it again to go on from here.", file=sys.stderr)
