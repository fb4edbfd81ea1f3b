"""nodes, incidents and exclusions against a server that really answers: tables, JSON, hostlists, and failures."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.cli import main
from tests.backend.commands.conftest import NODES, Served

Out = pytest.CaptureFixture[str]


def asked(served: Served, *words: str) -> int:
    return main([*words, "--server", served.url])


def test_nodes_are_a_table_with_their_verdicts(served: Served, capsys: Out) -> None:
    served.exclude("gpu-0007")
    assert asked(served, "nodes") == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["node", "verdict", "binding", "until", "reasons"]
    found = {line.split()[0]: line.split()[1:3] for line in lines}
    assert list(found) == list(NODES)
    assert found["gpu-0007"] == ["exclude", "True"]
    assert found["gpu-0001"][0] != "exclude"


def test_json_is_the_server_s_own_answer(served: Served, capsys: Out) -> None:
    served.open_incident()
    for noun, key in (("nodes", "node"), ("incidents", "id"), ("exclusions", "id")):
        assert asked(served, noun, "--json") == 0
        body = json.loads(capsys.readouterr().out)
        assert isinstance(body["items"], list)
        assert all(key in row for row in body["items"])


def test_open_incidents_are_listed(served: Served, capsys: Out) -> None:
    assert asked(served, "incidents") == 0
    assert capsys.readouterr().out == "none\n"
    served.open_incident()
    assert asked(served, "incidents") == 0
    head, line = capsys.readouterr().out.splitlines()
    assert head.split()[:4] == ["id", "severity", "state", "entity"]
    assert line.split()[:5] == ["1", "critical", "open", "gpu-0001/gpu3", "48213"]


def test_a_hostlist_is_what_sbatch_takes(served: Served, capsys: Out) -> None:
    assert asked(served, "exclusions", "--format", "hostlist") == 0
    assert capsys.readouterr().out == "\n"  # none: an empty word
    served.exclude("gpu-0007", "gpu-0003", "gpu-0004", "gpu-0005")
    assert asked(served, "exclusions", "--format", "hostlist") == 0
    assert capsys.readouterr().out == "gpu-[0003-0005,0007]\n"
    assert asked(served, "exclusions", "--format", "lines") == 0
    assert capsys.readouterr().out.split() == ["gpu-0003", "gpu-0004", "gpu-0005", "gpu-0007"]


def test_exclusions_say_who_and_why(served: Served, capsys: Out) -> None:
    served.exclude("gpu-0003")
    assert asked(served, "exclusions", "--advisory") == 0
    _, line = capsys.readouterr().out.splitlines()
    assert line.split()[1:4] == ["gpu-0003", "person", "bob"] and line.endswith("riser is swapped")


def test_a_cluster_is_named_where_there_are_several(two_clusters: Served, capsys: Out) -> None:
    assert asked(two_clusters, "nodes", "--cluster", "west") == 0
    assert capsys.readouterr().out == "none\n"
    assert asked(two_clusters, "nodes", "--cluster", "east") == 1
    assert "east" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["nodes", "incidents", "exclusions", "exclusions --format hostlist"])
def test_a_server_that_does_not_answer_is_1_and_one_line_on_stderr(words: str, capsys: Out) -> None:
    assert main([*words.split(), "--server", "http://127.0.0.1:9"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("watchkeeper: no answer from http://127.0.0.1:9") and said.err.count("\n") == 1


def test_an_address_that_is_none_is_said_so(capsys: Out) -> None:
    assert main(["nodes", "--server", "watch.test:port"]) == 1
    assert capsys.readouterr().err.startswith("watchkeeper: ")


def test_a_token_that_nobody_knows_is_refused_in_words(served: Served, tmp_path: Path, capsys: Out) -> None:
    token = tmp_path / "token"
    token.write_text("wk_nonsense\n")
    assert asked(served, "nodes", "--token-file", str(token)) == 1
    assert "says 401:" in capsys.readouterr().err
    assert asked(served, "nodes", "--token-file", str(tmp_path / "none")) == 1
    assert str(tmp_path / "none") in capsys.readouterr().err
    token.write_bytes(b"\xff\xfe")
    assert asked(served, "nodes", "--token-file", str(token)) == 1
    assert capsys.readouterr().err.startswith("watchkeeper: ")


class Another(http.server.BaseHTTPRequestHandler):
    """A server of another sort: it answers everything, with a page."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>hello</html>")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def another() -> Iterator[str]:
    server = http.server.HTTPServer(("127.0.0.1", 0), Another)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join(5)


@pytest.mark.parametrize("words", ["nodes", "incidents --json", "exclusions --format hostlist"])
def test_a_server_of_another_sort_is_told_apart(another: str, words: str, capsys: Out) -> None:
    """Above all for hostlists: what a proxy's sign-in page says must never go to sbatch --exclude."""
    assert main([*words.split(), "--server", another]) == 1
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith(f"watchkeeper: {another}") and said.err.count("\n") == 1
