"""Kernel codes as levels: a line opens one, time ends the soft ones, only a sign of mending ends the hard ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from detectors.catalogue import Catalogue
from detectors.columns import cell
from detectors.detector import carried, rows_from
from detectors.kernel.codes import VERDICT, Code, Codes
from detectors.kernel.owner import owner_of
from detectors.kernel.phrases import findings_of
from detectors.kernel.rows import KernelState, Row, fitted, moved, new_row, ordered, packed, unpacked
from detectors.model import Entity, Event, Fleet, Judged, MetricKey, Need, Tick

#: A GPU that answers reports these at every scrape.
LIVENESS: tuple[MetricKey, ...] = (("gpu", "temperature_c"), ("gpu", "power_w"), ("gpu", "sm_clock_mhz"))
#: Which namespaces each detector of this family hears.
FAMILIES: Mapping[str, frozenset[str]] = {
    "kernel/xid": frozenset({"xid", "nvrm"}),
    "kernel/fabric": frozenset({"sxid", "fm"}),
    "kernel/amd": frozenset({"amd", "afid"}),
    "kernel/pcie": frozenset({"aer"}),
    "kernel/network": frozenset({"nic"}),
    "kernel/storage": frozenset({"disk", "fs", "nfs", "lustre", "cephfs", "gpfs", "cifs"}),
    "kernel/host": frozenset({"mce", "oom", "cpu", "kernel", "thermal"}),
}
Owned = dict[tuple[str, str], list[Row]]


@dataclass(frozen=True, slots=True)
class KernelLevels:
    """One family of codes; ``name`` is a key of FAMILIES. Thresholds: kernel_soft_s, kernel_settle_s, kernel_window_s,
    kernel_coalesce_s, kernel_repeat_s, kernel_boot_s (all seconds), kernel_app_jobs; the rest stands in
    kernel_codes.csv."""

    name: str
    catalogue: Catalogue = field(repr=False)
    codes: Codes = field(repr=False)

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({*LIVENESS, *FAMILIES[self.name], "boot", "mended"})

    def start(self, fleet: Fleet) -> KernelState:
        return KernelState(packed(()), np.zeros(1, np.int64), fitted(np.empty(0), fleet))

    def step(self, state: KernelState, tick: Tick, fleet: Fleet) -> Judged:
        state.ticks[0] += bool(tick.values)
        if not len(state.rows) and not tick.events:
            return Judged()
        state.booted = fitted(state.booted, fleet)
        rows = [row for row in unpacked(state) if self._waits(row) or self._remembered(row, tick.at)]
        rows = self._heard(rows, tick.events, fleet, state.booted)
        for row in rows:
            row.slot = fleet.slots.get(row.owner, -1)
            if row.hard:
                _watch(row, tick, fleet)
        rows = ordered(row for row in rows if self._stands(row, tick, fleet))
        state.rows = packed(rows)
        # Told from what was saved, so that a restart cannot change a word.
        told = [row for row in unpacked(state) if self._told(row, tick.at, patient=bool(state.ticks[0]))]
        return Judged(findings_of(told, fleet, self.catalogue, self.codes, self.name))

    def move(self, state: KernelState, old: Fleet, new: Fleet) -> KernelState:
        kept = (moved(row, old, new) for row in unpacked(state))
        booted = state.booted
        if "node" in new.axes:
            booted = carried(booted, rows_from(old.axes.get("node"), new.axes["node"]), np.nan)
        return KernelState(packed(ordered(row for row in kept if row is not None)), state.ticks.copy(), booted.copy())

    # --- what is heard ----------------------------------------------------------------------------------------------

    def _heard(
        self, rows: Iterable[Row], events: Iterable[Event], fleet: Fleet, booted: NDArray[np.float64]
    ) -> list[Row]:
        """All rows after these events. Rows of other devices say nothing about a line: a storm meets its own only."""
        by_owner: Owned = {}
        for row in rows:
            by_owner.setdefault(row.owner, []).append(row)
        for event in sorted(events, key=lambda e: (e.at, e.seq)):
            place = fleet.slots.get(("node", event.entity.host), -1)
            if event.namespace == "boot":
                _boot(by_owner, event)
                if 0 <= place < len(booted) and not booted[place] > event.at:
                    booted[place] = event.at
            elif event.namespace == "mended":
                _mend(by_owner, event)
            elif event.namespace in FAMILIES[self.name] and not event.late:
                at = float(booted[place]) if 0 <= place < len(booted) else math.nan
                self._hear_of(by_owner, event, fleet, at)
        return [row for mine in by_owner.values() for row in mine]

    def _hear_of(self, by_owner: Owned, event: Event, fleet: Fleet, booted_at: float) -> None:
        """One line about one of its owners. booted_at: when its node last came up (unix s), NaN = not seen."""
        code = self.codes.of(event, _model(event, fleet))
        entity = owner_of(event, code, fleet)
        owner = (entity.kind, entity.id)
        for row in _of(by_owner, owner, event.entity.host):
            row.ended |= row.says in code.ends and event.at >= row.last
        if code.ends or (code.delay_s and self._young(event, booted_at)):
            return
        before = by_owner.get(owner, [])
        by_owner[owner] = self._hear(before, event, entity, code)
        heard = self._found(by_owner[owner], event, entity, code)
        if code.again_code and heard is not None and self._often(heard, by_owner, event, code, fleet):
            more = self.codes.named(code.namespace, code.again_code, code.device)
            said = replace(event, code=code.again_code)
            by_owner[owner] = self._hear(by_owner[owner], said, entity, more)
        for row in by_owner[owner]:
            # A line from before the last boot that comes behind it, as from an agent that starts again.
            if row.last == event.at and event.at < booted_at and row.mended != row.mended:
                row.mended = booted_at

    def _often(self, row: Row, by_owner: Owned, event: Event, code: Code, fleet: Fleet) -> bool:
        """Has it come so often that this means something more? The application's faults count by job."""
        if not code.app:
            return row.rate > code.again_n - 1
        job = fleet.job_of(event.entity)
        if job and job not in row.jobs.split():
            row.jobs = " ".join([*row.jobs.split(), job][-8:])[:256]
        jobs = set(row.jobs.split())
        others = (other for mine in by_owner.values() for other in mine if other.node == row.node and other is not row)
        shared = any(jobs & set(other.jobs.split()) for other in others)
        return event.entity.kind == "gpu" and not shared and len(jobs) >= self.catalogue.limit("kernel_app_jobs")

    def _hear(self, rows: list[Row], event: Event, entity: Entity, code: Code) -> list[Row]:
        """The rows of one device after one more line about it."""
        if (event.namespace, event.code) == ("xid", VERDICT):
            return self._verdict(rows, event, entity)
        row = self._found(rows, event, entity, code)
        if row is None:
            row = new_row(event, entity, code)
            rows = [*rows, row]
        else:
            self._again(row, event, code)
        if code.app or code.secondary or event.namespace != "xid":
            return rows
        return self._take_verdict(_merged(rows, row), row, event)

    def _found(self, rows: Iterable[Row], event: Event, entity: Entity, code: Code) -> Row | None:
        """The row this line belongs to: soft and hard lines of a kind apart, and codes whose repetition matters."""

        def fits(row: Row) -> bool:
            if (row.kind, row.secondary) != (code.kind, code.secondary) or row.owner != (entity.kind, entity.id):
                return False
            if entity.kind == "fs" and row.node != event.entity.host:
                return False
            if code.repeats:
                return row.says == (event.namespace, event.code)
            return row.hard == code.hard and (row.hard or not self._code(row).repeats)

        return max((row for row in rows if fits(row)), key=lambda row: row.hard, default=None)

    def _again(self, row: Row, event: Event, code: Code) -> None:
        """One more line for a row; a code that may come once is worse when it comes again."""
        forgotten = not row.hard and event.at - row.last > code.hold_s
        again = row.hear(event, code, self.catalogue.limit("kernel_coalesce_s"))
        if again and code.again is not None and row.rate > code.again_n - 1:
            row.severity, row.hard = max(row.severity, int(code.again)), True
            row.text, row.seq = event.text, event.seq
        if forgotten:
            row.since = event.at

    # --- the driver's verdict ---------------------------------------------------------------------------------------

    def _verdict(self, rows: list[Row], event: Event, entity: Entity) -> list[Row]:
        """Xid 154: raises the code it speaks about, stands alone where there is none, and takes back."""
        action = event.attrs.get("action", "")
        mine = [row for row in rows if row.owner == (entity.kind, entity.id)]
        if action == "none":
            for row in mine:
                row.mended = event.at if event.at >= row.last else row.mended
            return _without(rows, [row for row in mine if row.code == VERDICT])
        meant = [row for row in mine if self._near(row, event) and not self._is_app(row)]
        if meant:
            row = max(meant, key=lambda row: (row.last, row.severity))
        else:
            code = replace(self.codes.named("xid", VERDICT), hard=True)
            code = replace(code, severity=self.catalogue.kinds[code.kind].severity)
            row = new_row(event, entity, code)
            rows = [*rows, row]
        self._raise(row, action)
        return _merged(rows, row)

    def _take_verdict(self, rows: list[Row], row: Row, event: Event) -> list[Row]:
        """A verdict that came before its code belongs to the code."""
        early = [r for r in rows if r.owner == row.owner and r.code == VERDICT and self._near(r, event)]
        if not early:
            return rows
        self._raise(row, early[0].action)
        return _merged(_without(rows, early), row)

    def _near(self, row: Row, event: Event) -> bool:
        return abs(event.at - row.last) <= self.catalogue.limit("kernel_window_s")

    def _is_app(self, row: Row) -> bool:
        return row.secondary or self._code(row).app

    def _raise(self, row: Row, action: str) -> None:
        row.action = action
        row.hard = True
        row.severity = max(row.severity, int(self.catalogue.kinds[row.kind].severity))

    # --- what stands ------------------------------------------------------------------------------------------------

    def _code(self, row: Row) -> Code:
        return self.codes.named(row.namespace, row.code, row.device, row.word)

    def _stands(self, row: Row, tick: Tick, fleet: Fleet) -> bool:
        """A soft row stands while it is remembered; a hard one until it was mended, settled and answers."""
        if not self._waits(row):
            return self._remembered(row, tick.at)
        mended = max((t for t in (row.mended, row.back) if t == t), default=None)
        settle_s = self.catalogue.limit("kernel_settle_s")
        if mended is None or tick.at - max(mended, row.last) < settle_s:
            return True
        return not _answers(row, tick, fleet)

    def _waits(self, row: Row) -> bool:
        """Does it hold until a sign of mending?"""
        return row.hard and not row.ended

    def _remembered(self, row: Row, at: float) -> bool:
        """A soft row is kept as long as its repetition matters."""
        return at - row.last <= self._code(row).remember_s

    def _told(self, row: Row, at: float, *, patient: bool) -> bool:
        """patient: there are ticks to come, so that a level that must last can be waited for."""
        if row.ended:
            return False
        code = self._code(row)
        if patient and code.delay_s > 0.0 and at - row.since < code.delay_s:
            return False
        return row.hard or at - row.last <= code.hold_s

    def _young(self, event: Event, booted_at: float) -> bool:
        """Did the node come up just now? Ports that nobody uses say then that they have no link."""
        boot_s = self.catalogue.limit("kernel_boot_s")
        up_us, up_s = event.attrs.get("monotonic_us", ""), event.attrs.get("uptime_s", "")
        if (up_us.isdigit() and int(up_us) < boot_s * 1e6) or (up_s.isdigit() and int(up_s) < boot_s):
            return True
        return 0 <= event.at - booted_at <= boot_s


def family(name: str, catalogue: Catalogue) -> KernelLevels:
    """The detector of one family of kernel codes, a key of FAMILIES."""
    return KernelLevels(name, catalogue, Codes(catalogue))


def families(catalogue: Catalogue) -> tuple[KernelLevels, ...]:
    """All of them, with one set of tables."""
    codes = Codes(catalogue)
    return tuple(KernelLevels(name, catalogue, codes) for name in FAMILIES)


def _model(event: Event, fleet: Fleet) -> str:
    """The model of the card of an event, empty where it is not known."""
    slot = fleet.slot(event.entity)
    axis = fleet.axes.get(event.entity.kind)
    model = int(axis.model_of[slot]) if axis is not None and slot is not None else -1
    return fleet.models[model] if model >= 0 else ""


def _of(by_owner: Owned, owner: tuple[str, str], host: str) -> list[Row]:
    """The rows of an owner that were heard from one node: a file server is spoken of by many."""
    return [row for row in by_owner.get(owner, ()) if row.node == host or owner[0] != "fs"]


def _boot(by_owner: Owned, event: Event) -> None:
    """A boot after the last line of a row is a sign of mending, however late the line came."""
    for mine in by_owner.values():
        for row in mine:
            if row.node == event.entity.host and event.at > row.last:
                row.mended = event.at


def _mend(by_owner: Owned, event: Event) -> None:
    """This device, or this node with all of its own, is mended, as far as the event goes: what was heard before is
    over. A follower of the device goes with what it followed."""
    for owner, rows in by_owner.items():
        same = owner == (event.entity.kind, event.entity.id)
        if same or event.entity.kind == "node":
            kept = (r.last > event.at or not (event.mends(r.kind) or (same and r.secondary)) for r in rows)
            by_owner[owner] = [r for r, stays in zip(rows, kept, strict=True) if stays or r.node != event.entity.host]


def _without(rows: list[Row], gone: list[Row]) -> list[Row]:
    return [row for row in rows if all(row is not other for other in gone)]


def _merged(rows: list[Row], row: Row) -> list[Row]:
    """A row that became hard takes the place of another hard one of its kind, with what that one knew."""
    twins = [r for r in rows if r is not row and (r.owner, r.kind, r.hard) == (row.owner, row.kind, True)]
    if not row.hard or not twins:
        return rows
    for twin in twins:
        row.since, row.count = min(row.since, twin.since), row.count + twin.count
        row.unproven = row.unproven and twin.unproven
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
