"""Slurm 24.11, by its commands and by slurmrestd: the contract, both ways alike, its accounting."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from backend.clients.slurm_accounting import Accounting
from backend.clients.slurm_http import Tokens
from backend.clients.slurm_kept import KeptByRest
from backend.clients.slurm_rest import SlurmRest
from backend.clients.slurm_surface import Slurm
from backend.clients.slurm_text import Place
from backend.facts import AttemptFacts
from backend.ingest.slurm_accounting import SlurmAccountingSource
from tests.backend.act.test_slurm import ImpatientWorld, SlurmWorld
from tests.contracts.cluster_backend import CHECKS, World
from tests.services.slurm import SlurmCluster, rest, slurm

ROOT = os.environ.get("WATCHKEEPER_SLURM24", "")
TREE = """\
SwitchName=leaf1 Nodes=gpu-[0000-0001]
SwitchName=leaf2 Nodes=gpu-[0002-0003]
SwitchName=top Switches=leaf[1-2]
"""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.services,
    pytest.mark.skipif(not ROOT, reason="no Slurm 24.11 here: run make test-slurm24"),
]


class RestWorld(SlurmWorld):
    """The cluster reached by slurmrestd, with scontrol for what it cannot do."""

    def __init__(self, cluster: SlurmCluster, url: str, timeout_s: float = 15.0) -> None:
        super().__init__(cluster)
        self.url = url
        self.timeout_s = timeout_s

    def slurm(self, timeout_s: float) -> Slurm:
        return by_rest(self.cluster, self.url, min(timeout_s, self.timeout_s))


def by_rest(cluster: SlurmCluster, url: str, timeout_s: float = 15.0, *, alone: bool = False) -> SlurmRest:
    """``alone``: scontrol may not be used."""
    file = cluster.folder / "etc" / "token"
    if not file.exists():
        file.write_text(cluster.cli().token(3600))
    cli = cluster.cli(timeout_s)
    tokens = Tokens(file, None if alone else cli.token, time.time)
    return SlurmRest(url, tokens, "root", timeout_s, None if alone else cli)


@pytest.fixture(scope="module")
def newer() -> Iterator[tuple[SlurmCluster, str]]:
    with ExitStack() as stack:
        made = slurm(4, accounting=True, root=Path(ROOT), more="TopologyPlugin=topology/tree\n", topology=TREE)
        cluster = stack.enter_context(made)
        yield cluster, stack.enter_context(rest(cluster, "slurmctld,slurmdbd"))


@pytest.fixture
def clean(newer: tuple[SlurmCluster, str]) -> Iterator[tuple[SlurmCluster, str]]:
    yield newer
    newer[0].clean()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_its_commands_keep_the_contract(check: Callable[[World], None], clean: tuple[SlurmCluster, str]) -> None:
    check(ImpatientWorld(clean[0]) if "silence" in check.__name__ else SlurmWorld(clean[0]))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_its_rest_keeps_the_contract(check: Callable[[World], None], clean: tuple[SlurmCluster, str]) -> None:
    check(RestWorld(*clean, 1.5 if "silence" in check.__name__ else 15.0))


def test_both_ways_say_the_same(clean: tuple[SlurmCluster, str]) -> None:
    cluster, url = clean
    cli, asked = cluster.cli(), by_rest(cluster, url)
    assert asked.api() >= 42 and asked.version() == cli.version() >= (24, 11, 0)
    job = cluster.submit("-N2", "--gres=gpu:3", "-J", "llm", "--exclude=gpu-0003", "--array=1-2")
    cluster.wait("running job", lambda: sum(a.state == "RUNNING" for a in cli.jobs()) == 2)
    cluster.run("scontrol", "update", "NodeName=gpu-0003", "State=DRAIN", "Reason=NHC: gpu 3 xid 79")
    assert by_job(asked.jobs()) == by_job(cli.jobs())
    held = {a.array: a.gpus for a in asked.jobs() if a.state == "RUNNING"}
    assert set(held) == {f"{job}_1", f"{job}_2"} and all(len(gpus) == 2 for gpus in held.values())
    mine, theirs = ({n.name: n for n in nodes} for nodes in (asked.nodes(), cli.nodes()))
    assert mine.keys() == theirs.keys()
    for name, node in mine.items():
        other = theirs[name]
        assert (node.state, node.flags, node.reason, node.reason_owner) == (
            other.state, other.flags, other.reason, other.reason_owner,
        )  # fmt: skip
        assert (node.model, node.expected_gpus, node.partitions, node.boot_at) == (
            other.model, other.expected_gpus, other.partitions, other.boot_at,
        )  # fmt: skip
    assert asked.topology()["gpu-0002"] == Place("leaf2", ("top",))
    assert [p.name for p in asked.partitions()] == [p.name for p in cli.partitions()] == ["train"]


def by_job(attempts: list[AttemptFacts]) -> dict[str, AttemptFacts]:
    return {a.job: a for a in attempts}


def test_drains_go_by_rest_alone(clean: tuple[SlurmCluster, str]) -> None:
    asked = by_rest(*clean, alone=True)
    assert asked.drain("gpu-0001", "[watchkeeper] x inc=1") == ""
    node = asked.node("gpu-0001")
    assert node.drained and (node.reason, node.reason_owner) == ("[watchkeeper] x inc=1", "watchkeeper")
    assert asked.resume("gpu-0001") == "" and not asked.node("gpu-0001").out
    waiting = clean[0].submit("-N1", "--hold")
    assert asked.exclude(waiting, ["gpu-0001", "gpu-0002"]) == ""
    found = asked.job(waiting)
    assert found is not None and found.attempt.excluded == ("gpu-0001", "gpu-0002")


def test_its_accounting_is_the_same_both_ways(clean: tuple[SlurmCluster, str]) -> None:
    cluster, url = clean
    job = cluster.submit("-N2", "--gres=gpu:h100:4", "-J", "a b|c", "--exclude=gpu-0003")
    cluster.wait("running job", lambda: any(a.job == job and a.state == "RUNNING" for a in cluster.cli().jobs()))
    cluster.run("scontrol", "requeue", job)
    never = cluster.submit("--hold")
    cluster.run("scancel", never)
    sources = (
        SlurmAccountingSource(Accounting(cluster.cli(30.0)), 86_400.0),
        SlurmAccountingSource(KeptByRest(by_rest(cluster, url)), 86_400.0),
    )
    seen: list[dict[tuple[str, float | None], AttemptFacts]] = [{}, {}]

    def told() -> bool:
        """Both know it all, and the same of it: between the two questions a job may have moved on."""
        for source, into in zip(sources, seen, strict=True):
            batch = source.read(frozenset(), 0.0, time.time())
            assert not batch.dropped
            into.update({(a.job, a.submit): a for a in batch.attempts})
        jobs = [[a.job for a in into.values()] for into in seen]
        whole = all(each.count(job) == 2 and never in each for each in jobs)
        return whole and said(seen[0]) == said(seen[1])

    try:
        cluster.wait("both attempts in the accounting", told)
    finally:
        assert said(seen[0]) == said(seen[1])


def said(attempts: dict[tuple[str, float | None], AttemptFacts]) -> dict[tuple[str, float | None], tuple[object, ...]]:
    """What both ways must tell alike."""
    return {
        key: (a.state, a.run, a.nodes, a.start, a.end, a.excluded, a.exit_code, a.gpus_per_node)
        for key, a in attempts.items()
    }
