"""The numbers behind an incident: its GPU over time and where its peers are, from the history, older by PromQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from backend.history import History, Range
from backend.model.incidents import Incident
from detectors.catalogue import Catalogue
from detectors.model import Axis, Fleet, FloatArray

#: What is drawn of a GPU, in this order.
METRICS = ("temperature_c", "power_w", "sm_clock_mhz")
#: A band needs so many peers; of more than so many, evenly spread ones stand for all (as in peer comparison).
LEAST_PEERS, MOST_PEERS = 3, 255
#: The band leaves out this share of the peers at either end: it holds nine in ten.
TAIL = 0.05

#: Cells of one gauge of GPUs from before the history: (ids, metric, start, end) to a Range of [k, n]. Raises PastError.
Past = Callable[[Sequence[str], str, float, float], Range]


class PastError(Exception):
    """Whoever keeps the older numbers did not give them; says why."""


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """One metric in cells of five minutes: ``own`` arrays of [k]; low and high band the peers' means, float32[k], NaN
    where fewer than LEAST_PEERS were heard."""

    metric: str
    unit: str
    own: Range
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Telemetry:
    """What is drawn, and what cannot be. ``gpus`` of the incident; ``peers`` in the band and where they are, "" without
    one. ``begin``: where the history starts, None = it is empty. ``older``: "" all there, else "past" (came from
    elsewhere), "absent" (nobody keeps it), or what the keeper's error was."""

    gpus: int = 0
    peers: int = 0
    among: str = ""
    begin: float | None = None
    courses: tuple[Course, ...] = ()
    older: str = ""


def telemetry(
    history: History | None,
    past: Past | None,
    fleet: Fleet,
    catalogue: Catalogue,
    incident: Incident,
    start: float,
    end: float,
    *,
    beside: Sequence[str] = (),
    ask: bool = True,
) -> Telemetry:
    """The courses of an incident's GPU, or of all GPUs of its node, from ``start`` to ``end`` (unix s). Nothing for
    an incident of another kind of thing. ``past`` is asked (``ask``) for what lies before the history, without peers;
    ``beside``: nodes that its job had when it opened.
    """
    own = own_gpus(fleet, incident)
    span = history.span() if history is not None else None
    if history is None or not own:
        return Telemetry()
    peers, among = peers_of(fleet, incident, own, beside)
    found = [(name, history.read_many("gpu", (*own, *peers), name, start, end)) for name in METRICS]
    older, before = earlier(past, own, found[0][1].older, ask)
    drawn = [course(name, catalogue.metrics[name].unit, whole, len(own), before.get(name)) for name, whole in found]
    courses = tuple(one for one in drawn if not (np.isnan(one.own.mean) & np.isnan(one.low)).all())
    begin = span[0] if span is not None else None
    return Telemetry(len(own), len(peers), among if peers else "", begin, courses, older)


def earlier(
    past: Past | None, own: Sequence[str], gap: tuple[float, float] | None, ask: bool
) -> tuple[str, Mapping[str, Range]]:
    """What became of the part before the history, in a word or an error, and its cells by metric."""
    if gap is None:
        return "", {}
    if past is None:
        return "absent", {}
    if not ask:
        return "past", {}
    try:
        return "past", {name: past(own, name, *gap) for name in METRICS}
    except PastError as error:
        return str(error), {}


def own_gpus(fleet: Fleet, incident: Incident) -> tuple[str, ...]:
    """Ids of the GPU that an incident is about, or of all of its node."""
    if incident.entity_kind == "gpu":
        return (incident.entity_id,)
    axis, slot = fleet.axes.get("gpu"), fleet.slots.get(("node", incident.entity_id))
    if incident.entity_kind != "node" or axis is None or slot is None:
        return ()
    return tuple(axis.ids[i] for i in np.flatnonzero(axis.live & (axis.node_of == slot)))


def peers_of(
    fleet: Fleet, incident: Incident, own: Sequence[str], beside: Sequence[str] = ()
) -> tuple[tuple[str, ...], str]:
    """Ids of the GPUs it is compared with, and where they are: its job's on the nodes that it had when the incident
    opened; where nobody knows them, as it runs now; else its node's others."""
    axis, slots = fleet.axes.get("gpu"), [fleet.slots.get(("gpu", id_)) for id_ in own]
    known = np.array([slot for slot in slots if slot is not None], np.int64)
    if axis is None or not known.size:
        return (), ""
    job = fleet.jobs.index(incident.job) if incident.job in fleet.jobs else -1
    alike = axis.live & (axis.model_of == axis.model_of[known[0]])
    then = np.isin(axis.node_of, [fleet.slots.get(("node", name), -2) for name in beside])
    for mask, among in (
        (alike & then, f"of job {incident.job}"),
        (alike & (axis.job_of == job) & (job >= 0), f"of job {incident.job}"),
        (alike & (axis.node_of == axis.node_of[known[0]]), f"on {incident.node}"),
    ):
        ids = _spread(axis, mask, known)
        if len(ids) >= LEAST_PEERS:
            return ids, among
    return (), ""


def _spread(axis: Axis, mask: NDArray[np.bool_], without: NDArray[np.int64]) -> tuple[str, ...]:
    chosen = mask.copy()
    chosen[without] = False
    rows = np.flatnonzero(chosen)
    if rows.size > MOST_PEERS:
        rows = rows[np.linspace(0, rows.size - 1, MOST_PEERS).astype(np.int64)]
    return tuple(axis.ids[i] for i in rows)


def course(name: str, unit: str, whole: Range, own: int, before: Range | None) -> Course:
    """The first ``own`` columns as one course, the others as its band; ``before`` goes in front."""
    low, high = band(whole.mean[:, own:])
    mine = together(whole, own)
    if before is not None:
        first = together(before, before.mean.shape[1])
        keep = first.times < (mine.times[0] if mine.times.size else np.inf)
        none = np.full(int(keep.sum()), np.nan, np.float32)
        low, high = np.append(none, low), np.append(none, high)
        mine = Range(
            np.append(first.times[keep], mine.times),
            np.append(first.least[keep], mine.least),
            np.append(first.mean[keep], mine.mean),
            np.append(first.most[keep], mine.most),
        )
    return Course(name, unit, mine, low, high)


def together(whole: Range, own: int) -> Range:
    """The first ``own`` devices as one: lowest of all, mean of all, highest of all."""
    means = whole.mean[:, :own]
    heard = np.maximum(np.count_nonzero(~np.isnan(means), axis=1), 1)
    mean = np.where(np.isnan(means).all(axis=1), np.nan, np.nansum(means, axis=1) / heard).astype(np.float32)
    least, most = np.fmin.reduce(whole.least[:, :own], axis=1), np.fmax.reduce(whole.most[:, :own], axis=1)
    return replace(whole, least=least, mean=mean, most=most)


def band(means: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Where the peers are at each time, but for TAIL at either end: low, high float32[k] of means float32[k, n]."""
    ranked = np.sort(means, axis=1)  # NaN goes last
    heard = np.count_nonzero(~np.isnan(ranked), axis=1)
    last = np.maximum(heard - 1, 0)
    found = []
    for place in (np.floor(TAIL * last), np.ceil((1 - TAIL) * last)):
        at = np.zeros(heard.size, np.float32)
        if means.shape[1]:
            at = np.take_along_axis(ranked, place.astype(np.int64)[:, None], axis=1)[:, 0]
        found.append(np.where(heard >= LEAST_PEERS, at, np.float32(np.nan)))
    return found[0], found[1]
