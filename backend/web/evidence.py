"""Evidence of an incident: lanes on one time axis, the same as a table, and what we saw piece by piece."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime, timedelta

from backend.answers.incident_story import IncidentStory
from backend.answers.telemetry import Telemetry
from backend.clock import unix
from backend.model.events import Event as EventRow
from backend.model.events import Finding
from backend.web import courses, shown
from backend.web.base import Visit
from frontend.contexts import EvidenceRow, Figure, Told, Twin
from frontend.figures.lanes import Event, Lane, Level, Story
from frontend.words import age, bare, capital, clock, count, device, kind_words, moment, shorten

#: Lanes drawn at most: loudest findings first; the rest stands in the table.
MOST_LANES = 8
MOST_ROWS = 60
#: Telemetry cells in the page's table, the newest: four hours. The CSV has them all.
MOST_CELLS = 48
#: The lines need a few cells of five minutes to tell normal from not: so much before the first sign, where it is kept.
LEAD_S = 1200.0
#: What each event namespace is called.
LANES = {
    "xid": "Kernel log",
    "sxid": "Switch log",
    "boot": "Boots",
    "slurm": "Scheduler",
    "log": "Log",
    "oom": "Out of memory",
    "nic": "Network",
    "fm": "Fabric manager",
    "nvrm": "Kernel log",
    "amd": "Kernel log",
    "aer": "PCIe",
    "disk": "Disks",
    "fs": "File systems",
    "nfs": "File servers",
    "lustre": "File servers",
    "cephfs": "File servers",
    "gpfs": "File servers",
    "cifs": "File servers",
    "mce": "Machine checks",
    "cpu": "Processors",
    "kernel": "Kernel log",
    "thermal": "Heat",
}
#: Kinds and detectors whose levels mean that nothing could be seen.
ABSENT = ("telemetry_dark", "telemetry_frozen", "telemetry/silence")


def lanes_figure(story: IncidentStory, seen: Visit, *, whole: bool = False) -> Figure:
    """The figure and its table. ``whole``: with all telemetry there is, asked for wherever it is kept."""
    found = courses.read(seen, story, *bounds(story, seen), ask=whole)
    told = twin_rows(story, found, whole=whole)
    number = story.incident.id
    absent = Told(False, "No event and no finding is stored", ("The table of evidence is empty, too.",))
    return Figure(
        id="lanes",
        url=seen.link(f"/figures/incidents/{number}.json"),
        size="",
        label=label(story, found),
        caption=caption(story) + courses.caption(found, seen.now),
        twin=Twin(("Time, UTC", "Lane", "What"), told, seen.link(f"/figures/incidents/{number}.csv")),
        absent=None if told else absent,
    )


def story_of(story: IncidentStory, seen: Visit) -> Story:
    """The story as the figure takes it."""
    start, end = bounds(story, seen)
    found = courses.read(seen, story, start, end, ask=True)
    happened, held = event_lanes(story), finding_lanes(story, end)
    lanes = [*happened[:MOST_LANES], *courses.lanes(found, start, end), *held[: max(0, MOST_LANES - len(happened))]]
    return Story(unix(start), unix(end), cause_at(story), tuple(lanes))


def bounds(story: IncidentStory, seen: Visit) -> tuple[datetime, datetime]:
    """From a little before the first sign to the end, or now; earlier where the history shows what was normal."""
    times = [story.incident.opened_at, *(e.at for e in story.events), *(f.since for f in story.findings)]
    end = story.incident.closed_at or seen.now
    first = min(times)
    length = max((end - first).total_seconds(), 60.0)
    span = seen.watch.history.span() if seen.watch.history is not None else None
    kept_s = min(LEAD_S, unix(first) - span[0]) if span is not None else 0.0
    return first - timedelta(seconds=max(length * 0.25, kept_s)), end + timedelta(seconds=length * 0.02)


def span_words(story: IncidentStory, seen: Visit) -> str:
    start, end = bounds(story, seen)
    return f"{clock(start, seen.now)} to {clock(end, seen.now)} UTC"


def cause_at(story: IncidentStory) -> float | None:
    """When the first cause came: the earliest event of its own entity that evidence names, else its first finding."""
    row = story.incident
    own = [e.at for e in story.events if e.entity_id == row.entity_id and e.namespace != "boot"]
    since = [f.since for f in story.findings if f.entity_id == row.entity_id and not f.victim]
    first = min(own, default=None) or min(since, default=None)
    return unix(first) if first is not None else None


def event_lanes(story: IncidentStory) -> list[Lane]:
    """A lane for each source of events, first spoken first."""
    by: defaultdict[tuple[str, str], list[EventRow]] = defaultdict(list)
    for event in story.events:
        by[event.namespace, event.node or event.job].append(event)
    return [
        Lane(f"{LANES.get(kind, kind)} of {where}" if where else LANES.get(kind, kind), tuple(map(mark, events)))
        for (kind, where), events in by.items()
    ]


def mark(event: EventRow) -> Event:
    return Event(unix(event.at), event_words(event))


def event_words(event: EventRow) -> str:
    if event.namespace in ("xid", "sxid"):
        return f"{event.namespace.capitalize()} {event.code} on {device(event.entity_name)}"
    return f"{event.code} {event.text}".strip()


def finding_lanes(story: IncidentStory, end: datetime) -> list[Lane]:
    """A lane for each detector and entity of the cause; all victims share one."""
    own = [f for f in story.findings if not f.victim and not f.detector.startswith("kernel/")]
    told = Counter(title_of(f) for f in own)
    lanes = [
        Lane(
            title_of(f) if told[title_of(f)] == 1 else f"{title_of(f)}, {f.kind.replace('_', ' ')}",
            levels=(level(f, end, shorten(bare(f.reason), 90)),),
        )
        for f in own
    ]
    hit = tuple(Event(unix(f.since), f"{device(f.entity_name)}: {f.reason}") for f in story.findings if f.victim)
    return [*lanes, Lane(f"Folded here, {len(hit)}", hit)] if hit else lanes


def title_of(finding: Finding) -> str:
    return f"{detector_words(finding)}: {device(finding.entity_name)}"


def level(finding: Finding, end: datetime, text: str) -> Level:
    absent = finding.kind in ABSENT or finding.detector in ABSENT
    return Level(unix(finding.since), unix(finding.cleared_at or end), text, absent)


def detector_words(finding: Finding) -> str:
    return finding.detector.partition("/")[2].capitalize() or finding.detector


def twin_rows(story: IncidentStory, found: Telemetry, *, whole: bool) -> tuple[tuple[str, ...], ...]:
    """Every event, every level and every cell of telemetry in order of time."""
    rows = [
        (e.at, LANES.get(e.namespace, e.namespace), f"{event_words(e)}: {e.text}".strip(": ")) for e in story.events
    ]
    for f in story.findings:
        name = f"{detector_words(f)}{', folded' if f.victim else ''}"
        rows.append((f.since, name, f"{device(f.entity_name)}: {bare(f.reason)}"))
        if f.cleared_at is not None:
            rows.append((f.cleared_at, name, f"{device(f.entity_name)}: clear"))
    if rows:  # telemetry alone tells no story
        rows += courses.rows(found) if whole else courses.rows(found)[-MOST_CELLS:]
    return tuple((moment(at), lane, text) for at, lane, text in sorted(rows, key=lambda row: row[0]))


def caption(story: IncidentStory) -> str:
    first = cause_at(story)
    later = [unix(f.since) for f in story.findings if first is not None and unix(f.since) > first]
    if first is None:
        return "No first cause is known yet."
    gone = any(f.kind in ABSENT or f.detector in ABSENT for f in story.findings)
    near, far = (age(min(later) - first), age(max(later) - first)) if later else ("", "")
    follow = f" What follows comes {near}{f' to {far}' if far != near else ''} later." if later else ""
    return f"The dotted line is the first cause.{follow}{' Grey means that nothing could be seen.' if gone else ''}"


def label(story: IncidentStory, found: Telemetry) -> str:
    events, levels = count(len(story.events), "event"), count(len(story.findings), "finding")
    drawn = f", and {count(len(found.courses), 'line')} of telemetry" if found.courses else ""
    return f"Evidence on one time axis: {events} and {levels}{drawn}; the table below lists them in order."


def rows(story: IncidentStory) -> tuple[EvidenceRow, ...]:
    """What we saw, cause first; a raw line stands as code."""
    found = []
    for f in sorted((f for f in story.findings if not f.victim), key=lambda f: f.since):
        own = f.entity_id == story.incident.entity_id
        for piece in f.evidence:
            raw = str(piece.get("ref", "")).startswith("event:") and len(str(piece.get("value", ""))) > 24
            found.append(
                EvidenceRow(
                    what=capital(str(piece.get("what", ""))) + ("" if raw or own else f" of {device(f.entity_name)}"),
                    code=str(piece.get("value", "")) if raw else "",
                    grade=str(piece.get("grade", "observed")),
                    seen=moment(f.since) if raw else shown.value_words(piece),
                    expected=shown.value_words(piece, "expected") or ("no such line" if raw else ""),
                    detector=f.detector,
                )
            )
    return (*found[:MOST_ROWS], *folded(story))


def folded(story: IncidentStory) -> list[EvidenceRow]:
    """Victims in one row a detector: how many, where none would be normal."""
    by = Counter((f.detector, f.kind) for f in story.findings if f.victim)
    return [
        EvidenceRow(f"{capital(kind_words(kind))}, folded here", "", "derived", f"{n:,}", "0", detector)
        for (detector, kind), n in by.items()
    ]
