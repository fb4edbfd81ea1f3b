"""The figures of some faults and of some incidents, each with its n and interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backend.reliability.intervals import Mean, Quantile, Rate, Share, mean, quantile, rate, share
from backend.score.chance import Chance, Pairs, chance
from backend.score.places import Touch, word_of
from backend.score.verdicts import EXCLUSIONS, VERDICTS, Exclusion, FaultResult, IncidentResult, Verdict

QUANTILES = (0.5, 0.9, 1.0)


@dataclass(frozen=True, slots=True)
class Odds:
    """How the random parts are drawn: turns of the truth for chance recall, resamples of a bootstrap."""

    seed: int = 0
    draws: int = 200
    resamples: int = 2000


@dataclass(frozen=True, slots=True)
class FaultFigures:
    """Over some faults. recall: all; recall_visible: those that some source shows; recall_loud: when incidents of
    severity info do not count; located: found at the entity or its node; fitting: found by an incident of its family;
    chance...: the same with the truth turned in time. touch: how near the counting incidents are. exact_gpu: over all
    GPU faults, exact_gpu_found: over those found. before_code: over faults with a kernel code. Delays are seconds
    after first_visible, to the incident's opening and to when its finding was emitted. incidents: per found fault.
    excluded: over faults that call for an exclusion."""

    recall: Share
    recall_visible: Share
    recall_loud: Share
    located: Share
    fitting: Share
    chance: Chance
    chance_located: Chance
    chance_fitting: Chance
    touch: Mapping[Touch, int]
    exact_gpu: Share
    exact_gpu_found: Share
    before_code: Share
    delay_opened: tuple[Quantile, ...]
    delay_told: tuple[Quantile, ...]
    incidents: Mean
    excluded: Share


@dataclass(frozen=True, slots=True)
class IncidentFigures:
    """Over some incidents; verdicts, precision and rates take those above info, ``info`` counts the others.
    precision: an incident on victims is wrong; precision_with_victims: it is right. false_rate: incidents with no
    fault behind them per day and 500 GPUs; not_right_rate: those on victims too. wrong_exclusions: over (incident,
    node) pairs of all incidents."""

    info: int
    verdicts: Mapping[Verdict, int]
    precision: Share
    precision_with_victims: Share
    false_rate: Rate
    not_right_rate: Rate
    wrong_exclusions: Share
    exclusions: Mapping[Exclusion, int]


def fault_figures(
    results: Sequence[FaultResult], places: Sequence[int], pairs: Pairs, turned: Sequence[float], odds: Odds
) -> FaultFigures:
    """Figures of the faults at ``places`` (indices into ``results`` and into the pairs)."""
    chosen = [results[at] for at in places]
    visible = [r for r in chosen if r.fault.first_visible is not None]
    gpu = [r for r in chosen if word_of(r.fault.entity) == "gpu"]
    found = [r for r in chosen if r.edge is not None]

    def of(some: Sequence[FaultResult], hits: Sequence[bool]) -> Share:
        return share(hits, [r.fault.group for r in some], odds.seed, odds.resamples)

    coded = [r for r in chosen if r.fault.first_code is not None]
    called = [r for r in chosen if r.fault.exclude]
    return FaultFigures(
        recall=of(chosen, [r.edge is not None for r in chosen]),
        recall_visible=of(visible, [r.edge is not None for r in visible]),
        recall_loud=of(chosen, [r.loud for r in chosen]),
        located=of(chosen, [r.located for r in chosen]),
        fitting=of(chosen, [r.fitting for r in chosen]),
        chance=chance(pairs, places, turned),
        chance_located=chance(pairs.only(pairs.located), places, turned),
        chance_fitting=chance(pairs.only(pairs.fits), places, turned),
        touch={touch: sum(r.edge is not None and r.edge.touch is touch for r in chosen) for touch in Touch},
        exact_gpu=of(gpu, [r.exact_gpu for r in gpu]),
        exact_gpu_found=of([r for r in gpu if r.edge], [r.exact_gpu for r in gpu if r.edge]),
        before_code=of(coded, [r.before_code for r in coded]),
        delay_opened=_quantiles([r.opened_delay_s for r in found]),
        delay_told=_quantiles([r.told_delay_s for r in found]),
        incidents=mean([float(r.incidents) for r in found], [r.fault.group for r in found], odds.seed, odds.resamples),
        excluded=of(called, [r.excluded for r in called]),
    )


def incident_figures(results: Sequence[IncidentResult], exposure: float, odds: Odds) -> IncidentFigures:
    """Figures of ``results``; ``exposure`` in days of 500 GPUs."""
    loud = [r for r in results if r.incident.loud]
    groups = [r.incident.group for r in loud]
    verdicts = Counter(r.verdict for r in loud)
    nodes = [(r.incident.group, word) for r in results for word in r.exclusions.values()]
    words = Counter(word for _, word in nodes)

    def of(*right: Verdict) -> Share:
        return share([r.verdict in right for r in loud], groups, odds.seed, odds.resamples)

    return IncidentFigures(
        info=len(results) - len(loud),
        verdicts={verdict: verdicts[verdict] for verdict in VERDICTS},
        precision=of("right"),
        precision_with_victims=of("right", "victim"),
        false_rate=rate(verdicts["false"], exposure),
        not_right_rate=rate(verdicts["false"] + verdicts["victim"], exposure),
        wrong_exclusions=share([w != "right" for _, w in nodes], [g for g, _ in nodes], odds.seed, odds.resamples),
        exclusions={word: words[word] for word in EXCLUSIONS},
    )


def _quantiles(values: Sequence[float | None]) -> tuple[Quantile, ...]:
    known = [value for value in values if value is not None]
    return tuple(quantile(known, q) for q in QUANTILES)
