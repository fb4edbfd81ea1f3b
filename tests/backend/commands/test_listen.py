"""The listening socket that the server hands to uvicorn."""

from __future__ import annotations

import asyncio
import socket

from backend.commands.server import listen
from backend.settings import Server


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
