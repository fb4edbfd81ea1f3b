"""Hostlists against Slurm's own: thousands of random ones, many to a process; 100,000 round trips by a slow target."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.clients.hostlist import expand, natural, render
from tests.services.need import need

QUICK, ALL = 2_000, 100_000
#: Stands between the lists of one process; no random name looks like it.
BETWEEN = "zz-between-zz"
#: Longest argument of a process is 128 KiB on Linux.
LONGEST = 100_000
PREFIXES = ("n", "gpu-", "rack", "r1c", "a.b-", "x_y", "node0", "dgx-h100-", "N", "c01n")


def hostlist(draw: random.Random) -> str:
    """One random list in Slurm's grammar: ranges, padding, lists in brackets, several brackets, plain names."""
    return ",".join(_item(draw) for _ in range(draw.randint(1, 4)))


def _item(draw: random.Random) -> str:
    if draw.random() < 0.2:
        return f"{draw.choice(PREFIXES)}{_number(draw)}"
    parts = [draw.choice(PREFIXES)]
    brackets = draw.choice([1, 1, 1, 2, 2, 3, 4])
    for place in range(brackets):
        parts += ([draw.choice(["n", "-", "s"])] if place else []) + [_bracket(draw, 4 if brackets == 1 else 2)]
    return "".join(parts)


def _bracket(draw: random.Random, most: int) -> str:
    pieces = []
    for _ in range(draw.randint(1, most)):
        low, width = draw.choice([0, 1, 8, 9, 10, 98, 99, 100, 997]), draw.choice([0, 0, 1, 2, 3, 4])
        high = low + draw.choice([0, 1, 2, 5 if most > 2 else 1])
        pieces.append(f"{low:0{width}d}" + (f"-{high:0{width}d}" if high > low or draw.random() < 0.1 else ""))
    return f"[{','.join(pieces)}]"


def _number(draw: random.Random) -> str:
    return f"{draw.choice([0, 1, 9, 10, 99, 100, 12345]):0{draw.choice([0, 1, 2, 3, 5])}d}"


def portions(lists: list[str]) -> Iterator[list[str]]:
    """As many lists as fit into one argument."""
    some: list[str] = []
    size = 0
    for text in lists:
        if some and size + len(text) + len(BETWEEN) + 2 > LONGEST:
            yield some
            some, size = [], 0
        some.append(text)
        size += len(text) + len(BETWEEN) + 2
    yield some


@pytest.fixture
def conf(tmp_path: Path) -> dict[str, str]:
    need("scontrol", "slurm-client")
    file = tmp_path / "slurm.conf"
    file.write_text("ClusterName=x\nSlurmctldHost=localhost\nNodeName=a\nPartitionName=p Nodes=ALL\n")
    return {**os.environ, "SLURM_CONF": str(file)}


def shown(env: dict[str, str], what: str, text: str) -> str:
    asked = ["scontrol", "show", what, text]
    return subprocess.run(asked, check=True, env=env, capture_output=True, text=True, timeout=60).stdout


@pytest.mark.services
def test_scontrol_expands_two_thousand_random_lists_the_same(conf: dict[str, str]) -> None:
    draw = random.Random(4)
    for some in portions([hostlist(draw) for _ in range(QUICK)]):
        names = shown(conf, "hostnames", f",{BETWEEN},".join(some)).split()
        parts = "\n".join(names).split(f"\n{BETWEEN}\n")
        for text, theirs in zip(some, parts, strict=True):
            assert expand(text) == theirs.split("\n"), text


@pytest.mark.services
def test_what_scontrol_folds_expands_to_the_same_names_and_the_other_way(conf: dict[str, str]) -> None:
    draw = random.Random(5)
    for _ in range(40):
        names = sorted({name for _ in range(20) for name in expand(hostlist(draw))}, key=natural)
        assert sorted(set(expand(shown(conf, "hostlist", ",".join(names)).strip())), key=natural) == names
        assert shown(conf, "hostnames", render(names)).split() == names


def round_trips(draw: random.Random, count: int) -> None:
    for _ in range(count):
        text = hostlist(draw)
        if draw.random() < 0.2:  # names that go on after the brackets: ours, not Slurm's
            text += draw.choice([",n[1-3]-ib", ",n[01-02].site.org", ",a[1-2]b[3-4]c"])
        names = expand(text)
        folded = render(names)
        assert expand(folded) == sorted(set(names), key=natural), text
        assert render(expand(folded)) == folded, text


def test_random_lists_go_there_and_back() -> None:
    round_trips(random.Random(6), QUICK // 4)


@pytest.mark.slow
def test_a_hundred_thousand_random_lists_go_there_and_back() -> None:
    round_trips(random.Random(7), ALL)


@pytest.mark.slow
@pytest.mark.services
def test_scontrol_expands_a_hundred_thousand_random_lists_the_same(conf: dict[str, str]) -> None:
    draw = random.Random(8)
    for some in portions([hostlist(draw) for _ in range(ALL)]):
        names = shown(conf, "hostnames", f",{BETWEEN},".join(some)).split()
        for text, theirs in zip(some, "\n".join(names).split(f"\n{BETWEEN}\n"), strict=True):
            assert expand(text) == theirs.split("\n"), text
