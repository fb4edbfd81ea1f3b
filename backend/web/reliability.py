"""Reliability: are we getting better, what costs most, which nodes stand out? The weekly report, and definitions."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from jinja2 import Environment
from sqlmodel import Session

from backend.answers.runs import whole_of
from backend.model.reckoning import Reckoning
from backend.rollups import weekly
from backend.web import reliability_figures as drawn
from backend.web.base import NoPage, Visit, frame, page, visit
from backend.web.cost_words import amount, bounds, interval, measure, percent, plot_of, share, twin_of
from backend.web.figures import as_json, as_sheet
from backend.web.insight_tables import insight_tables
from backend.web.reliability_tables import lemons, tables
from frontend.contexts import Link
from frontend.contexts_cluster import Range
from frontend.contexts_cost import Definition, DefinitionsPage, Measure, ReliabilityPage, ReportPage
from frontend.figures.theme import themes, tokens
from frontend.words import capital, count, kind_words

Seen = Annotated[Visit, Depends(visit)]
#: Windows that a page offers, in days.
RANGES, USUAL = (7, 28, 90), 28


def router(pages: Environment) -> APIRouter:
    found = APIRouter()

    @found.get("/reliability")
    def reliability(seen: Seen, days: str = "") -> Response:
        with seen.parts.store.read() as session:
            return page(seen, pages, context(session, seen, days_of(days)))

    @found.get("/reliability/report")
    def report(seen: Seen) -> Response:
        with seen.parts.store.read() as session:
            return page(seen, pages, report_page(session, seen))

    @found.get("/definitions")
    def definitions(seen: Seen) -> Response:
        with seen.parts.store.read() as session:
            crumb = (Link("Reliability", seen.link("/reliability")), Link("Definitions", ""))
            return page(
                seen,
                pages,
                DefinitionsPage(frame(session, seen, "Definitions", crumb), "What each number means", words()),
            )

    add_figures(found)
    return found


def add_figures(found: APIRouter) -> None:
    looks = themes(tokens())

    @found.get("/figures/reliability/{which}.json")
    def figure_json(
        request: Request, which: str, seen: Seen, days: str = "", theme: str = "", narrow: bool = False
    ) -> Response:
        made = drawing(seen, which, days_of(days))
        return as_json(request, made.draw(looks["dark" if theme == "dark" else "light"], narrow))

    @found.get("/figures/reliability/{which}.csv")
    def figure_csv(which: str, seen: Seen, days: str = "") -> Response:
        return as_sheet(twin_of(drawing(seen, which, days_of(days))), f"reliability-{which}")


def drawing(seen: Visit, which: str, days: int) -> drawn.Drawing:
    """Raises NoPage."""
    with seen.parts.store.read() as session:
        found = whole(session, seen, days)
    made = drawn.drawings(found.document if found is not None else {}).get(which)
    if made is None:
        raise NoPage("There is no such figure.")
    return made


def whole(session: Session, seen: Visit, days: int) -> Reckoning | None:
    return whole_of(session, seen.watch.cluster, days, seen.parts.settings.reliability.days)


def days_of(asked: str) -> int:
    return int(asked) if asked.isdecimal() and int(asked) in RANGES else USUAL


def ranges(seen: Visit, path: str, days: int) -> tuple[Range, ...]:
    return tuple(Range(f"{n} days", seen.link(path, days=str(n)), n == days) for n in RANGES)


def words() -> tuple[Definition, ...]:
    """Definitions, from the packaged table."""
    text = files("frontend").joinpath("definitions.toml").read_text("utf-8")
    rows: dict[str, dict[str, str]] = tomllib.loads(text)
    return tuple(Definition(name, row["name"], row["text"], row.get("formula", "")) for name, row in rows.items())


def context(session: Session, seen: Visit, days: int) -> ReliabilityPage:
    found = whole(session, seen, days)
    document: Mapping[str, Any] = found.document if found is not None else {}
    json_href = seen.link("/api/v1/reliability", window=f"{days}d")
    path = seen.link("/reliability", days=str(days))
    made = drawn.drawings(document)
    return ReliabilityPage(
        frame=frame(session, seen, "Reliability", (Link("Reliability", ""),), json_href, path=path),
        answer=answer(document),
        lede=lede(document, days),
        ranges=ranges(seen, "/reliability", days),
        measures=measures(document, seen),
        plots=tuple(plot_of(seen, n, made[n], f"/figures/reliability/{n}", days=str(days)) for n in drawn.PLOTS),
        lemons=lemons(document, seen),
        tables=(*insight_tables(document, seen), *tables(document, seen)),
        note=note(document),
        links=(
            Link("Weekly report", seen.link("/reliability/report")),
            Link("Storage & checkpoints", seen.link("/storage")),
            Link("Planner", seen.link("/planner")),
            Link("Definitions", seen.link("/definitions")),
        ),
    )


def answer(document: Mapping[str, Any]) -> str:
    if not document:
        return "Nothing is counted yet; the first count follows within a minute or two."
    if not document["attempts"]:
        return "No job has run in this time."
    named = [row["node"] for row in document["lemons"] if row["lemon"]]
    stands = f" {count(len(named), 'node stands', 'nodes stand')} out." if named else " No node stands out."
    return course(document) + stands


def course(document: Mapping[str, Any]) -> str:
    """Better, worse or the same: the first half of the bins against the second, by the ratio of their rates."""
    bins = document["trend"]
    half = len(bins) // 2
    sums = [(sum(b["infra_failures"] for b in part), sum(b["node_days"] or 0 for b in part))
            for part in (bins[:half], bins[half:])]  # fmt: skip
    (before, days_before), (after, days_after) = sums
    failed = document["failures"]["infra_job_failures"]
    if not failed:
        return "No failure was the hardware's."
    if min(before, after) < 5 or not days_before or not days_after:
        return f"{capital(count(failed, 'failure was', 'failures were'))} the hardware's."
    ratio = (after / days_after) / (before / days_before)
    spread = 1.96 * (1 / before + 1 / after) ** 0.5
    sure = abs(math.log(ratio)) > spread
    if not sure:
        return "Neither better nor worse than in the first half."
    return f"{'Better' if ratio < 1 else 'Worse'}: the fleet fails {ratio:.1f} times as often as in the first half."


def lede(document: Mapping[str, Any], days: int) -> str:
    if not document:
        return "A loop counts every minute what the store holds, never a request."
    failures = document["failures"]
    causes = document["lost"]["cause"]
    most = ""
    if causes:
        hours = bounds(causes[0]["gpu_hours"])
        most = f" {capital(kind_words(causes[0]['name']))} costs most: {hours} GPU-hours."
    said = (
        f"{count(failures['failed_attempts'], 'failure')} in {count(document['attempts'], 'attempt')} over {days} days"
    )
    unknown = failures["cause_not_known"]
    return f"{said}{f'; of {unknown:,} the cause is not known' if unknown else ''}.{most}"


def measures(document: Mapping[str, Any], seen: Visit) -> tuple[Measure, ...]:
    if not document:
        return ()
    failures, retry, repair = document["failures"], document["retry"]["auto"], document["repair"]["incident_repair"]
    ettr, n = document["cost"]["ettr_by_gpus"], document["attempts"]
    quarter = [_hours(repair["q1_s"]), _hours(repair["q3_s"])]
    return (
        measure(seen, "ETTR, by GPUs", share(ettr), "", f"n = {count(n, 'attempt')}", "ettr"),
        measure(
            seen,
            "Failures",
            amount(failures["rf_per_1000_node_days"]),
            "per 1,000 node-days",
            f"{interval(failures['rf_ci95'])} · n = {failures['infra_job_failures']}",
            "rate",
        ),
        measure(
            seen,
            "Time between failures",
            amount(failures["job_mttf_hours"]),
            "h of a job" if failures["job_mttf_hours"] else "",
            f"{interval(failures['job_mttf_ci95'])} · n = {failures['infra_job_failures']}",
            "mttf",
        ),
        measure(
            seen,
            "Repair, median",
            amount(_hours(repair["median_s"])),
            "h" if repair["median_s"] else "",
            f"quartiles {bounds(quarter)} · n = {repair['n']}",
            "mttr",
        ),
        measure(
            seen,
            "Retry succeeds, auto",
            percent(retry["rate"]),
            "",
            f"{interval(retry['ci95'], 0, 100)} · n = {count(retry['chains'], 'chain')}",
            "chain",
        ),
    )


def _hours(seconds: float | None) -> float | None:
    return None if seconds is None else seconds / 3600


def note(document: Mapping[str, Any]) -> str:
    if not document:
        return ""
    left, beyond = len(document["left_out"]), document["attempts_not_counted"]
    said = [f"{count(left, 'attempt')} left out because its times cannot be; the JSON lists them."] if left else []
    said += [f"{count(beyond, 'older attempt')} not counted: see [reliability] most_attempts."] if beyond else []
    return " ".join(said)


def report_page(session: Session, seen: Visit) -> ReportPage:
    found = whole(session, seen, weekly.DAYS)
    crumb = (Link("Reliability", seen.link("/reliability")), Link("Weekly report", ""))
    shown = frame(session, seen, "Weekly report", crumb, seen.link("/api/v1/reliability/report"))
    if found is None:
        return ReportPage(shown, "Nothing is counted yet.", "", (), (), "", "")
    told = weekly.message_of(seen.watch.cluster, 0, found.document, found.at, "")
    span = f"The 7 days to {found.at:%A, %d %B %Y, %H:%M} UTC, cluster {seen.watch.cluster}."
    return ReportPage(shown, told.headline, told.why, told.facts, told.evidence, told.advice, span)
