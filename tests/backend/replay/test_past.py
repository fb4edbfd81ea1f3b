"""History is taken in once, wherever it is stopped; it opens nothing, and what is known stands against it."""

from __future__ import annotations

import gzip
import subprocess
import sys
from datetime import UTC
from pathlib import Path
from typing import Any

import orjson
import pytest
from sqlmodel import func, select

from backend import pipeline
from backend.clock import ManualClock, utc
from backend.commands.import_ import lender
from backend.facts import Batch, DeviceLabel
from backend.ingest.bundle.folder import BundleError
from backend.model.cluster import Node
from backend.model.events import Event
from backend.model.incidents import Incident
from backend.model.work import Allocation, Attempt
from backend.replay.past import PORTION, Past, Told, sources_of
from backend.settings import Settings
from backend.store.engine import Store
from tests.backend.replay.live import label, nodes, scrape, watch_on
from tests.bundles import T, bundle, node, row, sacct

ROOT = Path(__file__).resolve().parents[3]
LOST = "NVRM: Xid (PCI:0000:13:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


NOT_OVER = "attempts that are not over, which the scheduler tells of"


def take(store: Store, *paths: Path, host: str = "", **more: Any) -> Told:
    return Past(lender(Settings(), "main", store), host, **more).take(sources_of(paths, UTC)[0])


def how_many(store: Store) -> int:
    """Events and attempts that stand in the store, counted there: a kill must come while more are on their way."""
    with store.read() as session:
        counts = [session.exec(select(func.count()).select_from(table)).one() for table in (Event, Attempt)]
    return sum(counts)


def all_of(store: Store, table: type[Any]) -> list[Any]:
    with store.read() as session:
        return list(session.exec(select(table)).all())


def kernel_log(path: Path, lines: int, every: int = 10) -> Path:
    """A line a second, each ``every``-th with an Xid, and some of other programs."""
    said = []
    for n in range(lines):
        at = f"2026-02-02T{n // 3600 % 24:02d}:{n // 60 % 60:02d}:{n % 60:02d}.{n // 86_400:03d}+00:00"
        said.append(f"{at} gpu-{n % 7:04d} kernel: " + (LOST if n % every == 0 else f"usb 1-{n}: new device"))
    path.write_text("\n".join(said) + "\n")
    return path


def accounts(path: Path, jobs: int) -> Path:
    path.write_text(
        sacct(*(row(JobIDRaw=100 + n, NodeList=f"gpu-[{n % 50:04d}-{n % 50 + 1:04d}]") for n in range(jobs)))
    )
    return path


# --- what is taken --------------------------------------------------------------------------------------------------


def test_events_are_late_and_open_nothing(store: Store, tmp_path: Path, clock: ManualClock) -> None:
    told = take(store, kernel_log(tmp_path / "kern.log", 30))
    assert (told.events, told.lines, told.bad.count) == (3, 30, 0)
    rows = all_of(store, Event)
    assert {(r.late, r.source, r.namespace, r.code) for r in rows} == {(True, "import", "xid", "79")}
    watch = watch_on(store, clock)
    while pipeline.observe(watch):
        pass
    assert watch.cursor == max(r.id for r in rows)
    assert not all_of(store, Incident)


def test_attempts_that_are_over_come_with_their_spans(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "sacct.txt"
    running = row(JobIDRaw=9, State="RUNNING", End="Unknown")
    file.write_text(
        sacct(row(JobIDRaw=7, NodeList="gpu-[0001-0002]"), row(JobIDRaw=8, State="NODE_FAIL"), running, row(State="?"))
    )
    told = take(store, file)
    assert (told.attempts, told.bad.count, told.left_out[NOT_OVER]) == (2, 1, 1)
    assert {(a.job, a.state) for a in all_of(store, Attempt)} == {("7", "COMPLETED"), ("8", "NODE_FAIL")}
    spans = all_of(store, Allocation)
    assert {(s.job, s.node) for s in spans} == {("7", "gpu-0001"), ("7", "gpu-0002"), ("8", "gpu-0001")}
    assert all(s.end is not None for s in spans)


def test_without_a_scheduler_attempts_that_are_not_over_come_too(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(sacct(row(JobIDRaw=1, State="RUNNING", End="Unknown"), row(JobIDRaw=2)))
    assert take(store, path, unfinished=True).attempts == 2
    assert {(a.job, a.state, a.end is None) for a in all_of(store, Attempt)} == {
        ("1", "RUNNING", True),
        ("2", "COMPLETED", False),
    }
    path.write_text(sacct(row(JobIDRaw=1), row(JobIDRaw=2)))  # the dump of the day after
    take(store, path, unfinished=True)
    assert {(a.job, a.state) for a in all_of(store, Attempt)} == {("1", "COMPLETED"), ("2", "COMPLETED")}
    assert not [span for span in all_of(store, Allocation) if span.end is None]


# --- logs that count from boot --------------------------------------------------------------------------------------

RTC = "rtc_cmos 00:01: setting system clock to 2026-02-02T02:40:00 UTC (1770000000)"


TWICE = [(1.0, RTC), (500.0, LOST), (0.0, "Linux version 6.8"), (4.0, LOST)]
AUDIT = "audit: type=2000 audit(1770000000.500:1): state=initialized"


@pytest.mark.parametrize(
    ("lines", "boot", "wanted", "bad"),
    [
        ([(1.5, RTC), (10.25, LOST)], None, [T + 8.75], 0),
        ([(0.5, LOST), (2.0, AUDIT), (9.0, LOST)], None, [T - 1.0, T + 7.5], 0),
        ([(1.0, AUDIT), (2.0, RTC), (5.0, LOST), (4.9999, LOST)], None, [T + 2.9999, T + 3], 0),
        ([(3.0, LOST)], T + 100.0, [T + 103.0], 0),
        ([(3.0, LOST)], None, [], 1),
        (TWICE, T + 9000.0, [T + 499.0, T + 9004.0], 0),
        (TWICE, None, [T + 499.0], 2),
    ],
)
def test_lines_that_count_from_boot_get_the_time_that_their_log_or_a_person_tells(
    store: Store, tmp_path: Path, lines: list[tuple[float, str]], boot: float | None, wanted: list[float], bad: int
) -> None:
    path = tmp_path / "dmesg"
    path.write_text("".join(f"[{at:12.6f}] {text}\n" for at, text in lines))
    told = take(store, path, host="gpu-0001", boot=boot)
    found = sorted(event.at.timestamp() for event in all_of(store, Event))
    assert found == pytest.approx(wanted, abs=1e-5)
    assert told.bad.count == bad and all("--boot" in row.why for row in told.bad.told)


def test_a_raw_ring_buffer_with_levels_is_read_too(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "dmesg.gz"
    path.write_bytes(gzip.compress(f"<5>[    1.500000] {RTC}\n<3>[   10.250000] {LOST}\n".encode()))
    take(store, path, host="gpu-0001")
    (event,) = all_of(store, Event)
    assert (event.at.timestamp(), event.node, event.code) == (T + 8.75, "gpu-0001", "79")


def test_a_bundle_gives_its_nodes_jobs_and_lines(store: Store, tmp_path: Path) -> None:
    said: dict[str, object] = {"ts": T, "host": "gpu-0001", "source": "kernel", "line": LOST}
    folder = bundle(
        tmp_path / "b",
        nodes=[node("gpu-0001", 8)],
        jobs=sacct(row()),
        logs={"kernel": [said, {"no": 1}]},
        telemetry={"dcgm": "# EOF\n"},
    )
    sources, left_out = sources_of([folder], UTC)
    told = Past(lender(Settings(), "main", store)).take(sources)
    assert (told.nodes, told.attempts, told.events, told.bad.count) == (1, 1, 1, 1)
    assert left_out == {"files of telemetry": 1}
    (event,) = all_of(store, Event)
    assert event.entity_name == "gpu-0001/gpu3"


def test_the_present_stands_against_the_past(store: Store, tmp_path: Path, clock: ManualClock) -> None:
    watch = watch_on(store, clock)
    pipeline.accept(watch, Batch("topology", 0, 0, nodes=nodes(2, 4)))
    before = [r.model_dump() for r in all_of(store, Node)]
    old = node("gpu-0000", 1) | {"rack": "old"}
    moved = node("gpu-0009") | {"gpus": [{"index": 0, "uuid": label(1, 2).uuid, "pci_bus_id": "00000000:10:00.0"}]}
    told = take(store, bundle(tmp_path / "b", nodes=[old, moved]))
    assert told.nodes == 1
    assert told.left_out["nodes that are known already"] == 1
    assert [r.model_dump() for r in all_of(store, Node) if r.name != "gpu-0009"] == before
    again = watch_on(store, clock)
    assert again.inventory.entity("gpu-0001", "0000:12:00").id == label(1, 2).uuid


def test_a_node_that_history_told_of_is_heard_once_it_speaks(store: Store, tmp_path: Path, clock: ManualClock) -> None:
    watch = watch_on(store, clock)
    take(store, kernel_log(tmp_path / "kern.log", 30))
    assert {r.last_seen < clock.now() for r in all_of(store, Node)} == {True}
    now = clock.now().timestamp()
    for at in (now, now + 60.0):
        clock.set(utc(at))
        pipeline.accept(watch, scrape(at, [DeviceLabel("gpu", "gpu-0000", "GPU-x", index="0")]))
    with store.read() as session:
        from backend.store.cluster import nodes as known

        heard = {r.name: r.last_seen for r in known(session, "main")}
    assert heard["gpu-0000"] == clock.now()


# --- lines as people keep them --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "host"),
    [
        (f"2026-02-02T03:04:05,123456+01:00 gpu-0001 kernel: {LOST}", ""),
        (f"2026-02-02T03:04:05+0100 gpu-0001 kernel: {LOST}", ""),
        (f"2026-02-02T02:04:05,123456+00:00 {LOST}", "gpu-0001"),
        (f"Feb  2 02:04:05 gpu-0001 kernel: [ 77.12] {LOST}", ""),
        (f"[Mon Feb  2 02:04:05 2026] {LOST}", "gpu-0001"),
        (orjson.dumps({"ts": 1769997845, "host": "gpu-0001", "source": "kernel", "line": LOST}).decode(), ""),
        (
            orjson.dumps(
                {
                    "__REALTIME_TIMESTAMP": "1769997845000000",
                    "_HOSTNAME": "gpu-0001",
                    "_TRANSPORT": "kernel",
                    "MESSAGE": LOST,
                }
            ).decode(),
            "",
        ),
    ],
)
def test_a_line_is_read_in_every_spelling(sqlite_store: Store, tmp_path: Path, line: str, host: str) -> None:
    (tmp_path / "log").write_text(line + "\n")
    told = take(sqlite_store, tmp_path / "log", host=host)
    assert (told.events, told.bad.told) == (1, [])
    (event,) = all_of(sqlite_store, Event)
    assert event.node == "gpu-0001"
    assert int(event.at.timestamp()) == 1_769_997_845


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("[   12.345678] NVRM: Xid", "say it with --boot"),
        (f"[Mon Feb  2 02:04:05 2026] {LOST}", "names no host"),
        ("2026-02-31T03:04:05+01:00 gpu-0001 kernel: x", "a time that there is not"),
        ("hello", "begins with no time"),
        ("{broken", "is not JSON"),
        ("1999-02-01T03:04:05+01:00 gpu-0001 kernel: x", "outside the years"),
    ],
)
def test_a_line_that_cannot_be_read_is_listed_with_the_reason(
    sqlite_store: Store, tmp_path: Path, line: str, why: str
) -> None:
    (tmp_path / "log").write_text(f"2026-02-02T03:04:05+01:00 gpu-0001 kernel: fine\n{line}\n")
    told = take(sqlite_store, tmp_path / "log")
    ((bad),) = told.bad.told
    assert (bad.line, why in bad.why) == (2, True), bad.why
    assert told.lines == 2


def test_what_a_job_printed_is_not_the_kernels_word(sqlite_store: Store, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(f"2026-02-02T03:04:05+01:00 gpu-0001 python3[77]: {LOST}\n")
    told = take(sqlite_store, tmp_path / "log", host="gpu-0002")
    assert (told.events, told.left_out["lines of other programs"]) == (0, 1)


# --- again, and stopped ---------------------------------------------------------------------------------------------


def test_a_second_run_takes_only_what_has_come_since(store: Store, tmp_path: Path) -> None:
    log, jobs = kernel_log(tmp_path / "kern.log", 100), accounts(tmp_path / "sacct.txt", 5)
    first = take(store, log, jobs)
    assert (first.events, first.attempts) == (10, 5)
    second = take(store, log, jobs)
    assert (second.events, second.duplicates, second.attempts, second.lines) == (0, 0, 0, 0)
    with log.open("a") as file:
        file.write(f"2026-03-02T03:04:05+00:00 gpu-0001 kernel: {LOST}\n")
    third = take(store, log, jobs)
    assert (third.events, third.lines) == (1, 1)


def test_accounting_that_was_written_anew_is_read_anew(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "sacct.txt"
    file.write_text(sacct(row(JobIDRaw=7), row(JobIDRaw=8, State="RUNNING", End="Unknown")))
    assert take(store, file).attempts == 1
    file.write_text(sacct(row(JobIDRaw=7), row(JobIDRaw=8, State="FAILED")))
    assert take(store, file).attempts == 2
    assert {(a.job, a.state) for a in all_of(store, Attempt)} == {("7", "COMPLETED"), ("8", "FAILED")}
    assert len(all_of(store, Allocation)) == 2


def test_the_same_file_elsewhere_doubles_nothing(store: Store, tmp_path: Path) -> None:
    log = kernel_log(tmp_path / "kern.log", 50)
    packed = tmp_path / "kern.log.gz"
    packed.write_bytes(gzip.compress(log.read_bytes()))
    assert take(store, log).events == 5
    again = take(store, packed)
    assert (again.events, again.duplicates, len(all_of(store, Event))) == (0, 5, 5)


def test_a_last_line_that_is_still_being_written_is_taken_once_it_is_whole(store: Store, tmp_path: Path) -> None:
    log, whole = tmp_path / "kern.log", f"2026-02-02T03:04:05+00:00 gpu-0001 kernel: {LOST}"
    log.write_text(f"2026-02-02T03:04:04+00:00 gpu-0001 kernel: x\n{whole[:60]}")
    assert take(store, log).events == 0
    log.write_text(f"2026-02-02T03:04:04+00:00 gpu-0001 kernel: x\n{whole}")
    assert take(store, log).events == 1
    assert take(store, log).duplicates == 1


def test_ctrl_c_keeps_what_was_done_and_the_next_run_goes_on(store: Store, tmp_path: Path) -> None:
    log = kernel_log(tmp_path / "kern.log", 3 * PORTION, every=100)

    def stop(done: int, total: int) -> None:
        if done > 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        take(store, log, progress=stop)
    assert len(all_of(store, Event)) == PORTION // 100
    told = take(store, log)
    assert (told.lines, told.duplicates) == (2 * PORTION, 0)
    assert len(all_of(store, Event)) == 3 * PORTION // 100


def test_a_path_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="cannot be read"):
        sources_of([tmp_path / "nothing"], UTC)


def test_kill_9_in_the_middle_doubles_and_loses_nothing(
    tmp_path: Path, request: pytest.FixtureRequest, store: Store
) -> None:
    log, jobs = kernel_log(tmp_path / "kern.log", 16 * PORTION, every=50), accounts(tmp_path / "sacct.txt", 2_500)
    config = tmp_path / "site.toml"
    url = store.engine.url.render_as_string(hide_password=False)
    config.write_text(f'[store]\nurl = "{url}"\nfolder = "{tmp_path}"\n')
    words = [sys.executable, "-m", "backend.cli", "import", str(log), str(jobs), "--config", str(config), "--json"]
    kills = 0
    for _ in range(2):
        child = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL)
        had = how_many(store)
        while child.poll() is None and how_many(store) == had:
            pass
        child.kill()
        kills += child.wait(60) == -9
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=120)
    told = orjson.loads(done.stdout)
    assert kills >= 1
    assert told["finished"]
    assert told["duplicates"] == 0
    assert told["before"] > 0
    assert len(all_of(store, Event)) == 16 * PORTION // 50
    assert len(all_of(store, Attempt)) == 2_500
    assert len(all_of(store, Allocation)) == 5_000
