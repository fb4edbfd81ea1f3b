"""A score for people: one table within 100 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap

from backend.reliability.intervals import Interval, Mean, Quantile, Rate, Share
from backend.score.chance import Chance
from backend.score.figures import FaultFigures, IncidentFigures
from backend.score.scoring import DAY_S, FLEET_GPUS, Score

WIDTH = 100
Line = tuple[str, str, str, str, str]
NOTE = (
    "Shares: Wilson. Rates: exact Poisson. Delays: order statistics. By run: runs drawn with replacement.",
    "Chance: where 95 % of the turns of the truth in time lie. '-': n cannot bound it.",
)


def as_table(score: Score) -> str:
    """One table for people: each line with its value, its 95 % interval and its n."""
    counted = sum(score.incidents.verdicts.values()) + score.incidents.info
    span = f"{score.span_s / DAY_S:.3g} days" if score.span_s >= DAY_S else f"{score.span_s / 3600:.3g} hours"
    head = f"{score.faults.recall.n} faults and {counted} incidents in {span}"
    titles = ("", "value", "95 % interval", "n", "95 % by run")
    blocks = [
        [f"Score of {head} of {score.gpus} GPUs (seed {score.odds.seed})", *_left_out(score)],
        _aligned([titles, *_fault_lines(score.faults), *_incident_lines(score.incidents)]),
        _remarks(score),
        _by_fault_kind(score.by_fault_kind),
        _by_incident_kind(score.by_incident_kind),
        NOTE,
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _left_out(score: Score) -> list[str]:
    found = []
    if score.outside:
        found.append(f"Left out, as outside of this time: {score.outside} faults")
    if score.unknown_kinds:
        found += wrap(f"Kinds that the catalogue has not: {', '.join(score.unknown_kinds)}", WIDTH)
    return found


def _remarks(score: Score) -> list[str]:
    """Counts behind a line of the table."""
    near = [f"{n} {touch.name.lower()}" for touch, n in score.faults.touch.items() if n]
    wrong = [f"{n} {word.replace('_', ' ')}" for word, n in score.incidents.exclusions.items() if n and word != "right"]
    found = [f"How near the incidents of found faults are: {', '.join(near)}"] if near else []
    found += [f"Wrong exclusions: {', '.join(wrong)}"] if wrong else []
    return found + ([f"Incidents of severity info, not judged: {score.incidents.info}"] if score.incidents.info else [])


def _fault_lines(f: FaultFigures) -> list[Line]:
    return [
        _share("Faults found", f.recall),
        _chance("  by chance", f.chance),
        _share("  of those that show", f.recall_visible),
        _share("  by incidents above info", f.recall_loud),
        _share("  at the entity or its node", f.located),
        _chance("    by chance", f.chance_located),
        _share("  by one of its family", f.fitting),
        _chance("    by chance", f.chance_fitting),
        _share("Exact GPU, of GPU faults", f.exact_gpu),
        _share("  of those found", f.exact_gpu_found),
        _share("Told before the first code", f.before_code),
        *(_delay("Incident opened after", q) for q in f.delay_opened),
        *(_delay("Finding emitted after", q) for q in f.delay_told),
        _mean("Incidents per found fault", f.incidents),
        _share("Excluded where called for", f.excluded),
    ]


def _incident_lines(f: IncidentFigures) -> list[Line]:
    return [
        _share("Incidents that are right", f.precision),
        _share("  those on victims too", f.precision_with_victims),
        _rate(f"False per day and {FLEET_GPUS} GPUs", f.false_rate),
        _rate("  those on victims too", f.not_right_rate),
        _share("Wrong exclusions", f.wrong_exclusions),
    ]


def _by_fault_kind(kinds: Mapping[str, FaultFigures]) -> list[str]:
    rows = [(k, _brief(f.recall), _mean_of(f.chance), _brief(f.fitting), _seconds(f)) for k, f in kinds.items()]
    return _aligned([("Faults by kind", "found", "chance", "by its family", "told after"), *rows]) if rows else []


def _by_incident_kind(kinds: Mapping[str, IncidentFigures]) -> list[str]:
    rows = [(k, _brief(f.precision), str(f.verdicts["victim"]), _brief_rate(f.false_rate)) for k, f in kinds.items()]
    titles = ("Incidents by kind", "right", "victims", f"false per day and {FLEET_GPUS} GPUs")
    return _aligned([titles, *rows]) if rows else []


def _share(label: str, s: Share) -> Line:
    if s.value is None:
        return label, "n = 0", "", "", ""
    by_run = _percents(s.by_run) if s.by_run else ""
    return label, f"{100 * s.value:.1f} %", _percents(s.interval), f"{s.k} of {s.n}", by_run


def _chance(label: str, c: Chance) -> Line:
    if c.mean is None:
        return label, "n = 0", "", "", ""
    return label, f"{100 * c.mean:.1f} %", _percents(c.band), f"{c.n} x {c.draws} turns", ""


def _rate(label: str, r: Rate) -> Line:
    if r.value is None or r.interval is None:
        return label, "n = 0", "", f"{r.count} in 0", ""
    return (
        label,
        _short(r.value),
        f"{_short(r.interval.low)} to {_short(r.interval.high)}",
        f"{r.count} in {r.exposure:.3g}",
        "",
    )


def _mean(label: str, m: Mean) -> Line:
    if m.value is None:
        return label, "n = 0", "", "", ""
    bound = f"{m.interval.low:.2f} to {m.interval.high:.2f}" if m.interval else "-"
    return label, f"{m.value:.2f}", "", str(m.n), bound


def _delay(label: str, q: Quantile) -> Line:
    name = f"{label}, {'longest' if q.q == 1 else 'median' if q.q == 0.5 else f'{100 * q.q:g} %'}"
    if q.value is None:
        return name, "n = 0", "", "", ""
    low, high = ("-" if side is None else f"{side:.1f}" for side in (q.low, q.high))
    bounded = q.q < 1 and (low, high) != ("-", "-")
    return name, f"{q.value:.1f} s", f"{low} to {high}" if bounded else "-", str(q.n), ""


def _brief(s: Share) -> str:
    return f"{s.k}/{s.n} ({_percents(s.interval, 0)})" if s.n else "n = 0"


def _brief_rate(r: Rate) -> str:
    if r.value is None or r.interval is None:
        return "n = 0"
    return f"{_short(r.value)} ({_short(r.interval.low)} to {_short(r.interval.high)}), {r.count} in {r.exposure:.3g}"


def _mean_of(c: Chance) -> str:
    return "n = 0" if c.mean is None else f"{100 * c.mean:.0f} %"


def _seconds(f: FaultFigures) -> str:
    told = f.delay_told[0] if f.delay_told[0].n else f.delay_opened[0]
    return "n = 0" if told.value is None else f"{told.value:.0f} s, n = {told.n}"


def _percents(interval: Interval | None, digits: int = 1) -> str:
    return "-" if interval is None else f"{100 * interval.low:.{digits}f} to {100 * interval.high:.{digits}f} %"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns two blanks apart, none wider than its widest cell."""
    wide = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(w) for cell, w in zip(row, wide, strict=True)).rstrip() for row in rows]
