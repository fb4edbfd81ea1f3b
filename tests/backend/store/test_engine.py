"""The store on both databases: transactions, snapshots, times, and refusals that say how to mend them."""

from __future__ import annotations

import stat
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError, StatementError
from sqlmodel import select

from backend.model.events import Cursor
from backend.model.incidents import Entry
from backend.store.engine import Store, StoreError, open_store
from backend.store.filesystem import is_network, network_type, type_of
from tests.conftest import NOW

ROOT = Path(__file__).resolve().parents[3]


def entry(at: datetime = NOW, **more: Any) -> Entry:
    return Entry(cluster="main", incident_id=1, at=at, what="opened", text="x", **more)


def test_a_write_is_kept_and_its_rows_stay_readable(store: Store) -> None:
    with store.write() as session:
        row = entry()
        session.add(row)
    assert row.text == "x"
    with store.read() as session:
        assert session.exec(select(Entry.id)).all() == [row.id]


def test_a_write_that_raises_leaves_nothing(store: Store) -> None:
    with pytest.raises(KeyError), store.write() as session:
        session.add(entry())
        session.flush()
        raise KeyError
    with store.read() as session:
        assert not session.exec(select(Entry)).all()
    with store.write() as session:
        session.add(entry())


def test_a_reader_cannot_write(store: Store) -> None:
    with pytest.raises(DBAPIError), store.read() as session:
        session.add(entry())
        session.flush()
    with store.write() as session:
        session.add(entry())


def test_a_reader_sees_one_moment(store: Store) -> None:
    with store.read() as session:
        assert not session.exec(select(Entry)).all()
        with store.write() as other:
            other.add(entry())
        assert not session.exec(select(Entry)).all()
    with store.read() as session:
        assert len(session.exec(select(Entry)).all()) == 1


def test_a_write_inside_a_write_is_refused_at_once(store: Store) -> None:
    with pytest.raises(RuntimeError, match="inside a write"), store.write(), store.write():
        pass
    with store.write() as session:
        session.add(entry())


def test_eight_writers_lose_no_count(store: Store) -> None:
    with store.write() as session:
        session.add(Cursor(cluster="main", name="n", position=0))

    def count() -> None:
        for _ in range(5):
            with store.write() as session:
                row = session.exec(select(Cursor).with_for_update()).one()
                row.position += 1

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    with store.read() as session:
        assert session.exec(select(Cursor)).one().position == 40


def test_times_come_back_aware_and_in_utc(store: Store) -> None:
    elsewhere = datetime(2026, 3, 1, 14, 0, 0, 123456, tzinfo=timezone(timedelta(hours=2)))
    with store.write() as session:
        session.add(entry(at=elsewhere))
    with store.read() as session:
        got = session.exec(select(Entry)).one().at
    assert got == elsewhere and got.tzinfo is UTC


def test_a_naive_time_is_refused(store: Store) -> None:
    with pytest.raises(StatementError, match="naive time"), store.write() as session:
        session.add(entry(at=datetime(2026, 3, 1)))  # noqa: DTZ001 (the mistake itself)


def test_nan_in_evidence_becomes_null(store: Store) -> None:
    with store.write() as session:
        session.add(entry(attrs={"value": float("nan"), "top": float("inf")}))
    with store.read() as session:
        assert session.exec(select(Entry)).one().attrs == {"value": None, "top": None}


@pytest.mark.parametrize("bad", ["a\x00b", "a\ud800b", "\x00", "\udfff\x00"])
def test_a_text_that_a_database_refuses_is_mended_not_lost(store: Store, bad: str) -> None:
    good = bad.translate({0: "\ufffd", 0xD800: "\ufffd", 0xDFFF: "\ufffd"})
    with store.write() as session:
        row = entry(actor=bad, attrs={"line": bad, bad: [bad, float("nan")], "n": 1})
        session.add(row)
        session.add_all([entry(actor=bad), entry(actor="fine")])
    with store.read() as session:
        got = session.get_one(Entry, row.id)
        assert got.actor == good
        assert got.attrs == {"line": good, good: [good, None], "n": 1}
        assert session.exec(select(Entry.actor).where(Entry.actor == bad)).all() == [good, good]


def test_backslashes_in_json_stay_what_they_are(store: Store) -> None:
    with store.write() as session:
        session.add(entry(attrs={"path": "C:\\u0000x", "é": "\\"}))
    with store.read() as session:
        assert session.exec(select(Entry)).one().attrs == {"path": "C:\\u0000x", "é": "\\"}


def test_the_id_of_a_deleted_row_is_never_given_again(store: Store) -> None:
    with store.write() as session:
        first = entry()
        session.add(first)
    with store.write() as session:
        session.delete(session.exec(select(Entry)).one())
    with store.write() as session:
        second = entry()
        session.add(second)
    assert first.id is not None and second.id is not None and second.id > first.id


def test_cursors_hold_more_than_32_bits(store: Store) -> None:
    with store.write() as session:
        session.add(Cursor(cluster="main", name="big", position=2**40))
    with store.read() as session:
        assert session.exec(select(Cursor)).one().position == 2**40


# --- opening --------------------------------------------------------------------------------------------------------


def test_an_empty_url_makes_a_private_file_in_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "watchkeeper-data"
    store = open_store("", folder)
    with store.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
    store.close()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "watchkeeper.db").stat().st_mode) == 0o600


def test_an_sqlite_url_names_the_file(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/mine.db", tmp_path / "folder")
    with store.write() as session:
        session.connection().exec_driver_sql("CREATE TABLE t (n)")
    store.close()
    assert (tmp_path / "mine.db").exists()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mysql://u:secret@h/d", "mysql"),
        ("nonsense", "not a database URL"),
        ("postgresql+psycopg://u:secret@h:port/d", "not a database URL"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
    ],
)
def test_an_unusable_url_says_what_to_write(url: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=says) as caught:
        open_store(url, tmp_path)
    assert "postgresql+psycopg://" in caught.value.fix
    assert "secret" not in str(caught.value)


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "watchkeeper.db").write_bytes(b"certainly not SQLite" * 100)
    with pytest.raises(StoreError, match=r"watchkeeper\.db"):
        open_store("", tmp_path)


def test_a_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(StoreError, match="taken") as caught:
        open_store("", tmp_path / "taken")
    assert "[store] folder" in caught.value.fix


def test_a_postgresql_that_does_not_answer_says_where_and_hides_the_password(tmp_path: Path) -> None:
    with pytest.raises(StoreError) as caught:
        open_store("postgresql://wk:hush%2Fhush@127.0.0.1:1/watch", tmp_path)
    said = str(caught.value)
    assert "127.0.0.1:1" in said and "'watch'" in said and "[store] url" in said
    assert "hush" not in said


@pytest.mark.services
def test_a_wrong_password_is_said_without_the_password(postgres_url: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="password authentication failed") as caught:
        open_store(postgres_url.replace("only-for-tests", "wrong-secret"), tmp_path)
    assert "wrong-secret" not in str(caught.value)


@pytest.mark.services
def test_a_plain_postgresql_url_takes_our_driver(postgres_url: str, tmp_path: Path) -> None:
    store = open_store(postgres_url.replace("postgresql+psycopg", "postgres"), tmp_path)
    assert store.dialect == "postgresql" and "only-for-tests" not in store.where
    store.close()


# --- network file systems -------------------------------------------------------------------------------------------

TABLE = r"""
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
30 22 0:40 / /home rw - nfs4 server:/home rw,vers=4.2
31 30 8:2 / /home/me/local rw master:1 - xfs /dev/sdb1 rw
32 22 0:41 / /my\040disk rw - fuse.sshfs me@host: rw
33 22 0:42 / /scratch rw - tmpfs none rw
34 22 0:43 / /scratch rw - lustre 10.0.0.1@o2ib:/fs rw
broken line
35 22 0:44 / /homeless rw - btrfs /dev/sdc rw
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/var/lib/x", "ext4"),
        ("/home/you", "nfs4"),
        ("/home/me/local/x", "xfs"),
        ("/my disk/x", "fuse.sshfs"),
        ("/scratch/x", "lustre"),
        ("/homeless", "btrfs"),
    ],
)
def test_the_longest_and_latest_mount_decides(folder: str, kind: str) -> None:
    assert type_of(Path(folder), TABLE) == kind


@pytest.mark.parametrize(
    "kind",
    ["nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "9p", "fuse.sshfs", "fuse.glusterfs", "NFS"],
)
def test_shared_file_systems_are_known(kind: str) -> None:
    assert is_network(kind)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "overlay", "tmpfs", "fuse.fuse-overlayfs", "fuse", ""])
def test_local_file_systems_pass(kind: str) -> None:
    assert not is_network(kind)


def test_sqlite_on_a_network_file_system_is_refused_with_the_fix(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 22 0:40 / {tmp_path.resolve()} rw - nfs4 srv:/x rw\n")
    with pytest.raises(StoreError, match="nfs4") as caught:
        open_store("", tmp_path / "store", mounts)
    assert "PostgreSQL" in caught.value.fix and "[store] folder" in caught.value.fix
    assert not (tmp_path / "store").exists()


def test_a_machine_without_a_mount_table_is_trusted(tmp_path: Path) -> None:
    assert network_type(tmp_path, tmp_path / "none") == ""


# --- crashes --------------------------------------------------------------------------------------------------------

WRITER = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from backend.model.incidents import Entry
from backend.store.engine import open_store
store = open_store("", Path(sys.argv[1]))
for n in range(100_000):
    with store.write() as session:
        session.add(Entry(cluster="main", incident_id=n, at=datetime.now(UTC), what="note", text="x"))
    print(n, flush=True)
"""


def test_what_was_committed_before_kill_9_is_there_after(sqlite_store: Store) -> None:
    command = [sys.executable, "-c", WRITER, str(sqlite_store.folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as writer:
        assert writer.stdout is not None
        said = [int(writer.stdout.readline()) for _ in range(20)]
        writer.kill()
        said += [int(line) for line in writer.stdout if line.endswith("\n")]
    with sqlite_store.read() as session:
        kept = session.exec(select(Entry.incident_id)).all()
    assert set(said) <= set(kept)
    with sqlite_store.write() as session:
        session.add(entry())
