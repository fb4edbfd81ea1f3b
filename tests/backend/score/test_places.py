"""Entities as they print, and what touches what."""

from __future__ import annotations

from typing import Any

import pytest

from backend.score.places import Site, Token, Touch, around, host_of, parent_of, tokens, touch_of, word_of
from backend.score.rows import fault_of
from tests.backend.score.world import TOPOLOGY, fault

SITE = Site({**TOPOLOGY, "hgx-r01-02": ("rack:r9", "switch:leaf-1")})


@pytest.mark.parametrize(
    ("entity", "word", "host"),
    [
        ("n0", "node", "n0"),
        ("n0/gpu3", "gpu", "n0"),
        ("n0/nic:mlx5_0", "nic", "n0"),
        ("n0/mount:/scratch/a", "mount", "n0"),
        ("link:n0-n1", "link", ""),
        ("rack:r1", "rack", ""),
        ("fs:/scratch", "fs", ""),
        ("job:17", "job", ""),
        ("run:team/big", "run", ""),
        ("run:team/big/rank:17", "rank", ""),
        ("cluster:main", "cluster", ""),
        ("main:n0", "node", "main:n0"),
        ("main:n0/gpu3", "gpu", "main:n0"),
        ("main:rack:r1", "rack", ""),
    ],
)
def test_an_entity_is_read_as_it_prints(entity: str, word: str, host: str) -> None:
    assert (word_of(entity), host_of(entity)) == (word, host)


def test_a_rank_sits_in_its_run() -> None:
    assert parent_of("run:team/big/rank:17") == "run:team/big"


def touch(entity: str, named: str, **fields: Any) -> float:
    return touch_of(tokens(named, SITE), around(fault_of(fault(entity=entity, **fields)), SITE))


@pytest.mark.parametrize(
    ("entity", "named", "near"),
    [
        ("n0/gpu1", "n0/gpu1", Touch.AMONG),
        ("n0/gpu1", "n0", Touch.NEAR),
        ("n0/gpu1", "rack:r0", Touch.WIDE),
        ("n0/gpu1", "switch:s0", Touch.WIDE),
        ("n0/gpu1", "cluster:any", Touch.WIDE),
        ("n0", "n0/gpu7", Touch.NEAR),
        ("link:n0-n1", "n1", Touch.NEAR),
        ("link:hgx-r01-02-leaf-1", "hgx-r01-02/nic:mlx5_0", Touch.NEAR),
        ("link:hgx-r01-02-leaf-1", "switch:leaf-1", Touch.NEAR),
        ("n0/nic:mlx5_0", "link:n0-n1", Touch.NEAR),
        ("run:big/rank:3", "run:big", Touch.NEAR),
        ("run:big", "run:big/rank:3", Touch.NEAR),
        ("main:n0", "cluster:main", Touch.WIDE),
    ],
)
def test_an_ancestor_or_a_part_touches(entity: str, named: str, near: Touch) -> None:
    assert touch(entity, named) == near


@pytest.mark.parametrize(
    ("entity", "named"),
    [
        ("n0/gpu1", "n0/gpu2"),
        ("n0/gpu1", "n1"),
        ("n0/gpu1", "rack:r1"),
        ("rack:r0", "n0"),
        ("link:n0-n1", "n0/gpu1"),
        ("n1", "n10"),
        ("main:n0", "n0"),
        ("main:n0", "cluster:other"),
    ],
)
def test_a_neighbour_a_member_or_a_namesake_does_not(entity: str, named: str) -> None:
    assert touch(entity, named) == float("inf")


def test_its_job_touches_and_the_run_of_a_job() -> None:
    assert touch("n0/gpu1", "job:5", job=5) == Touch.JOB
    assert touch("job:5", "run:big", job="5", run="big") == Touch.WIDE
    assert touch("n0/gpu1", "run:big", job="5", run="big") == float("inf")


def test_an_incident_says_its_job_in_its_own_field() -> None:
    near: dict[Token, Touch] = around(fault_of(fault(job=5)), SITE)
    assert near["job", "5"] is Touch.JOB


def test_victims_are_the_nodes_of_the_truth_without_its_own() -> None:
    assert SITE.victims(fault_of(fault(nodes=["n0", "n1"]))) == {"n1"}
    assert SITE.victims(fault_of(fault(entity="rack:r0", nodes=["n5"]))) == {"n0", "n1", "n5"}


def test_excluding_where_it_sits_takes_a_fault_away() -> None:
    assert SITE.excludable(fault_of(fault(nodes=["n0", "n1"]))) == {"n0"}
    assert SITE.excludable(fault_of(fault(entity="run:big/rank:3", nodes=["n2"]))) == {"n2"}
