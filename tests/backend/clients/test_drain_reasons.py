"""Reasons as people, health checks and Slurm write them: who, about what, which GPU, since when."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.clients.drain_reasons import parse_reason


@pytest.mark.parametrize(
    ("reason", "who", "kind"),
    [
        ("NHC: check_fs_mount:  /scratch not mounted", "nhc", "filesystem"),
        ("NHC check_hw_ib: no active IB port", "nhc", "infiniband"),
        ("[node_problem] GPU 3 Xid 79", "soperator", "gpu_bus_loss"),
        ("[user_problem] out of RAM", "soperator", "memory"),
        ("sunk:verify-undrain", "sunk", "check"),
        ("[HC] dcgm diag failed on gpu2", "hc", "gpu"),
        ("NVSentinel: GpuNvlinkWatch", "nvsentinel", "nvlink"),
        ("Kill task failed", "slurm", "kill_task_failed"),
        ("Not responding", "slurm", "not_responding"),
        ("Node unexpectedly rebooted", "slurm", "reboot"),
        ("gres/gpu count reported lower than configured (7 < 8)", "slurm", "gpu_count"),
        ("gres/nic count reported lower than configured (1 < 2)", "slurm", "gres_count"),
        ("Low RealMemory (reported:15000 < 100.00% of configured:16000)", "slurm", "memory_size"),
        ("Low socket*core*thread count, Low CPUs", "slurm", "cpu_count"),
        ("Prolog error", "slurm", "prolog"),
        ("Epilog error", "slurm", "epilog"),
        ("Duplicate jobid", "slurm", "duplicate_job"),
        ("batch job complete failure", "slurm", "prolog"),
        ("disk swap, back on Monday", "person", "disk"),
        ("RMA with vendor, OPS-1234", "person", "repair"),
        ("driver upgrade to 550", "person", "maintenance"),
        ("ECC memory error", "person", "gpu_ecc"),
        ("bob is looking into it", "person", "other"),
        ("[watchkeeper] gpu_bus_loss gpu=3 inc=812", "watchkeeper", "gpu_bus_loss"),
    ],
)
def test_a_reason_says_who_and_what(reason: str, who: str, kind: str) -> None:
    said = parse_reason(reason, "root")
    assert said is not None and (said.who, said.kind) == (who, kind)
    assert said.by_program is (who != "person")


def test_codes_gpus_and_counts_are_read() -> None:
    said = parse_reason("[node_problem] gpu:5 and GPU 7: Xid 94, XID=48")
    assert said is not None and said.xids == (94, 48) and said.gpus == (5, 7)
    short = parse_reason("gres/gpu count reported lower than configured (7 < 8)")
    assert short is not None and short.short == (7, 8)


def test_the_stamp_of_scontrol_tells_who_set_it_and_when() -> None:
    said = parse_reason("disk swap [today] [ada@1796065824]")
    assert said is not None and (said.text, said.by, said.at) == ("disk swap [today]", "ada", 1796065824.0)
    kept = parse_reason("disk swap", "bob", 5.0)
    assert kept is not None and (kept.by, kept.at) == ("bob", 5.0)


def test_a_person_may_use_slurms_words_and_only_our_incident_is_ours() -> None:
    theirs = parse_reason("Not responding to my mails", "ada")
    assert theirs is not None and theirs.who == "person"
    forged = parse_reason("see inc=12 of the other team", "ada")
    ours = parse_reason("[watchkeeper] nfs_slow inc=12", "root")
    assert forged is not None and forged.incident == 0 and ours is not None and ours.incident == 12


@pytest.mark.parametrize("nothing", ["", "  ", "none", "(null)", "N/A"])
def test_no_reason_is_none(nothing: str) -> None:
    assert parse_reason(nothing) is None


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=80))
def test_any_text_is_a_reason_or_none(text: str) -> None:
    said = parse_reason(text)
    assert said is None or (said.who and said.kind)
