"""The weekly report: what failed, what it cost, whether it gets better; one message a week through the outbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from sqlmodel import Session, select

from backend.clock import Clock, unix
from backend.model.messages import Message
from backend.notify.outbox import put
from backend.settings_counting import Report
from backend.store import reckoning
from backend.store.engine import Store
from backend.tidings import MessageFacts
from detectors.model import Severity

#: Kind of its messages, and the days that it tells of.
KIND, DAYS = "report", 7
DAY_NAMES = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def due_week(now: datetime, report: Report) -> int:
    """The week whose report is due by ``now``, as year and ISO week (202611): the last one whose hour has come."""
    here = now.astimezone(ZoneInfo(report.timezone))
    due = here.replace(hour=report.hour, minute=0, second=0, microsecond=0)
    due -= timedelta(days=(here.weekday() - DAY_NAMES.index(report.weekday)) % 7)
    if due > here:
        due -= timedelta(days=7)
    year, week, _ = due.isocalendar()
    return year * 100 + week


def send_weekly(
    store: Store,
    clock: Clock,
    cluster: str,
    report: Report,
    channels: Sequence[str],
    url: str,
    *,
    simulated: bool = False,
) -> bool:
    """Put this week's report into the outbox, once. True where it was put in now.

    The first report comes with the first week that begins under this setting: a server that starts on a Thursday does
    not tell Monday's.
    """
    now = clock.now()
    week = due_week(now, report)
    with store.read() as session:
        whole = reckoning.reckoning(session, cluster, DAYS)
        told = _told_weeks(session, cluster)
    if whole is None or week in told or now - whole.at > timedelta(hours=6):
        return False
    with store.write() as session:
        if week in _told_weeks(session, cluster):
            return False
        message = message_of(cluster, week, whole.document, now, url, simulated=simulated)
        put(session, message, week, dict.fromkeys(channels if told else (), ()), now)
    return bool(told) and bool(channels)


def _told_weeks(session: Session, cluster: str) -> set[int]:
    query = select(Message.revision).where(Message.cluster == cluster, Message.incident_id == 0, Message.kind == KIND)
    return set(session.exec(query).all())


def message_of(
    cluster: str, week: int, document: Mapping[str, Any], now: datetime, url: str, *, simulated: bool = False
) -> MessageFacts:
    """The report of one week as a message."""
    return MessageFacts(
        id=f"watchkeeper-{cluster}-report-{week}",
        thread=f"watchkeeper-{cluster}-report-{week}",
        kind="report",
        cluster=cluster,
        incident=0,
        severity=Severity.INFO,
        headline=headline(document),
        why=why(document),
        facts=tuple(facts(document)),
        evidence=tuple(evidence(document)),
        advice=advice(document),
        url=f"{url.rstrip('/')}/reliability/report" if url else "",
        at=unix(now),
        simulated=simulated,
        subject=f"Week {week % 100} of {week // 100}: {headline(document)}",
    )


def headline(document: Mapping[str, Any]) -> str:
    failures = document["failures"]
    failed, infra = failures["failed_attempts"], failures["infra_job_failures"]
    if not document["attempts"]:
        return "No job ran this week."
    if not failed:
        return f"No failure in {number(failures['allocated_node_days'])} node-days this week."
    return f"{counted(failed, 'failure')} this week, {infra:,} of them hardware's; {lost_words(document)} lost."


def why(document: Mapping[str, Any]) -> str:
    causes = document["lost"]["cause"]
    if not causes:
        return "Nothing was lost to failures."
    first = causes[0]
    hours = f"{between(first['gpu_hours'])} GPU-hours in {counted(first['failures'], 'failure')}"
    return f"Most went to {words(first['name'])}: {hours}."


def facts(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    failures, retry = document["failures"], document["retry"]["all"]
    rows = [
        ("ETTR", between(document["cost"]["ettr_by_gpus"], 3)),
        ("GPU-hours held", number(document["gpu_hours_held"])),
        ("Lost to failures", f"{lost_words(document)}{money_words(document)}"),
        ("Failures", f"{failures['failed_attempts']:,}; {failures['infra_job_failures']:,} hardware's"),
        ("Cause not known", f"{failures['cause_not_known']:,}"),
        ("Per 1,000 node-days", f"{number(failures['rf_per_1000_node_days'])} {range_words(failures['rf_ci95'])}"),
        ("Hours between failures", f"{number(failures['job_mttf_hours'])} {range_words(failures['job_mttf_ci95'])}"),
        ("Retries that got through", f"{retry['success']:,} of {retry['chains']:,} {range_words(retry['ci95'], 2)}"),
    ]  # fmt: skip
    return [(label, value.strip()) for label, value in rows]


def evidence(document: Mapping[str, Any]) -> list[str]:
    return [
        f"{words(row['name'])}: {between(row['gpu_hours'])} GPU-hours, {counted(row['failures'], 'failure')}"
        for row in document["lost"]["cause"][:5]
    ]


def advice(document: Mapping[str, Any]) -> str:
    lemons = [row["node"] for row in document["lemons"] if row["lemon"]]
    if lemons:
        return f"Look at {', '.join(lemons[:5])}: they fail more often than their hours explain."
    return "No node stands out. " if document["attempts"] else ""


# --- words ----------------------------------------------------------------------------------------------------------


def number(value: float | None) -> str:
    if value is None:
        return "not known"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.1f}"


def counted(value: int, one: str) -> str:
    return f"{value:,} {one if value == 1 else one + 's'}"


def words(kind: str) -> str:
    return kind.replace("_", " ")


def between(bounds: Sequence[float | None] | None, places: int = 0) -> str:
    """``12`` or ``3 to 12``; the second where the sources leave it open."""
    if bounds is None or bounds[0] is None or bounds[1] is None:
        return "not known"
    low, high = (f"{bound:,.{places}f}" for bound in (bounds[0], bounds[1]))
    return low if low == high else f"{low} to {high}"


def range_words(ci95: Sequence[float | None] | None, places: int = 1) -> str:
    if ci95 is None:
        return ""
    low, high = (f"{bound:,.{places}f}" if bound is not None else "no bound" for bound in ci95)
    return f"(95 % {low} to {high})"


def lost_sum(document: Mapping[str, Any], what: str = "gpu_hours") -> list[float] | None:
    rows = [row[what] for row in document["lost"]["cause"] if row.get(what)]
    return [sum(row[0] or 0.0 for row in rows), sum(row[1] or 0.0 for row in rows)] if rows else None


def lost_words(document: Mapping[str, Any]) -> str:
    return f"{between(lost_sum(document) or [0.0, 0.0])} GPU-hours"


def money_words(document: Mapping[str, Any]) -> str:
    money = lost_sum(document, "money")
    currency = (document.get("price") or {}).get("currency") or "in money"
    return f", {between(money)} {currency}" if money else ""
