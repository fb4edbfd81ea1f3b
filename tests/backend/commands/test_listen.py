"""The listening socket that the server hands to uvicorn."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from backend.cli import main
from backend.commands.server import listen
from backend.settings import Server


def test_a_port_that_is_taken_is_said_with_the_fix() -> None:
    with listen(Server(port=0)) as first:
        first.listen()
        with pytest.raises(OSError, match=r"in use\. .*\[server\] port"):
            listen(Server(port=first.getsockname()[1]))


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid", "a..b", "a" * 70])
def test_a_host_that_is_not_this_machine_is_said_with_the_fix(host: str) -> None:
    with pytest.raises(OSError, match=r"cannot listen on .*: .*\. Set \[server\] host"):
        listen(Server(host=host, port=0))


@pytest.mark.parametrize("port", ["-1", "65536", "many", "1e3", "99999999999"])
def test_a_port_that_is_none_is_told_by_the_command_line(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--port", port])
    assert ended.value.code == 2 and "0 to 65535" in capsys.readouterr().err


def test_a_demo_folder_that_cannot_be_made_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["demo", "--port", "0", "--folder", str(tmp_path / "file")]) == 1
    assert "Name another with --folder" in capsys.readouterr().err


def test_answers_do_not_wait_for_the_acknowledgement_of_their_headers() -> None:
    """asyncio leaves Nagle's algorithm on for sockets that do not name their protocol: 40 ms an answer."""

    async def nodelay_of_an_accepted_connection() -> int:
        seen: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def accepted(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            seen.set_result(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(accepted, sock=listen(Server(port=0)))
        async with server:
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
            found = await asyncio.wait_for(seen, 10)
            writer.close()
            await writer.wait_closed()
        return found

    assert asyncio.run(nodelay_of_an_accepted_connection()) != 0
