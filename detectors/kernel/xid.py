"""Kernel codes as levels: an Xid opens one, time ends the soft ones, only a sign of mending ends the hard ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from detectors.catalogue import Catalogue, Xid
from detectors.columns import cell
from detectors.kernel.phrases import findings_of
from detectors.kernel.rows import KernelState, Row, moved, new_row, ordered, packed, unpacked
from detectors.model import Event, Fleet, Judged, MetricKey, Need, Severity, Tick

#: A GPU that answers reports these at every scrape.
LIVENESS: tuple[MetricKey, ...] = (("gpu", "temperature_c"), ("gpu", "power_w"), ("gpu", "sm_clock_mhz"))
#: The driver's own verdict on another code.
VERDICT_CODE = 154


@dataclass(frozen=True, slots=True)
class KernelXid:
    """Thresholds (seconds): kernel_soft_s, kernel_settle_s, kernel_window_s, kernel_coalesce_s, kernel_repeat_s."""

    catalogue: Catalogue = field(repr=False)

    @property
    def name(self) -> str:
        return "kernel/xid"

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({*LIVENESS, "xid", "boot", "mended"})

    def start(self, fleet: Fleet) -> KernelState:
        return KernelState(packed(()))

    def step(self, state: KernelState, tick: Tick, fleet: Fleet) -> Judged:
        if not len(state.rows) and not tick.events:
            return Judged()
        rows = self._heard((row for row in unpacked(state) if row.hard or self._remembered(row, tick.at)), tick.events)
        for row in rows:
            row.slot = fleet.slots.get(row.owner, -1)
            if row.hard:
                _watch(row, tick, fleet)
        rows = ordered(row for row in rows if self._stands(row, tick, fleet))
        state.rows = packed(rows)
        soft_s = self.catalogue.limit("kernel_soft_s")
        # Told from what was saved, so that a restart cannot change a word.
        told = [row for row in unpacked(state) if row.hard or tick.at - row.last <= soft_s]
        return Judged(findings_of(told, fleet, self.catalogue, self.name))

    def move(self, state: KernelState, old: Fleet, new: Fleet) -> KernelState:
        kept = (moved(row, old, new) for row in unpacked(state))
        return KernelState(packed(ordered(row for row in kept if row is not None)))

    def _heard(self, rows: Iterable[Row], events: Iterable[Event]) -> list[Row]:
        """All rows after these events. Rows of other devices say nothing about a line: a storm meets its own only."""
        by_owner: dict[tuple[str, str], list[Row]] = {}
        for row in rows:
            by_owner.setdefault(row.owner, []).append(row)
        for event in sorted(events, key=lambda e: (e.at, e.seq)):
            if event.namespace == "boot":
                _boot((row for mine in by_owner.values() for row in mine), event)
            elif event.namespace == "mended":
                _mend(by_owner, event)
            elif event.namespace == "xid" and not event.late:
                owner = (event.entity.kind, event.entity.id)
                by_owner[owner] = self._hear(by_owner.get(owner, []), event)
        return [row for mine in by_owner.values() for row in mine]

    def _hear(self, rows: list[Row], event: Event) -> list[Row]:
        """The rows of one device after one more line about it."""
        xid = self._xid(event.code)
        if xid.code == VERDICT_CODE:
            return self._verdict(rows, event)
        severity, hard = self._weight(xid, event)
        row = _found(rows, event, xid, hard=hard)
        if row is None:
            row = new_row(event, xid.kind, severity, xid.code, hard=hard, secondary=xid.secondary)
            rows = [*rows, row]
        else:
            self._again(row, event, xid, severity)
        if xid.app or xid.secondary:
            return rows
        return self._take_verdict(_merged(rows, row), row, event)

    def _again(self, row: Row, event: Event, xid: Xid, severity: Severity) -> None:
        """One more line for a row; a code that may come once becomes hard when it comes again."""
        forgotten = not row.hard and event.at - row.last > self.catalogue.limit("kernel_soft_s")
        if row.hear(event, severity, xid.code, self.catalogue.limit("kernel_coalesce_s")) and xid.again is not None:
            row.severity, row.hard = max(row.severity, int(xid.again)), True
            row.text, row.seq = event.text, event.seq
        if forgotten:
            row.since = event.at

    def _xid(self, code: str) -> Xid:
        """The table's row; a code that it does not know is a hardware code worth a look, never dropped."""
        number = int(code) if code.isascii() and code.isdigit() and len(code) < 10 else 0
        unknown = Xid(
            number,
            "",
            Severity.WARNING,
            "gpu_hardware_other",
            "check",
            "",
            False,
            False,
            False,
            None,
            "not in the table",
        )
        return self.catalogue.xids.get(number, unknown)

    def _weight(self, xid: Xid, event: Event) -> tuple[Severity, bool]:
        """Severity and hardness: the word in the line beats the table."""
        word = event.attrs.get("severity", "")
        if word == "fatal":
            return self.catalogue.kinds[xid.kind].severity, True
        if word == "nonfatal":
            return Severity.INFO, False
        return xid.severity, xid.hard

    def _verdict(self, rows: list[Row], event: Event) -> list[Row]:
        """Xid 154: raises the code it speaks about, stands alone where there is none, and takes back."""
        action = event.attrs.get("action", "")
        mine = [row for row in rows if row.owner == (event.entity.kind, event.entity.id)]
        if action == "none":
            for row in mine:
                row.mended = event.at if event.at >= row.last else row.mended
            return _without(rows, [row for row in mine if row.code == VERDICT_CODE])
        meant = [row for row in mine if self._near(row, event) and not self._is_app(row)]
        if meant:
            row = max(meant, key=lambda row: (row.last, row.severity))
        else:
            kind = "gpu_hardware_other"
            row = new_row(event, kind, self.catalogue.kinds[kind].severity, VERDICT_CODE, hard=True, secondary=False)
            rows = [*rows, row]
        self._raise(row, action)
        return _merged(rows, row)

    def _take_verdict(self, rows: list[Row], row: Row, event: Event) -> list[Row]:
        """A verdict that came before its code belongs to the code."""
        early = [r for r in rows if r.owner == row.owner and r.code == VERDICT_CODE and self._near(r, event)]
        if not early:
            return rows
        self._raise(row, early[0].action)
        return _merged(_without(rows, early), row)

    def _near(self, row: Row, event: Event) -> bool:
        return abs(event.at - row.last) <= self.catalogue.limit("kernel_window_s")

    def _is_app(self, row: Row) -> bool:
        xid = self.catalogue.xids.get(row.code)
        return row.secondary or (xid is not None and xid.app)

    def _raise(self, row: Row, action: str) -> None:
        row.action = action
        row.hard = True
        row.severity = max(row.severity, int(self.catalogue.kinds[row.kind].severity))

    def _stands(self, row: Row, tick: Tick, fleet: Fleet) -> bool:
        """A soft row stands while it is remembered; a hard one until it was mended, settled and answers."""
        if not row.hard:
            return self._remembered(row, tick.at)
        mended = max((t for t in (row.mended, row.back) if t == t), default=None)
        settle_s = self.catalogue.limit("kernel_settle_s")
        if mended is None or tick.at - max(mended, row.last) < settle_s:
            return True
        return not _answers(row, tick, fleet)

    def _remembered(self, row: Row, at: float) -> bool:
        """A soft row is kept as long as its repetition matters."""
        xid = self.catalogue.xids.get(row.code)
        again = xid is not None and xid.again is not None
        return at - row.last <= self.catalogue.limit("kernel_repeat_s" if again else "kernel_soft_s")


def _boot(rows: Iterable[Row], event: Event) -> None:
    """A boot after the last line of a row is a sign of mending, however late the line came."""
    for row in rows:
        if row.node == event.entity.host and event.at > row.last:
            row.mended = event.at


def _mend(by_owner: dict[tuple[str, str], list[Row]], event: Event) -> None:
    """A person said that this device, or this node with all of its own, is mended: what was heard before is over."""
    for owner, rows in by_owner.items():
        if owner == (event.entity.kind, event.entity.id) or event.entity.kind == "node":
            by_owner[owner] = [row for row in rows if row.node != event.entity.host or row.last > event.at]


def _found(rows: Iterable[Row], event: Event, xid: Xid, *, hard: bool) -> Row | None:
    """The row this line belongs to: soft and hard lines of a kind apart, a repeated code where it was raised."""
    mine = [
        row
        for row in rows
        if row.owner == (event.entity.kind, event.entity.id)
        and (row.kind, row.secondary) == (xid.kind, xid.secondary)
        and (row.hard == hard or (xid.again is not None and row.code == xid.code))
    ]
    return max(mine, key=lambda row: row.hard, default=None)


def _without(rows: list[Row], gone: list[Row]) -> list[Row]:
    return [row for row in rows if all(row is not other for other in gone)]


def _merged(rows: list[Row], row: Row) -> list[Row]:
    """A row that became hard takes the place of another hard one of its kind, with what that one knew."""
    twins = [r for r in rows if r is not row and (r.owner, r.kind, r.hard) == (row.owner, row.kind, True)]
    if not row.hard or not twins:
        return rows
    for twin in twins:
        row.since, row.count = min(row.since, twin.since), row.count + twin.count
        row.severity, row.action = max(row.severity, twin.severity), row.action or twin.action
    return _without(rows, twins)


def _watch(row: Row, tick: Tick, fleet: Fleet) -> None:
    """Follow the series of a GPU after its last line: vanished, and all back."""
    values = _liveness(row, tick, fleet)
    if not values or tick.at < row.last:
        return
    missing = sum(v != v for v in values)
    if missing == len(values):
        row.gone, row.back = True, float("nan")
    elif not missing and row.gone and row.back != row.back:
        row.back = tick.at


def _liveness(row: Row, tick: Tick, fleet: Fleet) -> list[float]:
    if row.entity_kind != "gpu" or row.slot < 0:
        return []
    cells = (cell(tick, key, row.slot) for key in LIVENESS)
    return [value for value in cells if value is not None]


def _answers(row: Row, tick: Tick, fleet: Fleet) -> bool:
    """Is the mended device whole now? One that nobody expects any more (replaced, unknown) need not answer."""
    axis = fleet.axes.get(row.entity_kind)
    if row.entity_kind != "gpu" or axis is None or row.slot < 0 or not axis.live[row.slot]:
        return True
    values = _liveness(row, tick, fleet)
    return bool(values) and all(v == v for v in values)
