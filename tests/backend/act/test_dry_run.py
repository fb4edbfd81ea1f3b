"""The hand that does nothing, and says so."""

from __future__ import annotations

import pytest

from backend.act.base import ActionError, ClusterBackend
from backend.act.dry_run import DryRunBackend
from backend.facts import NodeFacts, Verb
from tests.contracts.cluster_backend import order

NODES = (NodeFacts("gpu-0000", state="idle"), NodeFacts("gpu-0001", state="allocated"))


def test_it_reads_what_the_sources_said() -> None:
    backend: ClusterBackend = DryRunBackend(lambda: NODES)
    assert tuple(backend.inventory()) == NODES and backend.read("gpu-0001") is NODES[1]
    with pytest.raises(ActionError) as refused:
        backend.read("gpu-0009")
    assert refused.value.permanent


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (order(Verb.DRAIN, "gpu-0000"), "drain gpu-0000 with the reason '[watchkeeper] gpu_bus_loss gpu=3 inc=812'"),
        (order(Verb.RESUME, "gpu-0000"), "resume gpu-0000"),
        (order(Verb.REQUEUE, job="7", exclude=("gpu-0000",)), "requeue job 7, avoiding gpu-0000"),
    ],
)
def test_it_says_what_it_would_do_and_changes_nothing(wanted, words) -> None:
    backend = DryRunBackend(lambda: NODES)
    outcome = backend.perform(wanted)
    assert not outcome.changed and words in outcome.text and outcome.text.startswith("Dry run: nothing was sent.")
    assert backend.settle(wanted) is None and backend.witness(wanted) == {}
