"""db rollups: sums per hour against what they were made of."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict

import orjson

from backend.clock import SystemClock
from backend.rollups.check import Checked, check, rebuild
from backend.settings import SettingsError, load
from backend.store.engine import StoreError, migrate, open_store
from backend.trained import Trained


def rollups(arguments: argparse.Namespace) -> int:
    """Check the sums of each cluster, or count them anew; exit code 1 where some are wrong."""
    try:
        settings = load(arguments.config, os.environ)
        store = open_store(settings.store.url, settings.store.folder)
        migrate(store)
    except (SettingsError, StoreError) as error:
        print(f"watchkeeper: {error}", file=sys.stderr)
        return 1
    now, wrong, told = SystemClock().now(), 0, {}
    days, most = min(arguments.days or settings.reliability.days, settings.reliability.days), settings.reliability
    for cluster in settings.cluster:
        trained = Trained(settings.store.folder / "trained" / cluster.name).read
        if arguments.rebuild:
            written, dropped = rebuild(store, cluster.name, now, days, most.most_attempts, trained)
            print(f"{cluster.name}: {written} rows written, {dropped} dropped", file=sys.stderr)
        found = check(store, cluster.name, now, days, most.most_attempts, trained)
        wrong += found.wrong
        told[cluster.name] = asdict(found)
        if not arguments.json:
            print(words(cluster.name, found))
    if arguments.json:
        print(orjson.dumps(told, option=orjson.OPT_INDENT_2).decode())
    store.close()
    return 1 if wrong else 0


def words(cluster: str, found: Checked) -> str:
    first = f"{cluster}: {found.rows:,} rows of {found.hours:,} hours, {found.wrong:,} wrong"
    if not found.wrong:
        return first
    lines = [
        f"  {d.hour:%Y-%m-%d %H:00} {d.job or d.node or 'cluster'} {d.what}: kept {d.kept:g}, counted {d.counted:g}"
        for d in found.differences
    ]
    hint = "  A server that runs may be a minute behind; db rollups --rebuild counts all anew."
    return "\n".join([first, *lines, hint])
