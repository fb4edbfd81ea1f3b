"""Keeps the accounts fresh: reads what changed, accounts it, and writes runs, sums per hour and the whole.

Never in a request. One step takes at most its share of one core: after a step that took t seconds it rests REST x t.
"""

from __future__ import annotations

import gc
import hashlib
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import orjson
from sqlmodel import Session

from backend.clock import Clock, unix, utc
from backend.reliability.account import Accounts, RunAccount, account
from backend.reliability.cost import gpus
from backend.reliability.report import runs_json
from backend.rollups.gather import Trained, gather, nothing_trained
from backend.rollups.hours import HOUR_S, hour_of, sums_of, with_findings
from backend.rollups.storage import Phases, nothing_moved, storage_json
from backend.rollups.whole import document_of, windows
from backend.store import reckoning
from backend.store.engine import Store
from backend.store.system import cursor, set_cursor

#: A step rests this many times as long as it took: a twentieth of a core.
REST = 19
#: Findings counted in one step, and the name of the mark of how far that came.
MOST_FINDINGS, MARK = 50_000, "rollups.findings"
#: The newest hours are compared each time, older ones where a run of theirs changed.
NEW_HOURS = 3
#: Points of the sliding hour that a run's document keeps: of more only every so many-th.
MOST_SLIDING = 600


@dataclass
class Keeper:
    """The accounts of one cluster. ``days``: how far back; ``most``: attempts at most; ``price``: money a
    GPU-hour, in ``currency``. A step may be called at any
    time: it does nothing before its rest is over."""

    store: Store
    clock: Clock
    cluster: str
    days: int = 90
    most: int = 200_000
    price: float | None = None
    currency: str = ""
    trained: Trained = nothing_trained
    phases: Phases = nothing_moved
    took_s: float = 0.0
    _rests_until: float = 0.0
    _whole_once: bool = False

    def step(self) -> bool:
        """True: findings are left to be counted."""
        if time.monotonic() < self._rests_until:
            return False
        began = time.perf_counter()
        with uncollected():
            more = self._reckon()
        self.took_s = time.perf_counter() - began
        self._rests_until = 0.0 if more else time.monotonic() + REST * self.took_s
        return more

    def _reckon(self) -> bool:
        now = self.clock.now()
        with self.store.read() as session:
            found = gather(session, self.cluster, now - timedelta(days=self.days), now, self.most, self.trained)
            digests = reckoning.run_digests(session, self.cluster)
        accounts = account(found.history)
        rows = run_rows(self.cluster, accounts)
        changed = [row for row in rows if digests.get(row["name"]) != row["digest"]]
        gone = set(digests) - {row["name"] for row in rows}
        wholes = [(days, self._document(accounts, days, found.left_out)) for days in windows(self.days)]
        start = self._from({row["name"]: row["moved_at"] for row in changed}, accounts)
        with self.store.write() as session:
            self._write_runs(session, changed, gone, accounts)
            took_s = round(self.took_s, 3)
            reckoning.put_reckonings(
                session,
                [{"cluster": self.cluster, "days": d, "at": now, "took_s": took_s, "document": w} for d, w in wholes],
            )
            more = self._write_sums(session, accounts, start, now)
        self._whole_once = True
        return more

    def _document(self, accounts: Accounts, days: int, left_out: int) -> dict[str, Any]:
        end = accounts.history.end
        whole = document_of(accounts, days, left_out, self.price, self.currency)
        return {**whole, "storage": storage_json(self.phases(end - days * 86_400.0, end))}

    def _from(self, changed: dict[str, datetime], accounts: Accounts) -> float:
        """From when on sums may differ (unix s): the begin of attempts of changed runs that ended since the last step,
        all where an older one was told late."""
        history = accounts.history
        recent = history.end - NEW_HOURS * HOUR_S
        if not self._whole_once or any(unix(at) < recent for at in changed.values()):
            return history.start
        moved = [a.attempt for run in accounts.runs if run.run.name in changed for a in run.accounts]
        begun = [a.start for a in moved if a.start is not None and a.end is not None and a.end >= recent]
        return max(history.start, min([recent, *begun]))

    def _write_runs(
        self, session: Session, changed: Sequence[dict[str, Any]], gone: set[str], accounts: Accounts
    ) -> None:
        names = {row["name"] for row in changed}
        jobs = {a.job: run.run.name for run in accounts.runs if run.run.name in names for a in run.run.attempts}
        reckoning.drop_runs(session, self.cluster, self._replaced(session, gone, accounts))
        reckoning.put_runs(session, self.cluster, changed, jobs)

    def _replaced(self, session: Session, gone: set[str], accounts: Accounts) -> list[str]:
        """Of runs that are accounted no more those whose jobs now belong to another; older ones stay as they were."""
        now_in = {a.job for run in accounts.runs for a in run.run.attempts}
        found = []
        for name in sorted(gone):
            row = reckoning.run_named(session, self.cluster, name)
            jobs = {a["job"] for a in row.document.get("attempts", [])} if row is not None else set()
            if jobs & now_in:
                found.append(name)
        return found

    def _write_sums(self, session: Session, accounts: Accounts, start: float, now: datetime) -> bool:
        """Bring the hours from ``start`` up to date, and those in which findings were raised since the last time."""
        seq = cursor(session, self.cluster, MARK)
        fresh = reckoning.findings_after(session, self.cluster, seq, MOST_FINDINGS)
        hours = {hour_of(at) for _, at in fresh}
        low = min([start, *(unix(hour) for hour in hours)])
        low, high = low - low % HOUR_S, unix(hour_of(now)) + HOUR_S
        write_hours(session, self.cluster, accounts, low, high, hours)
        if fresh:
            set_cursor(session, self.cluster, MARK, fresh[-1][0], now)
        return len(fresh) == MOST_FINDINGS


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the collector of cycles: accounts are millions of small objects that have none, and to walk them again
    and again costs as much as to make them."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def write_hours(
    session: Session, cluster: str, accounts: Accounts, low: float, high: float, hours: set[datetime]
) -> tuple[int, int]:
    """(rows written, rows dropped): the hours from ``low`` up to ``high`` (unix s) as the accounts have them; findings
    are counted anew in ``hours``."""
    known = dict(reckoning.all_sums(session, cluster, utc(low), utc(high)))
    found = with_findings(sums_of(accounts, low, high), known, counted(session, cluster, hours), hours)
    differ = {key: values for key, values in found.items() if key not in known or not same(known[key], values)}
    gone = set(known) - set(found)
    reckoning.put_sums(session, cluster, differ)
    reckoning.drop_sums(session, cluster, gone)
    return len(differ), len(gone)


def counted(session: Session, cluster: str, hours: set[datetime]) -> dict[tuple[str, datetime], int]:
    """Findings by (node, hour)."""
    found: defaultdict[tuple[str, datetime], int] = defaultdict(int)
    for hour in sorted(hours):
        told = reckoning.findings_by_node(session, cluster, hour, hour + timedelta(hours=1))
        for node, count in told.items():
            found[node, hour] += count
    return dict(found)


def same(a: Sequence[float], b: Sequence[float]) -> bool:
    """Equal up to a hundredth of a second and a millionth: sums of floats."""
    return all(abs(x - y) <= 0.01 + 1e-6 * abs(x) for x, y in zip(a, b, strict=True))


def run_rows(cluster: str, accounts: Accounts) -> list[dict[str, Any]]:
    """Rows of ``Run``, in the order they began."""
    documents = runs_json(accounts)
    end = accounts.history.end
    return [run_row(cluster, run, document, end) for run, document in zip(accounts.runs, documents, strict=True)]


def run_row(cluster: str, run: RunAccount, document: dict[str, Any], end: float) -> dict[str, Any]:
    """``end`` of the data: a run that is not over moved then."""
    told, share = run.accounts, document["ettr_bounds"]
    sliding = document["ettr_sliding_1h"]
    document = {**document, "ettr_sliding_1h": sliding[:: max(1, -(-len(sliding) // MOST_SLIDING))]}
    held = sum(a.wall_s * gpus(a) for a in told)
    low = sum(a.parts["productive"].low * gpus(a) for a in told)
    high = min(held, sum(a.parts["productive"].high * gpus(a) for a in told))
    newest = told[-1].attempt
    times = [t for a in told for t in (a.attempt.submit, a.attempt.eligible, a.attempt.start, a.attempt.end) if t]
    failed = [a for a in told if a.failed and a.attempt.end is not None]
    open_ = any(not a.over for a in told)
    return {
        "cluster": cluster,
        "name": run.run.name,
        "user": newest.user,
        "account": newest.account,
        "state": newest.state,
        "nodes": document["nodes"],
        "gpus": document["gpus"],
        "began_at": utc(min(times)) if times else None,
        "moved_at": utc(end if open_ else max(times, default=0.0)),
        "failed_at": utc(max(a.attempt.end or 0.0 for a in failed)) if failed else None,
        "failed_why": failed[-1].verdict.text if failed else "",
        "attempts": len(told),
        "failures": document["failures"],
        "infra_failures": document["infra_failures"],
        "ettr_low": share[0] if share is not None else None,
        "ettr_high": share[1] if share is not None else None,
        "lost_low_gpu_s": round(held - high, 3),
        "lost_high_gpu_s": round(held - low, 3),
        "digest": hashlib.sha256(orjson.dumps(document)).hexdigest()[:32],
        "document": document,
    }
