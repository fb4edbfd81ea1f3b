"""The suite that every detector passes, whatever it looks for. Each check takes a detector and a story."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detectors.catalogue import Catalogue
from detectors.detector import Detector, arrays_of, state_from
from detectors.model import Axis, BoolArray, Finding, Fleet, Judged, MetricKey, Tick


@dataclass(frozen=True, slots=True, eq=False)
class Story:
    """Ticks with the fleet each was seen on. Where the fleet is another one than before, the state moves."""

    steps: tuple[tuple[Fleet, Tick], ...]

    def __repr__(self) -> str:
        told = [
            f"{tick.at:.1f} {len(tick.values)} columns {[(e.code, str(e.entity)) for e in tick.events]}"
            for _, tick in self.steps
        ]
        return f"Story({told})"


Check = Callable[[Detector[Any], Story, Catalogue], None]


def checks() -> tuple[Check, ...]:
    return (
        findings_are_well_formed,
        same_input_same_output,
        a_saved_state_changes_nothing,
        an_event_tick_keeps_the_levels,
        the_order_of_rows_has_no_effect,
        the_order_of_events_in_a_tick_has_no_effect,
        late_and_repeated_ticks_never_raise,
        missing_values_never_raise,
        a_fleet_that_changed_unannounced_never_raises,
        a_fleet_without_devices_is_fine,
        a_fleet_of_one_device_is_fine,
        levels_follow_their_rows,
        a_job_start_permutes_nothing,
        a_fleet_that_grows_keeps_its_levels,
    )


def check_detector(detector: Detector[Any], stories: Sequence[Story], catalogue: Catalogue) -> None:
    """Run every check on every story; raises AssertionError with the name of what does not hold."""
    for check in checks():
        for story in stories:
            check(detector, story, catalogue)


def told(detector: Detector[Any], story: Story) -> list[Judged]:
    """What the detector says at each step of a story."""
    return [judged for judged, _, _ in _walk(detector, story)]


def findings_are_well_formed(detector: Detector[Any], story: Story, catalogue: Catalogue) -> None:
    """Known kinds, scores 0 to 1, sentences, unique keys; masks of the right length; plain arrays as state."""
    assert "/" in detector.name, "a detector is called family/short"
    for judged, state, fleet in _walk(detector, story):
        keys = [finding.key for finding in judged.findings]
        assert keys == sorted(set(keys)), f"{detector.name}: keys are not unique and in order"
        for finding in judged.findings:
            _well_formed(finding, detector, catalogue)
        for kind, mask in judged.blind.items():
            assert mask.dtype == np.bool_ and len(mask) == len(fleet.axes[kind]), f"{detector.name}: blind of {kind}"
            assert not bool((mask & ~fleet.axes[kind].live).any()), f"{detector.name}: a retired row is not blind"
        arrays_of(state)


def _well_formed(finding: Finding, detector: Detector[Any], catalogue: Catalogue) -> None:
    where = f"{detector.name}: {finding.key}"
    assert finding.detector == detector.name, where
    assert finding.kind in catalogue.kinds, f"{where}: kind is not in kinds.csv"
    assert 0.0 <= finding.score <= 1.0, where
    assert np.isfinite(finding.since), where
    assert finding.reason.endswith(".") and "nan" not in finding.reason.lower().split(), f"{where}: {finding.reason}"
    assert finding.evidence, f"{where}: a finding without evidence"
    assert all(piece.grade in ("observed", "derived", "inferred") for piece in finding.evidence), where


def same_input_same_output(detector: Detector[Any], story: Story, catalogue: Catalogue) -> None:
    assert _words(told(detector, story)) == _words(told(detector, story)), detector.name


def a_saved_state_changes_nothing(detector: Detector[Any], story: Story, catalogue: Catalogue) -> None:
    """Saved and restored before every step, the detector says the same."""
    plain, saved = _words(told(detector, story)), []
    for judged, _, _ in _walk(detector, story, between=lambda state, fleet: _restored(detector, state, fleet)):
        saved.append(judged)
    assert plain == _words(saved), f"{detector.name}: a restart changes what it says"


def an_event_tick_keeps_the_levels(detector: Detector[Any], story: Story, catalogue: Catalogue) -> None:
    """A tick at which nothing is sampled and nothing happened says what the tick before said, and disturbs nothing."""
    plain = told(detector, story)
    doubled = Story(tuple(step for fleet, tick in story.steps for step in ((fleet, tick), (fleet, Tick(tick.at)))))
    said = told(detector, doubled)
    assert _words(said[0::2]) == _words(plain), f"{detector.name}: an empty tick disturbs"
    assert _words(said[1::2]) == _words(plain), f"{detector.name}: an empty tick drops or changes a level"


def the_order_of_rows_has_no_effect(detector: Detector[Any], story: Story, catalogue: Catalogue) -> None:
    """Rows of every axis in another order: the same findings, the same things blind."""
    shuffled = Story(tuple(_reordered(story.steps)))
    assert _words(told(detector, story), story) == _words(told(detector, shuffled), shuffled), detector.name


def the_order_of_events_in_a_tick_has_no_effect(detector: Detector[Any], story: Story, catalogue: Catalogue) -> None:
    turned = Story(tuple((fleet, replace(tick, events=tick.events[::-1])) for fleet, tick in story.steps))
    assert _words(told(detector, story)) == _words(told(detector, turned)), detector.name


def late_and_repeated_ticks_never_raise(detector: Detector[Any], story: Story, catalogue: Catalogue) -> None:
    """Every tick twice, and after each but the first the one before it once more."""
    again = list(story.steps[:1])
    for before, now in zip(story.steps, story.steps[1:], strict=False):
        again += [now, now, before] if before[0] is now[0] else [now, now]
    for judged, _, fleet in _walk(detector, Story(tuple(again))):
        assert all(finding.entity.cluster == fleet.cluster for finding in judged.findings), detector.name


def missing_values_never_raise(detector: Detector[Any], story: Story, catalogue: Catalogue) -> None:
    for fill in (np.nan, np.inf, -np.inf, 0.0):
        told(detector, Story(tuple((fleet, _filled(tick, fill)) for fleet, tick in story.steps)))


def a_fleet_that_changed_unannounced_never_raises(detector: Detector[Any], story: Story, catalogue: Catalogue) -> None:
    """Fewer rows than the state or the tick has, then all of them again, with no move in between."""
    if not story.steps:
        return
    state = detector.start(story.steps[0][0])
    for at, (fleet, tick) in enumerate(story.steps):
        detector.step(state, tick, _cut(fleet) if at % 2 else fleet)


def a_fleet_without_devices_is_fine(detector: Detector[Any], story: Story, catalogue: Catalogue) -> None:
    bare = Fleet("", 0, {}, (), (), (), (), (), {})
    empty = _cut(story.steps[0][0], 0) if story.steps else bare
    for fleet in (bare, empty):
        told(detector, Story(tuple((fleet, tick) for _, tick in story.steps)))
    if story.steps:
        state = detector.move(detector.start(bare), bare, story.steps[0][0])
        detector.step(detector.move(state, story.steps[0][0], bare), story.steps[0][1], bare)


def a_fleet_of_one_device_is_fine(detector: Detector[Any], story: Story, catalogue: Catalogue) -> None:
    told(detector, Story(tuple(_fewer(story.steps, 1))))


def a_job_start_permutes_nothing(detector: Detector[Any], story: Story, catalogue: Catalogue) -> None:
    """The same rows in other jobs: not a bit of the state changes."""
    for _, state, fleet in _walk(detector, story):
        axes = {kind: replace(axis, job_of=np.full_like(axis.job_of, -1)) for kind, axis in fleet.axes.items()}
        moved = arrays_of(detector.move(state_from(state, arrays_of(state)), fleet, replace(fleet, axes=axes)))
        for name, array in arrays_of(state).items():
            assert array.tobytes() == moved[name].tobytes(), f"{detector.name}: a job start changes {name}"


def a_fleet_that_grows_keeps_its_levels(detector: Detector[Any], story: Story, catalogue: Catalogue) -> None:
    """Half the fleet, then all of it: an empty tick says of the first half what it said before, and of the rest
    nothing."""
    halves: dict[int, Fleet] = {}
    whole = {
        id(half): fleet for (half, _), (fleet, _) in zip(_fewer(story.steps, -1, halves), story.steps, strict=True)
    }
    for judged, state, half in _walk(detector, Story(tuple(_fewer(story.steps, -1, halves)))):
        fleet = whole[id(half)]
        at = max((f.since for f in judged.findings), default=0.0)
        grown = detector.move(state_from(state, arrays_of(state)), half, fleet)
        here = detector.step(state_from(state, arrays_of(state)), Tick(at), half)
        assert detector.step(grown, Tick(at), fleet).findings == here.findings, f"{detector.name}: growth tells"


def levels_follow_their_rows(detector: Detector[Any], story: Story, catalogue: Catalogue) -> None:
    """Into a reordered fleet and back: an empty tick there says the same of the same entities."""
    for judged, state, fleet in _walk(detector, story):
        at = max((f.since for f in judged.findings), default=0.0)
        other, _ = _shuffled(fleet, 7)
        there = detector.move(state_from(state, arrays_of(state)), fleet, other)
        back = detector.move(state_from(there, arrays_of(there)), other, fleet)
        here = detector.step(state_from(state, arrays_of(state)), Tick(at), fleet)
        said = [_say(detector.step(s, Tick(at), f), f) for s, f in ((there, other), (back, fleet))]
        assert said == [_say(here, fleet)] * 2, f"{detector.name}: a level does not follow its row"


# --- stories, told in other ways ------------------------------------------------------------------------------------


def _walk(
    detector: Detector[Any], story: Story, between: Callable[[Any, Fleet], Any] = lambda state, fleet: state
) -> Iterator[tuple[Judged, Any, Fleet]]:
    """Each step's judgement with the state after it."""
    state, before = None, None
    for fleet, tick in story.steps:
        if before is None:
            state = detector.start(fleet)
        elif fleet is not before:
            state = detector.move(state, before, fleet)
        before = fleet
        state = between(state, fleet)
        yield detector.step(state, tick, fleet), state, fleet


def _restored(detector: Detector[Any], state: Any, fleet: Fleet) -> Any:
    """Through a file and back, without a pickle."""
    file = io.BytesIO()
    np.savez(file, **arrays_of(state), allow_pickle=False)
    file.seek(0)
    with np.load(file, allow_pickle=False) as saved:
        return state_from(detector.start(fleet), {name: saved[name] for name in saved.files})


def _say(judged: Judged, fleet: Fleet | None) -> tuple[Any, ...]:
    """A judgement without the order of its rows."""
    if fleet is None:
        return (judged.findings, {kind: mask.tolist() for kind, mask in judged.blind.items()})
    ids = {kind: fleet.axes[kind].ids for kind in judged.blind}
    blind = {kind: sorted(ids[kind][row] for row in np.flatnonzero(mask)) for kind, mask in judged.blind.items()}
    return (tuple(sorted(judged.findings, key=lambda f: f.key)), blind)


def _words(said: Sequence[Judged], story: Story | None = None) -> list[tuple[Any, ...]]:
    fleets = [fleet for fleet, _ in story.steps] if story is not None else [None] * len(said)
    return [_say(judged, fleet) for judged, fleet in zip(said, fleets, strict=True)]


def _filled(tick: Tick, fill: float) -> Tick:
    return replace(tick, values={key: np.full_like(values, fill) for key, values in tick.values.items()})


def _reordered(steps: Sequence[tuple[Fleet, Tick]]) -> Iterator[tuple[Fleet, Tick]]:
    known: dict[int, tuple[Fleet, Mapping[str, NDArray[np.intp]]]] = {}
    for fleet, tick in steps:
        other, orders = known.setdefault(id(fleet), _shuffled(fleet, 11))
        yield other, _followed(tick, orders)


def _followed(tick: Tick, orders: Mapping[str, NDArray[np.intp]]) -> Tick:
    values = {key: column[orders[key[0]]] for key, column in tick.values.items()}
    sampled: dict[MetricKey, BoolArray] = {key: rows[orders[key[0]]] for key, rows in tick.sampled.items()}
    return replace(tick, values=values, sampled=sampled)


def _shuffled(fleet: Fleet, seed: int) -> tuple[Fleet, Mapping[str, NDArray[np.intp]]]:
    """The same fleet with the rows of every axis in another order, and those orders. Peers keep theirs."""
    dice = np.random.default_rng(seed)
    orders = {kind: dice.permutation(len(axis)) for kind, axis in fleet.axes.items()}
    return _chosen(fleet, orders), orders


def _cut(fleet: Fleet, rows: int = -1) -> Fleet:
    """The first half of every axis, or its first ``rows``."""
    orders = {k: np.arange(len(axis) // 2 if rows < 0 else min(rows, len(axis))) for k, axis in fleet.axes.items()}
    return _chosen(fleet, orders)


def _fewer(
    steps: Sequence[tuple[Fleet, Tick]], rows: int, known: dict[int, Fleet] | None = None
) -> Iterator[tuple[Fleet, Tick]]:
    """The story of the first rows of every axis, as ``_cut`` chooses them; one Fleet for each of the story's."""
    cut = known if known is not None else {}
    for fleet, tick in steps:
        less = cut.setdefault(id(fleet), _cut(fleet, rows))
        orders = {kind: np.arange(len(axis)) for kind, axis in less.axes.items()}
        yield less, _followed(tick, orders)


def _chosen(fleet: Fleet, orders: Mapping[str, NDArray[np.intp]]) -> Fleet:
    axes = {kind: _rows(axis, orders[kind]) for kind, axis in fleet.axes.items()}
    slots = {(kind, id_): row for kind, axis in axes.items() for row, id_ in enumerate(axis.ids)}
    return replace(fleet, axes=axes, slots=slots, epoch=fleet.epoch + 1)


def _rows(axis: Axis, order: NDArray[np.intp]) -> Axis:
    place = np.full(len(axis) + 1, -1, np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    group = np.repeat(np.arange(len(axis.peer_starts) - 1), np.diff(axis.peer_starts))
    kept = place[axis.by_peers] >= 0
    sizes = np.bincount(group[kept], minlength=len(axis.peer_starts) - 1)
    return Axis(
        kind=axis.kind,
        ids=tuple(axis.ids[row] for row in order),
        names=tuple(axis.names[row] for row in order),
        live=axis.live[order],
        node_of=axis.node_of[order],
        job_of=axis.job_of[order],
        role_of=axis.role_of[order],
        model_of=axis.model_of[order],
        rack_of=axis.rack_of[order],
        by_peers=place[axis.by_peers][kept],
        peer_starts=np.r_[0, np.cumsum(sizes)].astype(np.int32),
        leaf_of=axis.leaf_of[order] if len(axis.leaf_of) else axis.leaf_of,
    )
