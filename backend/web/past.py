"""What was, as lanes on one time axis: spans that people can read, and the table that holds them all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import quote

from backend.answers.node_history import Held
from backend.clock import unix, utc
from backend.facts import TAG, MaintenanceFacts, OutageFacts
from backend.model.actions import Exclusion, Order
from backend.model.incidents import Incident
from backend.model.past import Change, DeviceSpan
from backend.web.base import Visit
from frontend.contexts import Figure, Told, Twin
from frontend.contexts_cluster import Range
from frontend.figures.lanes import Event, Lane, Level, Story
from frontend.words import capital, count, span

OUT = "Out, by its scheduler"
#: Lanes from the top, in the order in which a reader asks.
LANES = ("Sat in", "Jobs", "Incidents", "Excluded", OUT, "Maintenance", "Orders", "Cards", "Changes")
#: How far back a page may look, in days; the first that fits what is asked.
RANGES = (1, 7, 30, 90)
USUAL_DAYS = 7
#: Lanes of jobs that share a node; a span that fits none of them is in the table only.
JOB_LANES = 4
#: A span shorter than this share of the axis, wide and narrow, carries no words; its mark tells when pointed at.
WORDY, WORDY_NARROW = 0.08, 0.3
#: Rows of the table on the page; the CSV has all.
MOST_ROWS = 200


@dataclass(frozen=True, slots=True)
class Bar:
    """One thing that held for a span (``end`` None = still), or happened (``end`` = ``start``). ``lane``: its lane."""

    lane: str
    start: datetime
    end: datetime | None
    text: str
    more: str = ""
    tone: str = "quiet"


def days_of(asked: str) -> int:
    return int(asked) if asked.isdecimal() and int(asked) in RANGES else USUAL_DAYS


def bounds(seen: Visit, days: int) -> tuple[datetime, datetime]:
    return seen.now - timedelta(days=days), seen.now


def ranges(seen: Visit, path: str, days: int) -> tuple[Range, ...]:
    return tuple(Range("24 h" if n == 1 else f"{n} days", seen.link(path, days=str(n)), n == days) for n in RANGES)


# --- bars -----------------------------------------------------------------------------------------------------------


def of_jobs(found: Iterable[Held]) -> list[Bar]:
    bars = []
    for one in found:
        attempt, row = one.attempt, one.span
        run = (attempt.run or attempt.name) if attempt is not None else ""
        some = f"GPU {', '.join(map(str, row.gpus))}" if row.gpus and len(row.gpus) < 8 else ""
        state = attempt.state.lower().replace("_", " ") if attempt is not None else "not known"
        user = attempt.user if attempt is not None else ""
        ended = f"ended {state}" if row.end is not None else state
        parts = (run, f"attempt {row.restart + 1}", some, user, ended)
        bars.append(Bar("Jobs", row.start, row.end, f"Job {row.job}", ", ".join(p for p in parts if p)))
    return bars


def of_incidents(found: Iterable[Incident]) -> list[Bar]:
    return [
        Bar(
            "Incidents",
            row.opened_at,
            row.closed_at,
            f"{row.id} {row.headline}",
            row.severity,
            "failed" if row.severity == "critical" else "suspect",
        )
        for row in found
    ]


def of_exclusions(found: Iterable[Exclusion], now: datetime) -> list[Bar]:
    bars = []
    for row in found:
        end = row.lifted_at or (row.until if row.until <= now else None)
        bars.append(Bar("Excluded", row.created_at, end, row.reason, f"by {row.owner}", "excluded"))
    return bars


def of_outages(found: Iterable[OutageFacts]) -> list[Bar]:
    bars = []
    for one in found:
        end = utc(one.end) if one.end is not None else None
        reason = one.reason.removeprefix(TAG).strip()
        text = f"{one.state.lower()}: {reason}" if reason else one.state.lower()
        who = ", ".join(part for part in (f"by {one.user}" if one.user else "", f"told by {one.source}") if part)
        bars.append(Bar(OUT, utc(one.start), end, text, who, "draining"))
    return bars


def of_maintenances(found: Iterable[MaintenanceFacts]) -> list[Bar]:
    bars = []
    for one in found:
        end = utc(one.end) if one.end is not None else None
        bars.append(Bar("Maintenance", utc(one.start), end, one.text or one.name, one.source, "excluded"))
    return bars


def of_orders(found: Iterable[Order]) -> list[Bar]:
    return [
        Bar("Orders", row.created_at, row.created_at, f"{row.verb} {row.state}", row.outcome or row.reason)
        for row in found
    ]


def of_changes(found: Iterable[Change]) -> list[Bar]:
    bars = []
    for row in found:
        where = f" of {row.device}" if row.device else ""
        said = "booted" if row.item == "boot" else f"{row.item}{where}: {row.before or 'not known'} to {row.value}"
        who = ", ".join(part for part in (row.by, row.text, row.source) if part)
        bars.append(Bar("Changes", row.at, row.at, said, who))
    return bars


def of_seats(found: Iterable[DeviceSpan], start: datetime) -> list[Bar]:
    """Cards that came or went; those that were there before and are there still are no news."""
    bars = []
    for row in found:
        name = f"{row.device} at index {row.index or 'not known'}"
        bars += [Bar("Cards", row.start, row.start, f"{name} came", row.pci)] if row.start > start else []
        bars += [Bar("Cards", row.end, row.end, f"{name} went", row.pci)] if row.end is not None else []
    return bars


# --- the figure -----------------------------------------------------------------------------------------------------


def figure(bars: Sequence[Bar], seen: Visit, path: str, days: int, subject: str) -> Figure:
    """``path``: the figure's own address without its ending."""
    told = rows(bars, seen.now)
    query = {"days": str(days)}
    absent = Told(False, f"Nothing is known of {subject} in this time", ("Choose a longer one above.",))
    return Figure(
        id="lanes",
        url=seen.link(f"{path}.json", **query),
        size="",
        label=f"What {subject} went through: {count(len(bars), 'entry', 'entries')}; the table below lists them.",
        caption=caption(bars),
        twin=Twin(
            ("From, UTC", "To, UTC", "Lane", "What", "More"), told[-MOST_ROWS:], seen.link(f"{path}.csv", **query)
        ),
        absent=None if told else absent,
    )


def caption(bars: Sequence[Bar]) -> str:
    vague = any(bar.lane == "Jobs" for bar in bars)
    return "A mark is where something begins or happens; point at it to read it." + (
        " Jobs are as their schedulers told them." if vague else ""
    )


def rows(bars: Iterable[Bar], now: datetime) -> tuple[tuple[str, ...], ...]:
    """Every bar in order of time, whole."""
    found = []
    for bar in sorted(bars, key=lambda bar: (bar.start, bar.lane)):
        end = "" if bar.end == bar.start else stamp(bar.end) if bar.end else "still"
        found.append((stamp(bar.start), end, bar.lane, bar.text, bar.more))
    return tuple(found)


def stamp(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}"


def story(bars: Sequence[Bar], start: datetime, end: datetime, narrow: bool = False) -> Story:
    """The lanes that hold anything, in the order in which a reader asks."""
    lanes: list[Lane] = []
    for name in LANES:
        mine = [bar for bar in bars if bar.lane == name]
        if name == "Jobs":
            lanes += _shared(mine, start, end, narrow)
        elif mine:
            lanes.append(_lane(f"{name}, {len(mine)}", mine, start, end, narrow))
    return Story(unix(start), unix(end), None, tuple(lanes))


def _shared(bars: Sequence[Bar], start: datetime, end: datetime, narrow: bool) -> list[Lane]:
    """Jobs that share a node lie in lanes beside each other."""
    placed: list[list[Bar]] = []
    for bar in sorted(bars, key=lambda bar: bar.start):
        free = next((lane for lane in placed if (lane[-1].end or end) <= bar.start), None)
        if free is not None:
            free.append(bar)
        elif len(placed) < JOB_LANES:
            placed.append([bar])
    heads = [f"Jobs, {len(bars)}", *("Jobs beside them" for _ in placed[1:])]
    return [_lane(head, lane, start, end, narrow) for head, lane in zip(heads, placed, strict=False)]


def _lane(title: str, bars: Sequence[Bar], start: datetime, end: datetime, narrow: bool) -> Lane:
    length = (end - start).total_seconds()
    levels: list[Level] = []
    events: list[Event] = []
    for bar in bars:
        begin, last = max(bar.start, start), min(bar.end or end, end)
        if bar.end != bar.start:
            wordy = (last - begin).total_seconds() / length >= (WORDY_NARROW if narrow else WORDY)
            levels.append(Level(unix(begin), unix(last), bar.text if wordy else "", tone=bar.tone))
        if bar.start >= start:
            events.append(Event(unix(bar.start), f"{bar.text}. {capital(bar.more)}".rstrip(". ")))
    return Lane(title, tuple(events), tuple(levels))


# --- words ----------------------------------------------------------------------------------------------------------


def lasted(bars: Iterable[Bar], start: datetime, end: datetime) -> str:
    """How long any of these held within the range; overlaps count once."""
    total, upto = 0.0, start
    for bar in sorted(bars, key=lambda bar: bar.start):
        begin, last = max(bar.start, upto), min(bar.end or end, end)
        if last > begin:
            total += (last - begin).total_seconds()
            upto = last
    return span(total) if total else ""


def gone_through(bars: Sequence[Bar], start: datetime, end: datetime, days: int) -> str:
    """``In 7 days it ran 3 jobs, had 1 incident and was out for 5 h``."""
    jobs = len({bar.text for bar in bars if bar.lane == "Jobs"})
    incidents = sum(bar.lane == "Incidents" for bar in bars)
    out = lasted([bar for bar in bars if bar.lane == OUT], start, end)
    time = "24 h" if days == 1 else f"{days} days"
    said = f"in {time} it ran {count(jobs, 'job')} and had {count(incidents, 'incident')}"
    return f"{said}; it was out for {out}" if out else said


def node_path(name: str) -> str:
    return f"/nodes/{quote(name, safe='')}"


def device_path(name: str) -> str:
    return f"/devices/{quote(name, safe=':')}"
