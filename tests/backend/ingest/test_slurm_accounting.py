"""The accounting as a source: what is asked, what a version lacks, late records, marks; a real slurmdbd."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from backend.clients.slurm import Ran, SlurmCli
from backend.clients.slurm_accounting import Accounting, joined, parse_events
from backend.facts import AttemptFacts, Batch, OutageFacts
from backend.ingest.base import Follows, Source, SourceError
from backend.ingest.slurm_accounting import CHUNK_S, DEEP_S, OVERLAP_S, SlurmAccountingSource
from tests.fakes.slurmdbd import NEW, OLD, Row, Slurmdbd
from tests.services.slurm import SlurmCluster, slurm

NOW = 1_780_000_000


def source(dbd: Slurmdbd, reach_s: float = 7200.0, asked: list[tuple[str, ...]] | None = None) -> SlurmAccountingSource:
    def run(command: Sequence[str], env: Mapping[str, str], timeout_s: float) -> Ran:
        if asked is not None:
            asked.append(tuple(command))
        return dbd.run(command, env, timeout_s)

    return SlurmAccountingSource(Accounting(SlurmCli(run=run, now=lambda: float(dbd.now))), reach_s)


def job(number: int = 7, submit: int = NOW - 600, start: int = 0, end: int = 0) -> Row:
    state = "COMPLETED" if end else ("RUNNING" if start else "PENDING")
    return Row(number, submit, 0, "ada", "llm", "n1", start=start, end=end, state=state)


def read(from_: SlurmAccountingSource, dbd: Slurmdbd) -> Batch:
    return from_.read(frozenset(), dbd.now - 60.0, float(dbd.now))


def test_each_row_is_told_once_and_again_when_it_changes() -> None:
    dbd = Slurmdbd(NOW, [job(start=NOW - 500)])
    accounting: Source = source(dbd)
    assert isinstance(accounting, Follows)
    (running,) = accounting.read(frozenset(), NOW - 60.0, float(NOW)).attempts
    assert (running.state, running.start, running.end, running.source) == ("RUNNING", NOW - 500.0, None, "sacct")
    dbd.now += 60
    assert accounting.read(frozenset(), NOW, NOW + 60.0).attempts == ()
    dbd.rows[0].end, dbd.rows[0].state = NOW + 30, "FAILED"
    (ended,) = accounting.read(frozenset(), NOW, NOW + 60.0).attempts
    assert (ended.state, ended.end) == ("FAILED", NOW + 30.0)


@pytest.mark.parametrize(("columns", "restart", "unit"), [(OLD, -1, ""), (NEW, 0, "s0X7")])
def test_only_what_a_version_knows_is_asked(columns: tuple[str, ...], restart: int, unit: str) -> None:
    dbd, asked = Slurmdbd(NOW, [job(start=NOW - 500)], columns=columns), list[tuple[str, ...]]()
    (one,) = read(source(dbd, asked=asked), dbd).attempts
    assert (one.restart, one.unit, one.excluded) == (restart, unit, ("n8", "n9"))
    fields = next(command[command.index("-o") + 1] for command in asked if "-o" in command).split(",")
    assert fields[0] == "JobIDRaw" and set(fields) <= set(columns) and ("Restarts" in fields) is (columns is NEW)


def test_a_long_past_is_read_a_day_at_a_time() -> None:
    dbd = Slurmdbd(NOW, [job(i, NOW - i * 86_400, NOW - i * 86_400 + 5, NOW - i * 86_400 + 90) for i in range(1, 7)])
    accounting = source(dbd, reach_s=6.5 * 86_400)
    told: list[str] = []
    batches: list[Batch] = []
    while not batches or batches[-1].more:
        batches.append(read(accounting, dbd))
        told += [a.job for a in batches[-1].attempts]
    assert sorted(told) == [str(i) for i in range(1, 7)] and len(batches) == 7
    assert all(batch.end - batch.start <= CHUNK_S + max(OVERLAP_S, DEEP_S) for batch in batches)
    assert float(batches[-1].marks["to"] or 0) == NOW


def test_it_goes_on_from_what_was_committed() -> None:
    dbd = Slurmdbd(NOW, [job(start=NOW - 500, end=NOW - 400)])
    marks = {name: str(at) for name, at in read(source(dbd), dbd).marks.items()}
    dbd.now += 300
    asked: list[tuple[str, ...]] = []
    later = source(dbd, asked=asked)
    later.resume(marks)
    batch = read(later, dbd)
    assert [a.job for a in batch.attempts] == ["7"]  # told again: the store knows it
    assert batch.start <= NOW - OVERLAP_S and batch.end == NOW + 300


def test_a_record_that_came_days_late_is_found() -> None:
    """slurmdbd was away for two days; what slurmctld kept for it comes at once, with old times."""
    dbd = Slurmdbd(NOW)
    accounting = source(dbd)
    read(accounting, dbd)
    dbd.now += 200_000
    for _ in range(4):
        read(accounting, dbd)
    dbd.rows.append(job(8, NOW + 1000, NOW + 1010, NOW + 2000))
    dbd.now += 6 * 3600 + 60
    assert [a.job for a in read(accounting, dbd).attempts] == ["8"]


def test_a_job_that_vanished_from_the_answers_is_asked_for_by_its_number() -> None:
    dbd = Slurmdbd(NOW, [job(start=NOW - 500)])
    asked: list[tuple[str, ...]] = []
    accounting = source(dbd, asked=asked)
    read(accounting, dbd)
    dbd.now += 5 * 3600
    read(accounting, dbd)
    dbd.rows[0].end, dbd.rows[0].state = NOW + 10, "NODE_FAIL"  # told hours late
    dbd.now += 60
    (late,) = read(accounting, dbd).attempts
    assert (late.state, late.end) == ("NODE_FAIL", NOW + 10.0)
    assert any("-j" in command for command in asked)


def test_rows_that_cannot_be_read_are_counted_once() -> None:
    dbd = Slurmdbd(NOW, [job(start=NOW - 500)])
    dbd.rows.append(Row(9, NOW - 50, 0, "ada", "llm", "n[1", start=NOW - 40, state="RUNNING"))
    accounting = source(dbd)
    assert read(accounting, dbd).dropped == {"rows of sacct that could not be read": 1}
    assert read(accounting, dbd).dropped == {} and accounting.counts()["unread"] == 1


def test_the_parts_of_a_resized_job_are_one_attempt() -> None:
    parts = [
        AttemptFacts("7", -1, state="RESIZING", submit=10.0, start=20.0, end=50.0, nodes=("a", "b")),
        AttemptFacts("7", -1, state="COMPLETED", submit=50.0, start=50.0, end=90.0, nodes=("a",)),
        AttemptFacts("7", -1, state="COMPLETED", submit=500.0, start=510.0, end=590.0, nodes=("a",)),
    ]
    one, two = joined(reversed(parts))
    assert (one.submit, one.start, one.end, one.nodes, two.submit) == (10.0, 20.0, 90.0, ("a",), 500.0)


def test_outages_keep_reasons_of_any_kind() -> None:
    text = (
        "Cluster|NodeName|TimeStart|TimeEnd|State|User|Reason\n"
        "main||1796066049|Unknown|||Cluster Registered TRES\n"
        "main|n1|1796066052|1796066064|DRAIN|root(0)|NHC: a | b failed\nsecond line\n"
        "main|n2|1796066053|Unknown|DOWN*|slurm(64030)|Not responding\n"
    )
    assert parse_events(text) == [
        OutageFacts("n1", 1796066052.0, 1796066064.0, "DRAIN", "NHC: a | b failed second line", "root", "sacctmgr"),
        OutageFacts("n2", 1796066053.0, None, "DOWN*", "Not responding", "slurm", "sacctmgr"),
    ]


@pytest.mark.parametrize("words", ["Slurm accounting storage is disabled", "You are not running a database"])
def test_a_cluster_without_accounting_is_read_as_empty(words: str) -> None:
    accounting = SlurmAccountingSource(Accounting(SlurmCli(run=lambda *asked: Ran(1, "", words))), 60.0)
    assert accounting.read(frozenset(), 0.0, 60.0).attempts == () and accounting.counts() == {"no accounting": 1}


def test_silence_is_a_source_error_and_the_next_question_is_smaller() -> None:
    dbd = Slurmdbd(NOW)
    failing = [True]

    def run(command: Sequence[str], env: Mapping[str, str], timeout_s: float) -> Ran:
        if failing[0] and "-S" in command:
            raise TimeoutError
        return dbd.run(command, env, timeout_s)

    accounting = SlurmAccountingSource(Accounting(SlurmCli(run=run)), 86_400.0)
    with pytest.raises(SourceError, match="no answer") as failed:
        read(accounting, dbd)
    assert not failed.value.permanent
    failing[0] = False
    accounting.resume({})
    batch = read(accounting, dbd)
    assert batch.more and batch.end - batch.start <= CHUNK_S / 4 + OVERLAP_S


# --- the real thing -------------------------------------------------------------------------------------------------


@pytest.mark.services
def test_a_real_accounting_gives_every_attempt_and_outage() -> None:
    with slurm(3, accounting=True) as cluster:
        _real(cluster)


def _real(cluster: SlurmCluster) -> None:
    cli = SlurmCli(str(cluster.conf), 20)
    accounting = SlurmAccountingSource(Accounting(cli), 86_400.0)
    long = cluster.submit("-N2", "--gres=gpu:h100:4", "-J", "a b|c", "--comment=two\nlines | x", "--exclude=gpu-0002")
    bad = cluster.submit("-N1", command="exit 3")
    cluster.wait("running job", lambda: any(a.job == long and a.state == "RUNNING" for a in cli.jobs()))
    cluster.run("scontrol", "update", "NodeName=gpu-0002", "State=DRAIN", "Reason=NHC: a | b failed")
    cluster.run("scontrol", "requeue", long)
    held = cluster.submit("--hold")
    cluster.run("scancel", held)
    seen: dict[tuple[str, float | None], AttemptFacts] = {}
    outages: dict[str, OutageFacts] = {}

    def told() -> bool:
        batch = accounting.read(frozenset(), 0.0, cli.now())
        assert not batch.dropped
        seen.update({(a.job, a.submit): a for a in batch.attempts})
        outages.update({one.node: one for one in batch.outages})
        ended = {a.job for a in seen.values() if a.end is not None}
        return {long, bad, held} <= ended and "gpu-0002" in outages and sum(a.job == long for a in seen.values()) == 2

    cluster.wait("attempts in the accounting", told)
    first = min((a for a in seen.values() if a.job == long), key=lambda a: a.submit or 0.0)
    assert (first.state, first.run, first.nodes) == ("REQUEUED", "a b|c", ("gpu-0000", "gpu-0001"))
    assert first.gpus_per_node == 4 and first.excluded == ("gpu-0002",) and first.outputs and first.limit_s is None
    failed = next(a for a in seen.values() if a.job == bad)
    assert (failed.state, failed.exit_code) == ("FAILED", 3)
    out = outages["gpu-0002"]
    assert (out.reason, out.end, out.user) == ("NHC: a | b failed", None, "root")
