"""Hostlists: what expands, what folds back, what is refused and with which words."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.clients.hostlist import MAX_HOSTS, HostlistError, expand, natural, render
from tests.services.need import need

STEMS = st.sampled_from(["gpu-", "n", "rack1n", "rack10n", "rack2n", "rack02n", "a.b-", "x_", "login"])
NUMBERS = st.one_of(
    st.just(""),
    st.integers(0, 120).map(str),
    st.tuples(st.integers(0, 120), st.integers(1, 4)).map(lambda t: f"{t[0]:0{t[1]}d}"),
    st.integers(0, 10**17).map(str),
)
NAMES = st.lists(st.builds(lambda stem, number: stem + number, STEMS, NUMBERS), max_size=40)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("login1", ["login1"]),
        ("n[001-003,007],login1", ["n001", "n002", "n003", "n007", "login1"]),
        ("r[1-2]n[08-10]", ["r1n08", "r1n09", "r1n10", "r2n08", "r2n09", "r2n10"]),
        ("n[99-101]", ["n99", "n100", "n101"]),
        ("n[3,1,1]", ["n3", "n1", "n1"]),
        ("n[1-010]", [f"n{i}" for i in range(1, 11)]),
        ("a,,b c\nd,", ["a", "b", "c", "d"]),
        ("n[1-2].site", ["n1.site", "n2.site"]),
        ("[7-8]", ["7", "8"]),
    ],
)
def test_a_hostlist_expands_in_the_order_written(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["n10", "n9", "n8", "n8"], "n[8-10]"),
        (["n9", "n09", "n10"], "n[9,09-10]"),
        (["n099", "n100"], "n[099-100]"),
        (["rack10n1", "rack2n1"], "rack2n1,rack10n1"),
        (["n", "n1", "n2"], "n,n[1-2]"),
        (["n1a", "n2a"], "n1a,n2a"),
    ],
)
def test_names_fold_into_the_usual_hostlist(names: list[str], text: str) -> None:
    assert render(names) == text


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("n[1", 1, "never closed"),
        ("n]1", 1, "without"),
        ("n[1[2]]", 3, "inside"),
        ("n[]", 2, "not a number"),
        ("n[1,,2]", 4, "not a number"),
        ("n[5-3]", 2, "backwards"),
        ("n[0-15/2]", 2, "not a number"),
        ("ok,n;rm -rf", 4, "cannot stand"),
        ("ok,-x", 3, "not a host name"),
        ("(null)", 0, "cannot stand"),
        ("nöde", 1, "cannot stand"),
        ("n[1-70000]", 2, "more than 65536"),
        ("n[0-65535],m", 11, "more than 65536"),
        ("n[1-300]m[1-300]", 0, "more than 65536"),
        ("n" * 300, 0, "not a host name"),
        ("n[1-9999999999999999999999]", 2, "not a number"),
    ],
)
def test_garbage_is_refused_with_its_place_and_a_fix(text: str, position: int, words: str) -> None:
    with pytest.raises(HostlistError, match=words) as caught:
        expand(text)
    assert caught.value.position == position
    assert caught.value.fix.endswith(".") and caught.value.fix in str(caught.value)


def test_a_name_that_is_none_is_not_folded() -> None:
    with pytest.raises(HostlistError, match="not a host name"):
        render(["n1", "n[2-3]"])


def test_the_largest_list_is_still_taken() -> None:
    assert len(expand("n[0-65535]")) == MAX_HOSTS
    assert render(expand("n[00000-65535]")) == "n[00000-65535]"


@settings(max_examples=150, deadline=None)
@given(NAMES)
def test_expanding_what_was_rendered_gives_the_sorted_unique_names(names: list[str]) -> None:
    assert expand(render(names)) == sorted(set(names), key=natural)


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="ngr01290-[],. \t;(\x00é", max_size=30))
def test_any_text_expands_or_is_refused(text: str) -> None:
    try:
        names = expand(text)
    except HostlistError as refused:
        assert 0 <= refused.position <= len(text)
    else:
        assert set(expand(render(names))) == set(names)


def test_scontrol_expands_and_folds_the_same(tmp_path: Path) -> None:
    need("scontrol", "slurm-client")
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=x\nSlurmctldHost=localhost\nNodeName=a\nPartitionName=p Nodes=ALL\n")
    env = {**os.environ, "SLURM_CONF": str(conf)}

    def shown(text: str) -> list[str]:
        asked = ["scontrol", "show", "hostnames", text]
        return subprocess.run(asked, check=True, env=env, capture_output=True, text=True, timeout=20).stdout.split()

    for text in ("n[001-003,007],login1", "r[1-2]n[08-10]", "n[99-101]", "n[3,1,1]", "n[9,09-10]", "a,,b", "[7-8]"):
        assert shown(text) == expand(text)
        assert shown(render(expand(text))) == expand(render(expand(text)))


@pytest.mark.parametrize("text", [",", "a[" + "1," * 70_000 + "1]", "," * 2_000_001, "a" * 2_000_001])
def test_a_text_that_only_costs_time_is_refused_early(text: str) -> None:
    """Within memory that grows with what a list may hold, not with what was sent."""
    if text == ",":
        assert expand(text) == []
        return
    with pytest.raises(HostlistError, match="more than"):
        expand(text)
