"""What is pushed: kept, counted or named as bad; and nothing pushed breaks the server or what stands beside it."""

from __future__ import annotations

import gzip
import json
import struct
from typing import Any

import cramjam
import orjson
import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend.api.intake import RETRY_S
from backend.clock import unix
from backend.simulate.remote_write import encode_labels, series, varint
from backend.simulate.site import site as simulated_site
from backend.simulate.site import topology
from backend.store import cluster as cluster_rows
from backend.store import events
from tests.backend.api.conftest import LOOPBACK, NOW, Site, problem

AT = unix(NOW)
LOGS, JOBS, TOPOLOGY, WRITE = (f"/api/v1/ingest/{name}" for name in ("logs", "jobs", "topology", "remote-write"))


def line(code: int = 79, at: float = AT - 1, **more: Any) -> dict[str, Any]:
    text = f"NVRM: Xid (PCI:0000:9d:00): {code}, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    return {"ts": at, "host": "gpu-001", "source": "kernel", "line": text, **more}


def stored(site: Site) -> list[Any]:
    with site.parts.store.read() as session:
        return list(events.events_after(session, site.watch.cluster, 0, 100))


# --- logs -----------------------------------------------------------------------------------------------------------


def test_a_line_that_a_rule_hits_is_committed_before_the_2xx(site: Site, local: TestClient) -> None:
    answer = local.post(LOGS, json=[line(), line(line="systemd: all is well")])
    assert answer.status_code == 200
    assert answer.json() == {"accepted": 1, "duplicates": 0, "counted": 1, "rejected": [], "dropped": {}}
    assert [(row.namespace, row.code, row.node) for row in stored(site)] == [("xid", "79", "gpu-001")]


def test_sending_the_same_lines_twice_keeps_them_once(site: Site, local: TestClient) -> None:
    local.post(LOGS, json=[line()])
    again = local.post(LOGS, json=[line()]).json()
    assert (again["accepted"], again["duplicates"]) == (0, 1) and len(stored(site)) == 1


def test_json_lines_and_gzip_are_taken_too(site: Site, local: TestClient) -> None:
    rows = b"\n".join(orjson.dumps(line(code)) for code in (48, 63)) + b"\n"
    headers = {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"}
    assert local.post(LOGS, content=gzip.compress(rows), headers=headers).json()["accepted"] == 2


def test_bad_rows_are_named_and_the_good_ones_around_them_kept(site: Site, local: TestClient) -> None:
    rows = [line(), {"ts": "yesterday", "host": "a", "source": "k", "line": "x"}, {"host": "a"}, line(31)]
    body = local.post(LOGS, json=rows).json()
    assert body["accepted"] == 2
    assert [(row["row"], row["field"]) for row in body["rejected"]] == [(1, "ts"), (2, "ts")]
    assert all(row["problem"] for row in body["rejected"]) and sum(body["dropped"].values()) == 2


def test_when_no_row_is_right_the_answer_is_422_and_nothing_is_kept(site: Site, local: TestClient) -> None:
    body = problem(local.post(LOGS, json=[{"ts": 1}, {"nonsense": True}]), 422)
    assert len(body["errors"]) == 2 and stored(site) == []


def test_a_far_future_line_is_refused_and_an_old_one_is_marked_late(site: Site, local: TestClient) -> None:
    problem(local.post(LOGS, json=[line(at=AT + 86_400)]), 422)
    assert local.post(LOGS, json=[line(at=AT - 7_200)]).json()["accepted"] == 1
    assert [row.late for row in stored(site)] == [True]


def test_bytes_that_are_no_utf_8_cost_only_themselves(site: Site, local: TestClient) -> None:
    row = orjson.dumps(line()).replace(b"bus.", b"bus\xff\xfe.")
    assert local.post(LOGS, content=b"[" + row + b"]").json()["accepted"] == 1
    assert "\ufffd" in stored(site)[0].text


@pytest.mark.parametrize("route", [LOGS, JOBS, TOPOLOGY])
@pytest.mark.parametrize("body", [b"", b"[", b"\xff\xfe\x00", b"null", b"3", b"[[[[", b"{" * 50_000, b'"x"', b"[1,2]"])
def test_a_body_of_nonsense_is_a_clear_4xx(local: TestClient, route: str, body: bytes) -> None:
    answer = local.post(route, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    problem(answer, answer.status_code)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from([LOGS, JOBS, TOPOLOGY, WRITE]), st.binary(max_size=300))
def test_no_bytes_at_all_make_the_server_fail(local: TestClient, route: str, body: bytes) -> None:
    assert local.post(route, content=body).status_code < 500


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from([LOGS, JOBS, TOPOLOGY]),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(
                    ["ts", "host", "source", "line", "job", "state", "nodes", "name", "gpus", "uuid", "index"]
                ),
                inner,
                max_size=5,
            )
        ),
        max_leaves=12,
    ),
)
def test_no_json_at_all_makes_the_server_fail(local: TestClient, route: str, body: Any) -> None:
    assert local.post(route, content=json.dumps(body)).status_code < 500


# --- limits ---------------------------------------------------------------------------------------------------------


def test_a_body_over_the_limit_is_413_whether_it_says_its_length_or_not(local: TestClient) -> None:
    huge = b"[" + orjson.dumps(line()) + b" " * 200_001 + b"]"
    assert "max_body_bytes" in problem(local.post(LOGS, content=huge), 413)["detail"]
    problem(local.post(LOGS, content=iter([huge[:100_000], huge[100_000:]])), 413)


def test_a_gzip_bomb_is_413_and_not_unpacked(local: TestClient) -> None:
    bomb = gzip.compress(b" " * 50_000_000)
    assert len(bomb) < 200_000
    problem(local.post(LOGS, content=bomb, headers={"Content-Encoding": "gzip"}), 413)


def test_a_snappy_bomb_is_refused_before_it_is_unpacked(local: TestClient) -> None:
    bomb = bytes(cramjam.snappy.compress_raw(b"\0" * 4_000_000))
    assert len(bomb) < 200_000
    problem(local.post(WRITE, content=bomb), 400)


@pytest.mark.parametrize(("encoding", "status"), [("br", 415), ("deflate", 415), ("gzip", 400)])
def test_other_encodings_and_broken_gzip_say_so(local: TestClient, encoding: str, status: int) -> None:
    problem(local.post(LOGS, content=b"[]", headers={"Content-Encoding": encoding}), status)


def test_gzip_that_ends_too_early_is_refused(local: TestClient) -> None:
    cut = gzip.compress(orjson.dumps([line()]))[:-9]
    problem(local.post(LOGS, content=cut, headers={"Content-Encoding": "gzip"}), 400)


def test_a_ten_megabyte_line_is_413_here_and_costs_nothing_beside_it(site: Site, local: TestClient) -> None:
    problem(local.post(LOGS, json=[line(line="x" * 10_000_000)]), 413)
    assert local.post(LOGS, json=[line()]).json()["accepted"] == 1


def test_a_full_queue_is_429_with_retry_after_and_is_counted(site: Site, local: TestClient) -> None:
    intake = site.app.state.intake
    intake._going = intake._most
    answer = local.post(LOGS, json=[line()])
    problem(answer, 429)
    assert int(answer.headers["Retry-After"]) == RETRY_S and stored(site) == []
    intake._going = 0
    assert local.post(LOGS, json=[line()]).status_code == 200
    assert 'watchkeeper_ingest_busy_total{route="logs"} 1' in local.get("/metrics").text


# --- jobs, topology, remote write -----------------------------------------------------------------------------------


def test_topology_and_jobs_make_the_cluster_known(site: Site, local: TestClient) -> None:
    assert local.post(TOPOLOGY, json=topology(simulated_site(7))).json()["accepted"] == 48
    job = {"job": "9", "run": "a", "state": "RUNNING", "start": AT - 9, "nodes": "gpu-[001-002]", "gpus_per_node": 8}
    assert local.post(JOBS, json=[job]).json()["accepted"] == 1
    with site.parts.store.read() as session:
        facts = {node.name: node for node in cluster_rows.node_facts(session, site.watch.cluster)}
    assert len(facts) == 48 and facts["gpu-002"].jobs == ("9",) and facts["gpu-003"].jobs == ()


def write_body(*samples: tuple[str, str, float]) -> bytes:
    time = varint(int(AT * 1000))
    parts = [
        series(encode_labels({"__name__": name, "gpu": "0", "UUID": uuid, "Hostname": "gpu-001"}), value, time)
        for name, uuid, value in samples
    ]
    return bytes(cramjam.snappy.compress_raw(b"".join(parts)))


def test_remote_write_takes_known_names_and_counts_the_rest(site: Site, local: TestClient) -> None:
    body = write_body(("DCGM_FI_DEV_GPU_TEMP", "GPU-a", 61.0), ("nobody_asked_for", "GPU-a", 1.0))
    answer = local.post(WRITE, content=body, headers={"Content-Encoding": "snappy"}).json()
    assert answer["accepted"] == 1 and sum(answer["dropped"].values()) >= 1


@pytest.mark.parametrize(
    "body",
    [
        b"\x00\xff\xff",
        bytes(cramjam.snappy.compress_raw(b"\x0a\xff\x01")),
        bytes(cramjam.snappy.compress_raw(struct.pack("<I", 7))),
    ],
)
def test_remote_write_of_nonsense_is_400_so_that_prometheus_drops_it(local: TestClient, body: bytes) -> None:
    problem(local.post(WRITE, content=body), 400)


def test_remote_write_2_is_415_so_that_its_sender_falls_back(local: TestClient) -> None:
    kind = "application/x-protobuf;proto=io.prometheus.write.v2.Request"
    answer = local.post(WRITE, content=b"x", headers={"Content-Encoding": "snappy", "Content-Type": kind})
    assert "prometheus.WriteRequest" in problem(answer, 415)["detail"]


def test_remote_write_that_is_not_snappy_is_415(local: TestClient) -> None:
    problem(local.post(WRITE, content=b"x", headers={"Content-Encoding": "zstd"}), 415)


# --- who may --------------------------------------------------------------------------------------------------------

FAR = ("10.1.2.3", 50_000)


def test_off_loopback_ingest_needs_a_token_of_scope_ingest(site: Site) -> None:
    problem(site.client(FAR).post(LOGS, json=[line()]), 401)
    problem(site.program("read", FAR).post(LOGS, json=[line()]), 403)
    assert site.program("ingest", FAR).post(LOGS, json=[line()]).status_code == 200


def test_a_forwarded_request_and_a_page_of_another_site_do_not_pass_for_local(site: Site) -> None:
    problem(site.client(LOOPBACK, **{"X-Forwarded-For": "10.0.0.9"}).post(LOGS, json=[line()]), 401)
    problem(site.client(Origin="https://evil.example").post(LOGS, json=[line()]), 401)
    problem(site.client(Host="evil.example").post(LOGS, json=[line()]), 401)


def test_a_wrong_token_is_401_even_on_loopback(site: Site) -> None:
    problem(site.client(Authorization="Bearer wk_wrong").post(LOGS, json=[line()]), 401)


def test_the_cluster_is_named_where_there_are_two(two_clusters: Site) -> None:
    local = two_clusters.client()
    assert "east, west" in problem(local.post(LOGS, json=[line()]), 422)["detail"]
    assert "east, west" in problem(local.post(LOGS, json=[line()], params={"cluster": "north"}), 404)["detail"]
    assert local.post(LOGS, json=[line()], params={"cluster": "west"}).json()["accepted"] == 1
