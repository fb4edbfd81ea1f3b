"""The table of rules: every example holds, no literal is common, and the file runs where the wrapper runs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from importlib.resources import files
from pathlib import Path
from types import ModuleType

import pytest

from detectors.joblog import phrases
from detectors.joblog import rules as rules_of
from detectors.joblog.rules import LEVELS, Rule, RuleError, classify_lines, read_table
from tests.corpora.joblogs import healthy
from tests.detectors.joblog.reads import rules

TEXT = (files("detectors") / "tables" / "joblog_rules.toml").read_text(encoding="utf-8")
TABLE = rules().table
#: The names of the project's list of failure classes, exactly.
CLASSES = """
    cuda_oom host_oom_killed nccl_timeout_hang nccl_remote_peer_failure nccl_local_config_error network_link_error
    ecc_uncorrectable ecc_row_remap_pending gpu_fallen_off_bus nvlink_error gsp_error gpu_hardware_other
    illegal_memory_access device_side_assert driver_mismatch fabric_manager_not_ready cuda_library_init_failure
    nan_or_loss_divergence shared_memory_exhausted dataloader_worker_killed disk_full filesystem_io_error
    checkpoint_corrupt_or_mismatch user_code_exception import_or_compile_failure preempted_or_cancelled time_limit
    node_fail rendezvous_failure port_in_use permission_denied hub_download_failure segfault thermal_or_power
    unschedulable_resources unknown_insufficient_evidence container_start_failure storage_service_error
    clean_success"""


@pytest.mark.parametrize("rule", TABLE.rules, ids=lambda rule: rule.name)
def test_a_rule_matches_its_example_and_not_its_near_miss(rule: Rule) -> None:
    def fires(line: str) -> bool:
        return any(literal in line for literal in rule.literals) and bool(rule.pattern.search(line))

    assert fires(rule.match)
    assert not fires(rule.miss)
    assert rule.source


def test_the_classes_are_those_of_the_list_and_each_but_clean_has_a_rule() -> None:
    assert set(TABLE.classes) == set(CLASSES.split())
    assert {rule.log_class for rule in TABLE.rules if rule.level != "good"} == set(CLASSES.split()) - {"clean_success"}
    assert {name for rule in TABLE.rules for name in rule.clears} <= {rule.name for rule in TABLE.rules}
    assert all(known.level in LEVELS for known in TABLE.classes.values())


def test_an_example_is_best_named_by_a_rule_of_its_class() -> None:
    wrong = {
        rule.name: best[0].name
        for rule in TABLE.rules
        if (best := TABLE.best(rule.match)) is None or best[0].log_class != rule.log_class
        if best is not None
    }
    assert not wrong


def test_the_reader_reads_the_table_as_toml_does() -> None:
    whole = tomllib.loads(TEXT)
    assert [(r["name"], tuple(r["literals"]), r["pattern"]) for r in whole["rule"]] == [
        (r.name, r.literals, r.pattern.pattern) for r in TABLE.rules
    ]
    assert [c["name"] for c in whole["class"]] == list(TABLE.classes)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("[[rule]]\nname = 'x'\nclass = 'nowhere'\n", "nowhere"),
        ("[[rule]]\nname = x\n", "literal string"),
        ("words\n", "line 1"),
        ("[[thing]]\nname = 'x'\n", "neither"),
    ],
)
def test_a_table_that_cannot_be_read_says_where(wrong: str, says: str) -> None:
    with pytest.raises(RuleError, match=says):
        read_table(wrong)


def test_no_literal_stands_in_more_than_one_percent_of_benign_lines() -> None:
    lines = "".join(healthy(seed, steps=80) for seed in range(120)).encode().split(b"\n")
    found = Counter(n for line in lines for n in rules().scanner.which(line))
    common = {rules().scanner.literals[n]: k / len(lines) for n, k in found.items() if k > 0.01 * len(lines)}
    assert not common
    assert sum(line in rules().scanner for line in lines) < 0.03 * len(lines)


def test_no_pattern_takes_more_than_linear_time() -> None:
    for rule in TABLE.rules:
        literal = rule.literals[0]
        for filler in ("a", " ", "1", "(", "error ", literal):
            rule.pattern.search((literal + filler * (8192 // len(filler)))[:8192])


@pytest.mark.parametrize("module", [phrases, rules_of], ids=lambda module: module.__name__.rpartition(".")[2])
def test_what_the_wrapper_carries_needs_the_standard_library_only_and_python_3_8(module: ModuleType) -> None:
    file = Path(str(module.__file__))
    source = file.read_text(encoding="utf-8")
    tree = ast.parse(source, feature_version=(3, 8))
    names = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert {name.split(".")[0] for name in names - {phrases.__name__}} <= set(sys.stdlib_module_names)
    new = r"\.removeprefix\(|\.removesuffix\(|zip\([^)]*strict|functools\.cache\b|\bmatch \w+:|tomllib|slots=True"
    assert not re.search(new, source)
    script = f"import sys; sys.path.insert(0, {str(file.parents[2])!r}); import {module.__name__}"
    done = subprocess.run(
        [sys.executable, "-S", "-I", "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_program_text_that_a_traceback_quotes_names_nothing() -> None:
    lines = ['  File "train.py", line 3, in main', '    raise RuntimeError("CUDA out of memory")', "KeyError: 'lr'"]
    hit = classify_lines(TABLE, lines)
    assert hit is not None
    assert hit.log_class == "user_code_exception"


def test_an_exception_that_python_threw_away_is_no_failure() -> None:
    lines = ["step 1 loss 2.0", "Exception ignored in: <function X.__del__>", "AssertionError: can only test a child"]
    lines += ["step 2 loss 1.9", "step 3 loss 1.8", "Training completed successfully"]
    assert classify_lines(TABLE, lines) is None
