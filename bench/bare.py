"""Measure the least possible cost of a delivery: `python -m bench.bare CERT KEY` prints the port that it listens on.

Each client that GETs receives all later POSTs, with one write to each transport, on the event loop and with the TLS of the server.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from typing import cast

import uvloop

OPENED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
DONE = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class Bare(asyncio.Protocol):
    watching: set[asyncio.Transport] = set()  # noqa: RUF012  # one process, one set

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.received = b""

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, found, body = self.received.partition(b"\r\n\r\n")
        if not found:
            return
        if head.startswith(b"GET "):
            self.watching.add(self.transport)
            self.transport.write(OPENED)
            self.received = b""
            return
        [length] = [int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        if len(body) < length:
            return
        self.received = b""
        for transport in self.watching:
            transport.write(body)
        self.transport.write(DONE)

    def connection_lost(self, exc: Exception | None) -> None:
        self.watching.discard(self.transport)


async def main() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 0
    context.load_cert_chain(*sys.argv[1:3])
    server = await asyncio.get_running_loop().create_server(Bare, "127.0.0.1", 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
