"""The table of families covers the catalogue and does not contradict it."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from itertools import combinations

from backend.score.families import families
from detectors.catalogue import load

KINDS = load().kinds


def test_every_kind_has_a_family_and_every_member_is_a_kind() -> None:
    assert set(families().of) == set(KINDS)


def test_kinds_of_one_log_class_share_a_family() -> None:
    akin = families().akin
    for a, b in combinations(KINDS.values(), 2):
        if a.log_class == b.log_class and a.log_class not in ("-", "any"):
            assert akin(a.kind, b.kind), (a.kind, b.kind)


def test_symptoms_say_nothing_of_what_broke() -> None:
    akin = families().akin
    symptoms = {"job_hang", "job_slow", "job_failed", "crash_loop"}
    assert not [(s, k) for s in symptoms for k in set(KINDS) - symptoms if akin(s, k)]


def test_kinship_is_mutual_and_no_stranger_is_kin() -> None:
    akin = families({"a": ["x", "y"], "b": ["y", "z"]}).akin
    assert akin("x", "y") and akin("y", "x") and akin("y", "z")
    assert not akin("x", "z") and not akin("x", "new")
    assert akin("new", "new")


def test_no_family_is_empty_or_repeats_a_kind() -> None:
    table = tomllib.loads(files("backend.score").joinpath("families.toml").read_text(encoding="utf-8"))["families"]
    assert all(kinds and len(kinds) == len(set(kinds)) for kinds in table.values())
