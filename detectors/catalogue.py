"""The packaged tables, read once: metrics and their spellings, Xid codes, fault kinds, thresholds."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from detectors.model import BoolArray, FaultKind, MetricKey, Severity
from detectors.packaged import TableError as TableError
from detectors.packaged import table as table
from detectors.packaged import text

MetricKind = Literal["gauge", "counter", "last_code", "bitmask", "enum", "since"]
#: How several series of one row become one: "" = they say the same thing, so one of them speaks for all.
Join = Literal["", "sum", "max"]

#: DCGM prints "no value" as a number: these, and a hundred times these where an exporter made percent of a ratio.
#: (dcgm_structs.h: int32 0x7ffffff0 and up, int64 0x7ffffffffffffff0 and up, fp64 2^47 and up.)
_BLANK_SPANS = ((2_147_483_632.0, 2_147_483_646.0), (140_737_488_355_328.0, 140_737_488_355_343.0))
_BLANK_FROM = 9_223_372_036_854_775_792.0


@dataclass(frozen=True, slots=True)
class Metric:
    """One canonical metric. Values outside ``low``..``high`` are impossible; ``harm`` is high, low or empty.

    ``since``: scraped as a time of day (unix s); a tick holds the seconds from it to its sample.
    """

    name: str
    axis: str
    unit: str
    kind: MetricKind
    low: float
    high: float
    harm: str
    aliases: tuple[str, ...]
    join: Join = ""

    @property
    def key(self) -> MetricKey:
        return (self.axis, self.name)

    def valid(self, values: NDArray[np.float64]) -> BoolArray:
        """Which raw values (float64[k]) are values at all: finite, possible, and for GPUs no DCGM blank."""
        # NaN compares False with everything, so it falls out by itself.
        good: BoolArray = (values >= self.low) & (values <= self.high)
        return good & ~blank(values) if self.axis == "gpu" else good


@dataclass(frozen=True, slots=True)
class Xid:
    """One kernel code. ``hard`` holds until mended; ``again`` is the severity of its repetition, None = the same."""

    code: int
    name: str
    severity: Severity
    kind: FaultKind
    action: str
    bucket: str
    secondary: bool
    app: bool
    hard: bool
    again: Severity | None
    source: str


@dataclass(frozen=True, slots=True)
class Kind:
    """One row of kinds.csv. Where the log class decides, ``severity`` is warning and ``ladder`` empty."""

    kind: FaultKind
    scopes: tuple[str, ...]
    authorities: tuple[str, ...]
    severity: Severity
    ladder: tuple[str, ...]
    exclude: str
    log_class: str
    note: str


@dataclass(frozen=True, slots=True)
class Threshold:
    name: str
    unit: str
    value: float
    source: str


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All tables. ``alias`` maps every scraped name to its canonical metric."""

    metrics: Mapping[str, Metric]
    alias: Mapping[str, str]
    xids: Mapping[int, Xid]
    kinds: Mapping[FaultKind, Kind]
    thresholds: Mapping[str, Threshold]

    def limit(self, name: str) -> float:
        """Value of a threshold; raises KeyError for a name that no table has."""
        return self.thresholds[name].value

    def gauges(self, axis: str) -> tuple[str, ...]:
        """Canonical gauges of one axis: what a live device reports at every scrape."""
        return tuple(m.name for m in self.metrics.values() if m.axis == axis and m.kind == "gauge")

    def with_thresholds(self, values: Mapping[str, float]) -> Catalogue:
        """The same catalogue with a site's numbers. Raises TableError for a name that does not exist."""
        unknown = sorted(set(values) - set(self.thresholds))
        if unknown:
            raise TableError(f"no threshold is called {', '.join(unknown)}; thresholds.toml lists them all")
        changed = {name: replace(self.thresholds[name], value=float(v), source="site") for name, v in values.items()}
        return replace(self, thresholds=MappingProxyType({**self.thresholds, **changed}))


def blank(values: NDArray[np.float64]) -> BoolArray:
    """Where float64[k] holds a DCGM "no value" number, after its rounding to float64 and in its x100 forms."""
    found: BoolArray = values >= _BLANK_FROM
    for scale in (1.0, 100.0):
        for low, high in _BLANK_SPANS:
            found |= (values >= low * scale) & (values <= high * scale)
    return found


def load(xids: Iterable[Mapping[str, str]] = (), thresholds: Mapping[str, float] | None = None) -> Catalogue:
    """Read the packaged tables. ``xids``: rows with the columns of xid.csv that replace or add codes of a site;
    ``thresholds``: values that replace defaults. Raises TableError naming table, row and fault."""
    metrics = {m.name: m for m in map(_metric, _rows("metrics.csv"))}
    kinds = {k.kind: k for k in map(_kind, _rows("kinds.csv"))}
    codes = {x.code: x for x in (_xid(row, kinds) for row in _rows("xid.csv"))}
    codes |= {x.code: x for x in (_xid(row, kinds) for row in xids)}
    catalogue = Catalogue(
        MappingProxyType(metrics),
        MappingProxyType(_aliases(metrics.values())),
        MappingProxyType(codes),
        MappingProxyType(kinds),
        MappingProxyType(_thresholds()),
    )
    return catalogue.with_thresholds(thresholds or {})


def _rows(name: str) -> Iterator[dict[str, str]]:
    """Rows of a packaged CSV by column name; lines that start with # are notes."""
    return csv.DictReader(line for line in text(name).splitlines() if not line.startswith("#"))


def _metric(row: Mapping[str, str]) -> Metric:
    kind = row["kind"]
    if kind not in get_args(MetricKind):
        raise TableError(f"metrics.csv, {row['metric']}: kind {kind!r} is none of {', '.join(get_args(MetricKind))}")
    if row["join"] not in get_args(Join):
        raise TableError(f"metrics.csv, {row['metric']}: join {row['join']!r} is neither sum nor max nor empty")
    low, high, aliases = float(row["low"]), float(row["high"]), tuple(row["aliases"].split())
    kind, join = cast(MetricKind, kind), cast(Join, row["join"])
    return Metric(row["metric"], row["axis"], row["unit"], kind, low, high, row["harm"], aliases, join)


def spellings(metric: Metric) -> Iterator[str]:
    """Every name a metric is scraped under: those of the table, DCGM's in lower case as its older bindings print them,
    and counters with the ending that OpenMetrics gives them."""
    for alias in metric.aliases:
        for name in dict.fromkeys((alias, alias.lower() if alias.startswith("DCGM_FI_") else alias)):
            yield name
            if metric.kind == "counter" and not name.endswith("_total"):
                yield f"{name}_total"


def _aliases(metrics: Iterable[Metric]) -> dict[str, str]:
    alias: dict[str, str] = {}
    for metric in metrics:
        for raw in spellings(metric):
            if alias.setdefault(raw, metric.name) != metric.name:
                raise TableError(f"metrics.csv: {raw} stands for both {alias[raw]} and {metric.name}")
    return alias


def _kind(row: Mapping[str, str]) -> Kind:
    def listed(column: str) -> tuple[str, ...]:
        return tuple(part for part in row[column].split("|") if part and part != "by_class")

    severity = Severity.WARNING if row["severity"] == "by_class" else Severity.of(row["severity"])
    return Kind(
        row["kind"],
        listed("scopes"),
        listed("authorities"),
        severity,
        listed("ladder"),
        row["exclude"],
        row["log_class"],
        row["note"],
    )


def _xid(row: Mapping[str, str], kinds: Mapping[FaultKind, Kind]) -> Xid:
    try:
        code, severity = int(row["code"]), Severity.of(row["severity"])
        again = Severity.of(row["again"]) if row.get("again") else None
        secondary, app, hard = (_yes(row.get(column, "no")) for column in ("secondary", "app", "hard"))
        kind, name, action = row["kind"], row["name"], row["action"]
    except (KeyError, ValueError) as error:
        raise TableError(f"xid table, code {row.get('code', '(none)')}: {error} cannot be read") from error
    if kind not in kinds:
        raise TableError(f"xid table, code {code}: kinds.csv has no kind {kind!r}")
    source = row.get("source", "site")
    return Xid(code, name, severity, kind, action, row.get("bucket", ""), secondary, app, hard, again, source)


def _yes(word: str) -> bool:
    if word not in ("yes", "no"):
        raise ValueError(f"{word!r} (yes or no is expected)")
    return word == "yes"


def _thresholds() -> dict[str, Threshold]:
    table = tomllib.loads(text("thresholds.toml"))
    return {name: Threshold(name, row["unit"], float(row["value"]), row["source"]) for name, row in table.items()}
