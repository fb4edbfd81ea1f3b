"""Storage & checkpoints: do saves cost too much, how fast are they, how often should each run save?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from jinja2 import Environment
from sqlmodel import Session

from backend.clock import utc
from backend.web.base import NoPage, Visit, frame, page, visit
from backend.web.cost_words import Drawing, amount, cut, measure, percent, plot_of, run_path, twin_of
from backend.web.figures import as_json, as_sheet
from backend.web.reliability import days_of, ranges, whole
from frontend.contexts import Chip, Link
from frontend.contexts_cost import Cell, Measure, StoragePage, Table
from frontend.figures.bars import Bar, bars
from frontend.figures.theme import themes, tokens
from frontend.words import capital, clock, count, number, span

Seen = Annotated[Visit, Depends(visit)]
PLOTS = ("blocked", "cost")
MOST_BARS, MOST_PHASES = 12, 20


def router(pages: Environment) -> APIRouter:
    found = APIRouter()
    looks = themes(tokens())

    @found.get("/storage")
    def storage(seen: Seen, days: str = "") -> Response:
        with seen.parts.store.read() as session:
            return page(seen, pages, context(session, seen, days_of(days)))

    @found.get("/figures/storage/{which}.json")
    def figure_json(
        request: Request, which: str, seen: Seen, days: str = "", theme: str = "", narrow: bool = False
    ) -> Response:
        made = drawing(seen, which, days_of(days))
        return as_json(request, made.draw(looks["dark" if theme == "dark" else "light"], narrow))

    @found.get("/figures/storage/{which}.csv")
    def figure_csv(which: str, seen: Seen, days: str = "") -> Response:
        return as_sheet(twin_of(drawing(seen, which, days_of(days))), f"storage-{which}")

    return found


def drawing(seen: Visit, which: str, days: int) -> Drawing:
    """Raises NoPage."""
    with seen.parts.store.read() as session:
        found = whole(session, seen, days)
    made = drawings(found.document if found is not None else {}).get(which)
    if made is None:
        raise NoPage("There is no such figure.")
    return made


def context(session: Session, seen: Visit, days: int) -> StoragePage:
    found = whole(session, seen, days)
    document: Mapping[str, Any] = found.document if found is not None else {}
    made = drawings(document)
    json_href, path = seen.link("/api/v1/reliability", window=f"{days}d"), seen.link("/storage", days=str(days))
    return StoragePage(
        frame=frame(session, seen, "Storage & checkpoints", (Link("Storage & checkpoints", ""),), json_href, path=path),
        answer=answer(document),
        lede=lede(document),
        ranges=ranges(seen, "/storage", days),
        measures=measures(document, seen),
        plots=tuple(plot_of(seen, n, made[n], f"/figures/storage/{n}", days=str(days)) for n in PLOTS),
        tables=(table(document, seen), *phase_tables(document, seen)),
    )


def advised(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(document["checkpoints"]["advice"]) if document else []


def gain(row: Mapping[str, Any]) -> float:
    """ETTR that the advised interval would win."""
    now, then = row["expected_ettr_now"], row["expected_ettr_advised"]
    return max(0.0, then - now) if now is not None and then is not None else 0.0


def best_s(row: Mapping[str, Any]) -> float:
    """The interval of the best expected ETTR; of a document of an older release Daly's."""
    return float(row.get("best_s") or row["daly_s"])


def answer(document: Mapping[str, Any]) -> str:
    if not document:
        return "Nothing is counted yet; the first count follows within a minute or two."
    if not document["checkpoints"]["saves"]["n"]:
        return "Nobody tells of saves, so their cost is not known."
    rows = [row for row in advised(document) if gain(row) >= 0.005]
    if not rows:
        return "Each run saves about as often as it should."
    best = max(rows, key=gain)
    often = "less" if (best["interval_s"] or 0) < best_s(best) else "more"
    others = f" {count(len(rows) - 1, 'other run gains', 'other runs gain')} too." if len(rows) > 1 else ""
    wins = f"every {span(best_s(best))} wins {100 * gain(best):.1f} points"
    return f"Save {cut(best['run'], 24)} {often} often: {wins}.{others}"


def lede(document: Mapping[str, Any]) -> str:
    if not document or not document["checkpoints"]["saves"]["n"]:
        return "Trainers tell of them by POST to api/v1/ingest/checkpoints, one row a save or load."
    saves = document["checkpoints"]
    failures = document["failures"]["failed_attempts"]
    return (
        f"{count(saves['saves']['n'], 'save')} measured, {saves['blocking_saves']:,} of them blocking; best intervals "
        f"rest on {count(failures, 'failure')}."
    )


def measures(document: Mapping[str, Any], seen: Visit) -> tuple[Measure, ...]:
    if not document:
        return ()
    told = document["checkpoints"]
    saves, loads = told["saves"], told["loads"]
    stall = document["cost"]["gpu_hours"].get("save_stall")
    known = stall is not None and stall[0] == stall[1]
    return (
        measure(seen, "A save", _span(saves["mean_s"]), "", _spread(saves), "save"),
        measure(seen, "A load", _span(loads["mean_s"]), "", _spread(loads), "save"),
        measure(seen, "Written", _rate(saves), "", f"n = {count(saves['n'], 'save')}", "save"),
        measure(seen, "Read", _rate(loads), "", f"n = {count(loads['n'], 'load')}", "save"),
        measure(
            seen,
            "Waited for saves",
            amount(stall[0]) if known else "not known",
            "GPU-hours" if known else "",
            "of runs whose steps are known" if known else "it takes steps and saves of every run",
            "gpu-hours",
        ),
    )


def _span(seconds: float | None) -> str:
    return "not known" if seconds is None else span(seconds)


def _spread(found: Mapping[str, Any]) -> str:
    pair = found["ci95"]
    within = f"95\u00a0% {span(pair[0])} to {span(pair[1])} · " if pair and None not in pair else ""
    return f"{within}n = {number(found['n'])}"


def _rate(found: Mapping[str, Any]) -> str:
    value = found["bytes_per_s"]
    if not value:
        return "not known"
    for unit, size in (("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6)):
        if value >= size:
            return f"{value / size:,.1f}\u00a0{unit}"
    return f"{value / 1e3:,.1f}\u00a0kB/s"


def drawings(document: Mapping[str, Any]) -> dict[str, Drawing]:
    rows = sorted(advised(document), key=lambda row: -blocked(row))
    return {"blocked": blocked_by_run(rows), "cost": cost_by_run(rows)}


def blocked(row: Mapping[str, Any]) -> float:
    """Share of the time that saves block, in percent."""
    wait, every = row["write"]["mean_s"], row["interval_s"]
    return 100 * wait / (wait + every) if wait and every else 0.0


NO_SAVES = (
    "No run with saves and failures",
    "It takes saves with their durations, and a failure to weigh them against.",
)


def blocked_by_run(rows: list[dict[str, Any]]) -> Drawing:
    told = [row for row in rows if row["interval_s"]]
    shown = [
        Bar(
            cut(row["run"], 30), blocked(row), blocked(row), f"{blocked(row):.1f} %  n = {row['write']['n']}", loud=True
        )
        for row in told[:MOST_BARS]
    ]
    return Drawing(
        title="Time that saves block",
        note="Share of each run's time between the begin of one save and the next.",
        defined="save",
        label=f"Share of time that saves block, {count(len(shown), 'run')}.",
        caption="Only blocking saves; what trains on meanwhile costs nothing here.",
        columns=("Run", "#Blocked, %", "#Saves"),
        rows=tuple((row["run"], f"{blocked(row):.2f}", number(row["write"]["n"])) for row in told),
        draw=lambda theme, narrow: bars(shown, theme, narrow, "% of time"),
        absent=None if shown else NO_SAVES,
    )


def cost_by_run(rows: list[dict[str, Any]]) -> Drawing:
    told = sorted(rows, key=lambda row: -gain(row))
    shown = [
        Bar(
            cut(row["run"], 30),
            100 * gain(row),
            100 * gain(row),
            f"{100 * gain(row):.1f} points",
            loud=gain(row) >= 0.005,
        )
        for row in told[:MOST_BARS]
    ]
    return Drawing(
        title="What the best interval would win",
        note="Expected ETTR at the best interval less that at the present one.",
        defined="expected",
        label=f"ETTR points to win by saving at the best interval, {count(len(shown), 'run')}.",
        caption="Under half a point it is not worth a change.",
        columns=("Run", "#Points", "#Now", "#Best"),
        rows=tuple(
            (row["run"], f"{100 * gain(row):.2f}", _span(row["interval_s"]), _span(best_s(row))) for row in told
        ),
        draw=lambda theme, narrow: bars(shown, theme, narrow, "points of ETTR"),
        absent=None if shown else NO_SAVES,
    )


def table(document: Mapping[str, Any], seen: Visit) -> Table:
    rows = tuple(
        (
            Link(cut(row["run"]), seen.link(run_path(row["run"]))),
            _span(row["write"]["mean_s"]),
            number(row["write"]["n"]),
            _span(row["interval_s"]),
            _span(best_s(row)),
            _within(row.get("best_ci95") or row["daly_bounds_s"]),
            _span(row["young_s"]),
            _span(row["daly_s"]),
            _span(row["mttf_s"]),
            f"{amount(row['expected_ettr_now'], 3)} to {amount(row['expected_ettr_advised'], 3)}",
            percent(row.get("pays")),
        )
        for row in sorted(advised(document), key=lambda row: -gain(row))
    )
    heads = (
        "Run",
        "#A save",
        "#Saves~",
        "#Every, now",
        "#Best",
        "95 %~",
        "#Young~",
        "#Daly~",
        "#Failure every~",
        "#ETTR now to best",
        "#A change pays",
    )
    note = "Best by expected ETTR, with Young's and Daly's beside; all from measured cost and measured failures."
    return Table("runs", "How often to save", note, heads, rows, NO_SAVES)


def phase_tables(document: Mapping[str, Any], seen: Visit) -> tuple[Table, ...]:
    """Saves and loads as the clients' counters show them; none where nobody follows counters of mounts."""
    told = document.get("storage")
    if told is None:
        return ()
    heads = (
        "Begun", "What!", "#Took", "#Clients~", "#Moved", "#Rate", "#Of the ceiling~", "#Queued", "Held up by",
        "=Last to finish~",
    )  # fmt: skip
    rows = tuple(phase_row(row, seen) for row in told["phases"][:MOST_PHASES])
    empty = (
        "No save or load shows in counters of mounts",
        "It takes node_exporter with --collector.mountstats on the nodes, and an hour of them.",
    )
    table = Table("phases", "Saves and loads on the wire", phase_note(told) if rows else "", heads, rows, empty)
    return (table,)


def phase_note(told: Mapping[str, Any]) -> str:
    saves, loads = told["saves"], told["loads"]
    said = f"{capital(count(saves['n'], 'save'))} and {count(loads['n'], 'load')}."
    for name, sums in (("saves", saves), ("loads", loads)):
        if sums["queue_share"] is not None:
            said += f" Of the time of requests {name} spend {percent(sums['queue_share'])} in the client's queue."
    waited = saves["waited_s"] + loads["waited_s"]
    if waited:
        names = ", ".join(one["client"] for one in told["stragglers"][:3])
        said += f" {capital(span(waited))} went into waiting for the last clients, most often {names}."
    return said


def phase_row(row: Mapping[str, Any], seen: Visit) -> tuple[Cell, ...]:
    late = row["stragglers"]
    return (
        clock(utc(row["begin"]), seen.now),
        Chip("info" if row["kind"] == "save" else "done", row["kind"]),
        span(row["end"] - row["begin"]),
        number(row["clients"]),
        _size(row["bytes"]),
        _rate({"bytes_per_s": row["mean_bytes_s"]}),
        percent(row["of_ceiling"]),
        percent(row["queue_share"]),
        row["held_by"],
        f"{late[0]['client']}, {span(late[0]['late_s'])} after the median" if late else "together",
    )


def _size(found: float) -> str:
    return _rate({"bytes_per_s": found}).removesuffix("/s")


def _within(pair: Sequence[float | None] | None) -> str:
    low, high = pair or (None, None)
    return f"{_span(low)} to {_span(high)}"
