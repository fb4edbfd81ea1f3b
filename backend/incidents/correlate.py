"""Which incident a suspicion belongs to: pure, on facts; late victims fold into the incident of their job."""

from __future__ import annotations

from dataclasses import dataclass

from detectors.fuse import Suspicion


@dataclass(frozen=True, slots=True)
class Fold:
    """Where one suspicion goes. Exactly one of the two is set, or neither: then it opens an incident of its own.

    incident: id of an open or just-closed incident. opens_with: place (index into the answer of correlate) of the
    fold whose new incident this one joins; that fold always stands before it. ``victim``: it is a consequence there,
    not a cause. Suspicions with ``opens`` False and no incident to join get no Fold at all.
    """

    suspicion: Suspicion
    incident: int | None = None
    opens_with: int | None = None
    victim: bool = False
